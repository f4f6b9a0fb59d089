"""Does final gate density foretell how well a checkpoint fine-tunes (P12, E20)? The hypothesis is stored in advance.

Every checkpoint is fine-tuned twice: on a twentieth of the data it was trained on, as in the paper, and on as many
examples that were kept from it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from netvitals import gates
from netvitals_lab import Config, Resources, Row, Study, stats
from netvitals_lab import data as datasets
from netvitals_lab.data import Dataset
from netvitals_lab.papers.gate_density.pruning import DEPENDS, FOUR, trained
from netvitals_lab.training import evaluate, recipe_named, train

VERSIONS = ("seen", "unseen")


@dataclass(frozen=True)
class FineTuning:
    data: str = "digits"
    network: str = "resnet-mini,width=8"
    activations: tuple[str, ...] = FOUR
    optimizers: tuple[str, ...] = ("sgd", "adamw")
    seeds: int = 5
    epochs: int = 10
    share: float = 0.05
    tuning: int = 5  # epochs
    augment: bool = False


def parts(data: Dataset, share: float, seed: int = 0) -> tuple[Dataset, Dataset, Dataset]:
    """(training, a share of it, as many examples that are not in it), the same for every checkpoint."""
    count = round(share * len(data.train))
    if count < 1:
        raise ValueError(f"a share of {share} of {len(data.train)} examples leaves none to fine-tune on")
    order = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(seed))
    train_on = replace(data, train=data.train[order[count:]])
    return (
        train_on,
        replace(data, train=data.train[order[count : 2 * count]]),
        replace(data, train=data.train[order[:count]]),
    )


def trials(p: FineTuning) -> list[Config]:
    return [
        {
            "data": p.data,
            "network": p.network,
            "act": a,
            "optimizer": o,
            "seed": s,
            "epochs": p.epochs,
            "share": p.share,
            "tuning": p.tuning,
            "augment": p.augment,
        }
        for a in p.activations
        for o in p.optimizers
        for s in range(p.seeds)
    ]


def trial(config: Config) -> list[Row]:
    whole, seen, unseen = parts(datasets.load(config["data"]), config["share"])
    net = trained(config, whole)
    density = gates.measure(net, whole.probe.x, mode="train").density(0.01)
    before = evaluate(net, whole.test).accuracy
    rows: list[Row] = []
    for version, data in zip(VERSIONS, (seen, unseen)):
        tuned = copy.deepcopy(net)
        train(tuned, data, recipe_named("fine-tune", epochs=config["tuning"], seed=config["seed"], evaluate_on=0))
        rows.append(
            {
                "version": version,
                "density": density,
                "before": before,
                "examples": len(data.train),
                "accuracy": evaluate(tuned, data.test).accuracy,
            }
        )
    return rows


def correlations(rows: Sequence[Row], version: str) -> dict[str, tuple[stats.Correlation, stats.Correlation]]:
    """Pearson and Spearman of density with accuracy: over all checkpoints, and per optimiser."""
    found = {}
    for name in ("all", *dict.fromkeys(r["optimizer"] for r in rows)):
        mine = [r for r in rows if r["version"] == version and name in ("all", r["optimizer"])]
        x, y = [r["density"] for r in mine], [r["accuracy"] for r in mine]
        found[name] = (stats.pearson(x, y), stats.spearman(x, y))
    return found


def summary(rows: Sequence[Row]) -> Mapping[str, Any]:
    return {
        f"{version}, {name}": f"{a}; {b}"
        for version in VERSIONS
        for name, (a, b) in correlations(rows, version).items()
    }


STUDIES = (
    Study(
        name="gate-density-fine-tuning",
        paper="gate-density",
        title="E20: final gate density against accuracy after fine-tuning, on seen and on unseen examples",
        scales={
            "smoke": FineTuning(
                network="resnet-mini,width=4", activations=("relu", "gelu"), seeds=2, epochs=2, tuning=1
            ),
            "small": FineTuning(),
            "medium": FineTuning(seeds=10, epochs=25),
            "paper": FineTuning(data="cifar10", network="resnet18", epochs=25, augment=True),
        },
        resources=Resources(cpus=1, memory_gb=2, core_hours=5),
        trials=trials,
        trial=trial,
        reduced="small networks on digits and a synthetic teacher instead of a ResNet-18 on CIFAR",
        summary=summary,
        ready=lambda p: datasets.missing(p.data),
        depends=(*DEPENDS, "netvitals_lab.papers.gate_density.fine_tuning"),
        hypothesis="Final gate density at θ = 0.01 does not foretell accuracy after fine-tuning: over all checkpoints "
        "neither Pearson's nor Spearman's correlation is significant at 0.05 (two-sided), neither on examples "
        "the checkpoint was trained on nor on examples kept from it.",
    ),
)
