"""Drift suppression where it would be used: what each tool does to drift and what it costs, on photographs and on text.

An MLP on photographs (digits where there are none) and a small GPT with a tied head on text, both with Adam. Every tool
has the same seeds as the run without one, so that effect and cost are paired differences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from netvitals.drift import centre_activations, centre_weights, project_gradients, weight_drift
from netvitals.lab import data as datasets
from netvitals.lab import models
from netvitals.lab.data import Dataset
from netvitals.lab.studies import Config, Resources, Row, Study
from netvitals.lab.studies.weight_drift._networks import change_rows, site_rows
from netvitals.lab.studies.weight_drift._text import EMBEDDED, present, source, text
from netvitals.lab.studies.weight_drift.cliff import IMAGES
from netvitals.lab.training import Recipe, evaluate, make_optimizer, train

TOOLS = ("none", "centre_weights", "project_gradients", "centre_activations")


@dataclass(frozen=True)
class Costs:
    seeds: int = 5
    steps: int = 200
    width: int = 64
    embedded: bool = False


def trials(p: Costs) -> list[Config]:
    images = "cifar10" if present(IMAGES) and not p.embedded else "digits"
    words = EMBEDDED if p.embedded else source()
    return [
        {"network": network, "data": data, "tool": tool, "seed": seed, "steps": p.steps, "width": p.width}
        for network, data in (("mlp", images), ("gpt", words))
        for tool in TOOLS
        for seed in range(p.seeds)
    ]


def trial(config: Config) -> list[Row]:
    data, spec = _task(config)
    net = models.build(spec, seed=config["seed"], data=data, act="relu")
    language = data.task == "tokens"
    recipe = Recipe(
        steps=config["steps"],
        batch=16 if language else 128,
        optimizer="adam",
        lr=1e-3,
        weight_decay=0.0,
        schedule="constant",
        seed=config["seed"],
        evaluate_on=0,
    )
    batch = data.train.x[:8], data.train.y[:8]
    if config["tool"] == "centre_weights":
        centre_weights(net, batch)
    elif config["tool"] == "centre_activations":
        centre_activations(net)
    optimizer = make_optimizer(net, recipe)
    if config["tool"] == "project_gradients":
        project_gradients(net, optimizer, batch=batch)
    probe = data.test.x[:64]
    start, sites = _hidden(net), site_rows(net, probe)
    train(net, data, recipe, optimizer=optimizer)
    moved = [weight_drift(w, start[name]).drift_z for name, w in _hidden(net).items()]
    sunk = [r["preact_drift"] - r["preact_drift_0"] for r in change_rows(sites, site_rows(net, probe))]
    seen = evaluate(net, data.test, "lm" if language else "ce", examples=128 if language else None)
    return [
        {
            "drift_z": sum(moved) / len(moved),
            "sunk": sum(sunk) / len(sunk),
            "score": -seen.loss if language else float(seen.accuracy or 0.0),  # larger is better
        }
    ]


def _task(config: Config) -> tuple[Dataset, str]:
    width = config["width"]
    if config["network"] == "gpt":
        return text(config["data"], 32), f"gpt-micro,depth=2,width={width},heads=2"
    data = datasets.load(config["data"])
    return data, f"mlp:{data.sizes['inputs']}-{width}x3-10,bias=false,init=he"


def _hidden(net: nn.Module) -> dict[str, Tensor]:
    """The weights as the network uses them, of every linear layer behind the first and before the readout."""
    found = {n: m.weight.detach().clone() for n, m in net.named_modules() if isinstance(m, nn.Linear)}
    names = [n for n in found if n != "head"]
    return {n: found[n] for n in (names[1:] if "blocks.0.linear" in names else names)}


def summary(rows: Sequence[Row]) -> Mapping[str, Any]:
    facts: dict[str, Any] = {}
    for network, tool in dict.fromkeys((r["network"], r["tool"]) for r in rows):
        mine = [r for r in rows if (r["network"], r["tool"]) == (network, tool)]
        facts[f"{network}, {tool}"] = ", ".join(
            f"{k} {sum(r[k] for r in mine) / len(mine):+.4f}" for k in ("drift_z", "sunk", "score")
        )
    return facts


STUDIES = (
    Study(
        name="weight-drift-suppression",
        paper="weight-drift",
        title="what suppression of drift does and costs: an MLP on photographs, a GPT with a tied head on text",
        scales={
            "smoke": Costs(seeds=2, steps=20, width=32, embedded=True),
            "small": Costs(),
            "medium": Costs(seeds=10, steps=2000, width=128),
            "paper": Costs(seeds=10, steps=20000, width=512),
        },
        resources=Resources(cpus=1, memory_gb=2, core_hours=2),
        trials=trials,
        trial=trial,
        summary=summary,
    ),
)
