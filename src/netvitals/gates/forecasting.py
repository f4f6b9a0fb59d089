r"""Where gate density goes next, from the mean and deviation of an activation's inputs and the activation alone.

The interval-union law gives the density of a channel today, $D_c = D(\mu_c, \sigma_c)$, and tomorrow, if its deviation
shrinks to $s\,\sigma_c$ and its mean moves by $\delta$: $D_c' = D(\mu_c + \delta, s\,\sigma_c)$. The forecast is the
mean over channels; its confidence says how far the channels agree,

$$\text{confidence} = \frac{|\sum_c D_c' - D_c|}{\sum_c |D_c' - D_c|},$$

1 if all of them go the same way and 0 if they cancel.

A report forecasts a site only where the argument's conditions hold on it: its input comes straight from a norm, whose
scale is what decay shrinks, and the law gives the density of today.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from netvitals._plot import Plot, Series
from netvitals.capture import Result, one_screen, skipped_lines
from netvitals.gates.prediction import margins, predict

STILL = 1e-5  # a smaller change of density is none
POINT = 0.01  # a report calls a smaller change "neither"
LAW_ERROR = 0.05  # |predicted − measured| density up to which the law explains a site
HALVED = 0.5  # σ later over σ now where no decay is given
DRAWN = 8  # sites in the picture


@dataclass(frozen=True, kw_only=True)
class GateForecast(Result):
    """Predicted gate density of one site, now and later.

    Returned by :func:`forecast`.

    Attributes:
        theta: threshold of the gates.
        now: what the law gives today.
        later: what it gives after the change.
        margin: median of (μ_c − z_low)/σ_c over channels.
        confidence: in [0, 1]; 0 where nothing changes.
        shrink: factor on σ.
        shift: added to μ.
        channels: how many were averaged.
    """

    theta: float
    now: float
    later: float
    margin: float
    confidence: float
    shrink: float
    shift: float
    channels: int

    @property
    def change(self) -> float:
        return self.later - self.now

    @property
    def direction(self) -> int:
        """+1 where the density rises, −1 where it falls, 0 where it moves by less than rounding does."""
        return int(np.sign(self.change)) if abs(self.change) > STILL else 0

    @property
    def way(self) -> str:
        return {1: "rise", -1: "fall", 0: "stay"}[self.direction]

    def __str__(self) -> str:
        variance = "shrinking" if self.shrink < 1 else "growing" if self.shrink > 1 else "steady"
        mean = f", mean moving by {self.shift:+.3f}" if self.shift else ""
        return (
            f"gate density will {self.way}, {self.now:.3f} → {self.later:.3f}: margin {self.margin:+.2f} σ and "
            f"{variance} variance{mean} (confidence {self.confidence:.0%}, {self.channels} channels)"
        )


def forecast(
    mu: Any, sigma: Any, f: Any, theta: float = 0.01, *, shrink: float = 0.5, shift: float = 0.0
) -> GateForecast:
    """Gate density of a site when its variance has shrunk.

    Args:
        mu: mean of the activation's input, one entry per channel.
        sigma: standard deviation of the activation's input, one entry per channel.
        f: the activation: a module, a callable, a registered name, or its ``Crossings``.
        theta: a gate is open where |f'| > theta.
        shrink: σ later over σ now.
        shift: mean later minus mean now, the same for all channels.

    Returns:
        Mean density over channels now and later, the median margin in σ, and the confidence in the direction of change.

    >>> print(forecast([-0.2, -0.1], [0.3, 0.3], "relu"))
    gate density will fall, 0.311 → 0.172: margin -0.50 σ and shrinking variance (confidence 100%, 2 channels)
    """
    if not (np.isfinite(shrink) and shrink >= 0 and np.isfinite(shift)):
        raise ValueError(
            "shrink= is a factor on σ and must be finite and not negative, and shift= must be finite; got "
            f"shrink={shrink}, shift={shift}"
        )
    mean, std = (np.atleast_1d(np.asarray(v, dtype=np.float64)) for v in (mu, sigma))
    found = margins(mean, std, f, theta)
    later = np.asarray(predict(mean + shift, std * shrink, f, theta))
    moved = later - found.interval_union
    total = float(np.abs(moved).sum())
    finite = found.normalized[np.isfinite(found.normalized)]
    return GateForecast(
        theta=float(theta),
        now=found.density,
        later=float(later.mean()),
        margin=float(np.median(finite)) if finite.size else float("nan"),
        confidence=abs(float(moved.sum())) / total if total > 0 else 0.0,
        shrink=float(shrink),
        shift=float(shift),
        channels=mean.size,
    )


@dataclass(frozen=True, kw_only=True)
class SiteOutlook:
    """Which way the density of one site will move.

    Part of :class:`GateOutlook`.

    Attributes:
        direction: ``rise``, ``fall`` or ``neither``.
        why: neither; empty otherwise.
        forecast: what the law gives now and later.
        measured: density of today.
        paper: the paper's rule, +1 or −1 by the sign of mean(μ) − z_low; 0 where the margin is rounding.
        path: density for σ from 1 to the last factor of ``GateOutlook.factors``.
    """

    direction: str
    why: str
    forecast: GateForecast
    measured: float
    paper: int
    path: np.ndarray = field(repr=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class GateOutlook(Result):
    """Forecast whether the gate density of every site rises or falls as its input variance shrinks.

    Returned by :meth:`GateReport.forecast`.

    Attributes:
        theta: threshold of the gates.
        shrink: factor on σ that the forecast assumes.
        decay: integrated decay that gives this factor; None if the forecast assumes that σ halves.
        sites: the outlook by the name of its site.
        factors: factors on σ for which densities are predicted.
        skipped: site for which the argument does not hold → reason.
    """

    theta: float
    shrink: float
    decay: float | None
    sites: dict[str, SiteOutlook]
    factors: np.ndarray = field(repr=False)
    skipped: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, site: str) -> SiteOutlook:
        return self.sites[site]

    def rows(self) -> list[dict[str, Any]]:
        """One row per site: forecast direction, density now, margin in units of σ, agreement between channels."""
        return [
            {
                "site": name,
                "direction": s.direction,
                "measured": s.measured,
                "margin": s.forecast.margin,
                "confidence": s.forecast.confidence,
                "paper": s.paper,
                "why": s.why,
            }
            for name, s in self.sites.items()
        ]

    def plot(self) -> Plot:
        """Plot the predicted gate density of every site as σ shrinks."""
        shown = sorted(self.sites, key=lambda n: -abs(self.sites[n].forecast.change))[:DRAWN]
        series = [
            Series(n, self.factors.tolist(), self.sites[n].path.tolist(), line=True) for n in self.sites if n in shown
        ]
        return Plot("σ later / σ now", f"gate density, θ = {self.theta:g}", series)

    def __str__(self) -> str:
        ground = (
            f"with the decay that is left (S = {self.decay:.3g}, σ × {self.shrink:.3g})"
            if self.decay is not None
            else "if σ halves"
        )
        lines = [f"Gate density at θ = {self.theta:g}, {ground}:"]
        for name, s in self.sites.items():
            reason = f" ({s.why})" if s.why else f" (median margin {s.forecast.margin:+.2f} σ)"
            lines.append(f"  {name}: {s.direction}, from {s.measured:.3f}{reason}")
        if not self.sites:
            lines.append("  no site meets the conditions of the forecast")
        return one_screen(lines + skipped_lines(self.skipped))


def outlook(mu: Any, sigma: Any, f: Any, theta: float, *, measured: float, shrink: float, factors: Any) -> SiteOutlook:
    """The direction of one site, from what it is made of."""
    found = forecast(mu, sigma, f, theta, shrink=shrink)
    mean, std = (np.atleast_1d(np.asarray(v, dtype=np.float64)) for v in (mu, sigma))
    why = "" if abs(found.change) >= POINT else f"it would move by {100 * abs(found.change):.1f} points"
    return SiteOutlook(
        direction="neither" if why else found.way,
        why=why,
        forecast=found,
        measured=measured,
        paper=margins(mean, std, f, theta).direction,
        path=np.array([np.asarray(predict(mean, std * k, f, theta)).mean() for k in factors]),
    )
