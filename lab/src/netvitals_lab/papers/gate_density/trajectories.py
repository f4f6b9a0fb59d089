"""The split of activations in training: E3, E5, E8 to E10 and E12, with per-channel tests, on perceptrons and images.

Every activation is trained with SGD at the integrated decay of the paper's schedule, and with Adam and AdamW; the
predictors are the same for all of them, and nothing is fitted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from netvitals_lab import Config, Resources, Row, Study
from netvitals_lab import data as datasets
from netvitals_lab.papers.gate_density._recorder import key
from netvitals_lab.papers.gate_density._training import DEPENDS, FOUR, RATES, S, condition, run

TEACHER = "teacher,inputs=64,classes=10"
PAPERS_ADAM = 0.00244  # Σ η_t λ of the paper's schedule under Adam and AdamW: 1e-3 · 4,888 · 5e-4
# (optimizer, S): SGD as in the paper, Adam and AdamW at the paper's Σηλ
SCHEDULED = {"sgd": S, "adam": PAPERS_ADAM, "adamw": PAPERS_ADAM}
OPTIMIZERS: tuple[tuple[str, float], ...] = tuple(SCHEDULED.items())
# on images: the paper's SGD, the same integrated decay under AdamW, and Adam with a Σηλ that its preconditioner
# magnifies to about the same decay of the norm scales (what they felt is measured and stored)
MATCHED: tuple[tuple[str, float], ...] = (("sgd", S), ("adamw", S), ("adam", 0.04))
# beside the four, for Table 4: nine under SGD
NINE = ("relu", "leaky_relu:0.01", "softplus:50", "softplus:20", "softplus:10", "softplus:5", "gelu", "silu", "mish")


@dataclass(frozen=True)
class Perceptrons:
    seeds: int = 5
    epochs: int = 25
    data: tuple[str, ...] = ("digits", TEACHER)
    network: str = "mlp:64-128x3-10"
    activations: tuple[str, ...] = FOUR


@dataclass(frozen=True)
class ImageSettings:
    seeds: int = 5
    epochs: int = 16
    data: tuple[str, ...] = ("cifar10,train=4000,test=1000",)
    pool: int = 2  # average so many pixels, in each direction, into one
    networks: tuple[str, ...] = ("resnet18,width=8",)
    activations: tuple[str, ...] = FOUR
    optimizers: tuple[tuple[str, float], ...] = MATCHED
    rate: float = 5e-3  # of Adam and AdamW at a matched S: the decay of coupled Adam cannot exceed Σ η_t
    augment: bool = False
    nine: tuple[str, ...] = ()  # Table 4: under SGD in the first network, on the first data
    group_norm: bool = False  # A.2: the four under SGD there, with GroupNorm instead


# Tables 1 and 4 and the test on AdamW, at the rates and the integrated decay of the paper's schedule
SMALL_CNN = ImageSettings(
    data=("cifar10,train=2000,test=1000",),
    networks=("vgg-mini,width=8",),
    optimizers=OPTIMIZERS,
    nine=NINE,
    group_norm=True,
)


def perceptron_trials(p: Perceptrons) -> list[Config]:
    return [
        condition(network=p.network, data=d, act=a, optimizer=o, S=s, epochs=p.epochs, seeds=p.seeds)
        for d in p.data
        for o, s in OPTIMIZERS
        for a in p.activations
    ]


def image_trials(p: ImageSettings) -> list[Config]:
    shared = {"pool": p.pool, "epochs": p.epochs, "augment": p.augment}
    arms: list[Config] = [
        {"network": n, "data": d, "optimizer": o, "S": decay, "lr": RATES[o] if decay == SCHEDULED[o] else p.rate}
        for o, decay in p.optimizers
        for d in p.data
        for n in p.networks
    ]
    cases = [(arm, act) for arm in arms for act in p.activations]
    first = {"network": p.networks[0], "data": p.data[0], "optimizer": "sgd", "S": S, "lr": RATES["sgd"]}
    cases += [(first, act) for act in p.nine if act not in p.activations]
    cases += [({**first, "norm": "group"}, act) for act in p.activations if p.group_norm]
    return [condition(**shared, **arm, act=act, seed=s) for arm, act in cases for s in range(p.seeds)]


def summary(rows: Sequence[Row]) -> Mapping[str, Any]:
    """Change of density in points under each pooling: mean over seeds."""
    facts: dict[str, Any] = {}
    runs = [r for r in rows if r["quantity"] == "run"]
    for data, optimizer, decay, act in dict.fromkeys((r["data"], r["optimizer"], r["S"], r["act"]) for r in runs):
        mine = [r for r in runs if (r["data"], r["optimizer"], r["S"], r["act"]) == (data, optimizer, decay, act)]
        change = {
            f"{t:g} {p}": 100 * np.mean([r[f"{key(t, p)} change"] for r in mine])
            for t in (0.01, 0.1)
            for p in ("element", "site", "channel")
        }
        sigma = np.mean([r["sigma last"] / r["sigma first"] - 1 for r in mine])
        facts[f"{data.split(',')[0]}, {optimizer} S={decay:g}, {act}"] = (
            f"σ {sigma:+.0%}, ΔD(.01) {change['0.01 element']:+.2f} by element, {change['0.01 site']:+.2f} by site, "
            f"{change['0.01 channel']:+.2f} by channel; ΔD(.10) {change['0.1 element']:+.2f}, "
            f"{change['0.1 site']:+.2f}, {change['0.1 channel']:+.2f}"
        )
    return facts


STUDIES = (
    Study(
        name="gate-density-trajectories",
        paper="gate-density",
        title="E3, E5, E8–E10, E12: ReLU, GELU, SiLU, Mish in BatchNorm perceptrons under SGD, Adam, AdamW",
        scales={
            "smoke": Perceptrons(seeds=2, epochs=6, data=("digits",), network="mlp:64-48x2-10"),
            "small": Perceptrons(),
            "medium": Perceptrons(seeds=5, epochs=50, network="mlp:64-256x3-10"),
            "paper": Perceptrons(seeds=5, epochs=100, network="mlp:64-512x3-10"),
        },
        resources=Resources(cpus=1, memory_gb=2, core_hours=2),
        trials=perceptron_trials,
        trial=run,
        reduced="small networks on digits and a synthetic teacher instead of a ResNet-18 on CIFAR",
        summary=summary,
        depends=DEPENDS,
        hypothesis="At S = 2.44 under SGD gate density falls for ReLU and rises for GELU, SiLU and Mish in every "
        "seed; under AdamW at the paper's decay σ changes by less than 15 %.",
    ),
    Study(
        name="gate-density-images",
        paper="gate-density",
        title="E3, E5, E8–E10 on images: a ResNet-18 of width 8, three poolings, SGD, AdamW and Adam at matched S",
        scales={
            "smoke": ImageSettings(
                seeds=1,
                epochs=3,
                data=("digits,train=256,test=128",),
                pool=1,
                optimizers=(("sgd", S),),
                networks=("resnet18,width=4",),
                activations=("relu", "gelu"),
            ),
            "small": ImageSettings(),
            "medium": ImageSettings(
                epochs=25, data=("cifar10,train=10000,test=2000",), pool=1, networks=("resnet18,width=16",)
            ),
            "paper": ImageSettings(
                seeds=3,
                epochs=25,
                data=("cifar10", "cifar100"),
                pool=1,
                networks=("resnet18", "vgg11"),
                augment=True,
                rate=1e-3,
                optimizers=(*OPTIMIZERS, ("adamw", S)),
            ),
        },
        trials=image_trials,
        resources=Resources(cpus=2, memory_gb=4, core_hours=60),
        trial=run,
        reduced="a narrow residual network on digits, or on few images",
        summary=summary,
        depends=DEPENDS,
        ready=lambda p: "; ".join(filter(None, (datasets.missing(d.split(",")[0]) for d in p.data))),
        hypothesis="At S = 2.44 under SGD the density of ReLU falls when every channel counts alike and rises when "
        "every element does, for sites behind an addition rise and deep sites behind a norm fall; GELU, "
        "SiLU and Mish rise under every pooling. AdamW at the same S gives the same signs.",
    ),
    Study(
        name="gate-density-cnn",
        paper="gate-density",
        title="E4, E5, E7–E10, E12: a VGG-11 of width 8; SGD, Adam and AdamW at the paper's S, nine activations",
        scales={
            "smoke": replace(
                SMALL_CNN,
                seeds=1,
                epochs=3,
                data=("digits,train=256,test=128",),
                pool=1,
                activations=("relu", "gelu"),
                nine=("softplus:20",),
                group_norm=False,
            ),
            "small": SMALL_CNN,
            "medium": replace(SMALL_CNN, epochs=25, data=("cifar10,train=10000,test=2000",), pool=1),
            "paper": replace(
                SMALL_CNN,
                seeds=3,
                epochs=25,
                data=("cifar10", "cifar100"),
                pool=1,
                networks=("resnet18", "vgg11"),
                augment=True,
            ),
        },
        trials=image_trials,
        resources=Resources(cpus=1, memory_gb=2, core_hours=4),
        trial=run,
        reduced="a VGG-11 of width 8 on 2,000 CIFAR-10 images of 16 × 16 pixels, 256 steps",
        summary=summary,
        depends=(*DEPENDS, "netvitals_lab.models.vgg"),
        ready=lambda p: "; ".join(filter(None, (datasets.missing(d.split(",")[0]) for d in p.data))),
        hypothesis="σ falls by more than half under SGD and by less than a tenth under AdamW at the paper's S; under "
        "AdamW the density of all four activations falls.",
    ),
)
