"""When a series will meet a level, carried on in a line, and whether it has gone below zero for good."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from netvitals.findings.series import Series

LEAST, RECENT = 6, 1 / 3  # measurements that a trend rests on at least, and the share of all that it does
SURE = 2.0  # standard errors that a slope must differ from zero by


@dataclass(frozen=True)
class LineCrossing:
    """When a series is expected to meet a level; ``low`` and ``high`` from the spread of its slope."""

    step: float
    low: float
    high: float  # infinite if the slope could as well be too flat
    slope: float  # per step
    stderr: float

    def __str__(self) -> str:
        late = f"{self.high:.0f}" if math.isfinite(self.high) else "much later"
        return f"near step {self.step:.0f} (between {self.low:.0f} and {late})"


def crossing(series: Series, level: float) -> LineCrossing | None:
    r"""$t^* = t_{now} + (\ell - \bar y)/b$ at which ``series`` reaches ``level`` ℓ, with the slope $b$ of the last
    third; None if it moves the other way, or not surely, or would take longer than the run has lasted.

    >>> rising = Series("sparsity", "a", "hard", np.arange(12), 0.5 + 0.01 * np.arange(12))
    >>> print(crossing(rising, 0.7))
    near step 20 (between 20 and 20)
    """
    steps, values = series.steps[np.isfinite(series.values)].astype(float), series.finite
    if len(values) < LEAST:
        return None
    size = max(LEAST, math.ceil(RECENT * len(values)))
    t, y = steps[-size:], values[-size:]
    centre = t.mean()
    spread = float(((t - centre) ** 2).sum())
    if spread == 0:
        return None
    slope = float(((t - centre) * (y - y.mean())).sum() / spread)
    rest = y - y.mean() - slope * (t - centre)
    stderr = math.sqrt(float((rest**2).sum()) / max(1, size - 2) / spread)
    now = float(y.mean() + slope * (t[-1] - centre))
    gap = level - now
    if slope == 0 or gap * slope <= 0 or abs(slope) <= SURE * stderr:
        return None
    wait = gap / slope
    if wait > t[-1] - steps[0]:
        return None
    fast, slow = abs(slope) + SURE * stderr, abs(slope) - SURE * stderr
    return LineCrossing(
        step=float(t[-1] + wait),
        low=float(t[-1] + abs(gap) / fast),
        high=float(t[-1] + abs(gap) / slow) if slow > 0 else math.inf,
        slope=slope,
        stderr=stderr,
    )


def turned(series: Series) -> int | None:
    """The step at which a ``series`` that began positive went below zero for good; None if it did not."""
    below = series.values < 0
    if len(series.values) < LEAST or not series.start > 0 or not below[-1]:
        return None
    last = int(np.flatnonzero(~below)[-1])
    return int(series.steps[last + 1])
