r"""Volumes near a singular set, as a cross-check of λ and m, and the exact law for tied crossings.

$\mathrm{Vol}\{K < \varepsilon\} \sim \varepsilon^\lambda (-\log\varepsilon)^{m-1}$ (dead-directions §2.4).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from netvitals.capture import Result

_CLOSE = 1.5  # the smallest m whose residual is at most so many times the least is taken


@dataclass(frozen=True)
class VolumeScan(Result):
    """Fit of log Vol = λ log ε + log Σ_{j<m} (−λ log ε)^j/j! + c over a range of ε."""

    lam: float
    lam_stderr: float  # from the residuals, or the gap between the line's two halves: does it bend?
    m: int
    residual: float  # root mean square of the fit that was chosen
    eps: np.ndarray
    volume: np.ndarray
    draws: int

    def __str__(self) -> str:
        return (
            f"λ = {self.lam:.4f} ± {self.lam_stderr:.4f}, m = {self.m} from the volume of {{K < ε}} "
            f"({self.draws} draws)"
        )


def eps_scan_volume(
    kl: Callable[[Tensor], Tensor],
    dim: int,
    *,
    radius: float = 1.0,
    prior_h: float = 0.0,
    eps: tuple[float, float] = (1e-8, 1e-3),
    points: int = 24,
    draws: int = 2_000_000,
    max_m: int = 3,
    seed: int = 0,
) -> VolumeScan:
    r"""Monte Carlo of $\mathrm{Vol}\{K < \varepsilon\}$ in the box $[0, r]^{dim}$ under the prior $\prod |u_i|^h$.

    Points are drawn log-uniformly in each coordinate and reweighted, so that small ε has draws.
    """
    if dim < 1 or draws < 1:
        raise ValueError(f"dim= and draws= must be at least 1, got {dim} and {draws}")
    if not 0 < eps[0] < eps[1] < 1:
        raise ValueError(f"eps= must be two increasing numbers between 0 and 1, got {eps}")
    generator = torch.Generator().manual_seed(seed)
    depth = -math.log(eps[0]) + 3.0  # how far down, in log units, a single coordinate may sit
    u = torch.rand(draws, dim, generator=generator, dtype=torch.float64)
    x = radius * torch.exp(-depth * u)
    weight = ((x / radius) ** (1 + prior_h)).prod(1) * ((1 + prior_h) * depth) ** dim
    values = kl(x)
    if values.shape != (draws,) or not torch.isfinite(values).all() or bool((values < 0).any()):
        raise ValueError(
            f"kl= must return one finite, non-negative number for each draw, shape ({draws},); got shape "
            f"{tuple(values.shape)} with {int((~(values >= 0)).sum())} negative or NaN"
        )
    grid = np.geomspace(eps[0], eps[1], points)
    inside = int((values < eps[0]).sum())
    if inside < 100:
        raise ValueError(
            f"only {inside} draws have a divergence K below {eps[0]:g}, which is too few for an estimate: use a "
            "larger eps[0] or more draws"
        )
    volume = _volumes(values, weight, grid)
    axis = np.log(grid)
    fits = [_fit(axis, np.log(volume), m) for m in range(1, max_m + 1)]
    least = min(rms for *_, rms in fits)
    m, (lam, bend, rms) = next((m, fit) for m, fit in enumerate(fits, 1) if fit[2] <= _CLOSE * least)
    # points of one scan share their draws, so that the residuals are one slow wave
    wave = math.sqrt(12) * rms / float(axis[-1] - axis[0])
    return VolumeScan(lam=lam, lam_stderr=max(bend, wave), m=m, residual=rms, eps=grid, volume=volume, draws=draws)


def _volumes(values: Tensor, weight: Tensor, grid: np.ndarray) -> np.ndarray:
    """Vol{K < ε} for every ε of the grid."""
    order = torch.argsort(values)
    mass = torch.cat([weight.new_zeros(1), torch.cumsum(weight[order], 0) / len(values)])
    return mass[torch.searchsorted(values[order], torch.as_tensor(grid))].numpy()


def _fit(x: np.ndarray, y: np.ndarray, m: int) -> tuple[float, float, float]:
    """λ, the gap between the slopes of its two halves, and the residual of
    log Vol = λ log ε + log Σ_{j<m} (−λ log ε)^j/j! + c, the law of a tied crossing: its lower powers of log ε fade too
    slowly to be left out."""
    lam = float(np.polyfit(x, y, 1)[0])
    for _ in range(100):
        line = y - np.log(sum((-lam * x) ** j / math.factorial(j) for j in range(m)))
        old, (lam, c) = lam, map(float, np.polyfit(x, line, 1))
        if abs(lam - old) < 1e-10:
            break
    rms = float(np.sqrt(np.mean((line - lam * x - c) ** 2)))
    half = len(x) // 2
    ends = [np.polyfit(x[part], line[part], 1)[0] for part in (slice(half), slice(half, None))]
    return lam, float(abs(ends[0] - ends[1])), rms


def tied_crossing_volume(eps: float, k: int, r: int, h: float = 0.0) -> float:
    r"""Exact $\int_{(0,1)^r} 1[\prod x_i^{2k} < \varepsilon] \prod x_i^h\,dx = (h+1)^{-r} P_r(\delta^{h+1})$,
    $\delta = \varepsilon^{1/2k}$, $P_r(\delta) = \delta \sum_{j<r} (-\log\delta)^j / j!$.

    >>> round(tied_crossing_volume(1e-4, k=1, r=1), 6)
    0.01
    """
    if not 0 < eps <= 1:
        raise ValueError(f"eps= must lie in (0, 1], got {eps}")
    d = eps ** ((h + 1) / (2 * k))
    return (h + 1) ** -r * d * sum((-math.log(d)) ** j / math.factorial(j) for j in range(r))
