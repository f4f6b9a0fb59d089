"""Does the split depend on the norm (E4), and on the architecture (E2, E15, E17)?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from netvitals.lab.studies import Config, Resources, Row, Study
from netvitals.lab.studies.gate_density._recorder import key
from netvitals.lab.studies.gate_density._training import DEPENDS, FOUR, condition, run

CONVOLUTIONAL = ("resnet-mini,width=8", "vgg-mini,width=8")
OTHERS = ("mixer-mini", "vit-mini")


@dataclass(frozen=True)
class Norms:
    seeds: int = 5
    epochs: int = 25
    networks: tuple[str, ...] = ("mlp:64-128x3-10", "resnet-mini,width=8")
    norms: tuple[str, ...] = ("batch", "group", "layer")
    activations: tuple[str, ...] = FOUR


@dataclass(frozen=True)
class ArchitectureSettings:
    seeds: int = 5
    epochs: int = 25
    data: str = "digits"
    networks: tuple[str, ...] = (*CONVOLUTIONAL, *OTHERS)
    activations: tuple[str, ...] = FOUR


def norm_trials(p: Norms) -> list[Config]:
    out: list[Config] = []
    for network in p.networks:
        for norm in p.norms:
            base = condition(network=network, norm=norm, epochs=p.epochs)
            # seeds of a perceptron at once, where its norm has a batched form
            if network.startswith("mlp") and norm != "group":
                out += [{**base, "act": a, "seeds": p.seeds} for a in p.activations]
            else:
                out += [{**base, "act": a, "seed": s} for a in p.activations for s in range(p.seeds)]
    return out


def architecture_trials(p: ArchitectureSettings) -> list[Config]:
    return [
        condition(
            network=n, data=p.data, norm="batch" if n in CONVOLUTIONAL else "layer", act=a, epochs=p.epochs, seed=s
        )
        for n in p.networks
        for a in p.activations
        for s in range(p.seeds)
    ]


def summary(rows: Sequence[Row]) -> Mapping[str, Any]:
    facts: dict[str, Any] = {}
    runs = [r for r in rows if r["quantity"] == "run"]
    for network, norm, act in dict.fromkeys((r["network"], r["norm"], r["act"]) for r in runs):
        mine = [r for r in runs if (r["network"], r["norm"], r["act"]) == (network, norm, act)]
        change = {p: 100 * np.mean([r[f"{key(0.01, p)} change"] for r in mine]) for p in ("element", "site", "channel")}
        sigma, rank = (np.mean([r[f"{n} last"] / r[f"{n} first"] - 1 for r in mine]) for n in ("sigma", "rank_entropy"))
        facts[f"{network}, {norm}, {act}"] = (
            f"ΔD(.01) {change['element']:+.2f} by element, {change['site']:+.2f} by site, {change['channel']:+.2f} by "
            f"channel; σ {sigma:+.0%}, rank {rank:+.0%}"
        )
    return facts


STUDIES = (
    Study(
        name="gate-density-norms",
        paper="gate-density",
        title="E4: BatchNorm, GroupNorm and LayerNorm under the same decay",
        scales={
            "smoke": Norms(seeds=1, epochs=4, networks=("mlp:64-48x2-10",), norms=("batch", "group")),
            "small": Norms(),
            "medium": Norms(seeds=5, epochs=50, networks=("mlp:64-256x3-10", "resnet-mini,width=16")),
            "paper": Norms(networks=("mlp:64-512x3-10", "resnet18"), epochs=100),
        },
        resources=Resources(cpus=1, memory_gb=2, core_hours=6),
        trials=norm_trials,
        trial=run,
        reduced="small networks on digits and a synthetic teacher instead of a ResNet-18 on CIFAR",
        summary=summary,
        depends=DEPENDS,
        hypothesis="The signs under GroupNorm are those under BatchNorm: ReLU falls, GELU, SiLU and Mish rise.",
    ),
    Study(
        name="gate-density-architectures",
        paper="gate-density",
        title="E2, E15, E17: two convolutional networks, a mixer and an encoder; density and effective rank",
        scales={
            "smoke": ArchitectureSettings(seeds=1, epochs=3, activations=("relu", "gelu")),
            "small": ArchitectureSettings(),
            "medium": ArchitectureSettings(seeds=5, epochs=50),
            "paper": ArchitectureSettings(data="cifar10", networks=("resnet18", "vgg11", "mixer", "encoder")),
        },
        resources=Resources(cpus=1, memory_gb=2, core_hours=10),
        trials=architecture_trials,
        trial=run,
        reduced="small networks on digits and a synthetic teacher instead of a ResNet-18 on CIFAR",
        summary=summary,
        depends=(
            *DEPENDS,
            "netvitals.lab.models.vgg",
            "netvitals.lab.models.mixer",
            "netvitals.lab.models.transformer",
        ),
        hypothesis="GELU, SiLU and Mish rise in every architecture; ReLU falls in the convolutional ones only, and "
        "so does the rise of effective rank appear there only.",
    ),
)
