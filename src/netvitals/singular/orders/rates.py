r"""Exponents from curves: $y \sim c\,t^{p}$ with a floor, a window and, for a checkpoint near a singularity, a shift.

At a checkpoint that sits a distance $s_0$ away from the singular set, $y = c\,(s + s_0)^p$; a plain log–log fit is then
biased low (1.66 instead of 2 in the reference case) however good its R² looks. ``shift=True`` fits $s_0$ as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from netvitals import stats
from netvitals.capture import Result

_FLOOR = 1e-14  # of the largest value: below it float64 round-off decides


@dataclass(frozen=True)
class RateFit(Result):
    """The exponent with its uncertainty and everything needed to doubt it.

    Returned by :func:`rate_fit`.

    Attributes:
        slope: the exponent.
        stderr: of the slope.
        interval: 95 %.
        r2: share of the variance that the line explains.
        coefficient: c in c·t^slope.
        shift: s0, zero unless fitted.
        used: points inside window and above floor.
        below_floor: points that were left out because they are rounding.
        drift: last local slope minus first: large means not yet asymptotic.
        flags: doubts, in words.
    """

    slope: float
    stderr: float
    interval: tuple[float, float]
    r2: float
    coefficient: float
    shift: float
    used: int
    below_floor: int
    drift: float
    flags: tuple[str, ...] = ()

    def __str__(self) -> str:
        words = f"; {', '.join(self.flags)}" if self.flags else ""
        return f"t^{self.slope:.3f} ± {self.stderr:.3f} ({self.used} points, R² {self.r2:.5f}{words})"


def rate_fit(
    ts: Any, ys: Any, *, window: tuple[float, float] | None = None, floor: float | None = None, shift: bool = False
) -> RateFit:
    """Fit a power law $y = c (t + s_0)^p$ on logarithmic axes.

    A curve that is zero everywhere is not fitted: it gets slope NaN and the flag "identically zero".

    Args:
        ts: places t; those that are not positive are left out.
        ys: the quantity at each of them.
        window: keep only t inside it.
        floor: keep only y above it; by default 1e-14 of the largest.
        shift: fit $s_0 ≥ 0$ by least squares; otherwise it is 0.

    Returns:
        The exponent with its 95 % interval, the coefficient, and flags; NaN where fewer than three points are left.

    >>> t = np.geomspace(1e-3, 1e-1, 9)
    >>> round(rate_fit(t, 3 * (t + 1e-3) ** 2, shift=True).slope, 4)
    2.0
    """
    t, y = np.asarray(ts, float).ravel(), np.asarray(ys, float).ravel()
    if t.shape != y.shape:
        raise ValueError(f"rate_fit needs one value in ys for each t in ts, got {t.size} values of t and {y.size} of y")
    if not (np.isfinite(t).all() and np.isfinite(y).all()):
        raise ValueError("rate_fit needs finite ts and ys: look for NaN in the data or a diverged model")
    nan = math.nan
    peak = np.abs(y).max() if y.size else 0.0
    if peak == 0:
        return RateFit(
            slope=nan,
            stderr=nan,
            interval=(nan, nan),
            r2=nan,
            coefficient=0.0,
            shift=0.0,
            used=0,
            below_floor=int(t.size),
            drift=nan,
            flags=("identically zero",),
        )
    floor = _FLOOR * peak if floor is None else floor
    keep = (t > 0) & (y > floor)
    if window is not None:
        keep &= (t >= window[0]) & (t <= window[1])
    t, y, dropped = t[keep], y[keep], int((~keep).sum())
    if t.size < 3:
        few = ("too few points above the floor",)
        return RateFit(
            slope=nan,
            stderr=nan,
            interval=(nan, nan),
            r2=nan,
            coefficient=nan,
            shift=0.0,
            used=int(t.size),
            below_floor=dropped,
            drift=nan,
            flags=few,
        )
    flags = []
    s0 = _best_shift(t, y) if shift else 0.0
    fit = stats.loglog_slope(t + s0, y)
    drift = fit.local[-1] - fit.local[0] if len(fit.local) > 1 else 0.0
    if abs(drift) > 0.3:
        flags.append("local slopes drift: not asymptotic over the whole window")
    if shift and s0 > t[-1] / 3:
        flags.append("the shift is as large as the window: scan further out")
    return RateFit(
        slope=fit.value,
        stderr=fit.stderr,
        interval=fit.interval(),
        r2=fit.r2,
        coefficient=math.exp(fit.intercept),
        shift=s0,
        used=fit.n,
        below_floor=dropped,
        drift=drift,
        flags=tuple(flags),
    )


def _best_shift(t: np.ndarray, y: np.ndarray) -> float:
    """Least squares over s0, by a coarse scan and a bounded refinement on its logarithm."""
    from scipy.optimize import minimize_scalar

    def residual(log_s0: float) -> float:
        x, z = np.log(t + math.exp(log_s0)), np.log(y)
        x, z = x - x.mean(), z - z.mean()
        return float(((z - (x @ z) / (x @ x) * x) ** 2).sum())

    scan = np.linspace(math.log(t[0]) - 9, math.log(t[-1]) + 1, 60)
    best = int(np.argmin([residual(s) for s in scan]))
    low, high = scan[max(best - 1, 0)], scan[min(best + 1, scan.size - 1)]
    found = float(minimize_scalar(residual, bounds=(low, high), method="bounded", options={"xatol": 1e-10}).x)
    plain = math.log(t[0]) - 40
    return 0.0 if residual(plain) <= residual(found) * (1 + 1e-9) else math.exp(found)
