"""The study of the rate primitive and Watanabe's inventory: orders, λ, m, ν, volumes, curvature, trajectories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from netvitals_lab import Config, Row, Study
from netvitals_lab.papers.dead_directions import _mixtures, _watanabe

MIXTURES = {
    "merge": _mixtures.merge,
    "two means": _mixtures.two_parameters,
    "three means": _mixtures.three_components,
    "weight boundary": _mixtures.weight_boundary,
    "mixture curvature": _mixtures.curvature,
    "next order": _mixtures.next_order,
}


@dataclass(frozen=True)
class Inventory:
    """Samples, data sets and half the training steps: one size for all."""

    size: int = 3000
    seed: int = 0


def trials(p: Inventory) -> list[Config]:
    return [{"check": name, "size": p.size, "seed": p.seed} for name in (*_watanabe.CHECKS, *MIXTURES)]


def trial(config: Config) -> list[Row]:
    if config["check"] in MIXTURES:
        return MIXTURES[config["check"]]()
    return _watanabe.CHECKS[config["check"]](config["size"], config["seed"])


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    models = [r for r in rows if r["check"] == "primitive"]
    return {"models with known answers": len(models), "agree": sum(bool(r["agrees"]) for r in models)}


STUDIES = (
    Study(
        "dead-directions-inventory",
        "dead-directions",
        "orders, λ, m and ν of models with known answers",
        trials=trials,
        settled="the answers are known exactly, and the sample of small already separates them",
        trial=trial,
        summary=summary,
        scales={"smoke": Inventory(size=1500), "small": Inventory(), "paper": Inventory(size=20_000)},
        unprinted="sizes and rates of its learned trajectories",
    ),
)
