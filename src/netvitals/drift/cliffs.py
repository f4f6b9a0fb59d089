"""Where accuracy falls off with sparsity: a broken line through one's own points, with an interval, or no cliff."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from netvitals._plot import Plot, Series
from netvitals.capture import Result
from netvitals.stats import TwoSegments, two_segments

FALL = 0.05  # of the metric, lost from the breakpoint to the sparsest point, for a fall
BETTER = 6.0  # F of the broken line over a straight one; the 5 % point, 3 to 4, is for a break whose place is given
ROUNDING = 1e-12  # of the metric's squares: a residual below is none


def drop_of(fit: TwoSegments, sparsest: float) -> float:
    """What the fit loses from its breakpoint to the sparsest point."""
    return -fit.right * (sparsest - fit.breakpoint)


def falls(fit: TwoSegments, sparsest: float) -> bool:
    """Whether a fit is a cliff: steeper and downward behind the breakpoint, and 5 % lost between it and the end.

    The metric is relative: 1 is the dense reference.
    """
    return fit.right < min(fit.left, 0.0) and fit.rss < fit.rss_line and drop_of(fit, sparsest) >= FALL


@dataclass(frozen=True, kw_only=True)
class Cliff(Result):
    """A broken line through (sparsity, accuracy).

    Returned by :func:`cliff`.

    Attributes:
        exists: whether accuracy falls behind the breakpoint; ``why`` says what is missing where not.
        why: there is none; empty otherwise.
        fit: of the metric relative to the reference; its breakpoint is the cliff's place.
        reference: the accuracy that counts as 1.
        sparsity: of each point.
        accuracy: of each point.
    """

    exists: bool
    why: str
    fit: TwoSegments
    reference: float
    sparsity: np.ndarray
    accuracy: np.ndarray

    @property
    def place(self) -> float:
        """Sparsity at the cliff; NaN where there is none."""
        return self.fit.breakpoint if self.exists else float("nan")

    @property
    def interval(self) -> tuple[float, float]:
        """Of the place, by resampling the points; NaN where there is no cliff."""
        return (self.fit.low, self.fit.high) if self.exists else (float("nan"), float("nan"))

    def rows(self) -> list[dict[str, Any]]:
        """One row a point, with what the fit gives there."""
        fitted = self.fit.predict(self.sparsity) * self.reference
        return [
            {"sparsity": float(s), "accuracy": float(a), "fitted": float(f)}
            for s, a, f in zip(self.sparsity, self.accuracy, fitted)
        ]

    def plot(self) -> Plot:
        """The points, the fit, and the interval of the cliff."""
        ends = sorted({float(self.sparsity.min()), self.fit.breakpoint, float(self.sparsity.max())})
        fitted = (self.fit.predict(np.array(ends)) * self.reference).tolist()
        series = [
            Series("measured", self.sparsity.tolist(), self.accuracy.tolist()),
            Series("fit", ends, fitted, line=True),
        ]
        if self.exists:
            height = float(self.fit.predict([self.place])[0]) * self.reference
            series.append(
                Series("95 % interval of the cliff", list(self.interval), [height] * 2, line=True, dashed=True)
            )
        return Plot("measured sparsity", "accuracy", series)

    def __str__(self) -> str:
        count = f"{len(self.sparsity)} points"
        if not self.exists:
            return f"No cliff in {count}: {self.why}."
        return (
            f"Cliff at sparsity {self.place:.2f} ({self.fit.level:.0%} interval {self.fit.low:.2f} to "
            f"{self.fit.high:.2f}, {count}): accuracy changes by {self.fit.left * self.reference:+.3f} for each unit "
            f"of sparsity before it and by {self.fit.right * self.reference:+.3f} behind it."
        )


def cliff(
    sparsity: Sequence[float],
    accuracy: Sequence[float],
    *,
    reference: float | None = None,
    groups: Sequence[Any] | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> Cliff:
    """Fit the sparsity at which accuracy starts to fall steeply (the cliff), from your own runs.

    A cliff exists only if the fitted curve falls more steeply beyond its breakpoint. Two line segments must also fit
    clearly better than one line (F ≥ 6). In addition, at least 5 % of the reference accuracy must be lost between the
    breakpoint and the sparsest run.

    Args:
        sparsity: measured sparsity of every run, at five different values or more: ``drift.sparsity(...).mean``.
        accuracy: accuracy of the same runs; for a loss, give its reciprocal.
        reference: the accuracy of a dense run, which counts as 1; by default that of the least sparse points.
        groups: one label a point: whole groups (configurations, seeds) are resampled instead of points.
        resamples: behind the interval.
        seed: seed of the resampling.

    Returns:
        The fit with its interval, or that there is no cliff and why.

    >>> found = cliff([0, 0.2, 0.4, 0.6, 0.7, 0.8, 0.9], [0.98, 0.98, 0.981, 0.98, 0.98, 0.8, 0.6])
    >>> found.exists, round(found.place, 2)
    (True, 0.71)
    >>> print(cliff([0, 0.2, 0.4, 0.6, 0.8], [0.98, 0.97, 0.98, 0.97, 0.98]))
    No cliff in 5 points: the sparsest point has lost less than 5%.
    """
    x, y = np.asarray(sparsity, dtype=np.float64), np.asarray(accuracy, dtype=np.float64)
    if x.shape != y.shape or x.ndim != 1:
        raise ValueError(f"sparsity= and accuracy= must be two lists of the same length, got {x.shape} and {y.shape}")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError("sparsity= and accuracy= must be finite: leave out diverged runs, and report how many")
    if x.size and not (x.min() >= 0 and x.max() <= 1):
        raise ValueError(f"sparsity= must be a fraction from 0 to 1, got {x.min():g} to {x.max():g}")
    dense = float(y[x == x.min()].mean()) if reference is None and x.size else reference
    if dense is None or not dense > 0:
        raise ValueError(f"the reference accuracy must be positive, got {dense}")
    fit = two_segments(x, y / dense, resamples=resamples, seed=seed, groups=groups)
    why = ""
    if y[x == x.max()].mean() > (1 - FALL) * dense:
        why = f"the sparsest point has lost less than {FALL:.0%}"
    elif not _broken(fit, y / dense):
        why = "one straight line fits as well"
    elif not falls(fit, float(x.max())):
        why = "accuracy falls less behind the breakpoint than before it"
    return Cliff(exists=not why, why=why, fit=fit, reference=dense, sparsity=x, accuracy=y)


def _broken(fit: TwoSegments, y: np.ndarray) -> bool:
    """Whether two segments fit clearly better than one line, by F with two parameters more."""
    gain, floor = fit.rss_line - fit.rss, ROUNDING * float(np.square(y).sum())
    return gain > floor and gain / 2 >= BETTER * max(fit.rss, floor) / max(1, fit.n - 4)
