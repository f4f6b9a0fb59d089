"""Straight-line fits: the one slope fit of the project, plain and on logarithmic axes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from netvitals.stats._sample import Array, pair, varying


@dataclass(frozen=True)
class Slope:
    """Ordinary least squares: y = intercept + slope · x.

    Returned by :func:`slope`, :func:`loglog_slope`.

    Attributes:
        value: the slope.
        stderr: of the slope.
        intercept: at x = 0.
        r2: share of the variance that the line explains.
        n: points.
        local: slopes between neighbouring points, in order of x.
    """

    value: float
    stderr: float
    intercept: float
    r2: float
    n: int
    local: tuple[float, ...] = ()

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Confidence interval at this ``level``, from Student's t with n − 2 degrees of freedom."""
        from scipy.stats import t

        half = float(t.ppf(0.5 + level / 2, self.n - 2)) * self.stderr
        return self.value - half, self.value + half

    def __str__(self) -> str:
        return f"slope {self.value:.4g} ± {self.stderr:.2g} (n={self.n}, R² = {self.r2:.4f})"


def slope(x: Any, y: Any) -> Slope:
    r"""$\hat b = S_{xy}/S_{xx}$, $\mathrm{se}(\hat b)=\sqrt{\mathrm{RSS}/((n-2)S_{xx})}$.

    Args:
        x: at least three numbers, not all the same.
        y: the value at each x.

    Returns:
        Slope with standard error (unit of y per unit of x), intercept, R² and the slopes between neighbours.

    >>> print(slope([0, 1, 2, 3], [1.0, 3.1, 4.9, 7.0]))
    slope 1.98 ± 0.042 (n=4, R² = 0.9991)
    """
    a, b = pair(x, y, "slope fit", 3)
    varying(a, "slope fit, x")
    return _fit(a, b)


def loglog_slope(x: Any, y: Any) -> Slope:
    """The exponent p of y ≈ c·x^p: slope of ln y on ln x.

    Args:
        x: at least three positive numbers, not all the same.
        y: the value at each x, positive.

    Returns:
        The exponent with its standard error, a pure number; the intercept is ln c.

    >>> print(loglog_slope([1, 10, 100], [2.0, 0.02, 0.0002]))
    slope -2 ± 0 (n=3, R² = 1.0000)
    """
    a, b = pair(x, y, "log–log slope fit", 3)
    _positive(a, b)
    varying(a, "log–log slope fit, x")
    return _fit(np.log(a), np.log(b))


def local_slopes(x: Any, y: Any, *, log: bool = True) -> Array:
    """Slopes between neighbouring points, in order of x.

    Args:
        x: at least two different numbers; a repeated one is a ``ValueError``.
        y: the value at each x.
        log: True takes ln of both first, so that the slopes are local exponents; both must be positive then.

    Returns:
        An array with one slope fewer than there are points.

    >>> local_slopes([1, 2, 4], [1, 4, 64]).round(6).tolist()
    [2.0, 4.0]
    """
    a, b = pair(x, y, "local slopes", 2)
    if log:
        _positive(a, b)
        a, b = np.log(a), np.log(b)
    order = np.argsort(a, kind="stable")
    a, b = a[order], b[order]
    if np.any(np.diff(a) == 0):
        raise ValueError("local slopes need different values of x: average y over repeated values of x first")
    return np.diff(b) / np.diff(a)


def _fit(a: Array, b: Array) -> Slope:
    da, db = a - a.mean(), b - b.mean()
    sxx, syy = float(da @ da), float(db @ db)
    value = float(da @ db) / sxx
    rss = float(((db - value * da) ** 2).sum())
    if rss < 1e-28 * max(syy, 1e-300):  # an exact line: what is left is rounding
        rss = 0.0
    order = np.argsort(a, kind="stable")
    steps = np.diff(a[order])
    local = tuple((np.diff(b[order]) / steps).tolist()) if np.all(steps > 0) else ()
    return Slope(
        value=value,
        stderr=(rss / (a.size - 2) / sxx) ** 0.5,
        intercept=float(b.mean() - value * a.mean()),
        r2=1.0 if syy == 0 else 1 - rss / syy,
        n=a.size,
        local=local,
    )


def _positive(a: Array, b: Array) -> None:
    for name, v in (("x", a), ("y", b)):
        if np.any(v <= 0):
            raise ValueError(f"log–log slope: all values of {name} must be positive, the smallest is {v.min():g}")
