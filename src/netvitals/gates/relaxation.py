r"""Where gate density goes with the decay that is left: every channel relaxes towards its own target.

Under weight decay the scale and shift of a channel's input forget what they were with the integrated decay,
$e^{-S}$, and take on what the gradients hold up. From a look then and a look now, $S_{past}$ apart,

$$\gamma^*=\frac{\gamma_{now}-\gamma_{then}e^{-S_{past}}}{1-e^{-S_{past}}},\qquad
  \gamma_{later}=\gamma_{now}e^{-S_{rest}}+q\,\gamma^*(1-e^{-S_{rest}}),$$

and likewise the mean; without decay
$\gamma_{later}=\gamma_{now}+q\,(\gamma_{now}-\gamma_{then})\,\tau_{rest}/\tau_{past}$ with τ the learning rate
spent. q < 1, because the gradients that hold a target up fade. The density is that of the channel's own
standardised sample, moved and stretched: no Gaussian is needed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from netvitals.gates.prediction import _intervals

HELD = 0.25  # q: chosen on the tuning families of the corpus
TAIL = 2.0  # beyond the outermost quantile the tail falls off by this rate, in standard deviations
FLAT = 1e-6  # integrated decay below which there is none


def relax(now: Any, then: Any, past: float, rest: float, decay: float, held: float = HELD) -> np.ndarray:
    r"""$x_{now}e^{-S_{rest}}+q\,x^*(1-e^{-S_{rest}})$, channel by channel.

    Args:
        now: scale or mean of each channel.
        then: the same at an earlier look.
        past: learning rate spent between the two.
        rest: learning rate until the day asked for.
        decay: λ, what a unit of learning rate takes of a weight; S is λ times the learning rate.
        held: q.

    Returns:
        Values of that day.

    >>> relax([1.0], [2.0], past=1.0, rest=1.0, decay=0.0, held=0.5).tolist()
    [0.5]
    >>> float(relax([1.0], [math.e], past=1.0, rest=1.0, decay=1.0).round(6)[0])  # nothing holds it up
    0.367879
    """
    x, before = np.asarray(now, dtype=np.float64), np.asarray(then, dtype=np.float64)
    if past <= 0:
        return x
    if decay * past < FLAT:
        return x + held * (x - before) * rest / past
    kept, keeps = math.exp(-decay * past), math.exp(-decay * rest)
    target = (x - before * kept) / (1 - kept)
    return x * keeps + held * target * (1 - keeps)


def empirical(mu: Any, sigma: Any, shape: Any, f: Any, theta: float = 0.01) -> np.ndarray:
    r"""Density $\sum_j F((b_j-\mu)/\sigma)-F((a_j-\mu)/\sigma)$ with F the distribution of the channel's own inputs.

    Args:
        mu: mean of each channel's input.
        sigma: its standard deviation.
        shape: quantiles of the standardised input, channels × levels (the middles of equal parts), as the array
            ``shape`` of the vital sign ``preactivations`` has them.
        f: the activation, its registered name, or its ``Crossings``.
        theta: a gate is open where |f'| > theta.

    Returns:
        Density of each channel.

    >>> from types import SimpleNamespace
    >>> relu = SimpleNamespace(intervals=((0.0, float("inf")),), z_low=0.0)
    >>> empirical([0.0, 5.0], [1.0, 1.0], [[-1.0, 0.0, 1.0]] * 2, relu).round(3).tolist()
    [0.5, 1.0]
    """
    mean, std = (np.atleast_1d(np.asarray(v, dtype=np.float64)) for v in (mu, sigma))
    quantiles = np.atleast_2d(np.asarray(shape, dtype=np.float64))
    if quantiles.shape[0] != mean.size:
        raise ValueError(f"shape needs one row a channel: {mean.size} channels, {quantiles.shape[0]} rows")
    std = np.maximum(std, 1e-12)
    total = np.zeros(mean.size)
    for a, b in _intervals(f, theta):
        low = _distribution(quantiles, (a - mean) / std) if math.isfinite(a) else 0.0
        high = _distribution(quantiles, (b - mean) / std) if math.isfinite(b) else 1.0
        total = total + high - low
    return np.clip(total, 0.0, 1.0)


def _distribution(quantiles: np.ndarray, z: np.ndarray) -> np.ndarray:
    """F at one z a channel: linear between quantiles, exponential beyond the outermost."""
    count = quantiles.shape[1]
    levels = (np.arange(count) + 0.5) / count
    above = (quantiles <= z[:, None]).sum(1)  # quantiles below z
    left, right = np.clip(above - 1, 0, count - 1), np.clip(above, 0, count - 1)
    rows = np.arange(len(z))
    gap = quantiles[rows, right] - quantiles[rows, left]
    part = np.where(gap > 0, (z - quantiles[rows, left]) / np.where(gap > 0, gap, 1.0), 0.0)
    inside = levels[left] + part * (levels[right] - levels[left])
    below = levels[0] * np.exp(-TAIL * np.maximum(quantiles[:, 0] - z, 0.0))
    beyond = 1 - levels[0] * np.exp(-TAIL * np.maximum(z - quantiles[:, -1], 0.0))
    return np.where(above == 0, below, np.where(above == count, beyond, inside))


def turning_point(steps: Any, densities: Any, least: float = 0.005) -> float:
    """The step at which a path of densities turns round; NaN where it goes one way, or by less than ``least``.

    >>> turning_point([0, 10, 20, 30], [0.5, 0.4, 0.45, 0.6]), turning_point([0, 10], [0.5, 0.4])
    (10.0, nan)
    """
    t, d = np.asarray(steps, dtype=np.float64), np.asarray(densities, dtype=np.float64)
    for at in (int(np.argmin(d)), int(np.argmax(d))):
        if 0 < at < len(d) - 1 and min(abs(d[at] - d[0]), abs(d[at] - d[-1])) >= least:
            return float(t[at])
    return math.nan
