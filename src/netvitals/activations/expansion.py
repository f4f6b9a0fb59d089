r"""What an activation looks like at zero: smooth or bent, and its Taylor coefficients $a_k = f^{(k)}(0)/k!$.

Autograd at exactly 0 misleads for ELU, softsign, SELU, hardtanh and every kink: it silently takes one side. So the two
sides are measured first, from values alone, and coefficients are taken only where both agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from netvitals.activations.derivatives import Activation, in_double

ORDER = 7  # coefficients a_0 .. a_7
_NODES = 14  # of the interpolation on each side of zero
_AGREE = (1e-12, 1e-10, 1e-8, 1e-6, 1e-4)  # how far a_k h^k may differ between the sides, k = 0..4
_NEGLIGIBLE = 1e-9  # a_k counts as zero below this share of the largest, at one scale


@dataclass(frozen=True)
class Smoothness:
    """How a function behaves on the two sides of zero, from its values.

    Returned by :func:`smoothness`.

    Attributes:
        left: one-sided a_0..a_4 from z < 0; empty if that side is not analytic.
        right: the same from z > 0.
        radius: on (−radius, 0) and (0, radius) the function is a power series.
        agree: a_0..a_{agree−1} are the same on both sides; 5 means smooth as far as can be seen.
    """

    left: tuple[float, ...]
    right: tuple[float, ...]
    radius: float
    agree: int

    @property
    def smooth(self) -> bool:
        return self.agree == len(_AGREE)

    @property
    def kinked(self) -> bool:
        """The two slopes differ, or there is a jump or no slope at all."""
        return self.agree < 2


def _side(f: Callable[[Tensor], Tensor], sign: float) -> tuple[tuple[float, ...], float]:
    """One-sided Taylor coefficients from Chebyshev interpolation on the largest (0, h) where it converges."""
    nodes = np.cos(np.pi * (np.arange(_NODES) + 0.5) / _NODES)
    # the coefficients of the interpolant through the Chebyshev points, by their discrete orthogonality
    cosines = np.cos(np.outer(np.arange(_NODES), np.pi * (np.arange(_NODES) + 0.5) / _NODES))
    for power in range(14):
        h = 2.0**-power
        with torch.no_grad():
            values = f(torch.from_numpy(sign * h * (nodes + 1) / 2)).to(torch.float64).numpy()
        series = 2 / _NODES * cosines @ values
        series[0] /= 2
        if np.abs(series[-3:]).max() <= 1e-13 * max(np.abs(series).max(), 1e-300):
            polynomial = np.polynomial.Chebyshev(series, domain=(0, h))
            return tuple(
                float(polynomial.deriv(k)(0.0) if k else polynomial(0.0)) * sign**k / math.factorial(k)
                for k in range(len(_AGREE))
            ), h
    return (), 0.0


def smoothness(f: Activation) -> Smoothness:
    """Compare the Taylor coefficients of an activation on both sides of zero, by interpolating its values.

    Args:
        f: spec string, module or elementwise function.

    Returns:
        The one-sided Taylor coefficients, the radius on which they hold, and how many of them agree.

    >>> smoothness("elu").agree, smoothness("relu").agree, smoothness("gelu").smooth
    (2, 1, True)
    """
    function = in_double(f)
    (left, h_left), (right, h_right) = _side(function, -1.0), _side(function, 1.0)
    radius = min(h_left, h_right)
    if not radius:
        return Smoothness(left, right, 0.0, 0)
    with torch.no_grad():
        at_zero = float(function(torch.zeros(1, dtype=torch.float64)))
        around = function(torch.tensor([-radius, radius], dtype=torch.float64)) - at_zero
    scale = max(float(around.abs().max()), 1e-300)
    left, right = (
        tuple(a if abs(a) * radius**k > _NEGLIGIBLE * scale else 0.0 for k, a in enumerate(side))
        for side in (left, right)
    )
    agree = 0
    for k, tolerance in enumerate(_AGREE):
        gap = max(abs(left[0] - at_zero), abs(right[0] - at_zero)) if k == 0 else abs(left[k] - right[k]) * radius**k
        if gap > tolerance * max(scale, abs(at_zero)):
            break
        agree += 1
    return Smoothness(left, right, radius, agree)


def taylor(f: Activation, order: int = ORDER) -> Tensor:
    r"""Taylor coefficients $a_0..a_{order}$ of an activation at zero, by repeated autograd in float64.

    If repeated autograd fails or contradicts the values (a surrogate gradient), the coefficients come from
    interpolation.

    Args:
        f: spec string, module or elementwise function; one that is not smooth at zero is a ``ValueError``.
        order: the highest power, by default 7.

    Returns:
        $a_k = f^{(k)}(0)/k!$, a float64 tensor of shape ``(order + 1,)``.

    >>> [round(a, 6) for a in taylor("tanh", 5).tolist()]
    [0.0, 1.0, 0.0, -0.333333, 0.0, 0.133333]
    """
    function = in_double(f)
    probe = smoothness(f)
    if not probe.smooth:
        raise ValueError(
            "the function is not smooth at 0, so it has no Taylor series there: the expansions from both sides agree "
            f"in only {probe.agree} coefficients"
        )
    try:
        found = _repeated(function, order)
    except RuntimeError:  # torch has no second derivative of, e.g., hardsigmoid
        return _interpolated(function, order, probe.radius)
    shown = min(4, order + 1)
    seen = torch.tensor(probe.right[:shown], dtype=torch.float64)
    powers = probe.radius ** torch.arange(shown, dtype=torch.float64)
    gap, size = ((found[:shown] - seen) * powers).abs().max(), (seen * powers).abs().max()
    return found if gap <= 1e-5 * size else _interpolated(function, order, probe.radius)


def _interpolated(function: Callable[[Tensor], Tensor], order: int, radius: float) -> Tensor:
    size = 24
    angles = np.pi * (np.arange(size) + 0.5) / size
    with torch.no_grad():
        values = function(torch.from_numpy(radius * np.cos(angles))).to(torch.float64).numpy()
    series = 2 / size * np.cos(np.outer(np.arange(size), angles)) @ values
    series[0] /= 2
    series[np.abs(series) < 1e-14 * np.abs(series).max()] = 0  # rounding noise would be raised to high powers
    power = np.polynomial.chebyshev.cheb2poly(series)
    found = np.zeros(order + 1)
    found[: min(order + 1, len(power))] = power[: order + 1]
    return torch.from_numpy(found / radius ** np.arange(order + 1))


def _repeated(function: Callable[[Tensor], Tensor], order: int) -> Tensor:
    with torch.enable_grad():
        point = torch.zeros(1, dtype=torch.float64, requires_grad=True)
        value = function(point)
        coefficients = [float(value.detach())]
        for k in range(1, order + 1):
            if not value.requires_grad:  # a polynomial has no further terms
                coefficients += [0.0] * (order + 1 - k)
                break
            (grad,) = torch.autograd.grad(value.sum(), point, create_graph=True, allow_unused=True)
            value = torch.zeros_like(point) if grad is None else grad
            coefficients.append(float(value.detach()) / math.factorial(k))
    return torch.tensor(coefficients, dtype=torch.float64) + 0.0  # no −0


def leading(coefficients: Tensor, radius: float) -> list[int]:
    """The orders k whose term counts, judged at one scale: |a_k r^k| above 1e-9 of the largest."""
    scaled = coefficients.abs() * torch.tensor([radius**k for k in range(len(coefficients))], dtype=torch.float64)
    largest = float(scaled[1:].max()) if len(scaled) > 1 else 0.0
    return [k for k, v in enumerate(scaled.tolist()) if v > _NEGLIGIBLE * max(largest, 1e-300)]
