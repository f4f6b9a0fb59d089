"""Models whose singular answers are known: what the estimators of this room are held against (dead-directions §6.2)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from netvitals.capture import Result
from netvitals.singular.laws.fluctuation import nu
from netvitals.singular.laws.rlct import rlct_additive, rlct_crossing, rlct_reduced_rank, rlct_single
from netvitals.singular.networks.builders import DiagonalNet
from netvitals.singular.orders.crossing import recover_crossing
from netvitals.singular.orders.likelihood import Gaussian, Likelihood
from netvitals.singular.orders.neighbourhood import local_coefficient
from netvitals.singular.orders.order import KLOrder, kl_order

f64 = torch.float64


@dataclass(frozen=True)
class Specimen:
    """One model at its singular point, a direction, and the exact answers."""

    name: str
    outputs: Callable[[Tensor], Tensor]
    theta0: Tensor
    direction: Tensor
    order: int | None  # of the direction; None for a gauge direction
    lam: float  # of the singularity, not of the ray
    m: int
    nu: float | None = None
    normals: tuple[Tensor, ...] = ()  # of a crossing's sheets
    likelihood: str | Likelihood = "gaussian"
    note: str = ""


@dataclass(frozen=True)
class Examined(Result):
    """Exact values beside what our estimators return; λ and m None where they are not determined."""

    specimen: Specimen
    order: int | None
    estimate: float
    ratio: float
    lam: float | None
    m: int | None
    scan: KLOrder

    @property
    def agrees(self) -> bool:
        """Whether nothing that was found differs from the exact values."""
        s = self.specimen
        same = self.lam is None or (math.isclose(self.lam, s.lam, abs_tol=1e-9) and self.m == s.m)
        return self.order == s.order and same

    @property
    def verdict(self) -> str:
        """In words; what was not determined is not said to agree."""
        if not self.agrees:
            return "DISAGREES"
        return "agrees" if self.lam is not None else "the order agrees"


class SplitMixture:
    """Two unit Gaussians pulled apart with their mean kept; outputs are densities on a grid, integrals are exact."""

    name = "density on a grid"

    def __init__(self, w: float) -> None:
        if not 0 < w < 1:
            raise ValueError(
                f"the mixture weight must lie strictly between 0 and 1, got {w}: an empty component has no mean"
            )
        self.w = w
        self.grid = torch.linspace(-12, 12, 4001, dtype=f64)

    def outputs(self, theta: Tensor) -> Tensor:
        w, s = self.w, theta[0]
        left, right = self.grid + w * s, self.grid - (1 - w) * s
        density = w * torch.exp(-right.square() / 2) + (1 - w) * torch.exp(-left.square() / 2)
        return (density / math.sqrt(2 * math.pi))[None]

    def fisher(self, outputs: Tensor, tangent: Tensor) -> Tensor:
        return torch.trapezoid(tangent[0] ** 2 / outputs[0], self.grid)

    def kl(self, truth: Tensor, outputs: Tensor) -> Tensor:
        r = (outputs[0] - truth[0]) / truth[0]
        return torch.trapezoid(truth[0] * (r - torch.log1p(r)), self.grid)


def specimens() -> list[Specimen]:
    """The whole zoo, small enough to examine in seconds."""
    eye = lambda n: torch.eye(n, dtype=f64)
    zeros = lambda n: torch.zeros(n, dtype=f64)
    out = []
    for k in (1, 2, 3, 4):
        lam, m = rlct_single(k)
        out.append(
            Specimen(
                name=f"power law N(t^{k}, 1)",
                outputs=_power(k),
                theta0=zeros(1),
                direction=eye(1)[0],
                order=k,
                lam=lam,
                m=m,
                nu=nu(k),
            )
        )
    out.append(
        Specimen(
            name="regular, 5 parameters",
            outputs=lambda th: th[None],
            theta0=zeros(5),
            direction=eye(5)[0],
            order=1,
            lam=2.5,
            m=1,
            nu=2.5,
        )
    )
    for w in (0.5, 0.3):
        mixture = SplitMixture(w)
        out.append(
            Specimen(
                name=f"mixture split, weight {w:g}",
                outputs=mixture.outputs,
                theta0=zeros(1),
                direction=eye(1)[0],
                order=2,
                lam=0.25,
                m=1,
                nu=nu(2),
                likelihood=mixture,
                note="the direction alone; with the mean λ is 3/4",
            )
        )
    for depth in (2, 3, 4):
        lam, m = rlct_crossing([1] * depth)
        out.append(
            Specimen(
                name=f"scalar chain of depth {depth}",
                outputs=lambda th: th.prod().reshape(1, 1),
                theta0=zeros(depth),
                direction=torch.ones(depth, dtype=f64),
                order=depth,
                lam=lam,
                m=m,
                normals=tuple(eye(depth)),
            )
        )
    for ks in ((1, 2), (2, 2), (2, 3), (1, 2, 3)):
        lam, m = rlct_crossing(ks)
        r = len(ks)
        out.append(
            Specimen(
                name=f"crossing of orders {ks}",
                outputs=_monomial(ks),
                theta0=zeros(r),
                direction=torch.ones(r, dtype=f64),
                order=sum(ks),
                lam=lam,
                m=m,
                normals=tuple(eye(r)),
            )
        )
    lam, m = rlct_additive([2, 3], m_perp=1)
    out.append(
        Specimen(
            name="additive, orders 2 and 3 and one regular",
            outputs=lambda th: torch.stack([th[0] ** 2, th[1] ** 3, th[2]])[None],
            theta0=zeros(3),
            direction=eye(3)[1],
            order=3,
            lam=lam,
            m=m,
            nu=nu(2) + nu(3) + 0.5,
        )
    )
    net = DiagonalNet(width=1, active=0)
    x, _ = net.task(samples=50)
    half = torch.tensor([[1.0, -1.0], [1.0, 1.0]], dtype=f64) / math.sqrt(2)
    out.append(
        Specimen(
            "diagonal linear net, an inactive coordinate",
            lambda th: net.outputs(th, x),
            net.at_truth(),
            torch.tensor([1.0, 0.0], dtype=f64),
            2,
            *rlct_crossing([1, 1]),
            normals=tuple(half),
            note="u² − v²: two sheets cross",
        )
    )
    out.append(_dead_unit())
    out.append(_reduced_rank())
    out.append(
        Specimen(
            name="gauge: mean depends on a sum",
            outputs=lambda th: (th[0] + th[1]).reshape(1, 1),
            theta0=zeros(2),
            direction=torch.tensor([1.0, -1.0], dtype=f64),
            order=None,
            lam=0.5,
            m=1,
            nu=0.5,
            note="K is zero along the direction",
        )
    )
    return out


def examine(specimen: Specimen) -> Examined:
    """What our estimators say of a specimen."""
    ts = torch.logspace(-2, -1, 10).tolist() if specimen.likelihood != "gaussian" else None
    options: dict[str, Any] = {} if ts is None else {"ts": ts}
    result = kl_order(specimen.outputs, specimen.theta0, specimen.direction, specimen.likelihood, **options)
    lam = m = None
    if specimen.normals:
        crossing = recover_crossing(
            specimen.outputs, specimen.theta0, list(specimen.normals), likelihood=specimen.likelihood, **options
        )
        lam, m = (crossing.lam, crossing.m) if crossing.consistent else (math.nan, 0)
    elif specimen.theta0.numel() == 1 and result.order is not None:
        lam, m = rlct_single(result.order)
    elif isinstance(specimen.likelihood, str | Gaussian):
        name = specimen.likelihood if isinstance(specimen.likelihood, str) else "gaussian"
        near = local_coefficient(specimen.outputs, specimen.theta0, name)
        lam, m = near.lam, near.m
    return Examined(
        specimen=specimen, order=result.order, estimate=result.estimate, ratio=result.ratio, lam=lam, m=m, scan=result
    )


def _power(k: int) -> Callable[[Tensor], Tensor]:
    return lambda theta: theta[:1].pow(k).expand(4, 1)


def _monomial(ks: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
    powers = torch.tensor(ks, dtype=f64)
    return lambda theta: (theta**powers).prod().reshape(1, 1)


def _dead_unit() -> Specimen:
    gen = torch.Generator().manual_seed(0)
    x = torch.randn(500, 3, generator=gen, dtype=f64)
    row, column = torch.randn(3, generator=gen, dtype=f64), torch.randn(2, generator=gen, dtype=f64)

    def outputs(theta: Tensor) -> Tensor:
        return torch.tanh(x @ theta[:3])[:, None] * theta[3:]

    return Specimen(
        "dead tanh unit, joint mode",
        outputs,
        torch.zeros(5, dtype=f64),
        torch.cat([row / row.norm(), column / column.norm()]),
        2,
        *rlct_reduced_rank(3, 1, 2, 0),
        likelihood=Gaussian(),
        note="the ray has order 2; λ is the crossing's, as for a linear unit",
    )


def _reduced_rank() -> Specimen:
    gen = torch.Generator().manual_seed(0)
    x = torch.randn(500, 4, generator=gen, dtype=f64)
    a, b = torch.eye(3, 4, dtype=f64), torch.eye(4, 3, dtype=f64)
    a[2], b[:, 2] = 0, 0
    row, column = torch.zeros(3, 4, dtype=f64), torch.zeros(4, 3, dtype=f64)
    row[2], column[:, 2] = torch.randn(4, generator=gen, dtype=f64), torch.randn(4, generator=gen, dtype=f64)

    def outputs(theta: Tensor) -> Tensor:
        return x @ theta[:12].reshape(3, 4).T @ theta[12:].reshape(4, 3).T

    lam, m = rlct_reduced_rank(4, 3, 4, 2)
    return Specimen(
        name="reduced-rank regression (4, 3, 4), rank 2",
        outputs=outputs,
        theta0=torch.cat([a.flatten(), b.flatten()]),
        direction=torch.cat([row.flatten(), column.flatten()]),
        order=2,
        lam=lam,
        m=m,
        note="λ by Aoyagi and Watanabe",
    )
