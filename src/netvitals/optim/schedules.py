r"""The optimizer's future: what its learning rates will be, read off the user's own scheduler on a copy.

A weight under decay forgets at the rate $\eta_t\lambda_t$; from step $a$ to step $b$ it keeps the share
$e^{-S(a,b)}$ of what it was, with $S(a,b)=\sum_{t=a}^{b-1}\eta_t\lambda_t$, the integrated decay. Both sums, of
$\eta_t$ and of $\eta_t\lambda_t$, are known in advance as far as the schedule is.
"""

from __future__ import annotations

import copy
import gc
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from netvitals.anatomy import rng_state, set_rng_state

AHEAD = 2000  # scheduler steps simulated in one look at most
MISSES = 3  # looks on which the copy was wrong, after which it is not believed any more


@dataclass(frozen=True, kw_only=True)
class RatePlan:
    """Learning rates of every group from ``step`` on, as far as they are known.

    >>> plan = RatePlan(step=10, lr=np.array([[0.1], [0.05], [0.0]]), gain=(1.0,), decay=(0.01,), end=13)
    >>> float(plan.rates(10, 13)[0]), float(plan.decays(10, 13)[0])
    (0.15000000000000002, 0.0015000000000000002)
    """

    step: int
    lr: np.ndarray
    gain: tuple[float, ...]
    decay: tuple[float, ...]
    end: int | None = None
    source: str = "constant"
    skipped: Mapping[str, str] = field(default_factory=dict)

    @property
    def groups(self) -> int:
        return self.lr.shape[1]

    def rates(self, first: float, last: float) -> np.ndarray:
        """Σ of the learning rates of steps ``first`` … ``last`` − 1, by group; fractions of a step count as such."""
        return self._until(last) - self._until(first)

    def decays(self, first: float, last: float) -> np.ndarray:
        """Integrated decay S of the same steps, by group."""
        return self.rates(first, last) * np.array(self.decay)

    def when(self, rate: float, group: int = 0) -> float:
        """The step by which so much learning rate is spent, counted from ``step``; infinite where it never is."""
        spent = np.cumsum(self.lr[:, group])
        if rate <= spent[-1]:
            at = int(np.searchsorted(spent, rate))
            before = float(spent[at - 1]) if at else 0.0
            return self.step + at + (rate - before) / max(float(self.lr[at, group]), 1e-300)
        last = float(self.lr[-1, group])
        return self.step + len(self.lr) + (rate - float(spent[-1])) / last if last > 0 else float("inf")

    def _until(self, step: float) -> np.ndarray:
        ahead, known = max(0.0, step - self.step), len(self.lr)
        whole = min(int(ahead), known)
        total = self.lr[:whole].sum(0)
        return total + (ahead - whole) * self.lr[min(whole, known - 1)]


