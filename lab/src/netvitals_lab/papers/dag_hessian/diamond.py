"""Experiment 4: two branches and a merge, linear or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn

from netvitals import curvature
from netvitals_lab import Config, Resources, Row, Study
from netvitals_lab.papers.dag_hessian._measuring import SEEDS, dataset, moments, obstacle, table

NAME = "dag-hessian-diamond"


@dataclass(frozen=True)
class Diamonds:
    """Lengths of the branches; merges by sum and by concatenation, relu and silu."""

    lengths: tuple[int, ...] = (1, 2, 3)
    width: int = 32
    samples: int = 32
    epochs: int = 50
    trained_on: str = "digits"
    trained_lengths: tuple[int, ...] = (2,)
    seeds: tuple[int, ...] = SEEDS
    trained_seeds: tuple[int, ...] = SEEDS


def trials(p: Diamonds) -> list[Config]:
    shape = {"width": p.width, "samples": p.samples}
    kinds = [(m, a) for m in ("sum", "cat") for a in ("relu", "silu")]
    out: list[Config] = [
        {"length": k, "merge": m, "act": a, "data": "noise", "epochs": 0, "seed": s, **shape}
        for s in p.seeds
        for k in p.lengths
        for m, a in kinds
    ]
    return out + [
        {"length": k, "merge": m, "act": a, "data": p.trained_on, "epochs": p.epochs, "seed": s, **shape}
        for s in p.trained_seeds
        for k in p.trained_lengths
        for m, a in kinds
    ]


def trial(config: Config) -> list[Row]:
    k = config["length"]

    def measured(net: nn.Module, batch: tuple[Tensor, Tensor], phase: str) -> Row:
        found = curvature.between_layers(net, F.cross_entropy, batch, nodes=["a.*", "b.*"], method="exact")
        ends = found.at(f"a.{k - 1}", f"b.{k - 1}")
        across: dict[int, list[float]] = {}
        within: dict[int, list[float]] = {}
        for i in range(k):
            for j in range(k):
                far = (k - 1 - i) + (k - 1 - j) + 2
                across.setdefault(far, []).append(found.at(f"a.{i}", f"b.{j}")["resonance"])
                if j >= i:
                    within.setdefault(j - i, []).append(found.at(f"a.{i}", f"a.{j}")["resonance"])
        curve = lambda groups: [float(np.mean(groups[d])) for d in sorted(groups)]
        return {
            "end_gap": ends["gn_gap"],
            "end_tensor": ends["tensor"],
            "across": curve(across),
            "across_distance": sorted(across),
            "within": curve(within),
        }

    return moments(
        config,
        "mlp,kind=diamond,norm=layer",
        dataset(config["data"]),
        measured,
        samples=config["samples"],
        hidden=(config["width"],) * (k + 1),
        merge=config["merge"],
        act=config["act"],
    )


def summary(rows: Sequence[Row]) -> Mapping[str, Any]:
    return table(rows, ("merge", "act", "length", "data", "phase"), "end_gap")


STUDIES = (
    Study(
        name=NAME,
        paper="dag-hessian",
        title="Do two branches bend each other, and does the merge decide?",
        scales={
            "smoke": Diamonds((2,), width=8, samples=6, epochs=2, seeds=SEEDS[:1], trained_seeds=SEEDS[:1]),
            "small": Diamonds(),
            "medium": Diamonds(trained_lengths=(1, 2, 3)),
            "paper": Diamonds(trained_on="cifar10", trained_lengths=(1, 2, 3), seeds=SEEDS, trained_seeds=SEEDS),
        },
        reduced="smooth noise at the start and digits in training instead of CIFAR-10",
        trials=trials,
        resources=Resources(cpus=1, memory_gb=2, core_hours=1),
        trial=trial,
        summary=summary,
        ready=lambda p: obstacle([p.trained_on]),
    ),
)
