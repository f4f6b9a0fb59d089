r"""Where gate density goes next, from the mean and deviation of an activation's inputs and the activation alone.

The interval-union law gives the density of a channel today, $D_c = D(\mu_c, \sigma_c)$, and tomorrow, if its deviation
shrinks to $s\,\sigma_c$ and its mean moves by $\delta$: $D_c' = D(\mu_c + \delta, s\,\sigma_c)$. The forecast is the
mean over channels; its confidence says how far the channels agree,

$$\text{confidence} = \frac{|\sum_c D_c' - D_c|}{\sum_c |D_c' - D_c|},$$

1 if all of them go the same way and 0 if they cancel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from netvitals.capture import Result
from netvitals.gates.prediction import margins, predict

STILL = 1e-5  # a smaller change of density is none


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
            f"shrink is a factor on σ and shift a distance: both finite, shrink not negative; got "
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
