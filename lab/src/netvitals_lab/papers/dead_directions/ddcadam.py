"""The study of BalancedAdam, named ddcadam on record: does an Adam that respects symmetries train better?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from netvitals_lab import Config, Resources, Row, Study
from netvitals_lab import data as datasets
from netvitals_lab.papers.dead_directions import _race

OPTIMIZERS = ("adam", "adamw", "ddcadam", "ddcadam-radial")
FIRST_SEED = 100  # the rates below were measured with smaller ones


@dataclass(frozen=True)
class Race:
    """Training steps by architecture, learning rates, seeds, and the log size of a rescaled start."""

    steps: dict[str, int]
    rates: tuple[float, ...] = (1e-3, 3e-3, 1e-2, 3e-2)
    seeds: int = 10
    rescaled: float = 1.0
    images: str = "cifar10,train=4000,test=1000"


def trials(p: Race) -> list[Config]:
    data = {"gpt": "text", "images": p.images}
    return [
        {
            "architecture": a,
            "optimizer": o,
            "seed": FIRST_SEED + s,
            "rates": list(p.rates),
            "rescaled": p.rescaled,
            "steps": n,
            "data": data.get(a, "digits"),
        }
        for a, n in p.steps.items()
        for o in OPTIMIZERS
        for s in range(p.seeds)
    ]


def trial(config: Config) -> list[Row]:
    return _race.race(**config)


def best(rows: Sequence[Row], architecture: str, optimizer: str) -> list[Row]:
    """The runs of an optimiser, each at the rate that its own validation data chose, in the order of the seeds."""
    mine = [r for r in rows if (r["architecture"], r["optimizer"]) == (architecture, optimizer)]
    if not mine or any(r["test"] is None for r in mine if not r["rescaled"]):
        raise LookupError(f"no rate of {optimizer} on {architecture} finished every run")
    return sorted(mine, key=lambda r: (r["seed"], r["rescaled"]))


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    out = {}
    for a in sorted({r["architecture"] for r in rows}):
        for o in OPTIMIZERS:
            runs = [r for r in best(rows, a, o) if not r["rescaled"]]
            out[f"{a}, {o}"] = (
                f"test loss {sum(r['test'] for r in runs) / len(runs):.4f} at rates {_rates(runs)}, "
                f"moved {max(r['moved'] for r in runs):.2g} along gauges"
            )
    return out


def _rates(runs: Sequence[Row]) -> str:
    return ", ".join(f"{lr:g}" for lr in sorted({r["lr"] for r in runs}))


STUDIES = (
    Study(
        "ddcadam",
        "dead-directions",
        "does BalancedAdam help?",
        trials=trials,
        resources=Resources(cpus=1, memory_gb=2, core_hours=20),
        trial=trial,
        summary=summary,
        scales={
            "smoke": Race({"mlp": 40, "resnet": 8, "gpt": 8, "finetune": 20}, rates=(1e-3, 1e-2), seeds=1),
            "small": Race({"mlp": 300, "resnet": 120, "gpt": 60, "finetune": 100}),
            "medium": Race({"mlp": 1500, "resnet": 1000, "gpt": 600, "finetune": 500}),
            "paper": Race({"mlp": 5000, "resnet": 5000, "gpt": 5000, "finetune": 1000}),
        },
        unprinted="a network that its optimiser was trained on",
    ),
    Study(
        "ddcadam-images",
        "dead-directions",
        "does BalancedAdam help on natural images?",
        trials=trials,
        resources=Resources(cpus=1, memory_gb=2, core_hours=20),
        trial=trial,
        summary=summary,
        ready=lambda p: datasets.missing(p.images.split(",")[0]),
        scales={
            "smoke": Race({"images": 8}, rates=(1e-3, 1e-2), seeds=1, images="digits"),
            "small": Race({"images": 250}),
            "medium": Race({"images": 2500}),
            "paper": Race({"images": 20_000}, seeds=5, images="cifar10"),
        },
        unprinted="a network that its optimiser was trained on",
    ),
)
