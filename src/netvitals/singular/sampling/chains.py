r"""The health of Monte Carlo chains: effective sample size, $\hat R$, divergence."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from netvitals.capture.result import Result


@dataclass(frozen=True)
class ChainHealth(Result):
    """What must be looked at before a chain's mean is believed."""

    effective_draws: float  # over all healthy chains
    r_hat: float  # split-chain potential scale reduction; near 1 is good
    diverged: tuple[int, ...]  # chains left out because their loss was not finite or ran away
    trend: float  # (mean of last third − mean of first third) / standard deviation, averaged over chains

    @property
    def ok(self) -> bool:
        return not self.diverged and self.r_hat < 1.1 and abs(self.trend) < 1.0

    def __str__(self) -> str:
        words = [f"{self.effective_draws:.0f} effective draws", f"R̂ {self.r_hat:.3f}"]
        if self.diverged:
            words.append(f"chains {list(self.diverged)} diverged and were left out")
        if abs(self.trend) >= 1.0:
            words.append("the loss still drifts: lengthen the burn-in")
        return ", ".join(words)


def examine(trace: np.ndarray, limit: float) -> tuple[ChainHealth, np.ndarray]:
    """Health of the chains, and those of them that may be averaged.

    Args:
        trace: losses along the chains, (chains, draws).
        limit: a chain whose loss passes this value, or is not finite, counts as diverged.

    Returns:
        The health of the chains, and the rows of ``trace`` that did not diverge.
    """
    with np.errstate(invalid="ignore"):
        bad = ~np.isfinite(trace).all(1) | (trace > limit).any(1)
    good = trace[~bad]
    if good.size == 0:
        return ChainHealth(0.0, math.nan, tuple(np.flatnonzero(bad).tolist()), math.nan), good
    ess = float(sum(effective_draws(chain) for chain in good))
    third = max(1, good.shape[1] // 3)
    spread = good.std(1)
    spread[spread == 0] = 1.0
    trend = float(((good[:, -third:].mean(1) - good[:, :third].mean(1)) / spread).mean())
    return ChainHealth(ess, split_r_hat(good), tuple(np.flatnonzero(bad).tolist()), trend), good


def effective_draws(x: np.ndarray) -> float:
    r"""$n / (1 + 2\sum_\tau \rho_\tau)$, the sum cut at the first non-positive pair of autocorrelations (Geyer).

    >>> bool(800 < effective_draws(np.random.default_rng(0).normal(size=1000)) < 1200)
    True
    """
    n = x.size
    centred = x - x.mean()
    if n < 4 or not centred.any():
        return float(n)
    size = 1 << (2 * n - 1).bit_length()
    spectrum = np.abs(np.fft.rfft(centred, size)) ** 2
    rho = np.fft.irfft(spectrum, size)[:n]
    rho /= rho[0]
    pairs = rho[1:-1:2] + rho[2::2]
    stop = np.argmax(pairs <= 0) if (pairs <= 0).any() else pairs.size
    return float(n / max(1 + 2 * pairs[:stop].sum(), 1 / n))


def split_r_hat(chains: np.ndarray) -> float:
    r"""$\hat R$ on half chains: square root of pooled over within-chain variance.

    >>> round(split_r_hat(np.random.default_rng(0).normal(size=(4, 1000))), 1)
    1.0
    """
    half = chains.shape[1] // 2
    if half < 2:
        return math.nan
    parts = np.concatenate([chains[:, :half], chains[:, half : 2 * half]])
    within = parts.var(1, ddof=1).mean()
    between = half * parts.mean(1).var(ddof=1)
    if within == 0:
        return 1.0
    return float(math.sqrt(((half - 1) / half * within + between / half) / within))