class FutureRates:
    """Follows a scheduler by a copy of it that is ahead."""

    def __init__(self, optimizer: Any, scheduler: Any = None, total_steps: int | None = None) -> None:
        self.scheduler, self.total_steps = scheduler, total_steps
        self.skipped: dict[str, str] = {}
        self._ahead: Any = None  # the copy
        self._stand_in: Any = None
        self._rates: list[list[float]] = []  # by the scheduler's own count, from ``_first`` on
        self._first = 0
        self._over: int | None = None  # the count after which the scheduler refuses to go on
        self._misses = 0
        self._seen: tuple[int, int] | None = None  # (step, count) of the first look
        self._turns: list[tuple[int, int]] = []  # (step, count) of looks on which the count was new, first and last
        self._last: list[float] | None = None  # rates at the look before
        self._given = scheduler is not None
        self._follow(optimizer)

    def _follow(self, optimizer: Any) -> None:
        if self.scheduler is None:
            self.scheduler = find_scheduler(optimizer)
        if self.scheduler is None:
            return
        if hasattr(self.scheduler, "is_better") or hasattr(self.scheduler, "num_bad_epochs"):
            name = type(self.scheduler).__name__
            self._give_up(
                f"{name} depends on a metric of the run, so future learning rates are unknown; constant rates are "
                "assumed"
            )
            return
        try:
            self._stand_in = StandIn(optimizer)
            known = {id(optimizer): self._stand_in, id(getattr(self.scheduler, "optimizer", None)): self._stand_in}
            self._ahead = copy.deepcopy(self.scheduler, known)
            self._first, self._rates, self._over = count_of(self.scheduler), [self._stand_in.rates()], None
        except Exception as error:  # whatever a user's scheduler holds
            self._give_up(
                f"the scheduler could not be copied ({type(error).__name__}: {error}); constant rates are assumed"
            )

    def plan(self, optimizer: Any, step: int, gain: Sequence[float], decay: Sequence[float]) -> RatePlan:
        """The rates from ``step`` on; call it while ``optimizer`` takes this step, before its scheduler goes on."""
        now = [float(group["lr"]) for group in optimizer.param_groups]
        if self._ahead is None and self.scheduler is None and not self.skipped:
            self._follow(optimizer)  # it may have been made after the watch
            if self.scheduler is None and self._last is not None and now != self._last:
                self._changed(optimizer)
        self._last = now
        rows, rate, source = [now], 0.0, "constant"
        if self._ahead is not None:
            at = count_of(self.scheduler)
            if self._seen is None:
                self._seen = (step, at)
            elif at != (self._turns[-1] if self._turns else self._seen)[1]:
                self._turns = [*self._turns[:1], (step, at)]
            rate = self._per_step(step, at)
            known = self._rows(at)
            if not np.allclose(known[0], now, rtol=1e-6, atol=0.0):
                self._misses += 1
                if self._misses >= MISSES:
                    self._give_up("a copy of the scheduler gave other learning rates; constant rates are assumed")
                else:
                    self._follow(optimizer)
                known = self._rows(at) if self._ahead is not None else [now]
            rows, source = known, type(self.scheduler).__name__
        lr = np.array(rows)
        if 0 < rate < 0.999:  # a step of the scheduler an epoch
            since = step - self._turns[-1][0] if self._turns else 0
            ahead = (np.arange(int(len(lr) / rate)) + min(since, 1 / rate - 1)) * rate
            lr = lr[np.minimum((ahead + 1e-9).astype(int), len(lr) - 1)]
        return RatePlan(
            step=step,
            lr=lr,
            gain=tuple(gain),
            decay=tuple(decay),
            end=self._end(step, lr, rate),
            source=source,
            skipped=dict(self.skipped),
        )

    def _per_step(self, step: int, at: int) -> float:
        """Steps of the scheduler in a step of the run."""
        assert self._seen is not None
        first, begun = self._seen
        if step - first < 2:
            return 1.0
        if len(self._turns) > 1:  # from one turn to another: whole epochs
            (first, begun), (step, at) = self._turns
        return (at - begun) / (step - first)

    def _rows(self, at: int) -> list[list[float]]:
        """Rates from the count ``at`` on; the copy goes a little further each time."""
        wanted = min(2 * max(at, 50) + 1 if self.total_steps is None else self.total_steps, at + 20 * AHEAD)
        self._simulate(min(AHEAD, max(wanted, at + 1) - self._first - len(self._rates) + 1))
        return self._rates[max(0, at - self._first) :] or self._rates[-1:]

    def _simulate(self, steps: int) -> None:
        if steps <= 0 or self._over is not None:
            return
        state = rng_state()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for _ in range(steps):
                    self._ahead.step()
                    self._rates.append(self._stand_in.rates())
        except Exception:  # OneCycleLR refuses to go on after its last step
            self._over = self._first + len(self._rates)
        finally:
            set_rng_state(state)

    def simulated(self, steps: int) -> np.ndarray:
        """Rates of the next ``steps`` steps of the scheduler, (steps, groups)."""
        if len(self._rates) < steps:
            self._simulate(steps - len(self._rates))
        if len(self._rates) < steps:
            raise ValueError(f"the scheduler ends after {len(self._rates)} steps, but {steps} steps are needed")
        return np.array(self._rates[:steps])

    def _end(self, step: int, lr: np.ndarray, rate: float) -> int | None:
        if self.total_steps is not None:
            return self.total_steps
        if self._over is not None and rate > 0:
            return step + len(lr)
        still = np.flatnonzero(lr.max(1) > 1e-9 * max(float(lr.max()), 1e-300))
        if len(still) and still[-1] + 2 < len(lr):  # nothing moves any more
            return step + int(still[-1]) + 1
        return None

    def _changed(self, optimizer: Any) -> None:
        """Rates have changed, and no scheduler is known that marks its optimizer: one that waits for a number, or a
        hand."""
        self.scheduler = find_scheduler(optimizer, marked=False)
        if self.scheduler is not None:
            self._follow(optimizer)
        if self.scheduler is None:
            self._give_up("learning rates change, but no scheduler is known; constant rates are assumed")

    def _give_up(self, why: str) -> None:
        self.skipped["scheduler"] = why
        self._ahead = None


