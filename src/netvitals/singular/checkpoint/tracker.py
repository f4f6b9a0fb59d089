r"""What a run's numbers say over time: change points of the order, the phase, and jumps of κ(G).

A network *accumulates* while the smallest eigenvalue of its gradient covariance rises and *compresses* while it falls;
only a compressing one has rates to read (dead-directions §12.1). A jump of κ(G) or λ_max(G) above a multiple of its
running median means that new outputs arrived: the flag of Algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from netvitals import stats
from netvitals.capture import Result


@dataclass(frozen=True)
class ChangePoint(Result):
    """The order changed between two checkpoints and stayed changed."""

    step: int
    before: int
    after: int

    def __str__(self) -> str:
        return f"step {self.step}: order {self.before} → {self.after}"


def change_points(steps: Sequence[float], orders: Sequence[float], *, stay: int = 2) -> tuple[ChangePoint, ...]:
    """Where the whole-number order changes, and stays changed.

    Args:
        steps: training step of each checkpoint, rising.
        orders: order at each checkpoint; NaN where it is unknown.
        stay: checkpoints in a row that must show the new order.

    Returns:
        The changes in order of step, each at the first checkpoint with the new order.

    >>> [str(c) for c in change_points([0, 10, 20, 30, 40, 50], [1, 1, 2, 1, 2, 2])]
    ['step 40: order 1 → 2']
    """
    if len(steps) != len(orders):
        raise ValueError(
            f"orders= needs one value for each checkpoint: got {len(orders)} orders for {len(steps)} checkpoints"
        )
    known = [(int(s), round(o)) for s, o in zip(steps, orders) if math.isfinite(o)]
    out: list[ChangePoint] = []
    current = known[0][1] if known else 0
    for i, (step, order) in enumerate(known):
        held = [o for _, o in known[i : i + stay]]
        if order != current and len(held) == stay and set(held) == {order}:
            out.append(ChangePoint(step, current, order))
            current = order
    return tuple(out)


@dataclass(frozen=True)
class Phase(Result):
    """Whether a network fills directions or empties them."""

    name: str  # "accumulation", "compression", "steady"
    trend: float  # slope of log λ_min over the run, rank correlation in [−1, 1]
    factor: float  # λ_min at the end over the start
    n: int

    def __str__(self) -> str:
        words = {
            "accumulation": "accumulating: the weakest direction gains gradient, there is no rate to read yet",
            "compression": "compressing: the weakest direction loses gradient, its rate can be read",
            "steady": "neither accumulating nor compressing",
        }
        return f"{words[self.name]} (λ_min × {self.factor:.2g} over {self.n} looks)"


def phase(steps: Sequence[float], smallest: Sequence[float], *, least: float = 0.6, change: float = 1.5) -> Phase:
    """The phase from λ_min(G) over steps: its rank correlation with time and its total factor.

    Args:
        steps: training steps.
        smallest: λ_min(G) at each; values that are not positive and finite are left out, four must be left.
        least: |Spearman correlation| needed to call a trend.
        change: factor between the first and the last third that is needed as well.

    Returns:
        "accumulation", "compression" or "steady", with the correlation and the factor behind it.

    >>> phase(range(6), [1, 2, 3, 4, 6, 8]).name, phase(range(6), [1, 1.1, 0.9, 1, 1.1, 1]).name
    ('accumulation', 'steady')
    """
    pairs = [(s, v) for s, v in zip(steps, smallest) if math.isfinite(v) and v > 0]
    if len(pairs) < 4:
        raise ValueError(
            f"phase() needs at least four positive values of the smallest eigenvalue λ_min, got {len(pairs)}"
        )
    values = np.log([v for _, v in pairs])
    third = max(1, len(values) // 3)
    factor = float(np.exp(np.median(values[-third:]) - np.median(values[:third])))
    trend = 0.0 if np.ptp(values) == 0 else stats.spearman([s for s, _ in pairs], values).value
    risen, fallen = trend > least and factor > change, trend < -least and factor < 1 / change
    return Phase("accumulation" if risen else "compression" if fallen else "steady", float(trend), factor, len(pairs))


@dataclass(frozen=True)
class ConditionJump(Result):
    """G of a layer far above what it was: the flag of Algorithm 1."""

    step: int
    condition: float  # κ over its running median
    largest: float  # λ_max over its running median; NaN where it was not given


def condition_jumps(
    steps: Sequence[float],
    condition: Any,
    largest: Any = None,
    *,
    factor: float = 5.0,
    rise: float = 2.5,
    history: int = 3,
    window: int = 5,
) -> tuple[ConditionJump, ...]:
    """Steps at which G jumped: κ to ``factor`` times its running median, λ_max to ``rise`` times its own, or both.

    κ alone is a poor witness once a head has nearly learned its labels: its small eigenvalues then rest on a few
    samples and jump by themselves. Where ``largest`` is given, λ_max must have risen (by half at least) for a jump of κ
    to count, and a jump of λ_max counts by itself.

    Args:
        steps: training step of each look.
        condition: condition number κ of G at each look.
        largest: λ_max of G at each look; without it κ alone decides.
        factor: κ over its running median that counts as a jump.
        rise: λ_max over its running median that counts as one.
        history: looks needed before the first flag.
        window: looks behind a running median.

    Returns:
        The jumps in order of step; one that lasts is flagged once.

    >>> [j.step for j in condition_jumps(range(6), [10, 12, 11, 9, 80, 85])]
    [4]
    """
    k = np.asarray(condition, float)
    top = np.full(len(k), math.nan) if largest is None else np.asarray(largest, float)
    out: list[ConditionJump] = []
    above = False  # a jump that lasts is one jump
    for i in range(history, len(k)):
        ratio, rose = _over_median(k, i, window), _over_median(top, i, window)
        jumped = (ratio > factor and not rose <= 1.5) or rose > rise
        if jumped and not above:
            out.append(ConditionJump(int(steps[i]), ratio, rose))
        above = jumped
    return tuple(out)


def _over_median(values: np.ndarray, i: int, window: int) -> float:
    before = values[:i][np.isfinite(values[:i])][-window:]
    return float(values[i] / np.median(before)) if len(before) and math.isfinite(values[i]) else math.nan
