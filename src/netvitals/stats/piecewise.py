"""Where does a curve break? Continuous two-segment fit with a bootstrap interval for the breakpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from netvitals.stats._sample import Array, pair


@dataclass(frozen=True)
class TwoSegments:
    """y = intercept + left·x before the breakpoint, slope ``right`` after it, continuous in between.

    Returned by :func:`two_segments`.

    Attributes:
        breakpoint: where the slope changes.
        low: bootstrap percentile interval of the breakpoint.
        high: upper end.
        level: nominal coverage of the interval.
        left: slope before.
        right: slope after.
        intercept: at x = 0, of the left line.
        rss: sum of squared residuals.
        rss_line: the same data with one straight line.
        n: points.
        resamples: of the bootstrap.
    """

    breakpoint: float
    low: float
    high: float
    level: float
    left: float
    right: float
    intercept: float
    rss: float
    rss_line: float
    n: int
    resamples: int

    def predict(self, x: Any) -> Array:
        """The fitted value at each ``x``."""
        x = np.asarray(x, dtype=np.float64)
        return self.intercept + self.left * x + (self.right - self.left) * np.maximum(0.0, x - self.breakpoint)

    def __str__(self) -> str:
        return (
            f"break at {self.breakpoint:.4g} [{self.low:.4g}, {self.high:.4g}] ({self.level:.0%}, n={self.n}); "
            f"slope {self.left:.3g} before, {self.right:.3g} after"
        )


def two_segments(
    x: Any,
    y: Any,
    *,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    grid: int = 200,
    groups: Any | None = None,
) -> TwoSegments:
    r"""$\min_{a,b,c,k}\sum_i (y_i - a - b x_i - c\,(x_i-k)_+)^2$, the knot k profiled out on a grid and then refined.

    Args:
        x: where the points are; at least five different values.
        y: their heights.
        level: coverage of the breakpoint's interval.
        resamples: bootstrap draws behind that interval.
        seed: of the draws.
        grid: knots tried before the best one is refined.
        groups: one label per point; whole groups (runs) are resampled instead of points.

    Returns:
        The breakpoint with its interval, and the slopes on both sides.

    >>> fit = two_segments([0, .1, .2, .3, .4, .5, .6, .7], [1, 1, 1, 1, 1, .8, .6, .4], resamples=50)
    >>> print(f"{fit.breakpoint:.3f} {fit.right:.2f}")
    0.400 -2.00
    """
    a, b = pair(x, y, "two-segment fit", 5)
    levels = np.unique(a)
    if levels.size < 5:
        raise ValueError(f"two-segment fit: needs at least 5 different values of x, got {levels.size}")
    # at least two different x on each side, or one of the two slopes is not determined
    bounds = float(levels[1]), float(levels[-2])
    knot, rss, beta = _best(a, b, np.ones((1, a.size)), bounds, grid)
    line = np.polynomial.polynomial.polyfit(a, b, 1)
    rss_line = float(((b - line[0] - line[1] * a) ** 2).sum())

    weights = _resamples(a.size, resamples, np.random.default_rng(seed), groups)
    drawn = np.concatenate(
        [_best(a, b, chunk, bounds, grid)[0] for chunk in np.array_split(weights, max(1, resamples // 100))]
    )
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    a0, b0, c0 = beta[0]
    return TwoSegments(
        breakpoint=float(knot[0]),
        low=float(low),
        high=float(high),
        level=level,
        left=float(b0),
        right=float(b0 + c0),
        intercept=float(a0),
        rss=max(0.0, float(rss[0])),
        rss_line=rss_line,
        n=a.size,
        resamples=resamples,
    )


def _resamples(n: int, resamples: int, rng: np.random.Generator, groups: Any | None) -> Array:
    """How often each point is drawn in each resample."""
    labels = np.arange(n) if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    if labels.size != n:
        raise ValueError(f"two-segment fit: each of the {n} points needs one group label, got {labels.size}")
    units = int(labels.max()) + 1
    if units < 3:
        raise ValueError(f"two-segment fit: needs at least 3 groups to resample, got {units}")
    return rng.multinomial(units, np.full(units, 1 / units), size=resamples)[:, labels].astype(np.float64)


def _best(a: Array, b: Array, weights: Array, bounds: tuple[float, float], grid: int) -> tuple[Array, Array, Array]:
    """Best knot of every resample: a grid over the whole range, then three finer ones around the best point."""
    knots = np.linspace(*bounds, grid)[None]
    for _ in range(4):
        loss, beta = _profile(a, b, knots, weights)
        at = loss.argmin(1)[:, None]
        best = np.take_along_axis(np.broadcast_to(knots, loss.shape), at, 1)
        result = best[:, 0], np.take_along_axis(loss, at, 1)[:, 0], np.take_along_axis(beta, at[..., None], 1)[:, 0]
        step = knots[:, 1:2] - knots[:, :1]
        knots = np.clip(best + step * np.linspace(-1, 1, 21), *bounds)
    return result


def _profile(a: Array, b: Array, knots: Array, weights: Array) -> tuple[Array, Array]:
    """Weighted residual sum of squares (resample, knot) and coefficients (…, 3), all solved in one batch."""
    scale = float(np.ptp(a))
    t, k = (a - a[0]) / scale, (knots - a[0]) / scale
    ramp = np.maximum(0.0, t - k[..., None])  # (resample or 1, knot, point)
    w = weights[:, None, :]
    s1, st, stt, sb, stb = (
        np.broadcast_to((w * v).sum(-1), (len(weights), k.shape[1])) for v in (np.ones_like(t), t, t * t, b, t * b)
    )
    sr, srt, srr, srb = ((w * v).sum(-1) for v in (ramp, ramp * t, ramp * ramp, ramp * b))
    gram = np.stack([np.stack([s1, st, sr], -1), np.stack([st, stt, srt], -1), np.stack([sr, srt, srr], -1)], -2)
    rhs = np.stack([sb, stb, srb], -1)
    # a resample may leave one side empty; the tiny ridge then gives that segment the flattest fit
    beta = np.linalg.solve(gram + 1e-12 * np.eye(3), rhs[..., None])[..., 0]
    explained = np.einsum("rki,rki->rk", 2 * rhs - np.einsum("rkij,rkj->rki", gram, beta), beta)
    beta = beta / np.array([1.0, scale, scale])
    beta[..., 0] -= beta[..., 1] * a[0]
    return (weights @ (b * b))[:, None] - explained, beta
