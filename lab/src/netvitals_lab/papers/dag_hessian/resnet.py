"""Experiment 6: ResNet-18 and the same chain without shortcuts, by one sweep of probes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from netvitals import curvature
from netvitals_lab import Config, Resources, Row, Study, data
from netvitals_lab.data import Dataset, Split
from netvitals_lab.device import device
from netvitals_lab.papers.dag_hessian._measuring import SEEDS, moments, numbers, obstacle, table

NAME = "dag-hessian-resnet"


@dataclass(frozen=True)
class Towers:
    """Activations with and without shortcuts; the stem and the four stages are nodes."""

    acts: tuple[str, ...] = ("relu", "silu")
    width: int = 64
    blocks: tuple[int, ...] = (2, 2, 2, 2)
    samples: int = 32
    probes: int = 10
    data: str = "noise"
    epochs: int = 0
    seeds: tuple[int, ...] = SEEDS


def trials(p: Towers) -> list[Config]:
    return [
        {
            "act": a,
            "shortcut": c,
            "width": p.width,
            "blocks": list(p.blocks),
            "samples": p.samples,
            "probes": p.probes,
            "data": p.data,
            "epochs": p.epochs,
            "seed": s,
        }
        for s in p.seeds
        for a in p.acts
        for c in (True, False)
    ]


def trial(config: Config) -> list[Row]:
    loaded = _unclamped() if config["data"] == "noise" else data.load(config["data"])

    def measured(net: nn.Module, batch: tuple[Tensor, Tensor], phase: str) -> Row:
        nodes = ["stem.3", *(f"stages.{i}" for i in range(len(config["blocks"])))]
        found = curvature.between_layers(net, F.cross_entropy, batch, nodes=nodes, probes=config["probes"])
        few = (batch[0][:8], batch[1][:8])
        coupled = curvature.between_layers(net, F.cross_entropy, few, nodes=nodes, probes=4, mode="train")
        return {**numbers(found), "train_mode_gap": coupled.global_gap}

    return moments(
        config,
        "resnet18-large",
        loaded,
        measured,
        samples=config["samples"],
        recipe="dag-hessian-resnet",
        act=config["act"],
        shortcut=config["shortcut"],
        width=config["width"],
        blocks=tuple(config["blocks"]),
    )


def _unclamped(seed: int = 0, count: int = 64, side: int = 32) -> Dataset:
    """Smooth noise of unit spread, as standardised images have; the MLP experiments cut theirs to [−1, 1]."""
    g = torch.Generator().manual_seed(seed)
    coarse = torch.randn(count, 3, side // 4, side // 4, generator=g)
    x = F.interpolate(coarse, scale_factor=4, mode="bilinear", align_corners=False)
    images = Split(x / x.std(), torch.randint(0, 10, (count,), generator=g))
    noise = Dataset(name="noise", train=images, test=images, probe=images, task="classes", classes=10)
    return noise.to(device())


def summary(rows: Sequence[Row]) -> Mapping[str, Any]:
    return table(rows, ("act", "shortcut", "phase"), "gap")


STUDIES = (
    Study(
        name=NAME,
        paper="dag-hessian",
        title="Do shortcuts keep curvature between distant stages alive?",
        scales={
            "smoke": Towers(width=4, blocks=(1, 1), samples=4, probes=6, seeds=SEEDS[:1]),
            "small": Towers(),
            "medium": Towers(probes=30),
            "paper": Towers(probes=30, data="cifar10", epochs=100, seeds=SEEDS),
        },
        reduced="smooth noise instead of CIFAR-10, and no training",
        trials=trials,
        resources=Resources(cpus=1, memory_gb=4, core_hours=3),
        trial=trial,
        summary=summary,
        ready=lambda p: obstacle([p.data]),
    ),
)
