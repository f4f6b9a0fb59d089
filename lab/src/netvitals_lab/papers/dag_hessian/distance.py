"""Experiments 1 and 1b: how resonance and coupling fall with distance, plain, residual and with spectral norm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from netvitals import curvature
from netvitals.curvature.advice.distance import decay_rate, fixed_end
from netvitals.curvature.measure.jacobians import lyapunov
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

NAME = "dag-hessian-distance"
KINDS = {
    "plain": "kind=plain,norm=layer",
    "residual": "kind=residual,norm=layer",
    "spectral": "kind=plain,norm=none,spectral=true",
}


@dataclass(frozen=True)
class Distance:
    """Which nets at which depths; untrained on noise, and trained on ``trained_on`` for ``epochs``."""

    depths: tuple[int, ...] = (8, 12)
    spectral_depths: tuple[int, ...] = (8, 12)
    trained_depths: tuple[int, ...] = (8,)
    width: int = 64
    samples: int = 32
    epochs: int = 50
    trained_on: str = "digits"
    seeds: tuple[int, ...] = SEEDS
    spectral_trained: bool = False
    deep: tuple[int, ...] = ()  # Table N.3: width 128, 64 samples, a hundred probes instead of the exact blocks


def trials(p: Distance) -> list[Config]:
    shape = {"width": p.width, "samples": p.samples}
    out: list[Config] = []
    for seed in p.seeds:
        for depth in p.depths:
            out += [
                {"net": k, "depth": depth, "data": "noise", "epochs": 0, "seed": seed, **shape}
                for k in ("plain", "residual")
            ]
        out += [
            {"net": "spectral", "depth": d, "data": "noise", "epochs": 0, "seed": seed, **shape}
            for d in p.spectral_depths
        ]
        out += [
            {"net": k, "depth": d, "data": p.trained_on, "epochs": p.epochs, "seed": seed, **shape}
            for k in ("plain", "residual")
            for d in p.trained_depths
        ]
        out += [
            {"net": "spectral", "depth": d, "data": p.trained_on, "epochs": p.epochs, "seed": seed, **shape}
            for d in p.spectral_depths
            if p.spectral_trained
        ]
        wide = {"data": p.trained_on, "epochs": p.epochs, "seed": seed, "width": 128, "samples": 64, "probes": 100}
        out += [{"net": k, "depth": d, **wide} for k in ("plain", "residual") for d in p.deep]
    return out


def trial(config: Config) -> list[Row]:
    spec = f"mlp,{KINDS[config['net']]}"
    hidden = (config["width"],) * (config["depth"] + 1)

    def measured(net: nn.Module, batch: tuple[Tensor, Tensor], phase: str) -> Row:
        nodes = block_nodes(net)
        if "probes" in config:
            return numbers(curvature.between_layers(net, F.cross_entropy, batch, nodes=nodes, probes=config["probes"]))
        measure = lambda reduction: curvature.between_layers(
            net, F.cross_entropy, batch, nodes=nodes, method="exact", reduction=reduction
        )
        found, apart = measure("mean_block"), measure("mean_of_norms")
        own = curvature.decay(apart)
        last = nodes[-1]
        fixed = [float(fixed_end(r, last)[::-1][k]) for r in (found, apart) for k in range(len(nodes))]
        with curvature.node_jacobians(net, F.cross_entropy, batch, nodes=["blocks.*"]) as of:
            chain = [of.jacobian(b, a) for a, b in zip(of.names, of.names[1:])]
            rates = lyapunov(chain)
            rho = max(of.edges().norms.values())
        # log R(i, w) at a fixed end w: of the averaged block, and of one sample's
        slopes = [decay_rate(fixed[: len(nodes)]), decay_rate(fixed[len(nodes) :])]
        return {
            **numbers(found),
            "rho": rho,
            "lyapunov_eq8": rates.eq8,
            "lyapunov_qr": rates.qr,
            "gain": rates.gain,
            "apart_rate": own.rate,
            "fixed_rate": slopes[0],
            "fixed_apart_rate": slopes[1],
        }

    return moments(config, spec, dataset(config["data"]), measured, samples=config["samples"], hidden=hidden)


def summary(rows: Sequence[Row]) -> Mapping[str, Any]:
    return table(rows, ("net", "depth", "data", "phase"), "rate")


STUDIES = (
    Study(
        name=NAME,
        paper="dag-hessian",
        title="How does curvature between layers fall with their distance?",
        scales={
            "smoke": Distance((4,), (4,), (3,), width=12, samples=8, epochs=2, seeds=SEEDS[:2]),
            "small": Distance(spectral_trained=True, deep=(16, 32)),
            "medium": Distance((8, 10, 12), (8, 12, 16), (8, 10, 12), spectral_trained=True, deep=(16, 32)),
            "paper": Distance(
                (8, 10, 12),
                (8, 12, 16),
                (8, 10, 12),
                trained_on="cifar10",
                seeds=SEEDS,
                spectral_trained=True,
                deep=(16, 32),
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
