"""Steering drift: the dial (readout scale, predicted against measured sparsity), three ways to suppress drift, and ReLU
put in the place of smooth activations (P8 on digits)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor, nn

from netvitals.drift import sparsity, weight_drift
from netvitals.drift.dial import push, set_drift
from netvitals.drift.suppression import Suppression, centre_activations, centre_weights, project_gradients
from netvitals.layers import relufy
from netvitals_lab import Config, Resources, Row, Study, models
from netvitals_lab import data as datasets
from netvitals_lab.data import Dataset
from netvitals_lab.papers.weight_drift._networks import hidden_drift, perceptron, site_rows, weight_rows, weights_of
from netvitals_lab.training import Ensemble, Recipe, evaluate, loss_named, make_optimizer, train

SCALES = (0.0, 0.1, 0.3, 1.0, 3.0, 6.0, 10.0)  # readout scales that the curve is made of
TARGETS = (0.15, 1.2, 4.5)  # pushes set by the dial, to be predicted from the curve
TOOLS = ("none", "centre_weights", "project_gradients", "centre_activations")


@dataclass(frozen=True)
class Steering:
    steps: int = 400
    seeds: int = 5
    suppression_steps: int = 300
    suppression_seeds: int = 5
    width: int = 128
    scales: tuple[float, ...] = SCALES
    targets: tuple[float, ...] = TARGETS
    relufied: tuple[str, ...] = ("gelu", "silu")


def trials(p: Steering) -> list[Config]:
    sizes = {"width": p.width}
    configs: list[Config] = [
        {"check": "dial", "scale": a, "target": None, "steps": p.steps, "seeds": p.seeds, **sizes} for a in p.scales
    ]
    configs += [
        {"check": "dial", "scale": None, "target": t, "steps": p.steps, "seeds": p.seeds, **sizes} for t in p.targets
    ]
    configs += [
        {
            "check": "suppression",
            "tool": tool,
            "optimizer": kind,
            "data": source,
            "steps": p.suppression_steps,
            "seed": seed,
            **sizes,
        }
        for tool in TOOLS
        for kind, source in (("sgd", "fresh"), ("adam", "fresh"), ("adam", "digits"))
        for seed in range(p.suppression_seeds)
    ]
    configs += [
        {"check": "relufication", "act": act, "steps": p.suppression_steps, "seed": seed, **sizes}
        for act in p.relufied
        for seed in range(p.suppression_seeds)
    ]
    return configs


def trial(config: Config) -> list[Row]:
    match config["check"]:
        case "dial":
            return _dial(config)
        case "suppression":
            return _suppression(config)
        case "relufication":
            return _relufication(config)
    raise ValueError(f"there is no check {config['check']!r}")


def _dial(config: Config) -> list[Row]:
    """Adam 1e-3 on digits from a readout that was scaled, or set to a target push by the dial."""
    digits, loss_fn = datasets.load("digits"), loss_named("ce")
    batch = digits.train.x, digits.train.y
    seeds = list(range(config["seeds"]))
    nets = [perceptron(seed=s, width=config["width"]) for s in seeds]
    for net in nets:
        set_drift(net, loss_fn, batch, mode="train", scale=config["scale"], target=config["target"])
    pushes = [float(push(net, loss_fn, batch, mode="train").mean()) for net in nets]
    start = [weights_of(net) for net in nets]
    ensemble = Ensemble(nets, seeds)
    history = ensemble.train(
        digits, Recipe(steps=config["steps"], optimizer="adam", lr=1e-3, weight_decay=0.0, schedule="constant")
    )
    rows: list[Row] = []
    for net, seed, begin, weights, accuracy in zip(ensemble.members(), seeds, pushes, start, history.accuracy.tolist()):
        sites = site_rows(net, digits.test.x)[1:]
        drift = hidden_drift([{"seed": seed, **r} for r in weight_rows(net, weights)])[seed]
        rows.append(
            {
                "quantity": "dial",
                "seed": seed,
                "push": begin,
                "drift_z": drift,
                "accuracy": accuracy,
                "sparsity": sum(r["hard"] for r in sites) / len(sites),
            }
        )
    return rows


def _suppression(config: Config) -> list[Row]:
    """One run with a tool applied in one line; drift of the weights that the network uses, sparsity, accuracy."""
    fresh = config["data"] == "fresh"
    source: Dataset = datasets.load("noise,inputs=64,classes=10") if fresh else datasets.load("digits")
    net = perceptron(seed=config["seed"], width=config["width"])
    recipe = Recipe(
        steps=config["steps"],
        optimizer=config["optimizer"],
        lr=0.02 if config["optimizer"] == "sgd" else 1e-3,
        nesterov=False,
        weight_decay=0.0,
        schedule="constant",
        fresh=fresh,
        seed=config["seed"],
        evaluate_on=0 if fresh else None,
    )
    held: Suppression | None = None
    if config["tool"] == "centre_weights":
        held = centre_weights(net)
    elif config["tool"] == "centre_activations":
        centre_activations(net)
    optimizer = make_optimizer(net, recipe)
    if config["tool"] == "project_gradients":
        held = project_gradients(net, optimizer)
    start = _linears(net)
    history = train(net, source, recipe, optimizer=optimizer)
    drifts = [weight_drift(w, start[n]) for n, w in _linears(net).items()][1:-1]
    rows = [
        math.sqrt(float((w.mean(1) - start[n].mean(1)).square().mean()) / float(start[n].var()))
        for n, w in list(_linears(net).items())[1:-1]
    ]
    sites = site_rows(net, source.test.x)[1:]
    if held is not None:
        held.remove()
    return [
        {
            "quantity": "suppression",
            "drift_z": sum(d.drift_z for d in drifts) / len(drifts),
            "row_drift": sum(rows) / len(rows),
            "accuracy": history.accuracy if not fresh else None,
            "neg_preact": sum(r["neg_preact"] for r in sites) / len(sites),
            "preact_drift": sum(r["preact_drift"] for r in sites) / len(sites),
            "sparsity": sum(r["hard"] for r in sites) / len(sites),
        }
    ]


def _linears(net: nn.Module) -> dict[str, Tensor]:
    """The weights that the layers use, whatever parametrisation stands behind them."""
    return {n: m.weight.detach().clone() for n, m in net.named_modules() if isinstance(m, nn.Linear)}


def _relufication(config: Config) -> list[Row]:
    """P8: ReLU instead of a smooth activation before training, and in the trained network, then tuned for 5 % more."""
    digits = datasets.load("digits")
    recipe = Recipe(
        steps=config["steps"], optimizer="adam", lr=2e-3, weight_decay=0.0, seed=config["seed"], evaluate_on=0
    )
    spec = f"mlp:64-{config['width']}x3-10"

    def measured(net: nn.Module, stage: str) -> Row:
        zero = sparsity(net, digits.test.x, mode="eval")
        return {
            "quantity": "relufication",
            "stage": stage,
            "hard": zero.mean,
            "accuracy": evaluate(net, digits.test).accuracy,
        }

    before = models.build(spec, seed=config["seed"], act="relu")
    train(before, digits, recipe)
    net = models.build(spec, seed=config["seed"], act=config["act"])
    train(net, digits, recipe)
    rows = [measured(before, "relu from the start"), measured(net, "trained")]
    relufy(net)
    rows.append(measured(net, "swapped"))
    train(net, digits, replace(recipe, steps=max(1, config["steps"] // 20), lr=5e-4))
    return [*rows, measured(net, "tuned")]


def predicted_sparsity(rows: Sequence[Row]) -> list[tuple[float, float, float]]:
    """(push, predicted, measured) of every run whose push was set by target, from the curve of the scaled ones.

    The curve is the mean over seeds at each scale, interpolated in log(1 + 10·push).
    """
    dial = [r for r in rows if r["check"] == "dial"]
    curve = sorted(
        (float(np.mean([r["push"] for r in mine])), float(np.mean([r["sparsity"] for r in mine])))
        for a in dict.fromkeys(r["scale"] for r in dial if r["scale"] is not None)
        for mine in ([r for r in dial if r["scale"] == a],)
    )
    knots, values = [math.log1p(10 * max(0.0, p)) for p, _ in curve], [s for _, s in curve]
    found = []
    for t in dict.fromkeys(r["target"] for r in dial if r["target"] is not None):
        mine = [r for r in dial if r["target"] == t]
        text = float(np.interp(math.log1p(10 * t), knots, values))
        found.append((t, text, float(np.mean([r["sparsity"] for r in mine]))))
    return found


def summary(rows: Sequence[Row]) -> Mapping[str, Any]:
    facts: dict[str, Any] = {
        f"push set to {t:g}": f"sparsity {text:.3f} predicted, {got:.3f} measured"
        for t, text, got in predicted_sparsity(rows)
    }
    for tool in TOOLS:
        for kind, source in (("sgd", "fresh"), ("adam", "fresh"), ("adam", "digits")):
            mine = [
                r
                for r in rows
                if r["check"] == "suppression" and (r["tool"], r["optimizer"], r["data"]) == (tool, kind, source)
            ]
            if mine:
                facts[f"{tool}, {kind}, {source}"] = ", ".join(
                    f"{k} {float(np.mean([r[k] for r in mine])):+.4f}"
                    for k in ("drift_z", "row_drift", "neg_preact", "sparsity", "accuracy")
                    if mine[0][k] is not None
                )
    return facts


STUDIES = (
    Study(
        name="weight-drift-steering",
        reduced="an MLP on digits",
        paper="weight-drift",
        title="the drift dial, drift suppression, and ReLUfication on digits",
        scales={
            "smoke": Steering(
                steps=40,
                seeds=2,
                suppression_steps=30,
                suppression_seeds=1,
                width=64,
                scales=(0.0, 1.0, 10.0),
                targets=(2.0,),
                relufied=("gelu",),
            ),
            "small": Steering(),
            "medium": Steering(steps=1000, seeds=5, suppression_steps=1000, suppression_seeds=5, width=256),
            "paper": Steering(steps=2000, seeds=10, suppression_steps=2000, suppression_seeds=10, width=512),
        },
        resources=Resources(cpus=1, memory_gb=2, core_hours=3),
        trials=trials,
        trial=trial,
        summary=summary,
    ),
)
