"""The study of the rate beside the learning coefficient: the same λ on smooth fibres, the same timing, and the cost.

Still models have a smooth fibre, or sheets that cross, and a known λ. A sum of squares that learns its targets one
after the other goes through stages: each coordinate that leaves zero raises λ by ¼. At every checkpoint the function
that the model has there is the truth, so that λ is that of its own fibre, and both measurements look at the same
distance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from netvitals import singular
from netvitals.singular.networks.posteriors import Monomials, half_square, of_monomial
from netvitals.singular.orders.order import kl_order
from netvitals_lab import Config, Row, Study
from netvitals_lab.training import gradient_step

f64 = torch.float64
NAME = "dead-directions-sampled"
TARGETS = (1.0, 0.5, 0.25)
SEVERAL = 4  # distances of one scan
REACHED = 1e6  # nβ of the models that stand still


@dataclass(frozen=True)
class Sampled:
    """Draws a chain, orders of the still models, checkpoints of a staged run, and seeds of both."""

    draws: int = 200
    orders: tuple[int, ...] = (1, 2, 3, 4)
    checkpoints: int = 24
    nbeta: float = 1e4
    seeds: int = 3


def trials(p: Sampled) -> list[Config]:
    still: list[Config] = [
        {"check": "fibre", "order": k, "regular": r, "draws": p.draws} for k in p.orders for r in (0, 1, 2)
    ]
    still += [{"check": "crossing", "sheets": r, "draws": p.draws} for r in (2, 3)]
    staged = [{"check": "stages", "checkpoints": p.checkpoints, "nbeta": p.nbeta, "draws": p.draws}]
    return [{**c, "seed": s} for c in still for s in range(min(p.seeds, 3))] + [
        {**c, "seed": s} for c in staged for s in range(p.seeds)
    ]


def trial(config: Config) -> list[Row]:
    options = {k: v for k, v in config.items() if k != "check"}
    if config["check"] == "stages":
        return stages(**options)
    return [fibre(**options) if config["check"] == "fibre" else crossing(**options)]


def turned(size: int, seed: int) -> Tensor:
    """A random orthogonal matrix, so that no direction is an axis."""
    gen = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(size, size, generator=gen, dtype=f64))[0]


def fibre(order: int, regular: int, draws: int, seed: int) -> Row:
    """u₀^k, some regular coordinates, and one that is not seen: λ by the classes of the spectrum, and by sampling."""
    size = regular + 2
    powers = [[order if i == 0 else 0 for i in range(size)]]
    powers += [[int(i == j) for i in range(size)] for j in range(1, regular + 1)]
    turn = turned(size, seed)
    net = Monomials(*powers, turn=turn)
    x = torch.ones(1, 1, dtype=f64)

    def outputs(theta: Tensor) -> Tensor:
        return torch.func.functional_call(net, {"w": theta}, (x,))

    ts = [0.01 * 2**i for i in range(SEVERAL)]
    found = singular.classify_spectrum(outputs, torch.zeros(size, dtype=f64), turn[0], ts)
    constant = found.count("constant")
    across = [d.order for d in found.of("transversal") if d.order]
    lam = sum(1 / (2 * k) for k in across) + constant / 2
    return {
        "known": 1 / (2 * order) + regular / 2,
        "rate": lam,
        "rate_cost": len(ts) * size,
        **_sampled(net, REACHED, draws, seed),
    }


def crossing(sheets: int, draws: int, seed: int) -> Row:
    """A product of parameters: the ray through the crossing has 1/(2k), and the crossing its own λ."""
    net = Monomials([1] * sheets, turn=turned(sheets, seed))
    x = torch.ones(1, 1, dtype=f64)
    ray = net.turn.T @ torch.ones(sheets, dtype=f64)
    scan = kl_order(
        lambda theta: torch.func.functional_call(net, {"w": theta}, (x,)), torch.zeros(sheets, dtype=f64), ray
    )
    exact = of_monomial([1] * sheets, REACHED)
    return {
        "known": 0.5,
        "at_this_n": exact,
        "rate": 1 / (2 * scan.estimate),
        "rate_cost": 2 * len(scan.ts),
        **_sampled(net, REACHED, draws, seed),
    }


def _sampled(net: nn.Module, nbeta: float, draws: int, seed: int, x: Tensor | None = None) -> Row:
    """λ by sampling around where the model stands, its own function being the truth."""
    x = torch.ones(50, 1, dtype=f64) if x is None else x
    with torch.no_grad():
        y = net(x)
    found = singular.learning_coefficient(net, half_square, (x, y), draws=draws, nbeta=nbeta, seed=seed)
    return {"sampled": found.mean, "stderr": found.stderr, "ok": found.ok, "sampled_cost": found.cost}


class Squares(nn.Module):
    """f(x) = Σ uᵢ² xᵢ: each coordinate at zero is a direction of order 2, and of order 1 once it is learned."""

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.u = nn.Parameter(start)

    def forward(self, x: Tensor) -> Tensor:
        return (x @ self.u.square())[:, None]


def stages(checkpoints: int, nbeta: float, draws: int, seed: int, lr: float = 0.02, length: float = 18.0) -> list[Row]:
    """Both measurements at checkpoints of a run in which coordinates are learned one after the other."""
    gen = torch.Generator().manual_seed(seed)
    start = 0.004 * torch.exp(torch.empty(len(TARGETS), dtype=f64).uniform_(-1, 1, generator=gen))
    x = torch.randn(400, len(TARGETS), generator=gen, dtype=f64)
    y = (x @ torch.tensor(TARGETS, dtype=f64))[:, None] + 0.1 * torch.randn(400, 1, generator=gen, dtype=f64)
    net = Squares(start)
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    steps = round(length / lr)
    looks = {round(steps * (i + 0.5) / checkpoints) for i in range(checkpoints)}
    reach = (2 / nbeta) ** 0.25  # nβK is 1 there
    ts = [reach * 2 ** (i / 2 - (SEVERAL - 1) / 4) for i in range(SEVERAL)]
    eye, rows = torch.eye(len(TARGETS), dtype=f64), []
    for step in range(steps + 1):
        if step in looks:
            here = net.u.detach().clone()

            def outputs(theta: Tensor) -> Tensor:
                return (x @ theta.square())[:, None]

            orders = [kl_order(outputs, here, v, ts=ts).estimate for v in eye]
            rows.append(
                {
                    "step": step,
                    "loss": float(half_square(net(x), y).detach()),
                    "orders": orders,
                    "u": here.tolist(),
                    "rate": sum(1 / (2 * k) for k in orders),
                    "rate_cost": 2 * len(ts) * len(orders),
                    "every": steps / checkpoints,
                    **_sampled(net, nbeta, draws, seed, x),
                }
            )
        gradient_step(optimizer, half_square(net(x), y))
    return rows


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    cost = [r["sampled_cost"] / r["rate_cost"] for r in rows]
    return {
        "passes of sampling over those of a rate, smallest": min(cost),
        "largest": max(cost),
        "estimates that may be believed": f"{sum(bool(r['ok']) for r in rows)} of {len(rows)}",
        "largest gap of λ on smooth fibres": max(
            (abs(r["sampled"] - r["rate"]) for r in rows if r["check"] == "fibre"), default=math.nan
        ),
    }


STUDIES = (
    Study(
        NAME,
        "dead-directions",
        "the rate beside the learning coefficient: the same λ, the same timing, and the cost",
        trials=trials,
        settled="the paper compares the two in words; models with a known λ decide it",
        trial=trial,
        summary=summary,
        scales={
            "smoke": Sampled(draws=40, orders=(2,), checkpoints=3, seeds=1),
            "small": Sampled(),
            "paper": Sampled(draws=1000, checkpoints=60, seeds=10),
        },
        unprinted="a run in which the two were compared",
    ),
)
