"""The study of optimisers: equivariance, gauge drift, and rates along learned trajectories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from netvitals_lab import Config, Resources, Row, Study
from netvitals_lab.papers.dead_directions import _bridge

TRAJECTORIES = (
    "sgd",
    "adam",
    "ddcadam frozen",
    "ddcadam sgd",
    "ddcadam adam",
    "eps 1e-08",
    "eps 0.0001",
    "eps 0.01",
    "eps 1",
    "dial 0",
    "dial 0.25",
    "dial 0.5",
    "dial 1",
    "sign",
)
DRIFTS = ("sgd", "adam", "ddcadam printed", "ddcadam")


@dataclass(frozen=True)
class Optimisers:
    """Steps of a trajectory, of the drift measurement, and of an equivariance test."""

    trajectory: int = 20_000
    drift: int = 2000
    synchronised: int = 200
    seeds: int = 5


def trials(p: Optimisers) -> list[Config]:
    configs: list[Config] = [
        {"check": "trajectory", "optimizer": o, "depth": d, "steps": p.trajectory}
        for d in (2, 3)
        for o in TRAJECTORIES
        if d == 2 or o in TRAJECTORIES[:5]
    ]
    configs += [{"check": "drift", "optimizer": o, "steps": p.drift, "seed": s} for o in DRIFTS for s in range(p.seeds)]
    configs += [
        {"check": "equivariance", "spec": s, "vertical": v, "dtype": d, "steps": p.synchronised}
        for s in _bridge.SPECS
        for v in ("frozen", "sgd", "adam")
        for d in ("float32", "float64")
    ]
    configs += [
        {"check": "equivariance", "spec": s, "vertical": "adam itself", "dtype": "float64", "steps": p.synchronised}
        for s in _bridge.SPECS
    ]
    return configs


def trial(config: Config) -> list[Row]:
    match config["check"]:
        case "trajectory":
            return [_bridge.descend(config["optimizer"], config["depth"], config["steps"])]
        case "drift":
            return [_bridge.drift(config["optimizer"], config["steps"], config["seed"])]
        case _:
            return [_bridge.equivariance(config["spec"], config["vertical"], config["dtype"], config["steps"])]


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    ours = [r["residual"] for r in rows if r["check"] == "equivariance" and r["vertical"] != "adam itself"]
    return {"largest equivariance residual": max(ours), "trajectories": sum(r["check"] == "trajectory" for r in rows)}


STUDIES = (
    Study(
        "dead-directions-optimisers",
        "dead-directions",
        "which optimisers respect symmetries and keep rates",
        trials=trials,
        resources=Resources(cpus=1, memory_gb=2, core_hours=2),
        trial=trial,
        summary=summary,
        scales={
            "smoke": Optimisers(trajectory=2000, drift=2000, seeds=1),
            "small": Optimisers(),
            "medium": Optimisers(trajectory=60_000, drift=6000, seeds=10),
            "paper": Optimisers(trajectory=200_000, drift=20_000, seeds=10),
        },
    ),
)
