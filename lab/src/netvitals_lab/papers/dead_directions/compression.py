"""The study of compression: a network that memorises, generalises and compresses; its norm, and the order it ends with.

Modular addition, a layer of squared units, Adam with the squares of the weights in the loss. Units that are not needed
fall to zero together with their outgoing weights; t u in and t v out make t³, so that such a unit has order 3. It is
read off the checkpoint alone, and asked for once more where the training set has just been memorised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from netvitals import singular
from netvitals.singular.moments.factors import lambda_min
from netvitals_lab import Config, Resources, Row, Study
from netvitals_lab.papers.dead_directions._learning import _addition
from netvitals_lab.training import gradient_step

NAME = "dead-directions-compression"
SHARE, RATE, PENALTY = 0.75, 3e-3, 1e-3
DEAD = 1e-3  # of the largest unit


@dataclass(frozen=True)
class Compression:
    """Modulus, hidden units, steps, and seeds."""

    modulus: int = 19
    width: int = 96
    steps: int = 2000
    seeds: int = 5


def trials(p: Compression) -> list[Config]:
    return [{"modulus": p.modulus, "width": p.width, "steps": p.steps, "seed": s} for s in range(p.seeds)]


class SquaredNet(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.square()


def units(net: nn.Sequential) -> Tensor:
    """Norm in times norm out, unit by unit."""
    return (net[0].get_parameter("weight").norm(dim=1) * net[2].get_parameter("weight").norm(dim=0)).detach()


def trial(config: Config) -> list[Row]:
    p, seed, steps = config["modulus"], config["seed"], config["steps"]
    torch.manual_seed(seed)
    x, y, seen, unseen = _addition(p, SHARE, seed)
    net = nn.Sequential(
        nn.Linear(2 * p, config["width"], bias=False), SquaredNet(), nn.Linear(config["width"], p, bias=False)
    )
    optimizer = torch.optim.Adam(net.parameters(), lr=RATE, weight_decay=PENALTY)
    target = F.one_hot(y, p).float()
    looks = set(np.unique(np.geomspace(5, steps, 40).astype(int)).tolist()) | {0}
    rows: list[Row] = []
    memorised = False
    for i in range(steps + 1):
        out = net(x)
        if i in looks:
            right = (out.argmax(1) == y).float()
            with torch.no_grad():
                a = net[1](net[0](x[seen])).double()
            size = units(net)
            row: Row = {
                "kind": "look",
                "step": i,
                "train": float(right[seen].mean()),
                "test": float(right[unseen].mean()),
                "norm": float(sum(w.detach().square().sum() for w in net.parameters()) ** 0.5),
                "dead": int((size < DEAD * size.max()).sum()),
                "smallest": lambda_min(a.T @ a / len(a))[0],
            }
            rows.append(row)
            if (not memorised and row["train"] > 0.99) or i == steps:
                rows.append(
                    {"kind": "end" if memorised else "memorised", "step": i, **order(net, x[seen], target[seen])}
                )
                memorised = True
        gradient_step(optimizer, (out[seen] - target[seen]).square().sum(1).mean())
    return rows


def order(net: nn.Sequential, x: Tensor, target: Tensor) -> Mapping[str, Any]:
    """The joint modes that ``readout`` calls singular at this checkpoint, with their orders."""
    found = singular.readout(net, "mse", (x, target), chains=0)
    modes = [c for c in found.candidates if c.kind == "joint mode"]
    return {
        "modes": len(modes),
        "orders": [c.scan.order for c in modes if c.verdict == "singular"],
        "slopes": [float(c.scan.slope) for c in modes if c.verdict == "singular"],
        "window": found.conditions["asymptotic window"],
    }


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    ends = [r for r in rows if r["kind"] == "end"]
    last = [r for r in rows if r["kind"] == "look" and r["step"] == r["steps"]]
    return {
        "orders at the end": [r["orders"] for r in ends],
        "units dead at the end": [r["dead"] for r in last],
        "accuracy on unseen sums at the end": [r["test"] for r in last],
    }


STUDIES = (
    Study(
        NAME,
        "dead-directions",
        "which order does a network end with that has memorised, generalised and compressed?",
        trials=trials,
        resources=Resources(cpus=1, memory_gb=2, core_hours=5),
        trial=trial,
        summary=summary,
        scales={
            "smoke": Compression(modulus=7, width=24, steps=60, seeds=1),
            "small": Compression(),
            "medium": Compression(modulus=53, width=256, steps=8000, seeds=5),
            "paper": Compression(modulus=113, width=512, steps=40_000, seeds=10),
        },
        unprinted="the network, the task and the penalty of its phases",
    ),
)
