r"""Does a margin follow gate density over training? Tests per channel, per run, and over cells of runs.

A *margin* of a channel (see ``gate_prediction``) is computed from the mean and standard deviation of its input alone.
If it explains gate density, then over a few moments of training margin and density of the same channel go up and down
together. Nothing is fitted, so the same numbers judge any optimizer.

Channels of one run are not independent: a run is reduced to one number (a *cell*), and the sign test counts cells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from netvitals.capture.result import Result
from netvitals.gates.prediction import margins
from netvitals_lab import stats

Kind = Literal["pearson", "spearman"]
MARGINS = ("raw", "normalized", "interval_union")


@dataclass(frozen=True)
class ChannelCorrelations(Result):
    """Correlation of margin and density over moments, one value per channel; NaN where it is undefined."""

    kind: Kind
    values: np.ndarray
    constant: int  # channels whose margin or density never changes
    not_finite: int  # channels with a margin that is not finite (σ = 0)

    @property
    def defined(self) -> int:
        return int(np.isfinite(self.values).sum())

    @property
    def positive(self) -> float:
        """Share of the defined correlations that are positive; NaN if there is none."""
        return float((self.values[np.isfinite(self.values)] > 0).mean()) if self.defined else math.nan

    @property
    def median(self) -> float:
        return float(np.median(self.values[np.isfinite(self.values)])) if self.defined else math.nan

    def __str__(self) -> str:
        return (
            f"{self.positive:.1%} of {self.defined} channels correlate positively ({self.kind}, median "
            f"{self.median:+.2f}); {self.constant} constant and {self.not_finite} without a finite margin left out"
        )


@dataclass(frozen=True)
class TrendAgreement(Result):
    """How many channels' density moved the way their margin moved, between the first and the last moment."""

    agree: int
    disagree: int
    still: int  # margin or density did not move, or the margin is not finite

    @property
    def share(self) -> float:
        return self.agree / (self.agree + self.disagree) if self.agree + self.disagree else math.nan

    def __str__(self) -> str:
        return f"{self.share:.1%} of {self.agree + self.disagree} channels agree in sign ({self.still} did not move)"


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


def channel_margins(mu: Any, sigma: Any, f: Any, theta: float = 0.01) -> dict[str, np.ndarray]:
    """Raw, normalised and interval-union predictor of every channel at every moment: arrays shaped like ``mu``.

    >>> m = channel_margins([[0.5, -0.5]], [[1.0, 0.5]], "relu")
    >>> m["normalized"].tolist()
    [[0.5, -1.0]]
    """
    mean, std = np.broadcast_arrays(np.asarray(mu, dtype=np.float64), np.asarray(sigma, dtype=np.float64))
    found = margins(mean, std, f, theta)
    return {name: np.asarray(found[name]).reshape(mean.shape) for name in MARGINS}


def correlate(margin: Any, density: Any, kind: Kind = "pearson") -> ChannelCorrelations:
    r"""$r_c = \mathrm{corr}_t(M_c(t), D_c(t))$ for every channel.

    >>> print(correlate([[0, 0], [1, 1], [2, 2]], [[.1, .3], [.2, .3], [.4, .3]]))
    100.0% of 1 channels correlate positively (pearson, median +0.98); 1 constant and 0 without a finite margin left out
    """
    m, d = _pair(margin, density, least=3)
    if kind not in ("pearson", "spearman"):
        raise ValueError(f"kind must be 'pearson' or 'spearman', got {kind!r}")
    finite = np.isfinite(m).all(0) & np.isfinite(d).all(0)
    m, d = np.where(finite, m, 0.0), np.where(finite, d, 0.0)
    still = finite & ((np.ptp(m, 0) == 0) | (np.ptp(d, 0) == 0))
    if kind == "spearman":
        from scipy.stats import rankdata

        m, d = rankdata(m, axis=0), rankdata(d, axis=0)
    m, d = m - m.mean(0), d - d.mean(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        # scaled before squaring: a margin may be of any size
        m, d = m / np.abs(m).max(0), d / np.abs(d).max(0)
        r = (m * d).sum(0) / np.sqrt((m * m).sum(0) * (d * d).sum(0))
    return ChannelCorrelations(kind, np.where(finite & ~still, r, np.nan), int(still.sum()), int((~finite).sum()))


def agreement(margin: Any, density: Any) -> TrendAgreement:
    r"""Channels with $\mathrm{sign}(M_c(T)-M_c(0)) = \mathrm{sign}(D_c(T)-D_c(0))$; moments along the first axis.

    >>> print(agreement([[0, 0, 0], [1, -1, 1]], [[.5, .5, .5], [.6, .6, .5]]))
    50.0% of 2 channels agree in sign (1 did not move)
    """
    m, d = _pair(margin, density, least=2)
    with np.errstate(invalid="ignore"):
        a, b = m[-1] - m[0], d[-1] - d[0]
    decided = np.isfinite(a) & np.isfinite(b) & (a != 0) & (b != 0)
    same = int((np.sign(a[decided]) == np.sign(b[decided])).sum())
    return TrendAgreement(same, int(decided.sum()) - same, int((~decided).sum()))


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


def _pair(margin: Any, density: Any, least: int) -> tuple[np.ndarray, np.ndarray]:
    m, d = (np.asarray(v, dtype=np.float64) for v in (margin, density))
    if m.ndim != 2 or m.shape != d.shape or m.shape[0] < least:
        raise ValueError(
            f"margin and density must both be (moments, channels) with {least} moments or more, "
            f"got {m.shape} and {d.shape}"
        )
    return m, d
