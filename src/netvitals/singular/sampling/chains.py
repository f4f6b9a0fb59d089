r"""The health of Monte Carlo chains: effective sample size, $\hat R$, divergence, and the error they leave.

A chain may look settled in its loss while it has seen one arm of a singularity only, so that every statistic is taken
as the worst over the loss, the distance from $w^*$ and random projections of it. $\hat R$ and the effective draws are
those of rank-normalised half chains (Vehtari, Gelman, Simpson, Carpenter and Bürkner 2021).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from netvitals.capture import Result

R_HAT = 1.1  # above it chains disagree about where the posterior lies
FEWEST = 50.0  # effective draws below which neither R̂ nor an error bar can be believed


@dataclass(frozen=True)
class ChainHealth(Result):
    """What must be measured before a chain's mean is believed."""

    effective_draws: float  # of the worst observable, over all healthy chains
    r_hat: float  # of the worst observable; near 1 is good
    diverged: tuple[int, ...]  # chains left out because their loss was not finite or ran away
    worst: str = "loss"  # the observable with the largest R̂
    effective_of_loss: float = math.nan

    @property
    def ok(self) -> bool:
        return not self.diverged and self.r_hat <= R_HAT and self.effective_draws >= FEWEST

    def __str__(self) -> str:
        words = [f"{self.effective_draws:.0f} effective draws", f"R̂ {self.r_hat:.3f} ({self.worst})"]
        if self.diverged:
            words.append(f"chains {list(self.diverged)} diverged and were left out")
        if not self.r_hat <= R_HAT:
            words.append("the chains do not agree yet: more draws, or more rungs")
        elif not self.effective_draws >= FEWEST:
            words.append(f"fewer than {FEWEST:.0f} effective draws: more draws")
        return ", ".join(words)


def examine(traces: Mapping[str, np.ndarray], limit: float) -> tuple[ChainHealth, np.ndarray]:
    """Health of the chains, and which of them may be averaged."""
    loss = traces["loss"]
    with np.errstate(invalid="ignore"):
        bad = ~np.isfinite(loss).all(1) | (loss > limit).any(1)
    diverged = tuple(np.flatnonzero(bad).tolist())
    if bad.all():
        return ChainHealth(0.0, math.nan, diverged), ~bad
    r_hats = {name: r_hat(trace[~bad]) for name, trace in traces.items()}
    draws = {name: effective_draws(ranked(trace[~bad])) for name, trace in traces.items()}
    worst = max(r_hats, key=lambda name: math.inf if math.isnan(r_hats[name]) else r_hats[name])
    return ChainHealth(min(draws.values()), r_hats[worst], diverged, worst, effective_draws(loss[~bad])), ~bad


def ranked(chains: np.ndarray) -> np.ndarray:
    r"""Normal scores $\Phi^{-1}((r - 3/8)/(S + 1/4))$ of the ranks over all chains, ties with their mean rank.

    >>> ranked(np.array([[1.0, 100.0], [2.0, 3.0]])).round(2).tolist()
    [[-1.05, 1.05], [-0.3, 0.3]]
    """
    from scipy.special import ndtri

    _, place, ties = np.unique(chains, return_inverse=True, return_counts=True)
    ranks = (ties.cumsum() - (ties - 1) / 2)[place].reshape(chains.shape)
    return np.asarray(ndtri((ranks - 0.375) / (chains.size + 0.25)))


def halves(chains: np.ndarray) -> np.ndarray:
    """First and second half of every chain, as chains of their own."""
    half = chains.shape[1] // 2
    return np.concatenate([chains[:, :half], chains[:, chains.shape[1] - half :]])


def r_hat(chains: np.ndarray) -> float:
    r"""Rank-normalised split $\hat R$, the larger of that of the values and that of their distances to the median.

    >>> r_hat(np.random.default_rng(0).normal(size=(4, 1000))) < 1.01
    True
    """
    if chains.shape[1] < 4:
        return math.nan
    folded = np.abs(chains - np.median(chains))
    return max(split_r_hat(ranked(chains)), split_r_hat(ranked(folded)))


def split_r_hat(chains: np.ndarray) -> float:
    r"""$\hat R$ on half chains: square root of pooled over within-chain variance.

    >>> round(split_r_hat(np.random.default_rng(0).normal(size=(4, 1000))), 1)
    1.0
    """
    parts = halves(chains)
    half = parts.shape[1]
    if half < 2:
        return math.nan
    within = parts.var(1, ddof=1).mean()
    between = half * parts.mean(1).var(ddof=1)
    if within == 0:
        return 1.0 if between == 0 else math.inf
    return float(math.sqrt(((half - 1) / half * within + between / half) / within))


def effective_draws(chains: np.ndarray) -> float:
    r"""$S / (1 + 2\sum_\tau \rho_\tau)$ over all half chains, the sum cut where pairs of it turn negative.

    The autocorrelations are $1 - (W - \bar c_\tau)/\hat V$ with W the variance within, $\hat V$ the pooled variance and
    $\bar c_\tau$ the mean autocovariance, so that chains that disagree have few effective draws; the sum of pairs is
    made to fall (Geyer).

    >>> bool(800 < effective_draws(np.random.default_rng(0).normal(size=1000)) < 1200)
    True
    """
    parts = halves(np.atleast_2d(chains))
    m, n = parts.shape
    if n < 4 or not np.ptp(parts):
        return float(np.size(chains))
    centred = parts - parts.mean(1, keepdims=True)
    size = 1 << (2 * n - 1).bit_length()
    covariance = np.fft.irfft(np.abs(np.fft.rfft(centred, size)) ** 2, size)[:, :n].mean(0) / (n - 1)
    within = covariance[0]
    pooled = (n - 1) / n * within + parts.mean(1).var(ddof=1)
    rho = 1 - (within - covariance) / pooled
    rho[0] = 1.0
    pairs = rho[: n // 2 * 2].reshape(-1, 2).sum(1)
    stop = int(np.argmax(pairs <= 0)) if (pairs <= 0).any() else pairs.size
    time = -1 + 2 * np.minimum.accumulate(pairs[:stop]).sum()
    return float(m * n / max(time, 1 / math.log10(m * n)))


def standard_error(loss: np.ndarray, others: np.ndarray) -> float:
    r"""The error of the mean loss: the root mean square of what autocorrelation says and what half chains say.

    Within chains it is $s / \sqrt{S_{eff}}$; where an observable o mixes more slowly and correlates with the loss by ρ,
    $s\sqrt{\rho^2/S_o + (1-\rho^2)/S_{eff}}$. It misses what is slow and faint, and is about a tenth too small. The k
    means of half chains miss less but are few: a mean over its error has Student's distribution, whose variance
    (k − 1)/(k − 3) is put into the error, so that errors count as those of a normal one. Bench:
    ``bench/models/learning_coefficient.py``.

    >>> x = np.random.default_rng(0).normal(size=(4, 1000))
    >>> bool(0.01 < standard_error(x, x[None] * 2) < 0.03)
    True
    """
    spread, own = float(loss.std()), max(effective_draws(loss), 1.0)
    within = [spread / math.sqrt(own)]
    for other in others:
        if spread and np.ptp(other):
            share = float(np.corrcoef(loss.ravel(), other.ravel())[0, 1]) ** 2
            slow = max(min(effective_draws(other), own), 1.0)
            within.append(spread * math.sqrt(share / slow + (1 - share) / own))
    means = halves(loss).mean(1)
    k = len(means)
    if k < 4:
        return max(within)
    return math.hypot(max(within), math.sqrt(means.var(ddof=1) / k * (k - 1) / (k - 3))) / math.sqrt(2)
