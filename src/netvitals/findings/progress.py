"""Does the run learn? The loss against where it began, its noise, and the best that a constant output could do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from netvitals.findings.series import Measurements

LEAST = 20  # losses before anything is said
FALLEN = 0.15  # share of the first loss, or of a constant's cost, that must be gone
NOT_FINITE = 0.02  # share of the losses; a GradScaler skips single steps
BACK = 0.5  # share of the gain that may be lost again
ASTRAY = 5.0  # times the cost of guessing: a classifier's loss that is higher had its outputs thrown far off


@dataclass(frozen=True)
class Progress:
    """How a loss stands.

    Attributes:
        state: learning, not learning, diverged, unknown where there are too few losses, or no objective where a lower
            loss is not a better one: several optimizers, or losses below zero.
        first: the median of the first losses.
        last: the median of the last tenth.
        best: the lowest median of a tenth.
        constant: what the best constant output would cost; NaN where it is not known.
        astray: how many times the cost of guessing the highest loss of a classifier is, where that is above ``ASTRAY``.
    """

    state: Literal["learning", "not learning", "diverged", "unknown", "no objective"]
    first: float = math.nan
    last: float = math.nan
    best: float = math.nan
    constant: float = math.nan
    astray: float = 0.0

    @property
    def harm(self) -> bool:
        """Whether something is wrong that a statistic may be the cause of."""
        return self.state in ("not learning", "diverged") or self.astray > 0


def progress(table: Measurements) -> Progress:
    """Whether the loss of a run has fallen beyond its noise, and stayed there."""
    loss = table.loss
    if loss is None or len(loss.values) < LEAST:
        return Progress("unknown")
    facts = table.meta.get("checks") or {}
    if np.isfinite(loss.values).all() and (int(facts.get("optimizers", 1)) > 1 or float(loss.values.min()) < 0):
        return Progress("no objective")
    if np.mean(~np.isfinite(loss.values)) > NOT_FINITE:
        return Progress("diverged")
    values = loss.finite
    tenth = max(3, len(values) // 10)
    first = float(np.median(values[: min(5, tenth)]))
    parts = [float(np.median(values[i : i + tenth])) for i in range(0, len(values) - tenth + 1, tenth)]
    last, best = float(np.median(values[-tenth:])), min(parts)
    constant = constant_cost(table)
    noise = float(np.median(np.abs(np.diff(values)))) / max(1.0, math.sqrt(tenth))
    begin = min(first, constant) if math.isfinite(constant) and constant > 0 else first
    scale = abs(begin) if begin else 1.0
    gain = begin - last
    guess = math.nan if mostly_frozen(table) else _cost_of_guessing(facts)
    highest = float(np.sort(values)[-2]) / guess if guess > 0 else 0.0  # one odd batch says nothing
    rest = (first, last, best, constant, highest if highest > ASTRAY else 0.0)
    if last > max(first + 3 * noise, first + 0.1 * abs(first)) and best < last - 3 * noise:
        return Progress("diverged", *rest)
    if gain > max(FALLEN * scale, 3 * noise) and last - best <= BACK * max(begin - best, 0.0) + 3 * noise:
        return Progress("learning", *rest)
    return Progress("not learning", *rest)


def mostly_frozen(table: Measurements) -> bool:
    """Whether most weights are not trained: such a network was trained before, and may begin anywhere."""
    untrained = table.meta.get("untrained") or {}
    sizes = {name: math.prod(shape) for name, shape in (table.meta.get("shapes") or {}).items()}
    return sum(n for name, n in sizes.items() if name in untrained) > 0.5 * sum(sizes.values())


def _cost_of_guessing(facts: Mapping[str, Any]) -> float:
    """What equal odds for every class cost, summed where the loss is; NaN where the loss has no classes."""
    kinds, labels = facts.get("losses") or {}, facts.get("labels") or {}
    classes = int(labels.get("classes", 0)) if set(kinds) == {"nll"} else int(facts.get("classes", 0))
    if len(kinds) != 1 or classes < 2:
        return math.nan
    return math.log(classes) * max(1, int(facts.get("summed", 0)))


def constant_cost(table: Measurements) -> float:
    """What the best constant output would cost, from the labels or targets of the first steps."""
    facts = table.meta.get("checks") or {}
    kinds = facts.get("losses") or {}
    labels, targets = facts.get("labels") or {}, facts.get("targets") or {}
    if sum(kinds.values()) == 0 or len(kinds) > 1 or not facts.get("pure"):
        return math.nan
    (kind,) = kinds
    if kind == "nll" and labels:
        return float(labels["entropy"])
    if kind == "mse" and "spread" in targets:
        return float(targets["spread"]) ** 2
    if kind in ("bce", "bce_logits") and targets:
        return float(targets.get("bernoulli", math.nan))
    return math.nan
