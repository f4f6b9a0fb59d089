"""Is drift the optimiser's own doing? Random data, controls that must not drift, optimisers and rates (P5, P6).

Every trial trains several seeds of one bias-free MLP at once and reads the drift of every weight matrix. What is said
of random data, of its controls and of BatchNorm is measured under two optimisers, momentum SGD and Adam.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from netvitals.optim import MomentumSign
from netvitals_lab import Config, Resources, Row, Study, stats
from netvitals_lab import data as datasets
from netvitals_lab.data import Dataset
from netvitals_lab.engine.judges import groups
from netvitals_lab.papers.weight_drift._networks import (
    change_rows,
    hidden_drift,
    perceptron,
    site_rows,
    weight_rows,
    weights_of,
)
from netvitals_lab.training import Ensemble, Recipe, train

ACTIVATIONS = ("relu", "gelu", "silu", "leaky_relu:0.1", "tanh", "identity", "neg_relu", "alternating")
RATES: dict[str, tuple[float, ...]] = {
    "sgd": (0.01, 0.1, 0.5),
    "momentum": (0.002, 0.02, 0.05),
    "adam": (1e-4, 1e-3, 3e-3),
    "adamw": (1e-4, 1e-3, 3e-3),
    "sign": (1e-4, 3e-4, 1e-3),
    "muon": (5e-4, 1e-3, 2e-3),
}
PAIR = (("momentum", 0.02), ("adam", 1e-3))  # what random data and its controls are trained with
INITS = ("he", "orthogonal", "xavier", "default")
STACKED = ("sgd", "momentum", "adam", "adamw")  # optimisers that train stacked seeds


@dataclass(frozen=True)
class Controls:
    steps: int = 300
    sweep_steps: int = 200
    seeds: int = 5
    sweep_seeds: int = 5
    batch: int = 128
    width: int = 128
    depth: int = 4
    rates: int = 3  # learning rates of each optimiser


def trials(p: Controls) -> list[Config]:
    base = {
        "data": "fresh",
        "act": "relu",
        "norm": "none",
        "init": "he",
        "loss": "ce",
        "optimizer": "momentum",
        "lr": 0.02,
        "steps": p.steps,
        "seeds": p.seeds,
        "batch": p.batch,
        "width": p.width,
        "depth": p.depth,
    }
    configs: list[Config] = []
    for kind, lr in PAIR:
        mine = {**base, "optimizer": kind, "lr": lr}
        configs += [{"check": "random data", **mine, "act": act} for act in ACTIVATIONS]
        squared = 0.005 if kind == "momentum" else lr  # its gradient is larger, which Adam does not feel
        configs.append({"check": "random data", **mine, "loss": "onehot-mse", "lr": squared})
        configs.append({"check": "batch norm", **mine, "norm": "batch"})
        configs += [{"check": "source", **mine, "data": source} for source in ("fixed", "permuted", "digits")]
    configs += [{"check": "init", **base, "init": init} for init in INITS[1:]]
    sweep = {**base, "steps": p.sweep_steps, "seeds": p.sweep_seeds}
    configs += [
        {"check": "sweep", **sweep, "optimizer": name, "lr": lr}
        for name, rates in RATES.items()
        for lr in _chosen(rates, p.rates)
    ]
    return configs


def trial(config: Config) -> list[Row]:
    seeds = list(range(config["seeds"]))
    nets = [
        perceptron(
            config["act"],
            seed=s,
            width=config["width"],
            depth=config["depth"],
            norm=config["norm"],
            init=config["init"],
        )
        for s in seeds
    ]
    source = _source(config["data"], config["batch"])
    start = [(weights_of(net), site_rows(net, source.test.x)) for net in nets]
    recipe = Recipe(
        steps=config["steps"],
        batch=config["batch"],
        lr=config["lr"],
        loss=config["loss"],
        momentum=0.0,
        nesterov=False,
        weight_decay=0.0,
        schedule="constant",
        fresh=config["data"] == "fresh",
        evaluate_on=None if config["data"] == "digits" else 0,
    )
    kind = config["optimizer"]
    if kind in STACKED:
        recipe = _stacked_recipe(recipe, kind)
        ensemble = Ensemble(nets, seeds)
        history = ensemble.train(source, recipe)
        nets, accuracy = ensemble.members(), history.accuracy.tolist()
    else:
        accuracy = [_alone(net, source, recipe, kind, seed) for net, seed in zip(nets, seeds)]
    rows: list[Row] = []
    for net, seed, (weights, sites), score in zip(nets, seeds, start, accuracy):
        mine = weight_rows(net, weights) + change_rows(sites, site_rows(net, source.test.x))
        rows += [{"seed": seed, **r} for r in mine]
        rows.append({"seed": seed, "quantity": "run", "accuracy": score if score == score else None})
    return rows


def _source(name: str, batch: int) -> Dataset:
    if name in ("fresh", "fixed"):
        return datasets.load("noise,inputs=64,classes=10", count=8 * batch)
    digits = datasets.load("digits")
    return digits.permuted() if name == "permuted" else digits


def _stacked_recipe(recipe: Recipe, kind: str) -> Recipe:
    if kind in ("sgd", "momentum"):
        return replace(recipe, optimizer="sgd", momentum=0.9 if kind == "momentum" else 0.0)
    return replace(recipe, optimizer=kind)


def _alone(net: Any, source: Dataset, recipe: Recipe, kind: str, seed: int) -> float:
    """Sign descent and Muon, one seed at a time."""
    if kind == "sign":
        return train(
            net, source, replace(recipe, seed=seed), optimizer=MomentumSign(net.parameters(), lr=recipe.lr)
        ).accuracy
    # the readout of Muon is AdamW's, at ten times the rate of the hidden matrices
    muon = replace(recipe, seed=seed, optimizer="muon", muon_lr=recipe.lr, lr=10 * recipe.lr)
    return train(net, source, muon).accuracy


def _chosen(rates: Sequence[float], count: int) -> tuple[float, ...]:
    return tuple(rates) if count >= len(rates) else (rates[0], rates[-1])


def summary(rows: Sequence[Row]) -> Mapping[str, Any]:
    facts: dict[str, Any] = {}
    random = groups(rows, "act", "optimizer", check="random data", loss="ce")
    for (act, kind), mine in random.items():
        drift = list(hidden_drift(mine).values())
        if len(drift) > 1:
            facts[f"hidden drift_z, {act}, {kind}, random data"] = str(stats.mean(drift))
    return facts


STUDIES = (
    Study(
        name="weight-drift-controls",
        reduced="an MLP without biases on random data, 300 steps",
        paper="weight-drift",
        title="P5, P6: drift on random data, controls that must not drift, optimisers and learning rates",
        scales={
            "smoke": Controls(steps=60, sweep_steps=40, seeds=3, sweep_seeds=2, width=64, batch=64, rates=2),
            "small": Controls(),
            "medium": Controls(steps=1000, sweep_steps=1000, seeds=10, sweep_seeds=5, width=256),
            "paper": Controls(steps=2000, sweep_steps=2000, seeds=10, sweep_seeds=5, width=512),
        },
        resources=Resources(cpus=1, memory_gb=2, core_hours=6),
        trials=trials,
        trial=trial,
        summary=summary,
    ),
)
