r"""What a series says with which certainty: since when, how steep, how far beyond a threshold.

A threshold alone decides nothing here. Beyond it by how much of its own noise ($t$), since which step without a break,
and with which slope and standard error is what rules ask.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np


class Stretch(NamedTuple):
    """The steps over which something was seen."""

    since: int
    until: int
    share: float  # of the measurements in between that showed it
    lasting: bool  # it was there on the last measurement


def last_stretch(steps: np.ndarray, seen: np.ndarray, gap: int = 2) -> Stretch | None:
    """The last stretch of measurements that show something; up to ``gap`` measurements in a row may miss it.

    >>> last_stretch(np.arange(8), np.array([1, 0, 0, 0, 1, 1, 0, 1], bool))
    Stretch(since=4, until=7, share=0.75, lasting=True)
    """
    at = np.flatnonzero(seen)
    if not len(at):
        return None
    breaks = np.flatnonzero(np.diff(at) > gap + 1)
    first = int(at[breaks[-1] + 1]) if len(breaks) else int(at[0])
    last = int(at[-1])
    share = float(np.asarray(seen, bool)[first : last + 1].mean())
    return Stretch(int(steps[first]), int(steps[last]), share, len(seen) - 1 - last <= gap)


class LineFit(NamedTuple):
    """A straight line through measurements: its slope a step, the error of that, and how far it goes from end to
    end."""

    slope: float
    stderr: float
    change: float
    t: float


def line(steps: np.ndarray, values: np.ndarray) -> LineFit:
    r"""Least squares, with the error of the slope widened by the first autocorrelation $\rho$ of what is left:
    $\sqrt{(1+\rho)/(1-\rho)}$.

    >>> found = line(np.arange(50), 1.0 - 0.01 * np.arange(50))
    >>> round(found.change, 2), found.t < -100
    (-0.49, True)
    """
    x, y = np.asarray(steps, float), np.asarray(values, float)
    if len(x) < 4 or np.ptp(x) == 0:
        return LineFit(0.0, math.inf, 0.0, 0.0)
    d = x - x.mean()
    spread = float((d * d).sum())
    slope = float((d * (y - y.mean())).sum() / spread)
    rest = y - y.mean() - slope * d
    power = float((rest * rest).sum())
    rho = float(np.clip((rest[1:] * rest[:-1]).sum() / power, 0.0, 0.95)) if power else 0.0
    stderr = math.sqrt(power / (len(x) - 2) / spread * (1 + rho) / (1 - rho))
    t = slope / stderr if stderr else math.copysign(math.inf, slope) if slope else 0.0
    return LineFit(slope, stderr, slope * float(np.ptp(x)), t)


def noise(values: np.ndarray) -> Any:
    """Spread of one measurement around its neighbours (differences carry the noise twice), along the last dimension.

    >>> noise(np.array([1.0, 1.0, 1.0]))
    0.0
    """
    if values.shape[-1] < 3:
        return 0.0
    spread = np.median(np.abs(np.diff(values)), axis=-1) / (0.6745 * math.sqrt(2))
    return spread if spread.ndim else float(spread)


def smoothed(values: np.ndarray, parts: int = 20) -> np.ndarray:
    """A running median over a ``parts``-th of the measurements, as long as the series.

    >>> smoothed(np.array([1.0, 9.0, 1.0]), parts=1).tolist()
    [1.0, 1.0, 1.0]
    """
    width = max(1, len(values) // parts) | 1
    if width == 1 or len(values) < 3:
        return np.asarray(values, float)
    padded = np.pad(np.asarray(values, float), width // 2, mode="edge")
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, width), axis=1)
