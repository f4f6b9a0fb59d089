"""The study behind most claims: one trial per check, each a handful of numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from netvitals_lab import Config, Row, Study
from netvitals_lab.papers.saddle_escape import checks_escape as escape
from netvitals_lab.papers.saddle_escape import checks_identity as identity

NAME = "saddle-theorems"
CHECKS: dict[str, Callable[[int], dict[str, float]]] = {
    "identity": identity.identity,
    "linear conservation": identity.linear_conservation,
    "classes": identity.classes,
    "ansatz": identity.ansatz,
    "expansion": identity.expansion,
    "class D": identity.class_d,
    "resonance": escape.resonance,
    "corrections": escape.corrections,
    "critical depth": escape.critical_depth,
    "signal": escape.signal,
    "nondegeneracy": escape.nondegeneracy,
    "corners": escape.corners,
    "stages": escape.stages,
    "blocks": escape.blocks,
    "perron": escape.perron,
    "stage one": escape.stage_one,
    "truncations": escape.truncations,
}


@dataclass(frozen=True)
class TheoremParameters:
    """Checks that depend on a random draw are repeated for every seed."""

    seeds: int


SCALES = {"smoke": TheoremParameters(1), "small": TheoremParameters(2), "paper": TheoremParameters(10)}
DRAWN = ("identity", "linear conservation", "signal", "nondegeneracy", "corners", "perron", "blocks", "ansatz")


def trials(p: TheoremParameters) -> list[Config]:
    return [{"check": name, "seed": seed} for name in CHECKS for seed in range(p.seeds if name in DRAWN else 1)]


def trial(config: Config) -> list[Row]:
    return [{"quantity": name, "value": value} for name, value in CHECKS[config["check"]](config["seed"]).items()]


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    return {f"{r['check']}: {r['quantity']}": r["value"] for r in rows if r.get("seed", 0) == 0}


STUDIES = (
    Study(
        name=NAME,
        paper="saddle-escape",
        title="Do the theorems of saddle escape hold, number by number? (T1–T27)",
        scales=SCALES,
        trials=trials,
        settled="theorems to the error of quadrature, on networks drawn twice",
        trial=trial,
        summary=summary,
    ),
)
