r"""Crossings of a product: a unit with incoming weights a and outgoing weights c, $f = c\,\varphi(a x)$ near a = c = 0.

The anchored rays of both sheets are followed (dead-directions Theorem 89). The model must not change while either side
is zero. Away from the other sheet, each side must then change it at first order, in as many independent directions as
the sheet has codimensions; and the divergence must grow with the square of each side. Then
$K \asymp \|a\|^2 \|c\|^2$ and $\lambda = \min(\dim a, \dim c)/2$, with m = 2 for a tie. No derivative is taken where an
activation may have a kink.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from netvitals.singular.orders.jacobian import Outputs, derivative, whitened
from netvitals.singular.orders.neighbourhood import MOST_PARAMETERS, LocalCoefficient

_DRAWS = 6  # anchored rays of each sheet
_SIZE = 1e-2  # how far they stay from the other sheet
_RANK = 1e-6  # of the largest singular value


def product_crossing(outputs: Outputs, theta0: Tensor, first: Tensor, likelihood: str = "gaussian") -> LocalCoefficient:
    r"""λ and m where two groups of parameters vanish together, both zero at ``theta0``.

    >>> x = torch.linspace(-1, 1, 9, dtype=torch.float64)[:, None]
    >>> unit = lambda th: th[0] * torch.relu(th[1] * x)
    >>> found = product_crossing(unit, torch.zeros(2, dtype=torch.float64), torch.tensor([False, True]))
    >>> found.lam, found.m, found.sheets
    (0.5, 2, (1, 1))
    """
    count = theta0.numel()
    why = lambda text: LocalCoefficient(
        lam=None, m=None, nu=None, parameters=count, rank=0, fibre=0, singular=count, why=text
    )
    if count > MOST_PARAMETERS:
        return why(f"the unit has {count:,} weights and ranks are followed up to {MOST_PARAMETERS:,}")
    g, scores = whitened(outputs, theta0.double(), likelihood)
    gen = torch.Generator().manual_seed(0)
    eye = torch.eye(count, dtype=torch.float64)
    sides = (first, ~first)
    ranks: list[set[int]] = [set(), set()]
    for _ in range(_DRAWS):
        drawn = torch.randn(count, generator=gen, dtype=torch.float64)
        parts = [_SIZE * drawn * s / (drawn * s).norm().clamp_min(1e-300) for s in sides]
        both = float(g(parts[0] + parts[1]).norm())
        if max(float(g(p).norm()) for p in parts) > 1e-6 * both:
            return why("the model changes already while one side of the unit is zero")
        if not all(_halves(g, parts[i], parts[1 - i], both) for i in (0, 1)):
            return why("the divergence does not grow with the square of each side")
        for i, side in enumerate(sides):
            near = theta0 + parts[1 - i] + 1e-3 * parts[i]  # a little off the sheet: a kink lies on it
            values = torch.linalg.svdvals(derivative(g, near, eye[:, side]))
            ranks[i].add(int((values > _RANK * values[0]).sum()))
    if any(len(r) > 1 for r in ranks):
        return why(f"the rank differs from ray to ray: {sorted(ranks[0])} and {sorted(ranks[1])}")
    codimensions = (ranks[0].pop(), ranks[1].pop())
    if scores <= max(codimensions):
        return why(f"{max(codimensions)} directions and only {scores} scores: give more examples")
    return LocalCoefficient(
        lam=min(codimensions) / 2,
        m=2 if codimensions[0] == codimensions[1] else 1,
        nu=None,
        parameters=count,
        rank=0,
        fibre=count - sum(codimensions),
        singular=sum(codimensions),
        sheets=codimensions,
    )


def _halves(g: Callable[[Tensor], Tensor], mine: Tensor, other: Tensor, whole: float) -> bool:
    """Whether half of one side gives half of the change."""
    return abs(float(g(mine / 2 + other).norm()) / max(whole, 1e-300) - 0.5) < 0.02
