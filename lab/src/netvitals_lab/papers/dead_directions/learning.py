"""The study of dead directions in training: sparse nets, growing heads, memorising and compressing, λ over training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from netvitals_lab import Config, Resources, Row, Study
from netvitals_lab.papers.dead_directions import _learning


@dataclass(frozen=True)
class Learning:
    """Steps of each experiment, data sets of the mixtures, seeds."""

    heads: tuple[int, ...] = (150, 1500)
    grokking: int = 1500
    coefficient: int = 800
    draws: int = 300
    data_sets: int = 4000
    seeds: int = 5


def trials(p: Learning) -> list[Config]:
    out: list[Config] = [
        {"check": "expansion", "steps": n, "seed": s} for n in p.heads for s in range(max(p.seeds, 2) + 2)
    ]
    out += [{"check": "grokking", "steps": p.grokking, "seed": s} for s in range(p.seeds)]
    out += [{"check": "coefficient", "steps": p.coefficient, "draws": p.draws, "seed": 0}]
    out += [
        {"check": "mixture", "weight": w, "data_sets": p.data_sets, "seed": i}
        for i, w in enumerate((0.5, 0.4, 0.3, 0.2))
    ]
    return out


def trial(config: Config) -> list[Row]:
    found = _learning.CHECKS[config["check"]](**{k: v for k, v in config.items() if k != "check"})
    return found if isinstance(found, list) else [found]


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    last = max((r for r in rows if r["check"] == "coefficient"), key=lambda r: r["step"])
    return {
        "λ at the end of training": f"{last['lam']:.1f} ± {last['stderr']:.1f} of {last['parameters']} parameters",
        "ν of mixtures": ", ".join(f"{r['nu']:.4f}" for r in rows if r["check"] == "mixture"),
    }


STUDIES = (
    Study(
        "dead-directions-learning",
        "dead-directions",
        "dead directions while networks learn",
        trials=trials,
        resources=Resources(cpus=1, memory_gb=2, core_hours=6),
        trial=trial,
        summary=summary,
        scales={
            "smoke": Learning(heads=(150,), grokking=900, coefficient=160, draws=40, data_sets=1000, seeds=1),
            "small": Learning(),
            "medium": Learning(grokking=6000, coefficient=2000, draws=800, data_sets=12_000, seeds=10),
            "paper": Learning(grokking=20_000, coefficient=5000, draws=2000, data_sets=40_000, seeds=10),
        },
        unprinted="the networks, their data and how long they were trained",
    ),
)
