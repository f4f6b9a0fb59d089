"""The study behind two pictures: Fisher form, curvature and volume of one order; the autoencoder's slope as t grows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from netvitals.singular.laws.geometry import high_curvature_volume, sectional_curvature
from netvitals.singular.networks.builders import Autoencoder
from netvitals.singular.networks.ladders import freeze_probe
from netvitals_lab import Config, Row, Study
from netvitals_lab.papers.dead_directions._watanabe import _mean_map

NAME = "dead-directions-pictures"
SEEDS = (42, 142, 242, 342, 442)  # Table 7's, which Figure 12 extends
ACTIVATIONS = ("linear", "relu", "gelu", "tanh")


@dataclass(frozen=True)
class Pictures:
    """Distances of each picture, inputs of the autoencoder, its seeds."""

    points: int = 13
    examples: int = 2000
    seeds: tuple[int, ...] = SEEDS


def trials(p: Pictures) -> list[Config]:
    chain: list[Config] = [{"figure": 5, "k": k, "points": p.points} for k in (2, 3, 4)]
    return chain + [
        {"figure": 12, "activation": a, "points": p.points, "examples": p.examples, "seed": s}
        for a in ACTIVATIONS
        for s in p.seeds
    ]


def trial(config: Config) -> list[Row]:
    if config["figure"] == 5:
        return rate_chain(config["k"], config["points"])
    ts = np.geomspace(1e-3, 0.5, config["points"] + 6).tolist()
    net = Autoencoder(activation=config["activation"], seed=config["seed"])
    found = freeze_probe(net, ts, noise=0.0, examples=config["examples"], seed=config["seed"])
    return [{"t": t, "entry": float(v)} for t, v in zip(ts, found.values["layer1"])]


def rate_chain(k: int, points: int) -> list[Row]:
    """F, |K| at distance t, and the Fisher volume of what is curved more than at t, on a mean map of order k."""
    metric = _mean_map(k)
    rows = []
    for t in np.geomspace(3e-3, 3e-2, points):
        at = torch.tensor([t, 0.0], dtype=torch.float64)
        level = abs(sectional_curvature(metric, at))
        volume = high_curvature_volume(metric, level, reach=2 * float(t))[0]
        rows.append({"t": float(t), "fisher": float(metric(at)[0, 0]), "curvature": level, "volume": volume})
    return rows


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    return {
        "distances in Figure 5": sum(r["figure"] == 5 for r in rows),
        "in Figure 12": sum(r["figure"] == 12 for r in rows),
    }


STUDIES = (
    Study(
        NAME,
        "dead-directions",
        "the pictures of the rate chain and of the autoencoder's corrections",
        trials=trials,
        settled="still probes: what is drawn does not hang on a size",
        trial=trial,
        summary=summary,
        scales={
            "smoke": Pictures(points=7, examples=200, seeds=SEEDS[:1]),
            "small": Pictures(),
            "paper": Pictures(points=40, examples=20_000),
        },
    ),
)
