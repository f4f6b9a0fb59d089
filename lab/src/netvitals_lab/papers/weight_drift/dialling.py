"""The drift dial where it would be used: an MLP on photographs and Hugging Face's GPT-2 on text.

The readout of a fresh network is scaled to a target ⟨o, ∇ℓ⟩ (of GPT-2, whose head is tied, the logits are scaled), or
left as it is; then it is trained. Read off: zeros and drift of the hidden layers, and the score, paired by seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netvitals.drift.dial import push, set_drift
from netvitals_lab import Config, Resources, Row, Study
from netvitals_lab.engine.judges import groups, means
from netvitals_lab.papers.weight_drift._real import data_of, needed, outcome, task
from netvitals_lab.training import loss_named

TARGETS = (0.15, 1.2, 4.5)  # pushes that the dial sets, as in the study of digits
EXAMPLES = 128  # that the push is measured on
COLUMNS = ("push", "sparsity", "drift_z", "sunk", "score")


@dataclass(frozen=True)
class Dials:
    seeds: int = 5
    steps: int = 200
    width: int = 64
    targets: tuple[float, ...] = TARGETS
    networks: tuple[str, ...] = ("mlp", "gpt2")
    embedded: bool = False


def trials(p: Dials) -> list[Config]:
    return [
        {
            "network": network,
            "data": data_of(network, embedded=p.embedded),
            "target": target,
            "seed": seed,
            "steps": p.steps,
            "width": p.width,
        }
        for network in p.networks
        for target in (None, *p.targets)
        for seed in range(p.seeds)
    ]


def trial(config: Config) -> list[Row]:
    sizes = {key: config[key] for key in ("width", "steps", "seed")}
    job = task(config["network"], config["data"], **sizes)
    loss_fn, batch = loss_named("auto", job.data), job.batch(EXAMPLES)
    by = "nothing"
    if config["target"] is not None:
        by = set_drift(job.net, loss_fn, batch, mode="train", target=config["target"]).by
    begin = float(push(job.net, loss_fn, batch, mode="train").mean())
    return [{"push": begin, "by": by, **outcome(job)}]


def summary(rows: Sequence[Row]) -> Mapping[str, Any]:
    facts: dict[str, Any] = {}
    for (network, target), mine in groups(rows, "network", "target").items():
        set_to = "left as it is" if target is None else f"set to {target:g}"
        facts[f"{network}, push {set_to}"] = ", ".join(
            f"{k} {means(mine, k, 'network')[network]:+.4f}" for k in COLUMNS
        )
    return facts


STUDIES = (
    Study(
        name="weight-drift-dial",
        paper="weight-drift",
        title="what the drift dial does and costs: an MLP on photographs, GPT-2 on text",
        scales={
            "smoke": Dials(seeds=2, steps=20, width=32, targets=(0.15, 1.2), networks=("mlp",), embedded=True),
            "small": Dials(),
            "medium": Dials(seeds=10, steps=2000, width=128),
            "paper": Dials(seeds=10, steps=20_000, width=512),
        },
        resources=Resources(cpus=1, memory_gb=2, core_hours=4),
        trials=trials,
        trial=trial,
        summary=summary,
        ready=lambda p: needed(p.networks),
    ),
)