def learning_rates(optimizer: Any, schedule: Any, steps: int, every: int = 1) -> np.ndarray:
    """Learning rates of the next ``steps`` steps, (steps, groups), without touching optimizer or scheduler.

    Args:
        optimizer: its groups hold the rates of today.
        schedule: a scheduler of this optimizer; a function of the step that gives the factor on today's rate; a list
            of learning rates, one a step; None for the scheduler found at the optimizer, or constant rates.
        steps: how many.
        every: steps of the optimizer between two of the scheduler, such as the batches of an epoch.

    >>> import torch
    >>> sgd = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    >>> learning_rates(sgd, lambda step: 1 - step / 4, 4).ravel().round(3).tolist()
    [0.1, 0.075, 0.05, 0.025]
    """
    if steps < 1 or every < 1:
        raise ValueError(f"steps= and every= count steps and must be at least 1, got steps={steps}, every={every}")
    now = np.array([float(group["lr"]) for group in optimizer.param_groups])
    count = -(-steps // every)
    if hasattr(schedule, "step") or (schedule is None and find_scheduler(optimizer) is not None):
        future = FutureRates(optimizer, schedule, count)
        if future.skipped:
            raise ValueError(
                f"the schedule cannot be computed in advance: {future.skipped['scheduler']}; give a list of learning "
                "rates instead"
            )
        rows = future.simulated(count)
    elif schedule is None:
        rows = np.tile(now, (count, 1))
    elif callable(schedule):
        rows = np.array([float(schedule(step)) * now for step in range(count)])
    else:
        given = np.asarray(schedule, dtype=float)
        if given.shape != (count,):
            raise ValueError(
                f"a list of learning rates needs one value for each of the {count} steps, got shape {given.shape}"
            )
        rows = np.tile(given[:, None], (1, len(now)))
    return np.repeat(rows, every, axis=0)[:steps]


class StandIn:
    """What a scheduler's copy turns the knobs of: the groups of an optimizer without their parameters."""

    def __init__(self, optimizer: Any) -> None:
        self.param_groups = [
            {key: _plain(value) for key, value in group.items() if key != "params"} for group in optimizer.param_groups
        ]
        for group in self.param_groups:
            group["params"] = []
        self.defaults = dict(optimizer.defaults)
        self.state: dict[Any, Any] = {}
        self._opt_called = True
        self.step = _no_step

    def rates(self) -> list[float]:
        return [float(group["lr"]) for group in self.param_groups]


def _no_step(*_: Any, **__: Any) -> None:
    pass


_no_step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]  # what a scheduler looks for


def _plain(value: Any) -> Any:
    return float(value) if hasattr(value, "item") and getattr(value, "numel", lambda: 0)() == 1 else copy.copy(value)


def find_scheduler(optimizer: Any, *, marked: bool = True) -> Any:
    """The scheduler that turns the learning rates of ``optimizer``: the outermost one, None where there is none."""
    if marked and not hasattr(optimizer.step, "_wrapped_by_lr_sched"):  # torch's mark on an optimizer that has one
        return None
    from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

    kinds = (LRScheduler, ReduceLROnPlateau)
    found = [o for o in gc.get_objects() if issubclass(type(o), kinds) and getattr(o, "optimizer", None) is optimizer]
    inner = {id(s) for one in found for s in getattr(one, "_schedulers", ())}
    outer = [one for one in found if id(one) not in inner]
    return outer[-1] if len(outer) == 1 else None


def count_of(scheduler: Any) -> int:
    """How often a scheduler has stepped."""
    own = getattr(scheduler, "last_epoch", None)
    if own is None:
        parts: Iterable[Any] = getattr(scheduler, "_schedulers", ())
        own = next((getattr(p, "last_epoch", 0) for p in parts), 0)
    return max(0, int(own))


def group_settings(group: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The settings of one group under the names that all optimizers share, plain numbers or tensors of one."""
    betas = tuple(group.get("betas") or ())
    return {
        "lr": group["lr"],
        "weight_decay": group.get("weight_decay", 0.0) or 0.0,
        "momentum": betas[0] if betas else group.get("momentum", 0.0) or 0.0,
        "beta2": betas[1] if len(betas) > 1 else group.get("alpha", math.nan) if name == "RMSprop" else math.nan,
        "decoupled": bool(group.get("decoupled_weight_decay", False)) or name in ("AdamW", "Lion", "Muon", "MuonAdamW"),
    }
