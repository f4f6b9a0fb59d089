r"""One order k, three rates: Fisher decay, sectional curvature, and the volume of the high-curvature set.

Along a dead direction of order k the directional Fisher falls as $t^{2(k-1)}$. The curvature of a plane through it
grows at most as $t^{-2(k-1)}$: the paper's Proposition 8 states that order as attained, which is false in general
(erratum E4, the mean map $(t^2, w(1+t))$ is flat), so it is an upper order here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import jacfwd, vmap

from netvitals.capture import Result


@dataclass(frozen=True)
class RateChain(Result):
    """Every exponent that follows from the order k (k ≥ 2 for curvature and volume)."""

    k: int
    fisher: float  # F_v ~ t^fisher
    kl: float  # K ~ t^kl
    curvature: float  # |K_sec| at most t^curvature
    fisher_volume: float  # Vol_F{|K_sec| > M} ~ M^fisher_volume where the order is attained
    lebesgue_volume: float
    rlct: float  # contribution to λ on a smooth fibre


def rate_chain(k: int) -> RateChain:
    """The exponents of order ``k``.

    >>> rate_chain(2).fisher, rate_chain(2).fisher_volume, rate_chain(3).fisher_volume
    (2.0, -1.0, -0.75)
    """
    if k < 1:
        raise ValueError(f"the KL order must be at least 1, got {k}")
    nan = float("nan")
    return RateChain(
        k=k,
        fisher=2.0 * (k - 1),
        kl=2.0 * k,
        curvature=-2.0 * (k - 1),
        fisher_volume=-k / (2 * (k - 1)) if k > 1 else nan,
        lebesgue_volume=-1 / (2 * (k - 1)) if k > 1 else nan,
        rlct=1 / (2 * k),
    )


def order_from_fisher(slope: float) -> float:
    """k = 1 + slope/2 (Theorem 2)."""
    return 1 + slope / 2


def mean_map_metric(mean: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Fisher metric JᵀJ of a unit-variance Gaussian whose mean is ``mean(theta)``."""

    def metric(theta: Tensor) -> Tensor:
        jacobian = jacfwd(mean)(theta)
        return jacobian.T @ jacobian

    return metric


def sectional_curvature(metric: Callable[[Tensor], Tensor], point: Tensor, plane: tuple[int, int] = (0, 1)) -> float:
    r"""$K = R_{ijij} / (g_{ii} g_{jj} - g_{ij}^2)$ in the coordinate plane (i, j), by automatic differentiation.

    >>> sphere = lambda p: torch.diag(torch.stack([torch.ones_like(p[0]), torch.sin(p[0]) ** 2]))
    >>> round(sectional_curvature(sphere, torch.tensor([1.0, 0.3], dtype=torch.float64)), 6)
    1.0
    """
    return float(_curvature(metric, point.to(torch.float64), plane))


def _curvature(metric: Callable[[Tensor], Tensor], point: Tensor, plane: tuple[int, int]) -> Tensor:
    i, j = plane
    g = metric(point)
    inverse = torch.linalg.inv(g)
    dg = jacfwd(metric)(point)  # dg[a, b, c] = ∂_c g_ab
    ddg = jacfwd(jacfwd(metric))(point)  # ∂_c ∂_d g_ab
    # Christoffel symbols of the first kind: Γ_{c,ab} = ½(∂_a g_cb + ∂_b g_ca − ∂_c g_ab)
    first = 0.5 * (torch.einsum("cba->cab", dg) + torch.einsum("cab->cab", dg) - torch.einsum("abc->cab", dg))
    curvature = 0.5 * (ddg[i, j, i, j] + ddg[j, i, j, i] - ddg[i, i, j, j] - ddg[j, j, i, i])
    curvature = curvature + first[:, i, j] @ inverse @ first[:, i, j] - first[:, i, i] @ inverse @ first[:, j, j]
    return curvature / (g[i, i] * g[j, j] - g[i, j] ** 2)


def high_curvature_volume(
    metric: Callable[[Tensor], Tensor], level: float, *, reach: float = 1.0, points: int = 4000
) -> tuple[float, float]:
    r"""Volumes of $\{|K_{sec}(t, w{=}0)| > M\}$ up to reach: (Fisher, $\int\sqrt{\det F}\,dt$; Lebesgue, $\int dt$)."""
    t = torch.linspace(0, reach, points + 1, dtype=torch.float64)[1:] - reach / (2 * points)
    line = torch.stack([t, torch.zeros_like(t)], 1)
    inside = vmap(lambda p: _curvature(metric, p, (0, 1)))(line).abs() > level
    density = torch.linalg.det(vmap(metric)(line)).clamp_min(0).sqrt()
    step = reach / points
    return float(density[inside].sum() * step), float(inside.sum() * step)
