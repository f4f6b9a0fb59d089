"""Channels pruned by gate density, by the norm of their filter, or at random (P10, E18); no retraining.

The channels are those of the first convolution of every residual block, ranked over the whole network. A pruned channel
is set to zero behind its activation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import nn

from netvitals import gates
from netvitals_lab import Config, Resources, Row, Study, models
from netvitals_lab import data as datasets
from netvitals_lab.data import Dataset
from netvitals_lab.training import Recipe, evaluate, match_decay, train

FOUR = ("relu", "gelu", "silu", "mish")
S = 2.44  # integrated decay of the paper's schedule


@dataclass(frozen=True)
class Pruning:
    data: str = "digits"
    network: str = "resnet-mini,width=16"
    activations: tuple[str, ...] = FOUR
    seeds: int = 5
    epochs: int = 12
    ratios: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
    augment: bool = False


def trained(config: Mapping[str, Any], data: Dataset) -> nn.Module:
    """A network by the paper's recipe with its integrated decay, or its AdamW."""
    net = models.build(config["network"], seed=config["seed"], data=data, act=config["act"])
    recipe = Recipe(epochs=config["epochs"], seed=config["seed"], evaluate_on=0, augment=config.get("augment", False))
    if config.get("optimizer", "sgd") == "sgd":
        recipe = match_decay(recipe, S, data)
    else:
        recipe = replace(recipe, optimizer=config["optimizer"], lr=1e-3)
    history = train(net, data, recipe)
    if history.stopped:
        raise RuntimeError(f"training ended early: {history.stopped}")
    return net


def trials(p: Pruning) -> list[Config]:
    return [
        {
            "data": p.data,
            "network": p.network,
            "act": a,
            "seed": s,
            "epochs": p.epochs,
            "ratios": list(p.ratios),
            "augment": p.augment,
        }
        for a in p.activations
        for s in range(p.seeds)
    ]


def trial(config: Config) -> list[Row]:
    data = datasets.load(config["data"])
    net = trained(config, data)
    whole = evaluate(net, data.test).accuracy
    rows: list[Row] = []
    for score in gates.SCORES:
        # the first convolution of every residual block: what follows an addition has no layer of its own
        scores = gates.channel_scores(
            net, data.probe.x, score=score, only="*.acts.0", mode="train", seed=config["seed"]
        )
        for ratio in config["ratios"]:
            with scores.silenced(net, ratio, config["seed"]):
                rows.append(
                    {
                        "score": score,
                        "ratio": ratio,
                        "accuracy": evaluate(net, data.test).accuracy,
                        "whole": whole,
                        "channels": sum(map(len, scores.sites.values())),
                    }
                )
    return rows


def summary(rows: Sequence[Row]) -> Mapping[str, Any]:
    cells: dict[str, dict[float, list[float]]] = {}
    for r in rows:
        cells.setdefault(f"{r['act']}, {r['score']}", {}).setdefault(r["ratio"], []).append(r["accuracy"])
    return {name: "  ".join(f"{ratio:.0%}: {np.mean(v):.3f}" for ratio, v in by.items()) for name, by in cells.items()}


DEPENDS = (
    "netvitals_lab.papers.gate_density.pruning",
    "netvitals_lab.models.resnet",
    "netvitals_lab.models.parts",
    "netvitals_lab.training.recipe",
    "netvitals_lab.training.optimizer",
    "netvitals_lab.training.loop",
    "netvitals.gates.channels",
    "netvitals.gates.measurement",
)

STUDIES = (
    Study(
        name="gate-density-pruning",
        paper="gate-density",
        title="E18: channels pruned by gate density, filter norm, or at random",
        scales={
            "smoke": Pruning(
                network="resnet-mini,width=8", activations=("relu", "gelu"), seeds=2, epochs=5, ratios=(0.1, 0.5)
            ),
            "small": Pruning(),
            "medium": Pruning(seeds=10, epochs=25),
            "paper": Pruning(data="cifar10", network="resnet18", epochs=25, augment=True),
        },
        resources=Resources(cpus=1, memory_gb=2, core_hours=4),
        trials=trials,
        trial=trial,
        reduced="small networks on digits and a synthetic teacher instead of a ResNet-18 on CIFAR",
        summary=summary,
        depends=DEPENDS,
        ready=lambda p: datasets.missing(p.data),
    ),
)
