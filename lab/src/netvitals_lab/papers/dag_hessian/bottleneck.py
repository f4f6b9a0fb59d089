"""Experiment 2: one narrow layer, and the rank of curvature across it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn

from netvitals import curvature
from netvitals.curvature.advice.distance import averages, far_pairs
from netvitals.curvature.measure import metrics
from netvitals_lab import Config, Resources, Row, Study
from netvitals_lab.papers.dag_hessian._measuring import SEEDS, block_nodes, dataset, moments, obstacle, table

NAME = "dag-hessian-bottleneck"


@dataclass(frozen=True)
class Necks:
    """Widths of the neck in nets of a base width, for a hundred classes."""

    necks: tuple[int, ...] = (4, 8, 16, 32, 64, 128)
    depths: tuple[int, ...] = (6,)
    base: int = 128
    samples: int = 32
    classes: int = 100
    data: str = "noise"
    epochs: int = 0
    exact: bool = True
    seeds: tuple[int, ...] = SEEDS
    wide: tuple[int, ...] = ()  # cells of Tables 3 and N.1 at the start: base width 512, a hundred probes


def trials(p: Necks) -> list[Config]:
    own = {"base": p.base, "samples": p.samples, "epochs": p.epochs, "exact": p.exact}
    wide = {"base": 512, "samples": 64, "epochs": 0, "exact": False}
    shapes = [(own, p.depths, p.necks), (wide, (6, 8), p.wide)]
    return [
        {"neck": n, "depth": depth, "classes": p.classes, "data": p.data, "seed": s, **shape}
        for shape, depths, necks in shapes
        for s in p.seeds
        for depth in depths
        for n in necks
    ]


def trial(config: Config) -> list[Row]:
    depth = config["depth"]
    hidden = (config["base"],) * (depth + 1)

    def measured(net: nn.Module, batch: tuple[Tensor, Tensor], phase: str) -> Row:
        nodes = block_nodes(net)
        method: Any = "exact" if config["exact"] else "stochastic"
        found = curvature.between_layers(net, F.cross_entropy, batch, nodes=nodes, method=method, probes=100)
        far = far_pairs(found.nodes, depth // 2)
        few = (batch[0][:4], batch[1][:4])
        apart = curvature.between_layers(net, F.cross_entropy, few, nodes=nodes, method="exact", reduction="per_sample")
        at = [(apart.position(v), apart.position(w)) for v, w in far]
        ranks = np.array([apart.per_sample["stable_rank"][:, i, j] for i, j in at])
        gn = max(int(metrics.numerical_rank(apart.block(v, w).GN, rtol=1e-9).max()) for v, w in far)
        means = averages(found, far)
        return {
            "far_rank": means["stable_rank"],
            "far_coupling": means["coupling"],
            "far_resonance": means["resonance"],
            "sample_rank": float(np.nanmax(ranks)),
            "gn_rank": gn,
            "average_rank": float(np.nanmax(found.stable_rank)),
        }

    loaded = dataset(config["data"], classes=config["classes"])
    return moments(
        config,
        "mlp,kind=bottleneck,norm=layer",
        loaded,
        measured,
        samples=config["samples"],
        hidden=hidden,
        neck=config["neck"],
    )


def summary(rows: Sequence[Row]) -> Mapping[str, Any]:
    return table(rows, ("neck", "phase"), "far_rank")


STUDIES = (
    Study(
        name=NAME,
        paper="dag-hessian",
        title="What does one narrow layer do to the curvature across it?",
        scales={
            "smoke": Necks((2, 8), depths=(4,), base=16, samples=8, classes=10, seeds=SEEDS[:1]),
            "small": Necks(wide=(4, 16, 64, 512)),
            "medium": Necks((4, 8, 16, 32, 64, 128, 256), base=256, samples=64, exact=False),
            "paper": Necks(
                (4, 8, 16, 32, 64, 128, 256, 512),
                depths=(6, 8),
                base=512,
                samples=64,
                data="cifar100",
                epochs=50,
                exact=False,
                seeds=SEEDS,
            ),
        },
        reduced="smooth noise instead of CIFAR-100, no training, and a base width of 128 but for printed cells",
        trials=trials,
        resources=Resources(cpus=1, memory_gb=4, core_hours=1),
        trial=trial,
        summary=summary,
        ready=lambda p: obstacle([p.data]),
    ),
)
