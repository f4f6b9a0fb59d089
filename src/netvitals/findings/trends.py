"""Which way a series moves, and whether it has gone below zero for good."""

from __future__ import annotations

import math

import numpy as np

from netvitals.findings.series import Series

LEAST, RECENT = 6, 1 / 3  # measurements that a trend rests on at least, and the share of all that it does
SURE = 2.0  # standard errors that a slope must differ from zero by


def trend(series: Series) -> int:
    """+1 or −1 where the slope of the last third differs from zero by two standard errors, else 0.

    >>> trend(Series("sparsity", "a", "hard", np.arange(12), 0.5 + 0.01 * np.arange(12)))
    1
    """
    steps, values = series.steps[np.isfinite(series.values)].astype(float), series.finite
    if len(values) < LEAST:
        return 0
    size = max(LEAST, math.ceil(RECENT * len(values)))
    t, y = steps[-size:] - steps[-size:].mean(), values[-size:] - values[-size:].mean()
    spread = float((t**2).sum())
    if spread == 0:
        return 0
    slope = float((t * y).sum() / spread)
    stderr = math.sqrt(float(((y - slope * t) ** 2).sum()) / (size - 2) / spread)
    return int(np.sign(slope)) if abs(slope) > SURE * stderr else 0


def turned(series: Series) -> int | None:
    """The step at which a ``series`` that began positive went below zero for good; None if it did not."""
    below = series.values < 0
    if len(series.values) < LEAST or not series.start > 0 or not below[-1]:
        return None
    last = int(np.flatnonzero(~below)[-1])
    return int(series.steps[last + 1])
