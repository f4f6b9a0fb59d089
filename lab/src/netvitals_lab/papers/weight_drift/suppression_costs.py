"""Drift suppression where it would be used: what each tool does to drift and what it costs, on photographs and on text.

An MLP on photographs (digits where there are none), a small GPT with a tied head and Hugging Face's GPT-2 on text, all
with Adam. Every tool has the same seeds as the run without one, so that effect and cost are paired differences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netvitals.drift import centre_activations, centre_weights, project_gradients
from netvitals_lab import Config, Resources, Row, Study
from netvitals_lab.engine.judges import groups, means
from netvitals_lab.papers.weight_drift._real import NETWORKS, data_of, needed, outcome, task
from netvitals_lab.training import make_optimizer

TOOLS = ("none", "centre_weights", "project_gradients", "centre_activations")


@dataclass(frozen=True)
class Costs:
    seeds: int = 5
    steps: int = 200
    width: int = 64
    networks: tuple[str, ...] = NETWORKS
    embedded: bool = False


def trials(p: Costs) -> list[Config]:
    return [
        {
            "network": network,
            "data": data_of(network, embedded=p.embedded),
            "tool": tool,
            "seed": seed,
            "steps": p.steps,
            "width": p.width,
        }
        for network in p.networks
        for tool in TOOLS
        for seed in range(p.seeds)
    ]


def trial(config: Config) -> list[Row]:
    sizes = {key: config[key] for key in ("width", "steps", "seed")}
    job = task(config["network"], config["data"], **sizes)
    if config["tool"] == "centre_weights":
        centre_weights(job.net, job.batch(8))
    elif config["tool"] == "centre_activations":
        centre_activations(job.net)
    optimizer = make_optimizer(job.trained, job.recipe)
    if config["tool"] == "project_gradients":
        project_gradients(job.net, optimizer, batch=job.batch(8))
    return [outcome(job, optimizer)]


def summary(rows: Sequence[Row]) -> Mapping[str, Any]:
    facts: dict[str, Any] = {}
    for (network, tool), mine in groups(rows, "network", "tool").items():
        facts[f"{network}, {tool}"] = ", ".join(
            f"{k} {means(mine, k, 'tool')[tool]:+.4f}" for k in ("drift_z", "sunk", "sparsity", "score")
        )
    return facts


STUDIES = (
    Study(
        name="weight-drift-suppression",
        paper="weight-drift",
        title="what suppression of drift does and costs: an MLP on photographs, a GPT and GPT-2 on text",
        scales={
            "smoke": Costs(seeds=2, steps=20, width=32, networks=NETWORKS[:2], embedded=True),
            "small": Costs(),
            "medium": Costs(seeds=10, steps=2000, width=128),
            "paper": Costs(seeds=10, steps=20000, width=512),
        },
        resources=Resources(cpus=1, memory_gb=2, core_hours=4),
        ready=lambda p: needed(p.networks),
        trials=trials,
        trial=trial,
        summary=summary,
    ),
)
