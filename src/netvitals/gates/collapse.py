r"""Will weight decay collapse the variance behind the norms, and with it move gate density? Asked before training.

A parameter that only decay acts on keeps the share $e^{-S}$ of its value, S being the integrated decay:

$$S=\sum_t\frac{\eta_t\lambda(1-d)}{1-\mu}\ \text{(SGD, momentum μ, dampening d)},\qquad
  S=\sum_t\eta_t\lambda\ \text{(decoupled: AdamW)}.$$

Coupled decay under Adam passes through the preconditioner, so that a parameter feels
$\sum_t\eta_t\lambda/(\sqrt{\hat v_t}+\epsilon)$, which depends on the gradients and is not known before training.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from torch import nn

from netvitals._plot import Plot, Series
from netvitals.capture import Result, one_screen, skipped_lines
from netvitals.optim import group_settings, learning_rates

BELOW_HALF = math.log(2)  # S from which decay alone takes half of the deviation: the bar of the study's claim
STEADY = -math.log(0.85)  # S up to which decay alone takes less than 15 % of it
MOMENTUM = frozenset({"SGD"})  # coupled decay enters the momentum buffer
DECOUPLED = frozenset({"AdamW", "Lion", "Muon", "MuonAdamW", "DDCAdam", "DDC"})
PRECONDITIONED = frozenset({"Adam", "NAdam", "RAdam", "Adamax", "Adagrad", "Adadelta", "RMSprop"})
SHOWN = 60  # points of the picture

Answer = Literal["collapses", "shrinks", "stays", "unknown"]


@dataclass(frozen=True, kw_only=True)
class GroupDecay:
    """Integrated decay of one parameter group.

    Part of :class:`Collapse`.

    Attributes:
        group: its number in the optimizer.
        weight_decay: λ.
        coupled: whether decay is added to the gradient.
        total: S over all steps; NaN where it depends on the gradients.
        path: S up to each step.
        scales: names of the norm scales in this group; empty without a model.
        why: the total is not known.
    """

    group: int
    weight_decay: float
    coupled: bool
    total: float
    path: np.ndarray = field(repr=False)
    scales: tuple[str, ...] = ()
    why: str = ""

    @property
    def answer(self) -> Answer:
        """What decay alone does to a deviation: below half, less than 15 %, or between."""
        if math.isnan(self.total):
            return "unknown"
        return "collapses" if self.total >= BELOW_HALF else "stays" if self.total <= STEADY else "shrinks"


@dataclass(frozen=True, kw_only=True)
class Collapse(Result):
    """Integrated weight decay of an optimizer and its schedule, with the variance collapse that it predicts.

    Returned by :func:`will_collapse`.

    Attributes:
        optimizer: class of the optimizer.
        steps: how many were summed.
        groups: one entry a parameter group.
        skipped: parameter group to which the prediction does not apply → reason.
    """

    optimizer: str
    steps: int
    groups: tuple[GroupDecay, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)

    @property
    def deciding(self) -> tuple[GroupDecay, ...]:
        """The groups that hold norm scales; every group where no model was given."""
        return tuple(g for g in self.groups if g.scales) or (() if "model" in self.skipped else self.groups)

    @property
    def total(self) -> float:
        """S of the norm scales: the smallest of the groups that hold one; 0 where no scale is decayed."""
        return min((g.total for g in self.deciding), default=0.0)

    @property
    def answer(self) -> Answer:
        """``collapses`` (σ falls below half), ``shrinks``, ``stays`` (within 15 %), or ``unknown``: groups disagree, or
        S depends on the gradients."""
        found = {g.answer for g in self.deciding}
        return found.pop() if len(found) == 1 else "unknown" if found else "stays"

    @property
    def factor(self) -> float:
        """What decay alone leaves of a norm's scale, $e^{-S}$."""
        return math.exp(-self.total)

    def rows(self) -> list[dict[str, Any]]:
        """One row per parameter group: decay λ, coupled or not, integrated decay S, remaining fraction, norm scales."""
        return [
            {
                "group": g.group,
                "weight_decay": g.weight_decay,
                "coupled": g.coupled,
                "S": g.total,
                "factor": math.exp(-g.total),
                "norm_scales": len(g.scales),
                "answer": g.answer,
            }
            for g in self.groups
        ]

    def plot(self) -> Plot:
        """Plot the fraction of a norm's scale that remains under weight decay alone, step by step."""
        at = np.unique(np.linspace(0, self.steps - 1, SHOWN).round().astype(int))
        return Plot(
            "step",
            "share left by decay alone, exp(−S)",
            [
                Series(
                    f"group {g.group}, λ = {g.weight_decay:g}",
                    (at + 1.0).tolist(),
                    np.exp(-g.path[at]).tolist(),
                    line=True,
                )
                for g in self.groups
                if not math.isnan(g.total)
            ],
        )

    def __str__(self) -> str:
        said = {
            "collapses": f"the variance behind norms collapses: decay alone leaves {self.factor:.1%} of their scales. "
            "The paper's prediction: gate density then goes to 0 where a channel's mean is below z_low, to 1 where it "
            "is above (report.forecast(decay=...) says which).",
            "shrinks": f"the variance behind norms shrinks, but not below half: decay alone leaves {self.factor:.1%} "
            "of their scales.",
            "stays": f"the variance behind norms does not collapse: decay alone leaves {self.factor:.1%} of their "
            "scales. The paper's prediction has no ground here; gate density moves with the means only.",
            "unknown": "it cannot be said before training: " + "; ".join(sorted(set(self._doubts()))) + ".",
        }[self.answer]
        lines = [f"{self.optimizer}, {self.steps:,} steps: {said}"]
        lines += [
            f"  group {g.group}: λ = {g.weight_decay:g}, {'coupled' if g.coupled else 'decoupled'}, "
            + (f"S = {g.total:.3g}" if not math.isnan(g.total) else f"S unknown ({g.why})")
            + (f", {len(g.scales)} norm scales" if g.scales else "")
            for g in self.groups
        ]
        lines.append(
            "Condition: an activation directly behind a norm whose scale is in a decayed group; gradients that hold a "
            "scale up are not counted."
        )
        return one_screen(lines + skipped_lines(self.skipped))

    def _doubts(self) -> Iterator[str]:
        yield from (g.why for g in self.deciding if g.why)
        if len({g.answer for g in self.deciding}) > 1:
            yield "the groups that hold norm scales decay differently"


