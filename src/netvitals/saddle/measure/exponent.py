r"""Exponent of the escape time from measured times: is it −(r − 2)? And do rescaled times collapse?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from netvitals._plot import Plot, Series
from netvitals.capture import Result


@dataclass(frozen=True, kw_only=True)
class ExponentFit(Result):
    r"""Fit of $\ln t$ on $\ln\varepsilon$ (and of $t$ on $\ln(1/\varepsilon)$ when r = 2).

    Returned by :func:`fit_exponent`.

    Attributes:
        slope: of ln t on ln ε.
        stderr: of the slope.
        r2: share of the variance that the line explains.
        local: slopes between neighbouring ε, smallest ε first.
        eps: small scales, rising.
        times: mean over seeds.
        seeds: runs behind each mean.
        missing: runs without an escape, left out of the means.
        expected: −(r − 2), where r was given.
        log_rate: dt / d ln(1/ε).
        log_r2: the same share for the fit of t on ln(1/ε).
    """

    slope: float
    stderr: float
    r2: float
    local: tuple[float, ...]
    eps: tuple[float, ...]
    times: tuple[float, ...]
    seeds: int
    missing: int
    expected: float | None = None
    log_rate: float = math.nan
    log_r2: float = math.nan

    def plot(self) -> Plot:
        """Escape times over ε with the fitted power, as in the paper's third figure."""
        eps, times = np.array(self.eps), np.array(self.times)
        level = np.exp(np.log(times).mean() - self.slope * np.log(eps).mean())
        fit = Series(f"ε^{self.slope:.2f}", eps.tolist(), (level * eps**self.slope).tolist(), line=True)
        return Plot(
            "small scale ε",
            "escape time",
            [Series("measured", list(self.eps), list(self.times)), fit],
            log_x=True,
            log_y=True,
        )

    def agrees(self, tolerance: float = 0.05) -> bool:
        """Whether the fitted slope is within ``tolerance`` of −(r − 2)."""
        if self.expected is None:
            raise ValueError(
                "fit_exponent compares the slope with −(r − 2) and needs r, the number of small layers: pass r="
            )
        return abs(self.slope - self.expected) <= tolerance

    @property
    def verdict(self) -> str:
        if self.expected is None:
            return "no r given: nothing to compare with"
        if self.expected == 0 and not math.isnan(self.log_r2) and self.log_r2 > 0.99:
            return f"logarithmic: t grows by {self.log_rate:.4g} per unit of ln(1/eps) (R² = {self.log_r2:.4f})"
        gap = self.slope - self.expected
        return (
            f"slope {self.slope:.3f} ± {self.stderr:.2g} against {self.expected:.0f} "
            f"(off by {gap:+.3f}; at the smallest eps {self.local[0]:.3f})"
        )

    def __str__(self) -> str:
        window = f"eps {self.eps[0]:.3g} to {self.eps[-1]:.3g}, {len(self.eps)} points, {self.seeds} seed(s)"
        lost = f", {self.missing} run(s) without escape" if self.missing else ""
        return f"{self.verdict} [{window}{lost}]"


def fit_exponent(eps: Any, times: Any, r: int | None = None) -> ExponentFit:
    """Fit the exponent p in (escape time) ∝ ε^p, to compare it with the predicted −(r − 2).

    Args:
        eps: small scales (E,).
        times: escape times, (E,) or (E, seeds); NaN where a run did not escape.
        r: number of small layers, to compare with −(r − 2).

    Returns:
        Slope of ln t on ln ε with its standard error, local slopes, and how many runs did not escape.

    >>> print(fit_exponent([0.01, 0.02, 0.04], [100.0, 25.0, 6.25], r=4).verdict)
    slope -2.000 ± 0 against -2 (off by -0.000; at the smallest eps -2.000)
    """
    from netvitals.stats import loglog_slope, slope

    e, t = np.asarray(eps, float), np.asarray(times, float)
    t = t[:, None] if t.ndim == 1 else t
    if e.ndim != 1 or t.shape[0] != e.size:
        raise ValueError(f"times= must have one row per eps: got {e.size} eps and times of shape {np.shape(times)}")
    missing = int(np.isnan(t).sum())
    seen = ~np.isnan(t).all(1)
    order = np.argsort(e[seen])
    e, t = e[seen][order], t[seen][order]
    if e.size < 3:
        raise ValueError(f"fitting a slope needs escape times at three or more values of eps, got {e.size}")
    mean = np.nanmean(t, 1)
    fit = loglog_slope(e, mean)
    line = slope(np.log(1 / e), mean)
    return ExponentFit(
        slope=fit.value,
        stderr=fit.stderr,
        r2=fit.r2,
        local=fit.local,
        eps=tuple(e),
        times=tuple(mean),
        seeds=t.shape[1],
        missing=missing,
        expected=None if r is None else -float(max(r - 2, 0)),
        log_rate=line.value,
        log_r2=line.r2,
    )


@dataclass(frozen=True)
class Collapse(Result):
    """Rescaled escape times K·t of several activations at the same ε."""

    names: tuple[str, ...]
    eps: tuple[float, ...]
    scaled: np.ndarray  # (activations, eps)
    master: np.ndarray  # (eps,), the leading-order value (ε^{2−L} − θ^{2−L})/(L − 2)

    @property
    def deviation(self) -> np.ndarray:
        """K·t over the master curve, minus 1."""
        return self.scaled / self.master - 1

    def spread(self, names: Any = None, eps_max: float = math.inf) -> float:
        """Largest relative range of K·t over the chosen activations, at eps up to ``eps_max``."""
        rows = [self.names.index(n) for n in (names or self.names)]
        part = self.scaled[rows][:, np.asarray(self.eps) <= eps_max]
        return float(((part.max(0) - part.min(0)) / part.mean(0)).max())

    def residual_order(self, name: str) -> float:
        """Slope of ln|deviation| on ln ε: q − 1 away from the resonance."""
        from netvitals.stats import loglog_slope

        return loglog_slope(self.eps, np.abs(self.deviation[self.names.index(name)])).value

    def __str__(self) -> str:
        rows = [f"{n:>10}  " + "  ".join(f"{v:10.4f}" for v in row) for n, row in zip(self.names, self.scaled)]
        head = f"{'eps':>10}  " + "  ".join(f"{e:10.4g}" for e in self.eps)
        return "\n".join([head, *rows, f"{'master':>10}  " + "  ".join(f"{v:10.4f}" for v in self.master)])


def collapse(
    eps: Any, times: Mapping[str, Any], drives: Mapping[str, float], depth: int, threshold: float = 0.5
) -> Collapse:
    """K·t for several activations, to lay over the activation-independent master curve."""
    from netvitals.saddle.laws.escape import balanced

    e = np.asarray(eps, float)
    names = tuple(times)
    scaled = np.stack([np.asarray(times[n], float) * drives[n] for n in names])
    if scaled.shape[1] != e.size:
        raise ValueError(
            f"each activation needs one escape time for each eps: got {e.size} eps and times of length "
            f"{scaled.shape[1]}"
        )
    master = np.array([balanced(x, depth, 1.0, threshold) for x in e])
    return Collapse(names, tuple(e), scaled, master)
