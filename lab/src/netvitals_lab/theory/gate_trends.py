"""A trajectory of gate density as numbers, and the sign test over runs (cells); channels are in ``netvitals.gates``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from netvitals.capture.result import Result
from netvitals_lab import stats


@dataclass(frozen=True)
class Trend(Result):
    """One trajectory as numbers: its correlation with time, and where it ended against where it began."""

    spearman: float  # NaN for a constant trajectory, or fewer than three points
    pearson: float
    displacement: float  # last − first
    points: int

    def __str__(self) -> str:
        return (
            f"ρ = {self.spearman:+.2f} (Spearman), {self.pearson:+.2f} (Pearson), "
            f"{100 * self.displacement:+.2f} points over {self.points} moments"
        )


@dataclass(frozen=True, kw_only=True)
class Cells(Result):
    """Runs in which more than half of the channels went along, and the exact sign test on them."""

    successes: int
    failures: int
    ties: int
    p_one_sided: float  # P[at least so many successes by chance]
    p_two_sided: float

    def __str__(self) -> str:
        return (
            f"{self.successes} of {self.successes + self.failures} cells (p = {self.p_one_sided:.3g} one-sided, "
            f"{self.p_two_sided:.3g} two-sided)" + (f", {self.ties} tied" if self.ties else "")
        )


def trend(values: Any, times: Any = None) -> Trend:
    """Correlation of one trajectory with time, and its displacement.

    >>> print(trend([0.50, 0.48, 0.49, 0.40]))
    ρ = -0.80 (Spearman), -0.82 (Pearson), -10.00 points over 4 moments
    """
    y = np.asarray(values, dtype=np.float64)
    if y.ndim != 1 or not y.size:
        raise ValueError(f"a trajectory is a list of numbers, got shape {y.shape}")
    t = np.arange(y.size, dtype=np.float64) if times is None else np.asarray(times, dtype=np.float64)
    if t.shape != y.shape:
        raise ValueError(f"{y.size} values need as many times, got {t.size}")
    moved = y.size >= 3 and np.isfinite(y).all() and np.ptp(y) > 0
    rho, r = (stats.spearman(t, y).value, stats.pearson(t, y).value) if moved else (math.nan, math.nan)
    return Trend(rho, r, float(y[-1] - y[0]), y.size)


def cells(shares: Sequence[float]) -> Cells:
    """Sign test over cells: one share of positive (or agreeing) channels per run, a success above one half.

    >>> print(cells([0.9] * 12))
    12 of 12 cells (p = 0.000244 one-sided, 0.000488 two-sided)
    """
    test = stats.sign_test(shares, reference=0.5)
    return Cells(
        successes=test.above,
        failures=test.below,
        ties=test.ties,
        p_one_sided=test.p_above,
        p_two_sided=test.p_two_sided,
    )
