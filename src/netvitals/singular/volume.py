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


@dataclass(frozen=True)
class VolumeScan:
    """Fit of log Vol = λ log ε + (m−1) log(−log ε) + c over a range of ε."""

    lam: float
    lam_stderr: float       # of the fit, or the gap between its two halves: lower powers of log ε bend the line
    m: int
    residual: float         # root mean square of the fit that was chosen
    eps: np.ndarray
    volume: np.ndarray
    samples: int

    def __str__(self) -> str:
        return (f"λ = {self.lam:.4f} ± {self.lam_stderr:.4f}, m = {self.m} from the volume of {{K < ε}} "
                f"({self.samples} samples)")


def eps_scan_volume(kl: Callable[[Tensor], Tensor], dim: int, *, radius: float = 1.0, prior_h: float = 0.0,
                    eps: tuple[float, float] = (1e-8, 1e-3), points: int = 24, samples: int = 2_000_000,
                    max_m: int = 3, seed: int = 0) -> VolumeScan:
    r"""Monte Carlo of $\mathrm{Vol}\{K < \varepsilon\}$ in the box $[0, r]^{dim}$ under the prior $\prod |u_i|^h$.

    Points are drawn log-uniformly in each coordinate and reweighted, so that small ε has samples.

    Args:
        kl: batched function (samples, dim) → (samples,).
        max_m: multiplicities 1..max_m are compared by the residual of their fits.
    """
    if dim < 1 or samples < 1:
        raise ValueError(f"a volume needs at least one dimension and one sample, got {dim} and {samples}")
    if not 0 < eps[0] < eps[1] < 1:
        raise ValueError(f"eps must be an increasing pair inside (0, 1), got {eps}")
    generator = torch.Generator().manual_seed(seed)
    depth = -math.log(eps[0]) + 3.0                     # how far down, in log units, a single coordinate may sit
    u = torch.rand(samples, dim, generator=generator, dtype=torch.float64)
    x = radius * torch.exp(-depth * u)
    weight = ((x / radius) ** (1 + prior_h)).prod(1) * ((1 + prior_h) * depth) ** dim
    values = kl(x)
    if values.shape != (samples,) or not torch.isfinite(values).all() or bool((values < 0).any()):
        raise ValueError(f"kl must give one finite, non-negative number a sample, ({samples},); got shape "
                         f"{tuple(values.shape)} with {int((~(values >= 0)).sum())} negative or NaN")
    order = torch.argsort(values)
    mass = torch.cumsum(weight[order], 0) / samples
    grid = np.geomspace(eps[0], eps[1], points)
    index = torch.searchsorted(values[order], torch.as_tensor(grid)) - 1
    if int(index[0]) < 100:
        raise ValueError(f"only {int(index[0]) + 1} samples have K below {eps[0]:g}: raise eps[0] or samples")
    volume = mass[index].numpy()
    best = None
    for m in range(1, max_m + 1):
        x_axis, y_axis = np.log(grid), np.log(volume) - (m - 1) * np.log(-np.log(grid))
        design = np.stack([x_axis, np.ones(points)], 1)
        (lam, c), *_ = np.linalg.lstsq(design, y_axis, rcond=None)
        rms = float(np.sqrt(np.mean((y_axis - lam * x_axis - c) ** 2)))
        stderr = rms * math.sqrt(points / max(points - 2, 1)) / math.sqrt(((x_axis - x_axis.mean()) ** 2).sum())
        low, high = slice(points // 2), slice(points // 2, None)
        halves = [np.polyfit(x_axis[part], y_axis[part], 1)[0] for part in (low, high)]
        stderr = max(stderr, abs(halves[0] - halves[1]))
        if best is None or rms < best[2]:
            best = (float(lam), float(stderr), rms, m)
    assert best is not None
    return VolumeScan(best[0], best[1], best[3], best[2], grid, volume, samples)


def tied_crossing_volume(eps: float, k: int, r: int, h: float = 0.0) -> float:
    r"""Exact $\int_{(0,1)^r} 1[\prod x_i^{2k} < \varepsilon] \prod x_i^h\,dx = (h+1)^{-r} P_r(\delta^{h+1})$,
    $\delta = \varepsilon^{1/2k}$, $P_r(\delta) = \delta \sum_{j<r} (-\log\delta)^j / j!$.

    >>> round(tied_crossing_volume(1e-4, k=1, r=1), 6)
    0.01
    """
    if not 0 < eps <= 1:
        raise ValueError(f"eps must lie in (0, 1], got {eps}")
    d = eps ** ((h + 1) / (2 * k))
    return (h + 1) ** -r * d * sum((-math.log(d)) ** j / math.factorial(j) for j in range(r))
