"""The study of the theorems: closed forms against Monte Carlo, and the counterexample to Theorem 1.1 by counting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netvitals_lab import Config, Resources, Row, Study
from netvitals_lab.papers.weight_drift import _downstream, _rules

LAWS = ("gaussian", "uniform", "rademacher")
DOWNSTREAM = ((), (12,), (12, 10), (12, 10, 8))


@dataclass(frozen=True)
class Theorems:
    """Draws of downstream weights (V1–V5), for the weight gradient (V6), of outputs (V4's values), initialisations
    (D7), and training steps (V7, D9).
    """

    draws: int = 50_000
    weight_draws: int = 6_000
    output_draws: int = 2_000_000
    inits: int = 256
    steps: int = 300
    seed: int = 0


def trials(p: Theorems) -> list[Config]:
    configs: list[Config] = [
        {"check": "fixed activation", "law": law, "hidden": list(hidden), "draws": p.draws, "seed": p.seed}
        for law in LAWS
        for hidden in DOWNSTREAM
    ]
    configs.append({"check": "doubt", "draws": p.output_draws, "seed": p.seed})
    configs += [
        {"check": "gelu", "hidden": list(hidden), "draws": p.draws, "seed": p.seed} for hidden in DOWNSTREAM[:2]
    ]
    configs.append({"check": "weight gradient", "draws": p.weight_draws, "seed": p.seed})
    configs.append({"check": "euler", "steps": p.steps, "seed": p.seed})
    configs.append({"check": "enumeration"})
    configs += [{"check": "first step", "pattern": name, "inits": p.inits, "seed": p.seed} for name in _rules.PATTERNS]
    configs.append({"check": "batch norm", "seed": p.seed})
    configs.append({"check": "readout mean", "steps": p.steps, "seed": p.seed})
    return configs


def trial(config: Config) -> list[Row]:
    match config["check"]:
        case "fixed activation":
            return _downstream.fixed_activation(config["law"], config["hidden"], config["draws"], config["seed"])
        case "doubt":
            return _downstream.doubt_of_readout(config["draws"], config["seed"])
        case "gelu":
            return _downstream.gelu(config["hidden"], config["draws"], config["seed"])
        case "weight gradient":
            return _downstream.weight_gradient(config["draws"], config["seed"])
        case "euler":
            return _rules.euler_in_training(config["steps"], config["seed"])
        case "enumeration":
            return _rules.enumeration()
        case "first step":
            return _rules.first_step(config["pattern"], config["inits"], config["seed"])
        case "batch norm":
            return _rules.batch_norm(config["seed"])
        case "readout mean":
            return _rules.readout_mean(config["steps"], config["seed"])
    raise ValueError(f"there is no check {config['check']!r}")


def summary(rows: Sequence[Row]) -> Mapping[str, Any]:
    known = [
        abs(r["mean"] - r["expected"]) / r["stderr"]
        for r in rows
        if r.get("expected") is not None and r["stderr"] > 1e-12
    ]
    return {"closed forms compared": len(known), "largest |z|": max(known, default=0.0)}


STUDIES = (
    Study(
        name="weight-drift-theorems",
        paper="weight-drift",
        title="V1–V8: closed forms of the drift theory against Monte Carlo, and the counterexample by counting",
        scales={
            "smoke": Theorems(draws=5_000, inits=128, steps=60),
            "small": Theorems(),
            "medium": Theorems(draws=200_000, inits=512),
            "paper": Theorems(draws=200_000, inits=1024),
        },
        resources=Resources(cpus=1, memory_gb=3, core_hours=1),
        trials=trials,
        trial=trial,
        summary=summary,
    ),
)
