"""Does the split depend on the norm (E4), and on the architecture (E2, E15, E17)?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from netvitals_lab import Config, Resources, Row, Study, models
from netvitals_lab import data as datasets
from netvitals_lab.models.resnet import ResNetSpec
from netvitals_lab.models.vgg import VGGSpec
from netvitals_lab.papers.gate_density._recorder import key
from netvitals_lab.papers.gate_density._training import DEPENDS, FOUR, condition, run

# E13, E14, E16: (network, data, seeds, epochs, RandomResizedCrop); the paper kept ConvNeXt-Tiny out of its counts
PHOTOGRAPHS: tuple[tuple[str, str, int, int, bool], ...] = (
    ("resnet18", "tiny-imagenet", 3, 25, False),
    ("resnet50", "places365,side=96,train_per_class=150,test_per_class=20", 2, 25, True),
    ("convnext-tiny", "cifar10", 1, 15, False),
    ("convnext-tiny", "cifar100", 1, 15, False),
)
# §4: GELU only, 4 runs; the canonical network at 224 × 224, with the start that A.1 calls the standard fix
VIT = "vit-b16,init=normal,resize=224"


def norm_of(network: str) -> str:
    """The norm of the paper's architectures: BatchNorm in convolutional towers, LayerNorm elsewhere.

    >>> norm_of("resnet50"), norm_of("vgg-mini,width=8"), norm_of("convnext-tiny"), norm_of("mixer")
    ('batch', 'batch', 'layer', 'layer')
    """
    return "batch" if isinstance(models.parse(network), (ResNetSpec, VGGSpec)) else "layer"


def papers_recipe(own: bool, cropped: bool = False) -> dict[str, Any]:
    """λ = 5e-4 on every parameter, crops and mirrors, where a study follows the paper; else nothing is added.

    Crops are padded by an eighth of the side (4 of 32, 8 of 64); ``cropped`` takes RandomResizedCrop(.7–1) instead.
    """
    return {"S": None, "weight_decay": 5e-4, "augment": "resized" if cropped else True} if own else {}


@dataclass(frozen=True)
class Norms:
    seeds: int = 5
    epochs: int = 25
    networks: tuple[str, ...] = ("mlp:64-128x3-10", "resnet-mini,width=8")
    norms: tuple[str, ...] = ("batch", "group", "layer")
    activations: tuple[str, ...] = FOUR
    data: str = "digits"
    own_recipe: bool = False  # the paper's decay and augmentation instead of its integrated decay


@dataclass(frozen=True)
class ArchitectureSettings:
    seeds: int = 5
    epochs: int = 25
    data: tuple[str, ...] = ("digits",)
    networks: tuple[str, ...] = ("resnet-mini,width=8", "vgg-mini,width=8", "mixer-mini", "vit-mini")
    activations: tuple[str, ...] = FOUR
    photographs: tuple[tuple[str, str, int, int, bool], ...] = ()
    vit_seeds: int = 0  # of ViT-B/16, on all of ``data``
    own_recipe: bool = False


def norm_trials(p: Norms) -> list[Config]:
    out: list[Config] = []
    for network in p.networks:
        for norm in p.norms:
            base = condition(network=network, data=p.data, norm=norm, epochs=p.epochs, **papers_recipe(p.own_recipe))
            # seeds of a perceptron at once, where its norm has a batched form
            if network.startswith("mlp") and norm != "group":
                out += [{**base, "act": a, "seeds": p.seeds} for a in p.activations]
            else:
                out += [{**base, "act": a, "seed": s} for a in p.activations for s in range(p.seeds)]
    return out


def architecture_trials(p: ArchitectureSettings) -> list[Config]:
    cases = [(n, d, p.seeds, p.epochs, False) for d in p.data for n in p.networks]
    runs = [(*case, a) for case in (*cases, *p.photographs) for a in p.activations]
    runs += [(VIT, d, p.vit_seeds, p.epochs, False, "gelu") for d in p.data]
    return [
        condition(
            network=n, data=d, norm=norm_of(n), act=a, epochs=epochs, seed=s, **papers_recipe(p.own_recipe, cropped)
        )
        for n, d, seeds, epochs, cropped, a in runs
        for s in range(seeds)
    ]


def missing(names: Sequence[str]) -> str:
    """Which data are not here, in one sentence."""
    return "; ".join(filter(None, (datasets.missing(n) for n in dict.fromkeys(names))))


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
            "paper": Norms(seeds=3, networks=("resnet18",), norms=("batch", "group"), data="cifar10", own_recipe=True),
        },
        resources=Resources(cpus=1, memory_gb=2, core_hours=6),
        trials=norm_trials,
        trial=run,
        reduced="small networks on digits and a synthetic teacher instead of a ResNet-18 on CIFAR",
        summary=summary,
        depends=DEPENDS,
        ready=lambda p: missing([p.data]),
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
            "paper": ArchitectureSettings(
                seeds=3,
                data=("cifar10", "cifar100"),
                networks=("resnet18", "resnet50", "vgg11", "mixer", "encoder"),
                photographs=PHOTOGRAPHS,
                vit_seeds=2,
                own_recipe=True,
            ),
        },
        resources=Resources(cpus=1, memory_gb=2, core_hours=10),
        trials=architecture_trials,
        trial=run,
        reduced="small networks on digits and a synthetic teacher instead of a ResNet-18 on CIFAR",
        summary=summary,
        depends=(
            *DEPENDS,
            "netvitals_lab.models.vgg",
            "netvitals_lab.models.mixer",
            "netvitals_lab.models.transformer",
        ),
        ready=lambda p: missing([*p.data, *(d for _, d, *_ in p.photographs)]),
        hypothesis="GELU, SiLU and Mish rise in every architecture; ReLU falls in the convolutional ones only, and "
        "so does the rise of effective rank appear there only.",
    ),
)
