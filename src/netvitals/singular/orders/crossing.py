r"""Normal crossings $K = c \prod_i u_i^{2k_i}$: the orders from r + 1 rays (dead-directions Theorem 89).

A generic ray has Fisher slope $2(\sum k_i - 1)$; a ray along normal i, started at distance ε on the other sheets, has
$2(k_i - 1)$, and its coefficient scales as $\prod_{j \ne i} \varepsilon_j^{2 k_j}$. The generic ray checks the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from netvitals.capture import Result
from netvitals.singular.laws.rlct import rlct_crossing
from netvitals.singular.orders.likelihood import Likelihood
from netvitals.singular.orders.order import DEFAULT_TS, check_direction, directional_fisher
from netvitals.singular.orders.rates import rate_fit


@dataclass(frozen=True)
class Crossing(Result):
    """Orders of the sheets, and whether the generic ray agrees with them."""

    ks: tuple[int, ...]
    estimates: tuple[float, ...]  # before rounding
    generic: float  # Σ k as read from the generic ray
    lam: float
    m: int
    consistent: bool
    note: str = ""

    def __str__(self) -> str:
        words = "agrees" if self.consistent else "DISAGREES"
        return f"crossing of orders {self.ks}: λ = {self.lam:.4g}, m = {self.m}; generic ray {self.generic:.4f} {words}"


def recover_crossing(
    outputs: Callable[[Tensor], Tensor],
    theta0: Tensor,
    normals: Sequence[Tensor],
    *,
    eps: float = 0.5,
    hs: Sequence[float] | None = None,
    likelihood: str | Likelihood = "gaussian",
    ts: Sequence[float] = DEFAULT_TS,
) -> Crossing:
    """Orders of a crossing at ``theta0`` whose sheets have the given normals.

    Args:
        outputs: θ (D,) → outputs (n, d) on fixed inputs.
        theta0: the point (D,) where the sheets cross.
        normals: one vector per sheet, pointing off it.
        eps: how far the anchored rays stay away from the other sheets.
        hs: prior exponents, one per sheet; a choice of the prior, not of the data.
        likelihood: ``"gaussian"`` (``"mse"``), ``"categorical"`` (``"ce"``), or an object with ``fisher`` and ``kl``.
        ts: distances t > 0 along the direction at which to look; 10 from 0.001 to 0.05 by default.

    Returns:
        The order of every sheet, λ and m, and whether the ray between the sheets agrees.

    >>> x = torch.linspace(-1, 1, 9, dtype=torch.float64)[:, None]
    >>> product = lambda theta: theta[0] * theta[1] * x  # zero on both axes
    >>> axes = torch.eye(2, dtype=torch.float64)
    >>> found = recover_crossing(product, torch.zeros(2, dtype=torch.float64), [axes[0], axes[1]])
    >>> found.ks, found.lam, found.m
    ((1, 1), 0.5, 2)
    """
    if len(normals) < 2:
        raise ValueError(f"a crossing has at least two sheets, got {len(normals)} normals; for one sheet use kl_order")
    for n in normals:
        check_direction(theta0, n)
    units = [n / n.norm() for n in normals]
    generic = torch.stack(units).sum(0)
    total = 1 + _slope(outputs, theta0, generic / generic.norm(), likelihood, ts) / 2
    estimates = []
    for i, unit in enumerate(units):
        anchor = theta0 + eps * sum((u for j, u in enumerate(units) if j != i), torch.zeros_like(theta0))
        estimates.append(1 + _slope(outputs, anchor, unit, likelihood, ts) / 2)
    ks = tuple(max(1, round(e)) for e in estimates)
    lam, m = rlct_crossing(ks, hs)
    off = max(abs(e - k) for e, k in zip(estimates, ks))
    consistent = abs(total - sum(ks)) < 0.15 and off < 0.15
    note = "" if consistent else "the sheets' orders do not add up to the generic ray: no normal crossing here"
    return Crossing(ks=ks, estimates=tuple(estimates), generic=total, lam=lam, m=m, consistent=consistent, note=note)


def eps_scan(
    outputs: Callable[[Tensor], Tensor],
    theta0: Tensor,
    moving: Tensor,
    anchored: Tensor,
    eps: Sequence[float],
    t: float = 1e-3,
    likelihood: str | Likelihood = "gaussian",
) -> float:
    """Slope of the anchored ray's Fisher in ε: 2k of the anchored sheet, a third reading of the orders."""
    unit = anchored / anchored.norm()
    values = [
        float(
            directional_fisher(
                outputs, theta0 + e * unit + t * moving / moving.norm(), moving / moving.norm(), likelihood
            )
        )
        for e in eps
    ]
    return rate_fit(list(eps), values).slope


def _slope(
    outputs: Callable[[Tensor], Tensor], start: Tensor, unit: Tensor, likelihood: str | Likelihood, ts: Sequence[float]
) -> float:
    values = [float(directional_fisher(outputs, start + t * unit, unit, likelihood)) for t in ts]
    fit = rate_fit(list(ts), values, floor=0.0)
    if fit.used < 3:
        raise ValueError("the Fisher form is zero along a ray: this direction lies in the singular set")
    return fit.slope
