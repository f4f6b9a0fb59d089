r"""Where the gate |f'| exceeds a threshold: the active set, and the point that decides its future as σ falls.

Two definitions of the lower crossing: literally $\inf\{z: |f'(z)|>\theta\}$, and signed $\inf\{z: f'(z)>\theta\}$. They
differ where f' is negative on the tail (GELU, Mish); published tables hold the signed one, so it is ``z_low``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from netvitals.activations.derivatives import Activation, Key, derivative, in_double
from netvitals.activations.lookalike import refusal
from netvitals.activations.sparse import QuantileReLU, TopK

SPAN = 20.0  # the grid covers [−20, 20] with this step
STEP = 1e-3
FAR = 1e4  # tails are searched on a geometric grid up to here
_FEW = 8  # more crossings than this in a tail: the derivative oscillates for ever


@dataclass(frozen=True)
class Crossings:
    """The active set {z : |f'(z)| > θ} of an activation.

    Attributes:
        theta: threshold θ.
        z_low: inf{z : f'(z) > θ}; −inf if active all the way down, inf if never.
        z_low_literal: inf{z : |f'(z)| > θ}.
        intervals: sorted, open, ends may be ±inf.
        crossings: finite ends of the intervals.
        oscillates: the intervals stop at ±20 though the activation goes on crossing.

    >>> c = crossings("gelu", 0.1)
    >>> print(c)
    |f'| > 0.1 on (-1.8613, -1.0779) and (-0.5544, inf); z_low = -0.5544 (signed), -1.8613 (literal)
    """

    theta: float
    z_low: float
    z_low_literal: float
    intervals: tuple[tuple[float, float], ...]
    crossings: tuple[float, ...]
    oscillates: bool = False

    def active(self, z: Tensor) -> Tensor:
        """Whether each ``z`` lies in the active set."""
        inside = torch.zeros_like(z, dtype=torch.bool)
        for a, b in self.intervals:
            inside |= (z > a) & (z < b)
        return inside

    def density(self, mu: Any, sigma: Any) -> Tensor:
        r"""Gate density under $z \sim N(\mu,\sigma^2)$: $\sum_{(a,b)} \Phi((b-\mu)/\sigma)-\Phi((a-\mu)/\sigma)$.

        ``mu`` and ``sigma`` broadcast. With σ = 0 it is 1 or 0 by the side on which μ lies. Returns float64.

        >>> round(crossings("gelu", 0.01).density(0.0, 1.0).item(), 4)
        0.985
        """
        m = torch.as_tensor(mu, dtype=torch.float64)
        s = torch.as_tensor(sigma, dtype=torch.float64, device=m.device)
        m, s = torch.broadcast_tensors(m, s)
        if (s < 0).any():
            raise ValueError(f"sigma= must not be negative, got {float(s.min())}")
        total = torch.zeros_like(m)
        safe = torch.where(s > 0, s, torch.ones_like(s))
        for a, b in self.intervals:
            # Φ(β)−Φ(α) on the side where both are small keeps the digits of a far tail
            low, high = (a - m) / safe, (b - m) / safe
            mirrored = low > 0
            low, high = torch.where(mirrored, -high, low), torch.where(mirrored, -low, high)
            total += torch.special.ndtr(high) - torch.special.ndtr(low)
        return torch.where(s > 0, total, self.active(m).to(torch.float64))

    def margin(self, mu: Any, sigma: Any = 1.0) -> Tensor:
        """(μ − z_low)/σ for ``mu`` and ``sigma``: positive, and density rises to 1 as σ → 0; negative, and it falls to
        0.
        """
        m = torch.as_tensor(mu, dtype=torch.float64)
        return (m - self.z_low) / torch.as_tensor(sigma, dtype=torch.float64, device=m.device)

    @property
    def slits(self) -> tuple[tuple[float, float], ...]:
        """The inactive intervals between active ones."""
        return tuple((left[1], right[0]) for left, right in zip(self.intervals, self.intervals[1:]))

    def __str__(self) -> str:
        where = " and ".join(f"({_short(a)}, {_short(b)})" for a, b in self.intervals) or "the empty set"
        if len(self.intervals) > 6:
            where = f"{len(self.intervals)} intervals"
        return (
            f"|f'| > {self.theta:g} on {where}; z_low = {_short(self.z_low)} (signed), "
            f"{_short(self.z_low_literal)} (literal)"
        )


def _short(z: float) -> str:
    return f"{z:g}" if math.isinf(z) or z == 0 else f"{z:.4f}"


def crossings(f: Activation, theta: float) -> Crossings:
    """Find all inputs where |f'| crosses θ, to an accuracy of 1e-10, and the intervals where |f'| > θ.

    The derivative is computed by autograd in float64 on a grid. The extrema of the derivative are refined so that no
    narrow interval is missed, and each crossing is found by bisection. Results for named activations are cached.

    Args:
        f: spec string, module or elementwise function.
        theta: the threshold θ that |f'| must exceed for a gate to be active; not negative.

    Returns:
        The active intervals on the z axis, their finite ends, and the lower crossing in both definitions.

    >>> crossings("relu", 0.1).z_low, crossings("leaky_relu:0.2", 0.1).z_low
    (0.0, -inf)
    """
    if not theta >= 0:
        raise ValueError(f"theta= must not be negative, got {theta}: it is compared with the absolute value |f'|")
    return _of(Key(f), float(theta))


@lru_cache(maxsize=512)
def _of(key: Key, theta: float) -> Crossings:
    module = key.module()
    if isinstance(module, (TopK, QuantileReLU)):
        raise ValueError(
            f"{key.token} is not elementwise: each output depends on several inputs, so there is no derivative "
            "f'(z). Give an elementwise activation"
        )
    if why := refusal(in_double(module)):
        raise ValueError(f"{module} has no derivative f'(z): {why}")
    return _search(derivative(module), theta)


def _search(slope: Callable[[Tensor], Tensor], theta: float) -> Crossings:
    literal = _active_intervals(lambda z: slope(z).abs(), theta)
    signed = _active_intervals(slope, theta)
    intervals, oscillates = literal
    ends = {z for pair in intervals for z in pair if not math.isinf(z) and not (oscillates and abs(z) == SPAN)}
    return Crossings(
        theta=theta,
        z_low=_lowest(*signed),
        z_low_literal=_lowest(*literal),
        intervals=intervals,
        crossings=tuple(sorted(ends)),
        oscillates=oscillates,
    )


def _lowest(intervals: tuple[tuple[float, float], ...], oscillates: bool) -> float:
    if oscillates:
        return -math.inf
    return intervals[0][0] if intervals else math.inf


def _active_intervals(gate: Callable[[Tensor], Tensor], theta: float) -> tuple[tuple[tuple[float, float], ...], bool]:
    points, values = _sampled(gate, theta)
    above = values > theta
    changes = (above[1:] != above[:-1]).nonzero().flatten()
    outer = points[changes].abs() >= SPAN
    oscillates = bool(outer.sum() > _FEW)
    if oscillates:
        changes = changes[~outer]
    roots = _bisect(gate, theta, points[changes], points[changes + 1], above[changes])
    inner = points.abs() <= SPAN + STEP / 2
    first = bool(above[inner][0] if oscillates else above[0])
    ends = roots.tolist()
    if first:
        ends.insert(0, -SPAN if oscillates else -math.inf)
    if len(ends) % 2:
        ends.append(SPAN if oscillates else math.inf)
    return tuple(zip(ends[::2], ends[1::2])), oscillates


def _sampled(gate: Callable[[Tensor], Tensor], theta: float) -> tuple[Tensor, Tensor]:
    """Grid points and gate values, with every local extremum that could hide a crossing pair added."""
    count = int(2 * SPAN / STEP)
    middle = torch.arange(-count // 2, count // 2 + 1, dtype=torch.float64) * STEP
    near = torch.logspace(-9, math.log10(STEP), 121, dtype=torch.float64)[:-1]  # stiff functions turn close to 0
    tail = torch.logspace(math.log10(SPAN), math.log10(FAR), 2001, dtype=torch.float64)[1:]
    points = torch.cat([-tail, middle, -near, near, tail]).sort().values
    values = gate(points)
    if not torch.isfinite(values).all():
        bad = float(points[~torch.isfinite(values)][0])
        if abs(bad) <= SPAN:
            raise ValueError(f"the derivative of this activation is not finite at z = {bad:g}")
        values = torch.nan_to_num(values, nan=0.0)
    left, here, right = values[:-2], values[1:-1], values[2:]
    peak = (here >= left) & (here >= right) & (here <= theta) & ((here > left) | (here > right))
    dip = (here <= left) & (here <= right) & (here > theta) & ((here < left) | (here < right))
    found = [_extremum(gate, points[:-2][side], points[2:][side], sign) for side, sign in ((peak, 1.0), (dip, -1.0))]
    points = torch.cat([points, *found]).unique()
    return points, torch.nan_to_num(gate(points), nan=0.0)


def _extremum(gate: Callable[[Tensor], Tensor], a: Tensor, b: Tensor, sign: float) -> Tensor:
    """Ternary search for the largest sign·gate in each bracket."""
    for _ in range(80):
        if not len(a):
            break
        left, right = a + (b - a) / 3, b - (b - a) / 3
        low = sign * gate(left) < sign * gate(right)
        a, b = torch.where(low, left, a), torch.where(low, b, right)
    return (a + b) / 2


def _bisect(gate: Callable[[Tensor], Tensor], theta: float, a: Tensor, b: Tensor, above_at_a: Tensor) -> Tensor:
    """The point in each bracket where the side changes; a kink is bisected just as well as a smooth crossing."""
    for _ in range(70):
        if not len(a):
            return a
        middle = (a + b) / 2
        same = (gate(middle) > theta) == above_at_a
        a, b = torch.where(same, middle, a), torch.where(same, b, middle)
    root = (a + b) / 2
    return torch.where(root.abs() < 1e-12, torch.zeros_like(root), root)
