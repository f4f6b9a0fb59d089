"""Thirteen activations by smoothness (E6, E11), the shared drift of means (E7), and the transition inside softplus.

The margin of a condition is taken at θ = 0.10 as in the paper's tables; its index of smoothness is the variance of the
signed f′ over the fixed batch before training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from netvitals_lab import Config, Resources, Row, Study
from netvitals_lab.papers.gate_density._recorder import key
from netvitals_lab.papers.gate_density._training import DEPENDS, condition, run
from netvitals_lab.papers.gate_density.ablations import missing, papers_recipe
from netvitals_lab.papers.gate_density.trajectories import TEACHER

LEAKY = ("leaky_relu:0.001", "leaky_relu:0.003", "leaky_relu:0.005", "leaky_relu:0.01")  # slopes ≤ θ: z_low = 0
SOFTPLUS = ("softplus:50", "softplus:20", "softplus:10", "softplus:5")
THIRTEEN = ("relu", *LEAKY, "prelu", *SOFTPLUS, "gelu", "silu", "mish")
LADDER = ("softplus:200", "softplus:100", "softplus:35")  # only for the transition; not among the thirteen


@dataclass(frozen=True)
class SweepSettings:
    seeds: int = 5
    epochs: int = 25
    data: tuple[str, ...] = ("digits", TEACHER)
    network: str = "mlp:64-128x3-10"
    conditions: tuple[str, ...] = (*THIRTEEN, *LADDER)
    own_recipe: bool = False  # the paper's decay and augmentation, one network of each seed after the other


def trials(p: SweepSettings) -> list[Config]:
    if p.own_recipe:
        return [
            condition(network=p.network, data=d, act=a, epochs=p.epochs, seed=s, **papers_recipe(True))
            for d in p.data
            for a in p.conditions
            for s in range(p.seeds)
        ]
    return [
        condition(network=p.network, data=d, act=a, epochs=p.epochs, seeds=p.seeds)
        for d in p.data
        for a in p.conditions
    ]


def summary(rows: Sequence[Row]) -> Mapping[str, Any]:
    facts: dict[str, Any] = {}
    runs = [r for r in rows if r["quantity"] == "run"]
    for data, act in dict.fromkeys((r["data"], r["act"]) for r in runs):
        mine = [r for r in runs if (r["data"], r["act"]) == (data, act)]
        mean = {name: np.mean([r[name] for r in mine]) for name in ("variance", "mu first", "mu last")}
        change = [100 * np.mean([r[f"{key(t)} change"] for r in mine]) for t in (0.01, 0.1)]
        facts[f"{data.split(',')[0]}, {act}"] = (
            f"Var f′ {mean['variance']:.3f}, μ {mean['mu first']:+.3f} → {mean['mu last']:+.3f}, ΔD(.01) "
            f"{change[0]:+.2f}, ΔD(.10) {change[1]:+.2f} points"
        )
    return facts


STUDIES = (
    Study(
        name="gate-density-sweep",
        paper="gate-density",
        title="E6, E7, E11: thirteen activations by smoothness, shared drift of means, the transition inside softplus",
        scales={
            "smoke": SweepSettings(seeds=2, epochs=4, data=("digits",), network="mlp:64-48x2-10"),
            "small": SweepSettings(),
            "medium": SweepSettings(seeds=5, epochs=50, network="mlp:64-256x3-10"),
            "paper": SweepSettings(
                seeds=3, data=("cifar10",), network="resnet18", conditions=THIRTEEN, own_recipe=True
            ),
        },
        resources=Resources(cpus=1, memory_gb=2, core_hours=3),
        trials=trials,
        trial=run,
        reduced="small networks on digits and a synthetic teacher instead of a ResNet-18 on CIFAR",
        summary=summary,
        depends=DEPENDS,
        ready=lambda p: missing(p.data),
        hypothesis="Without PReLU, the variance of f′ at the start and the density trend correlate negatively; inside "
        "softplus the trend changes sign between β = 50 and β = 20 at θ = 0.10.",
    ),
)
