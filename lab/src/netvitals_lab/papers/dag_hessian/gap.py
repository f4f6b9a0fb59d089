"""Experiment 3 and 3b: what Gauss–Newton misses, by activation, with and without layer norm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from netvitals import curvature
from netvitals_lab import Config, Resources, Row, Study
from netvitals_lab.papers.dag_hessian._measuring import (
    SEEDS,
    block_nodes,
    dataset,
    moments,
    numbers,
    obstacle,
    table,
)

NAME = "dag-hessian-gap"
MANY = tuple(range(42, 52))
ACTS = ("relu", "leaky_relu:0.01", "softplus", "silu", "gelu")


@dataclass(frozen=True)
class Gaps:
    """Activations, with and without layer norm; untrained on noise, trained on ``trained_on``."""

    acts: tuple[str, ...] = ACTS
    depth: int = 6
    width: int = 64
    samples: int = 16
    epochs: int = 50
    trained_on: str = "digits"
    trained_norms: tuple[str, ...] = ("layer",)
    seeds: tuple[int, ...] = SEEDS
    trained_seeds: tuple[int, ...] = SEEDS


def trials(p: Gaps) -> list[Config]:
    shape = {"depth": p.depth, "width": p.width, "samples": p.samples}
    out: list[Config] = [
        {"act": a, "norm": n, "data": "noise", "epochs": 0, "seed": s, **shape}
        for s in p.seeds
        for n in ("layer", "none")
        for a in p.acts
    ]
    return out + [
        {"act": a, "norm": n, "data": p.trained_on, "epochs": p.epochs, "seed": s, **shape}
        for s in p.trained_seeds
        for n in p.trained_norms
        for a in p.acts
    ]


def trial(config: Config) -> list[Row]:
    def measured(net: nn.Module, batch: tuple[Tensor, Tensor], phase: str) -> Row:
        nodes = block_nodes(net)
        found = curvature.between_layers(net, F.cross_entropy, batch, nodes=nodes, method="exact")
        swept = curvature.between_layers(net, F.cross_entropy, batch, nodes=nodes, probes=30)
        bend = curvature.activation_bend(net, batch)
        return {**numbers(found), "bend": bend.pooled, "stochastic_gap": swept.global_gap, "floor": swept.floor}

    hidden = (config["width"],) * (config["depth"] + 1)
    return moments(
        config,
        "mlp",
        dataset(config["data"]),
        measured,
        samples=config["samples"],
        hidden=hidden,
        norm=config["norm"],
        act=config["act"],
    )


def summary(rows: Sequence[Row]) -> Mapping[str, Any]:
    return table(rows, ("norm", "act", "data", "phase"), "gap")


STUDIES = (
    Study(
        name=NAME,
        paper="dag-hessian",
        title="How much curvature does Gauss–Newton miss, by activation?",
        scales={
            "smoke": Gaps(depth=3, width=10, samples=6, epochs=2, seeds=SEEDS[:1], trained_seeds=SEEDS[:1]),
            "small": Gaps(trained_norms=("layer", "none")),
            "medium": Gaps(trained_norms=("layer", "none"), seeds=MANY, trained_seeds=MANY),
            "paper": Gaps(
                epochs=20, trained_on="cifar10", trained_norms=("layer", "none"), seeds=SEEDS, trained_seeds=SEEDS
            ),
        },
        reduced="smooth noise at the start and digits in training instead of CIFAR-10",
        trials=trials,
        resources=Resources(cpus=1, memory_gb=3, core_hours=2),
        trial=trial,
        summary=summary,
        ready=lambda p: obstacle([p.trained_on]),
    ),
)
