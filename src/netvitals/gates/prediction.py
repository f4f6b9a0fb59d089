r"""What the first two moments of an activation's input say about its gate density, in five predictors.

For $z \sim N(\mu, \sigma^2)$ and an activation whose gates are open, $|f'(z)| > \theta$, on the intervals $(a_j, b_j)$:

$$D(\theta) = \sum_j \Phi\Big(\frac{b_j-\mu}{\sigma}\Big) - \Phi\Big(\frac{a_j-\mu}{\sigma}\Big).$$

The half-line predictors replace the union of intervals by $(z_{low}, \infty)$ with the signed crossing
$z_{low} = \inf\{z : f'(z) > \theta\}$: right for ReLU and softplus, and too low for GELU, SiLU and Mish, whose
derivative is active again on the negative tail.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from netvitals.capture import Result

PREDICTORS = ("population", "raw", "normalized", "phi", "interval_union")  # three margins, two densities
NEITHER = 1e-4  # of the typical deviation: a population margin below has no direction


def predict(mu: Any, sigma: Any, f: Any, theta: float = 0.01) -> Any:
    r"""Predict gate density for Gaussian inputs: $\sum_j \Phi((b_j-\mu)/\sigma) - \Phi((a_j-\mu)/\sigma)$.

    Args:
        mu: mean of the activation's input: a number, an array (one per channel) or a tensor.
        sigma: its standard deviation, in the same form.
        f: the activation: a module, a callable, a registered name, or its ``Crossings``.
        theta: a gate is open where |f'| > theta, strictly.

    Returns:
        The density in [0, 1], in the kind and shape of ``mu``. Where sigma is 0 the input is a constant, and the
        density is 1 if it lies inside an active interval, else 0.

    >>> from types import SimpleNamespace
    >>> relu = SimpleNamespace(intervals=((0.0, float("inf")),), z_low=0.0)
    >>> round(predict(-0.05, 0.33, relu), 10)
    0.4397846798
    """
    mean, std = _moments(mu, sigma)
    out = _union(mean, std, _intervals(f, theta))
    return _like(out, mu, sigma)


@dataclass(frozen=True, kw_only=True)
class Margins(Result):
    """The five margins that predict the gate density of one site; arrays have one entry per channel.

    Returned by :func:`margins`.

    Attributes:
        theta: threshold of the gates.
        z_low: the lowest input whose gate is above the threshold.
        population: a number: mean(mu) - z_low.
        deviation: root of the mean of sigma², what the population margin is compared with.
        raw: mu − z_low.
        normalized: ±inf where sigma is 0, NaN where the margin is 0 too.
        phi: Φ of the normalised margin: the density if the gate opened at z_low and never shut.
        interval_union: the density under a Gaussian input, summed over all intervals where the gate is open.
        sensitivity: dD/d ln(sigma) of the interval union: below 0, a shrinking sigma opens gates.
        not_finite: channels whose normalized margin is not finite: leave them out of correlations.
    """

    theta: float
    z_low: float
    population: float
    deviation: float
    raw: np.ndarray
    normalized: np.ndarray
    phi: np.ndarray
    interval_union: np.ndarray
    sensitivity: np.ndarray
    not_finite: int

    @property
    def direction(self) -> int:
        """Where density goes as the variance collapses: +1 up, −1 down, the sign of the population margin.

        0 where it goes neither way: the margin is below 1e-4 of the typical deviation, as before a ReLU whose inputs
        are normalised to mean zero. Its sign is rounding then.
        """
        return int(np.sign(self.population)) if abs(self.population) > NEITHER * self.deviation else 0

    @property
    def confidence(self) -> float:
        """|population margin|: small means unreliable."""
        return abs(self.population)

    @property
    def density(self) -> float:
        """Predicted density of the site: mean of the interval-union law over channels."""
        return float(np.mean(self.interval_union))

    def __getitem__(self, predictor: str) -> Any:
        if predictor not in PREDICTORS:
            raise ValueError(f"predictor= must be one of {', '.join(PREDICTORS)}, got {predictor!r}")
        return getattr(self, predictor)

    def __str__(self) -> str:
        way = {1: "rises", -1: "falls", 0: "neither rises nor falls"}[self.direction]
        return (
            f"theta {self.theta:g}: z_low {self.z_low:+.4f}, population margin {self.population:+.4f} "
            f"(density {way} as variance shrinks), predicted density {self.density:.4f} over {self.raw.size} "
            f"channels, {self.not_finite} without a finite margin"
        )


def margins(mu: Any, sigma: Any, f: Any, theta: float = 0.01) -> Margins:
    """Compute five predictors of gate density from channel means and standard deviations of an activation's input.

    Args:
        mu: mean of the activation's input, one entry per channel.
        sigma: its standard deviation, one entry per channel; 0 for a channel that is constant.
        f: the activation: a module, a callable, a registered name, or its ``Crossings``.
        theta: a gate is open where |f'| > theta, strictly.

    Returns:
        The predictors, arrays with one entry per channel (``population`` is one number for the site).

    >>> from types import SimpleNamespace
    >>> relu = SimpleNamespace(intervals=((0.0, float("inf")),), z_low=0.0)
    >>> m = margins([0.5, -0.5], [1.0, 0.0], relu)
    >>> m.normalized.tolist(), m.not_finite
    ([0.5, -inf], 1)
    """
    mean, std = _moments(mu, sigma)
    mean, std = torch.broadcast_tensors(mean, std)
    mean, std = mean.reshape(-1), std.reshape(-1)
    crossings = _crossings(f, theta)
    z_low = float(crossings.z_low)
    raw = mean - z_low
    normalized = raw / std  # IEEE division gives ±inf and NaN exactly where the definition asks
    intervals = tuple(crossings.intervals)
    return Margins(
        theta=float(theta),
        z_low=z_low,
        population=float(raw.mean()),
        deviation=float(std.square().mean().sqrt()),
        raw=raw.cpu().numpy(),
        normalized=normalized.cpu().numpy(),
        phi=torch.special.ndtr(normalized).cpu().numpy(),
        interval_union=_union(mean, std, intervals).cpu().numpy(),
        sensitivity=_sensitivity(mean, std, intervals).cpu().numpy(),
        not_finite=int((~torch.isfinite(normalized)).sum()),
    )


def _union(mean: Tensor, std: Tensor, intervals: tuple[tuple[float, float], ...]) -> Tensor:
    """The shorter tail of each interval is subtracted, so that a density near 0 keeps its digits."""
    mean, std = torch.broadcast_tensors(mean, std)
    out = torch.zeros_like(mean)
    for a, b in intervals:
        low, high = (a - mean) / std, (b - mean) / std
        right = torch.special.ndtr(-low) - torch.special.ndtr(-high)
        left = torch.special.ndtr(high) - torch.special.ndtr(low)
        smooth = torch.where(low > 0, right, left)
        constant = ((mean > a) & (mean < b)).to(mean.dtype)
        out = out + torch.where(std > 0, smooth, constant)
    return torch.where(torch.isnan(mean) | torch.isnan(std), torch.nan, out)


def _sensitivity(mean: Tensor, std: Tensor, intervals: tuple[tuple[float, float], ...]) -> Tensor:
    def edge(z: float) -> Tensor:
        u = (z - mean) / std
        return torch.where(torch.isfinite(u), u * torch.exp(-u * u / 2) / math.sqrt(2 * math.pi), 0.0)

    out = torch.zeros_like(mean)
    for a, b in intervals:
        out = out + edge(a) - edge(b)
    return out


def _moments(mu: Any, sigma: Any) -> tuple[Tensor, Tensor]:
    mean, std = (
        v.detach().to(torch.float64) if isinstance(v, Tensor) else torch.from_numpy(np.array(v, dtype=np.float64))
        for v in (mu, sigma)
    )
    if bool((std < 0).any()):
        raise ValueError(f"sigma= is a standard deviation and must not be negative, got {float(std.min()):g}")
    try:
        torch.broadcast_shapes(mean.shape, std.shape)
    except RuntimeError:
        raise ValueError(
            f"mu= and sigma= must each have one entry per channel, got shapes {tuple(mean.shape)} and "
            f"{tuple(std.shape)}"
        ) from None
    return mean, std


def _crossings(f: Any, theta: float) -> Any:
    if not theta >= 0:
        raise ValueError(f"theta= must not be negative, got {theta}: it is compared with the absolute value |f'|")
    if hasattr(f, "intervals"):
        return f
    from netvitals import activations

    return activations.crossings(f, theta)


def _intervals(f: Any, theta: float) -> tuple[tuple[float, float], ...]:
    return tuple(_crossings(f, theta).intervals)


def _like(out: Tensor, mu: Any, sigma: Any) -> Any:
    given = next((v for v in (mu, sigma) if isinstance(v, Tensor)), None)
    if given is not None:
        return out.to(given.dtype) if given.is_floating_point() else out
    return float(out) if out.ndim == 0 else out.numpy()