def will_collapse(
    optimizer: Any, schedule: Any, steps: int, *, every: int = 1, model: nn.Module | None = None
) -> Collapse:
    """Predict from optimizer and schedule whether weight decay will collapse the variance of activation inputs.

    Nothing is trained: only a copy of the schedule is stepped.

    Args:
        optimizer: the optimizer before the first step, or later: S is summed from now on.
        schedule: a scheduler of this optimizer; a function of the step that gives the factor on the learning rate; a
            list of learning rates, one a step; None for the scheduler found at the optimizer, or constant rates.
        steps: optimizer steps to come.
        every: optimizer steps between two steps of the scheduler, such as the number of batches in an epoch.
        model: tells which parameters are scales of norms, and so which groups decide.

    Returns:
        S of every parameter group and the answer; ``print`` says the prediction and its condition.

    >>> import torch
    >>> sgd = torch.optim.SGD([torch.ones(1)], lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    >>> found = will_collapse(sgd, lambda t: (1 + math.cos(math.pi * t / 9775)) / 2, 9775)  # the paper's
    >>> found.answer, round(found.total, 2)
    ('collapses', 2.44)
    """
    if not hasattr(optimizer, "param_groups"):
        raise TypeError(f"optimizer= must be a torch.optim.Optimizer, got a {type(optimizer).__name__}")
    if steps < 1:
        raise ValueError(f"steps= is the number of remaining optimizer steps and must be at least 1, got {steps}")
    name = type(optimizer).__name__
    rates = learning_rates(optimizer, schedule, steps, every)
    scales, skipped = _scales(model)
    groups = []
    for i, group in enumerate(optimizer.param_groups):
        own = group_settings(group, name)
        decay = float(own["weight_decay"])
        coupled = not (own["decoupled"] or name in DECOUPLED)
        gain, why = _gain(name, own, group, coupled)
        path = np.cumsum(rates[:, i]) * decay * gain if decay else np.zeros(steps)
        held = {id(p) for p in group["params"]}
        groups.append(
            GroupDecay(
                group=i,
                weight_decay=decay,
                coupled=coupled,
                total=float(path[-1]),
                path=path,
                scales=tuple(n for n, p in scales.items() if id(p) in held),
                why=why if decay else "",
            )
        )
    trained = {n for g in groups for n in g.scales}
    skipped |= {n: "not in this optimizer" for n in scales if n not in trained}
    if model is not None and not trained:
        skipped["model"] = "this optimizer trains no scale of a norm, so the prediction does not apply"
    return Collapse(optimizer=name, steps=steps, groups=tuple(groups), skipped=skipped)


def _gain(name: str, own: Mapping[str, Any], group: Mapping[str, Any], coupled: bool) -> tuple[float, str]:
    """Factor from Σ η λ to S; NaN and the reason where there is none."""
    if not coupled:
        return 1.0, ""
    if name in MOMENTUM:
        momentum = float(own["momentum"])
        dampening = float(group.get("dampening", 0.0)) if momentum else 0.0
        return (1 - dampening) / (1 - momentum), ""
    if name in PRECONDITIONED:
        return math.nan, f"{name} divides its coupled decay by the size of the gradients"
    return math.nan, f"how {name} applies weight_decay is not known here; SGD and decoupled optimizers are"


def _scales(model: nn.Module | None) -> tuple[dict[str, nn.Parameter], dict[str, str]]:
    """Scale of every norm module, by name: a module called a norm, with a weight of one dimension."""
    found: dict[str, nn.Parameter] = {}
    skipped: dict[str, str] = {}
    for name, module in model.named_modules() if model is not None else ():
        if "norm" not in type(module).__name__.lower():
            continue
        weight = getattr(module, "weight", None)
        if not isinstance(weight, nn.Parameter) or weight.ndim != 1:
            skipped[name] = "has no scale"
        elif weight.requires_grad:
            found[f"{name}.weight".lstrip(".")] = weight
        else:
            skipped[f"{name}.weight"] = "frozen"
    return found, skipped
