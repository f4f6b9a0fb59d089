r"""Does the sign of the gradient persist in training, and when does it flip (P2)?

At measured steps: ``g_pos`` of every activation, $\langle o, \nabla_o\ell\rangle$ at the output, and the split of every
weight's mean gradient. From the series: ``t_flip``, the first measured step at which ``g_pos``, smoothed over five
measurements, is not positive; the share of steps with ``g_pos`` > 0 in every epoch; and how often the sign of
``g_pos`` is the sign of $\langle o, \nabla_o\ell\rangle$, which Euler's identity says decides it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from netvitals.capture import observe
from netvitals.drift import SPLIT_METRICS, Reduction, SignObservation

SMOOTHING = 5  # measurements that a smoothed sign rests on


def measured_steps(per_epoch: int, epochs: int = 10, *, observations: int = 20) -> list[int]:
    """Every step of the first epoch, then every ⌈epoch/looks⌉ steps.

    >>> measured_steps(40, 3)[38:43], len(measured_steps(14, 10))
    ([38, 39, 40, 42, 44], 140)
    """
    if per_epoch < 1 or epochs < 1 or observations < 1:
        raise ValueError(
            f"steps per epoch, epochs and looks must be positive, got {per_epoch}, {epochs} and {observations}"
        )
    return [*range(per_epoch), *range(per_epoch, per_epoch * epochs, math.ceil(per_epoch / observations))]


def flip_step(steps: Sequence[int], values: Sequence[float], smoothing: int = SMOOTHING) -> int | None:
    """First step at which the running mean over ``smoothing`` values is not positive; None if it stays positive.

    The mean at a step is over that value and the ones before it, so nothing of the future is used.

    >>> flip_step([0, 1, 2, 3], [1.0, 0.5, -3.0, -4.0], smoothing=2)
    2
    """
    if smoothing < 1:
        raise ValueError(f"smoothing counts measurements and must be at least 1, got {smoothing}")
    for i, step in enumerate(steps):
        window = [v for v in values[max(0, i + 1 - smoothing) : i + 1] if v == v]
        if window and sum(window) <= 0:
            return step
    return None


@dataclass(frozen=True)
class Persistence:
    """Series of one run, and what they say. ``steps`` are those at which the model was measured."""

    steps: tuple[int, ...]
    push: tuple[float, ...]  # ⟨o, ∇ℓ⟩ of a sample
    loss: tuple[float, ...]
    g_pos: dict[str, tuple[float, ...]]  # by activation
    split: dict[str, dict[str, tuple[float, ...]]]  # by linear layer: tot, prod, cov
    per_epoch: int

    @property
    def t_flip(self) -> dict[str, int | None]:
        """By activation, when the smoothed ``g_pos`` stops being positive."""
        return {name: flip_step(self.steps, values) for name, values in self.g_pos.items()}

    @property
    def push_flip(self) -> int | None:
        """When the smoothed ⟨o, ∇ℓ⟩ stops being positive: the prediction of ``t_flip`` for every layer."""
        return flip_step(self.steps, self.push)

    @property
    def agreement(self) -> dict[str, float]:
        """By activation, share of measured steps at which ``g_pos`` has the sign of ⟨o, ∇ℓ⟩."""
        return {
            name: _share([(g > 0) == (e > 0) for g, e in zip(values, self.push) if g == g])
            for name, values in self.g_pos.items()
        }

    def positive_share(self, epoch: int | None = None) -> dict[str, float]:
        """By activation, share of measured steps with ``g_pos`` > 0, in one epoch (from 0) or over all."""
        inside = [epoch is None or s // self.per_epoch == epoch for s in self.steps]
        return {
            name: _share([g > 0 for g, here in zip(values, inside) if here and g == g])
            for name, values in self.g_pos.items()
        }

    def __str__(self) -> str:
        flips = ", ".join(f"{name} {'never' if t is None else t}" for name, t in self.t_flip.items())
        when = "stayed positive" if self.push_flip is None else f"turned at step {self.push_flip}"
        agree = self.agreement.values()
        return (
            f"{len(self.steps)} looks up to step {self.steps[-1] if self.steps else 0}: ⟨o, ∇ℓ⟩ {when} and agrees "
            f"in sign with g_pos on {_share(agree):.0%} of them; g_pos flips at {flips}"
        )


class PersistenceTracker:
    """Look at a model as it trains; :meth:`report` says what became of the sign.

    >>> import torch
    >>> net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    >>> opt = torch.optim.SGD(net.parameters(), 0.1)
    >>> x, y = torch.randn(32, 4), torch.randint(2, (32,))
    >>> tracker = PersistenceTracker(net, nn.functional.cross_entropy, per_epoch=5, epochs=2)
    >>> for step in range(10):
    ...     if tracker.wants(step):
    ...         tracker.observe(step, (x, y))
    ...     opt.zero_grad(); nn.functional.cross_entropy(net(x), y).backward(); opt.step()
    >>> len(tracker.report().steps), list(tracker.report().t_flip)
    (10, ['1'])
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: Callable[..., Tensor],
        *,
        per_epoch: int,
        epochs: int = 10,
        reduction: Reduction = "mean",
    ) -> None:
        self.model, self.loss_fn, self.per_epoch, self.reduction = model, loss_fn, per_epoch, reduction
        self._wanted = set(measured_steps(per_epoch, epochs))
        self._steps: list[int] = []
        self._loss: list[float] = []
        self._values: dict[tuple[str, str], list[float]] = {}
        self._kinds: dict[str, str] = {}

    def wants(self, step: int) -> bool:
        """Whether P2 looks at this step."""
        return step in self._wanted

    def observe(self, step: int, batch: Any) -> None:
        """Look at the model before step ``step`` is taken; a loss that is not finite is refused, the past is kept."""
        if self._steps and step <= self._steps[-1]:
            raise ValueError(f"steps go up: got {step} after {self._steps[-1]}")
        seen = observe(self.model, self.loss_fn, batch, vitals=[SignObservation(self.reduction)], mode="train")
        if seen.loss is None or not math.isfinite(seen.loss):
            raise ValueError(
                f"the loss at step {step} is {seen.loss}; the {len(self._steps)} looks before it are kept, see report()"
            )
        self._kinds |= {s.name: s.kind for s in seen.sites}
        found = {(r.site, r.metric): r.value for r in seen.measurements}
        for key in found.keys() | self._values.keys():
            self._values.setdefault(key, [math.nan] * len(self._steps)).append(found.get(key, math.nan))
        self._steps.append(step)
        self._loss.append(seen.loss)

    def report(self) -> Persistence:
        """What was seen so far."""

        def of(kind: str, metric: str) -> dict[str, tuple[float, ...]]:
            return {
                name: tuple(self._values[name, metric])
                for name, k in self._kinds.items()
                if k == kind and (name, metric) in self._values
            }

        push = of("output", "euler")
        split = {name: {m: tuple(self._values[name, m]) for m in SPLIT_METRICS} for name in of("linear", "tot")}
        return Persistence(
            steps=tuple(self._steps),
            push=next(iter(push.values()), ()),
            loss=tuple(self._loss),
            g_pos=of("activation", "g_pos"),
            split=split,
            per_epoch=self.per_epoch,
        )


def _share(flags: Any) -> float:
    flags = [float(f) for f in flags]
    return sum(flags) / len(flags) if flags else math.nan
