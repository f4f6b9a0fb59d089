r"""Will this run diverge? A copy trains ahead of the run, at the learning rates that are planned.

A copy of the model and of the optimizer with its state takes the next steps on batches at hand,
$\theta_{t+1}=\theta_t-\eta_t\,u_t$ with the optimizer's own update $u_t$ and the rates $\eta_t$ of the schedule, and
its losses are judged as if they were the run's, by the definition of :mod:`netvitals.forecasts.divergence`. Nothing is
extrapolated. What a look-ahead does not know: batches of another kind, and what the loop does between ``backward`` and
``step``; gradients are clipped where ``clip`` says so.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from netvitals.capture import LossFn, Result, preserved, task_of
from netvitals.forecasts.divergence import Danger

STEPS = 100  # that are looked ahead


@dataclass(frozen=True, kw_only=True)
class LookaheadRun(Result):
    """What came of a copy that trained ahead; nothing where it was refused.

    Returned by :func:`look_ahead`.

    Attributes:
        step: the first step that was looked ahead.
        losses: of the looked ahead steps, a row for each order of the batches.
        lost_at: by order, the step at which the copy was lost; None where it was not.
        climb: how far the mean loss was above its lowest at the end of the last one, in the logarithm; NaN where it
            was too short to know.
        climb_stderr: the standard error of that.
        conditions: settings of the look-ahead.
        refused: why nothing could be looked ahead, in words; empty where it could.
    """

    step: int
    losses: tuple[tuple[float, ...], ...] = ()
    lost_at: tuple[int | None, ...] = ()
    climb: float = math.nan
    climb_stderr: float = math.inf
    conditions: Mapping[str, str] = field(default_factory=dict)
    refused: str = ""

    @property
    def lost(self) -> int | None:
        """The step at which it was lost in every order, their mean rounded; None where one of them was not."""
        found = [at for at in self.lost_at if at is not None]
        return round(sum(found) / len(found)) if found and len(found) == len(self.lost_at) else None

    @property
    def cost(self) -> int:
        """Gradient steps that were taken."""
        return sum(map(len, self.losses))

    def __str__(self) -> str:
        if self.refused:
            return f"no look-ahead at step {self.step}: {self.refused}"
        longest = max(map(len, self.losses))
        orders = f" in each of {len(self.losses)} orders" if len(self.losses) > 1 else ""
        if self.lost is not None:
            return f"look-ahead from step {self.step}: diverged at step {self.lost}{orders}"
        return f"look-ahead from step {self.step}: no divergence within {longest} steps"


def look_ahead(
    model: nn.Module,
    loss_fn: LossFn,
    batches: Sequence[Any],
    *,
    optimizer: Optimizer,
    rates: Any = None,
    steps: int = STEPS,
    history: Sequence[float] | Danger = (),
    step: int = 0,
    orders: int = 1,
    clip: float | None = None,
    seed: int = 0,
) -> LookaheadRun:
    """Train a copy of a model for some steps to see whether its loss diverges; the model itself is not changed.

    Args:
        model: as it stands, between two steps.
        loss_fn: a function of (output, target), its name, or None if the model's output contains its loss.
        batches: training batches of equal size; each is used once before one is used again.
        optimizer: the optimizer of the model; its copy gets its state and settings.
        rates: learning rates of the coming steps, or of the steps and groups of the optimizer; the last holds from
            there on. Left out, they stay as they are.
        steps: number of steps, fewer if the copy diverges earlier.
        history: losses of the run so far, from which the threshold for divergence is set; with few or none, a tripled
            loss counts as diverged.
        step: number of the step that comes next.
        orders: number of look-aheads with the batches in different orders; they stop at the first that does not
            diverge.
        clip: the norm that the loop clips gradients to.
        seed: seed of the batch orders and of the random numbers that the model draws.

    Returns:
        The losses, and the step at which the copy diverged; or the reason why it could not be trained.

    >>> _ = torch.manual_seed(0)
    >>> net = nn.Linear(4, 1); x = torch.randn(64, 4)
    >>> batches = [(x[i::4], x[i::4, :1]) for i in range(4)]
    >>> sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    >>> print(look_ahead(net, "mse", batches, optimizer=sgd, step=500))
    look-ahead from step 500: no divergence within 100 steps
    >>> found = look_ahead(net, "mse", batches, optimizer=sgd, step=500, rates=[0.1 * 1.1**t for t in range(100)])
    >>> found.lost is not None and 520 < found.lost < 560
    True
    """
    batches = list(batches)
    if not batches or steps < 1 or orders < 1:
        raise ValueError(
            f"a look-ahead needs at least one batch, one step and one order of the batches, got {len(batches)} "
            f"batches, steps={steps} and orders={orders}"
        )
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"optimizer= must be a torch.optim.Optimizer, got a {type(optimizer).__name__}")
    table = _table(rates, optimizer, steps)
    judge = _judge(history, step)
    losses: list[tuple[float, ...]] = []
    lost_at: list[int | None] = []
    with preserved(model):
        for order in range(orders):
            torch.manual_seed(seed + order)
            found = copy.deepcopy(judge)
            try:
                path = _trained(model, loss_fn, _endless(batches, seed + order), optimizer, table, clip)
                losses.append(tuple(_followed(path, found, step, table[:, 0])))
            except Exception as error:  # whatever a user's model or optimizer holds
                return LookaheadRun(step=step, refused=_why(error, optimizer))
            lost_at.append(found.lost)
            if found.lost is None:
                break
    low, high = float(table[:, 0].min()), float(table[:, 0].max())
    conditions = {
        "looked ahead": f"{len(losses)} times with {type(optimizer).__name__} on {len(batches)} batches",
        "learning rate": f"{low:.3g}" if high <= 1.001 * low else f"{low:.3g} to {high:.3g}",
    }
    climb, climb_stderr = found.climb
    return LookaheadRun(
        step=step,
        losses=tuple(losses),
        lost_at=tuple(lost_at),
        climb=climb,
        climb_stderr=climb_stderr,
        conditions=conditions,
    )


def _trained(
    model: nn.Module,
    loss_fn: LossFn,
    batches: Iterator[Any],
    optimizer: Optimizer,
    table: np.ndarray,
    clip: float | None,
) -> Iterator[float]:
    """Losses of a copy, step by step."""
    twin, rule, loss_fn = copy.deepcopy((model, optimizer, loss_fn))
    take_step = _bare_step(rule)
    moving = [p for group in rule.param_groups for p in group["params"]]
    for row in table:
        for group, rate in zip(rule.param_groups, row.tolist()):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        with torch.enable_grad():
            task = task_of(twin, loss_fn, next(batches))
            loss = task.loss(task.forward())
            for p in moving:
                p.grad = None
            loss.backward()
        if all(p.grad is None for p in moving):
            raise ValueError(
                "a deep copy of the model still uses the original's parameters in its forward, so it cannot be "
                "trained separately: in forward, use only the parameters of self"
            )
        if clip is not None:
            nn.utils.clip_grad_norm_(moving, clip)
        take_step()
        yield float(loss.detach())


def _followed(path: Iterator[float], found: Danger, step: int, rates: np.ndarray) -> Iterator[float]:
    """The losses of a path, up to where it is lost."""
    for i, (loss, rate) in enumerate(zip(path, rates.tolist())):
        found.add(step + i, loss, rate)
        yield loss
        if found.lost is not None:
            return


def _bare_step(rule: Optimizer) -> Callable[[], Any]:
    """A step without the hooks that others have put on every optimizer of the program."""
    step = type(rule).step
    inner: Any = getattr(step, "__wrapped__", step) if getattr(step, "hooked", False) else step

    def take() -> None:
        with torch.no_grad():
            inner(rule)

    return take


def _judge(history: Sequence[float] | Danger, step: int) -> Danger:
    if isinstance(history, Danger):
        found = copy.deepcopy(history)
    else:
        found = Danger()
        for t, loss in enumerate(history, step - len(history)):
            found.add(t, float(loss))
    found.lost = None  # what is asked is whether it will be, or still is
    return found


def _endless(batches: Sequence[Any], seed: int) -> Iterator[Any]:
    """Every batch once, in an order by lot, and so on."""
    g = np.random.default_rng(seed)
    while True:
        for i in g.permutation(len(batches)):
            yield batches[i]


def _table(rates: Any, optimizer: Optimizer, steps: int) -> np.ndarray:
    """Learning rates by step and group."""
    groups = len(optimizer.param_groups)
    now = [[float(group["lr"]) for group in optimizer.param_groups]]
    table = np.asarray(now if rates is None else rates, dtype=float)
    if table.ndim == 1:
        table = np.repeat(table[:, None], groups, axis=1)
    if table.ndim != 2 or table.shape[1] != groups or not len(table):
        raise ValueError(
            f"rates= must have one number for each step, or a row of {groups} numbers for each step (one per "
            f"parameter group). Got an array of shape {np.shape(rates)}"
        )
    return table[np.minimum(np.arange(steps), len(table) - 1)]


def _why(error: Exception, optimizer: Optimizer) -> str:
    first = (str(error).strip().splitlines() or [""])[0]
    name = type(optimizer).__name__
    return f"the model and its {name} could not be copied and trained on: {type(error).__name__}: {first}"
