"""The study of DDCAdam: does an Adam that respects symmetries train better, worse, or the same?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from netvitals.lab import data as datasets
from netvitals.lab.studies import Config, Row, Study
from netvitals.lab.studies.dead_directions import _race

OPTIMIZERS = ("adam", "adamw", "ddcadam")


@dataclass(frozen=True)
class Race:
    """Training steps by architecture, learning rates, seeds, and the log size of a rescaled start."""

    steps: dict[str, int]
    rates: tuple[float, ...] = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
    seeds: int = 3
    rescaled: float = 1.0
    images: str = "cifar10,train=4000,test=1000"


def trials(p: Race) -> list[Config]:
    data = {"gpt": "text", "images": p.images}
    return [
        {
            "architecture": a,
            "optimizer": o,
            "lr": lr,
            "seed": s,
            "rescaled": r,
            "steps": n,
            "data": data.get(a, "digits"),
        }
        for a, n in p.steps.items()
        for o in OPTIMIZERS
        for lr in p.rates
        for s in range(p.seeds)
        for r in (0.0, p.rescaled)
    ]


def trial(config: Config) -> list[Row]:
    return [_race.race(**config)]


def best(rows: Sequence[Row], architecture: str, optimizer: str) -> list[Row]:
    """The runs at the rate whose mean test loss from the plain start is lowest; a rate with a failed run is out."""
    mine = [r for r in rows if (r["architecture"], r["optimizer"]) == (architecture, optimizer)]
    means = {}
    for lr in sorted({r["lr"] for r in mine}):
        runs = [r["test"] for r in mine if r["lr"] == lr and not r["rescaled"]]
        if runs and all(v is not None for v in runs):
            means[lr] = sum(runs) / len(runs)
    if not means:
        raise LookupError(f"no rate of {optimizer} on {architecture} finished every run")
    chosen = min(means, key=lambda lr: means[lr])
    return [r for r in mine if r["lr"] == chosen]


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    out = {}
    for a in sorted({r["architecture"] for r in rows}):
        for o in OPTIMIZERS:
            runs = [r for r in best(rows, a, o) if not r["rescaled"]]
            out[f"{a}, {o}"] = (
                f"test loss {sum(r['test'] for r in runs) / len(runs):.4f} at rate {runs[0]['lr']:g}, "
                f"moved {max(r['moved'] for r in runs):.2g} along gauges"
            )
    return out


STUDIES = (
    Study(
        "ddcadam",
        "dead-directions",
        "does DDCAdam help?",
        trials=trials,
        trial=trial,
        summary=summary,
        scales={
            "smoke": Race({"mlp": 40, "resnet": 8, "gpt": 8}, rates=(1e-3, 1e-2), seeds=1),
            "small": Race({"mlp": 300, "resnet": 120, "gpt": 150}),
            "paper": Race({"mlp": 5000, "resnet": 5000, "gpt": 5000}, seeds=10),
        },
    ),
    Study(
        "ddcadam-images",
        "dead-directions",
        "does DDCAdam help on natural images?",
        trials=trials,
        trial=trial,
        summary=summary,
        ready=lambda p: datasets.missing(p.images.split(",")[0]),
        scales={
            "smoke": Race({"images": 8}, rates=(1e-3, 1e-2), seeds=1, images="digits"),
            "small": Race({"images": 250}),
            "paper": Race({"images": 20_000}, seeds=5, images="cifar10"),
        },
    ),
)
