r"""Normal crossings $K = c \prod_i u_i^{2k_i}$: the orders from r + 1 rays (dead-directions Theorem 89).

With $u_i = n_i \cdot (\theta - \theta_0)$ the ways are those of the dual basis $d_i$, along which only $u_i$ changes.
The ray along $\sum_i d_i$ has Fisher slope $2(\sum k_i - 1)$; the ray along $d_i$, started at distance ε from every
other sheet, has $2(k_i - 1)$, and its coefficient scales as $\prod_{j \ne i} \varepsilon_j^{2 k_j}$. The first ray
checks the others. Off all normals a model that has no other directions does not change, or, where sheets are curved, at
order $2 \sum k_i$ only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from netvitals.capture import Result
from netvitals.singular.laws.rlct import rlct_crossing
from netvitals.singular.orders.likelihood import Likelihood
from netvitals.singular.orders.order import DEFAULT_TS, check_direction, directional_fisher, kl_order
from netvitals.singular.orders.rates import rate_fit

_DEPENDENT = 1e-6  # smallest singular value of the unit normals
_WHOLE = 0.15  # how far an order may be from a whole number


@dataclass(frozen=True)
class Crossing(Result):
    """Orders of the sheets, and whether the generic ray agrees with them."""

    ks: tuple[int, ...]
    estimates: tuple[float, ...]  # before rounding
    generic: float  # Σ k as read from the generic ray
    lam: float | None  # None, as m, where the rays are not those of a crossing
    m: int | None
    consistent: bool
    note: str = ""

    def __str__(self) -> str:
        if self.lam is None:
            seen = ", ".join(f"{e:.2f}" for e in self.estimates)
            return f"λ not determined, because {self.note} (anchored rays {seen}; generic ray {self.generic:.2f})"
        return (
            f"crossing of orders {self.ks}: λ = {self.lam:.4g}, m = {self.m}; generic ray {self.generic:.4f} agrees"
            + (f"; {self.note}" if self.note else "")
        )


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
        normals: one vector per sheet, at right angles to it; they need not be at right angles to each other.
        eps: how far the anchored rays stay away from every other sheet.
        hs: prior exponents, one per sheet; a choice of the prior, not of the data.
        likelihood: ``"gaussian"`` (``"mse"``), ``"categorical"`` (``"ce"``), or an object with ``fisher`` and ``kl``.
        ts: distances t > 0 along the direction at which to look; 10 from 0.001 to 0.05 by default.

    Returns:
        The order of every sheet, and λ and m where the generic ray agrees with them; else None and the reason.

    >>> x = torch.linspace(-1, 1, 9, dtype=torch.float64)[:, None]
    >>> product = lambda theta: theta[0] * theta[1] * x  # zero on both axes
    >>> axes = torch.eye(2, dtype=torch.float64)
    >>> found = recover_crossing(product, torch.zeros(2, dtype=torch.float64), [axes[0], axes[1]])
    >>> found.ks, found.lam, found.m
    ((1, 1), 0.5, 2)
    """
    if len(normals) < 2:
        raise ValueError(
            f"a normal crossing needs at least two normal vectors, got {len(normals)}; for a single surface use "
            "kl_order"
        )
    for n in normals:
        check_direction(theta0, n)
    theta0 = theta0.double()
    units = torch.stack([n.double() / n.double().norm() for n in normals])
    values = torch.linalg.svdvals(units)
    if len(units) > theta0.numel() or float(values[-1]) < _DEPENDENT:
        raise ValueError(
            "the normals are linearly dependent, but a normal crossing needs independent ones: give fewer normals"
        )
    dual = torch.linalg.pinv(units).T  # along row i only the distance to sheet i changes
    total = 1 + _slope(outputs, theta0, _unit(dual.sum(0)), likelihood, ts) / 2
    estimates = []
    for i in range(len(units)):
        anchor = theta0 + eps * (dual.sum(0) - dual[i])
        estimates.append(1 + _slope(outputs, anchor, _unit(dual[i]), likelihood, ts) / 2)
    ks = tuple(max(1, round(e)) for e in estimates)
    note = ""
    if max(abs(e - k) for e, k in zip(estimates, ks)) >= _WHOLE:
        note = "the order along an anchored ray is no whole number"
    elif abs(total - sum(ks)) >= _WHOLE:
        note = "the sheets' orders do not add up to the generic ray: no normal crossing here"
    lam, m = rlct_crossing(ks, hs)
    beside = _off(outputs, theta0, units, likelihood, ts) if not note else math.inf
    return Crossing(
        ks=ks,
        estimates=tuple(estimates),
        generic=total,
        lam=None if note else lam,
        m=None if note else m,
        consistent=not note,
        note=f"λ is that of these sheets alone: off all normals the model changes too, at order {beside:.2g}"
        if beside < 2 * sum(ks) - 0.5
        else note,
    )


def _off(
    outputs: Callable[[Tensor], Tensor],
    theta0: Tensor,
    units: Tensor,
    likelihood: str | Likelihood,
    ts: Sequence[float],
) -> float:
    """The lowest order along the directions at right angles to all normals; infinite where nothing changes."""
    others = torch.linalg.svd(units, full_matrices=True)[2][len(units) :]
    lowest = math.inf
    for unit in others:
        scan = kl_order(outputs, theta0, unit, likelihood, ts=ts)
        if not scan.note.startswith("gauge") and math.isfinite(scan.estimate):
            lowest = min(lowest, scan.estimate)
    return lowest


def _unit(v: Tensor) -> Tensor:
    return v / v.norm()


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
        raise ValueError(
            "the Fisher information is zero everywhere along this direction, which therefore does not leave the "
            "singular set; choose another direction"
        )
    return fit.slope
