"""The sign of the gradient: at initialisation over re-initialisations (P1), in training (P2), its covariance part (E4),
and what the first step does against what theory says it does (P10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from netvitals import drift
from netvitals_lab import Config, Resources, Row, Study, stats
from netvitals_lab import data as datasets
from netvitals_lab.data import Dataset
from netvitals_lab.papers.weight_drift._networks import (
    change_rows,
    hidden_drift,
    perceptron,
    site_rows,
    weight_rows,
    weights_of,
)
from netvitals_lab.papers.weight_drift.persistence import PersistenceTracker
from netvitals_lab.theory import drift_signs as drift_theory
from netvitals_lab.training import Moment, Recipe, loss_named, steps_of, train

PROBE = 256  # training examples that signs are read on
HORIZONS = (3, 6, 12, 24, 60)  # steps at which drift is read: "early" is no number in the paper


@dataclass(frozen=True)
class Signs:
    inits: int = 64
    epochs: int = 10
    seeds: int = 5
    width: int = 128
    depth: int = 4
    batch: int = 128


def trials(p: Signs) -> list[Config]:
    sizes = {"width": p.width, "depth": p.depth}
    configs: list[Config] = [
        {"check": "init", "act": act, "loss": loss, "inits": p.inits, **sizes}
        for act in ("relu", "gelu", "silu", "tanh")
        for loss in ("ce", "onehot-mse")
    ]
    configs.append({"check": "first step", "inits": p.inits, "lr": 0.005, **sizes})
    cases = (
        ("ce", 0.02, "digits", 1.0),
        ("onehot-mse", 0.005, "digits", 1.0),
        ("ce", 0.02, "permuted", 1.0),
        ("ce", 0.02, "digits", 1.5),
    )
    configs += [
        {
            "check": "persistence",
            "loss": loss,
            "lr": lr,
            "data": source,
            "gain": gain,
            "epochs": p.epochs,
            "batch": p.batch,
            "seed": seed,
            **sizes,
        }
        for loss, lr, source, gain in cases
        for seed in range(p.seeds)
    ]
    return configs


def trial(config: Config) -> list[Row]:
    digits = datasets.load("digits")
    if config["check"] == "init":
        return _at_init(config, digits)
    if config["check"] == "first step":
        return _first_step(config, digits)
    return _persistence(config, digits)


def _at_init(config: Config, digits: Dataset) -> list[Row]:
    sizes = {"width": config["width"], "depth": config["depth"]}
    seen = drift.signs(
        lambda: perceptron(config["act"], seed=int(torch.initial_seed()), **sizes),
        loss_named(config["loss"]),
        (digits.train.x[:PROBE], digits.train.y[:PROBE]),
        inits=config["inits"],
        mode="train",
    )
    rows: list[Row] = [{"quantity": "signs", **r} for r in seen.rows()]
    rows.append({"quantity": "push", "mean": seen.push.value, "stderr": seen.push.stderr, "inits": seen.inits})
    rows.append({"quantity": "gain", "expected": drift_theory.he_gain(config["width"], 10)})
    return rows


def _first_step(config: Config, digits: Dataset) -> list[Row]:
    """D6: mean step of every weight matrix under SGD on the squared error, measured and predicted, over inits."""
    x, y = digits.train.x[:PROBE].flatten(1), digits.train.y[:PROBE]
    loss_fn = loss_named("onehot-mse")
    gaps: dict[int, list[tuple[float, float]]] = {}
    for seed in range(config["inits"]):
        net = perceptron(seed=seed, width=config["width"], depth=config["depth"])
        weights = [block.linear.weight for block in net.blocks]  # type: ignore[union-attr]
        grads = torch.autograd.grad(loss_fn(net(x), y), weights)
        gain = drift_theory.he_gain(config["width"], 10)
        for i, (inputs, p) in enumerate(_layers(net, x)):
            text = drift_theory.first_step_drift(inputs, p, gain=gain, lr=config["lr"])
            gaps.setdefault(i + 1, []).append((-config["lr"] * float(grads[i].mean()), text))
    rows: list[Row] = []
    for layer, pairs in gaps.items():
        measured, predicted = stats.mean([m for m, _ in pairs]), stats.mean([s for _, s in pairs])
        gap = stats.mean([m - s for m, s in pairs])
        rows.append(
            {
                "quantity": "first step",
                "layer": layer,
                "mean": measured.value,
                "stderr": measured.stderr,
                "expected": predicted.value,
                "gap": gap.value,
                "gap_stderr": gap.stderr,
            }
        )
    return rows


@torch.no_grad()
def _layers(net: nn.Module, x: Tensor) -> list[tuple[Tensor, Tensor]]:
    """(input, pre-activation) of every hidden layer."""
    found: list[tuple[Tensor, Tensor]] = []
    blocks: Any = net.blocks
    for block in blocks:
        p = block.linear(x)
        found.append((x, p))
        x = block.act(p)
    return found


def _persistence(config: Config, digits: Dataset) -> list[Row]:
    """P2: train ten epochs, look before every step of the first and twenty times in each later one."""
    source = digits.permuted() if config["data"] == "permuted" else digits
    net = perceptron(seed=config["seed"], width=config["width"], depth=config["depth"])
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(config["gain"])
    recipe = Recipe(
        epochs=config["epochs"],
        batch=config["batch"],
        lr=config["lr"],
        loss=config["loss"],
        nesterov=False,
        weight_decay=0.0,
        schedule="constant",
        seed=config["seed"],
    )
    total, per_epoch = steps_of(recipe, source)
    tracker = PersistenceTracker(net, loss_named(config["loss"]), per_epoch=per_epoch, epochs=config["epochs"])
    probe = source.train.x[:PROBE], source.train.y[:PROBE]
    weights, sites = weights_of(net), site_rows(net, source.test.x)
    tracker.observe(0, probe)

    early: list[Row] = []

    def on_step(moment: Moment) -> None:
        if moment.step < total and tracker.wants(moment.step):
            tracker.observe(moment.step, probe)
        if moment.step in HORIZONS:
            early.extend({**r, "quantity": "early", "step": moment.step} for r in weight_rows(moment.model, weights))

    history = train(net, source, recipe, on_step=on_step)
    seen = tracker.report()
    rows: list[Row] = [
        {
            "quantity": "layer",
            "layer": i + 1,
            "name": name,
            "t_flip": seen.t_flip[name],
            "agreement": seen.agreement[name],
            "g_pos": list(seen.g_pos[name]),
            "positive": [seen.positive_share(e)[name] for e in range(config["epochs"])],
        }
        for i, name in enumerate(seen.g_pos)
    ]
    rows.append(
        {
            "quantity": "run",
            "steps": list(seen.steps),
            "push": list(seen.push),
            "losses": list(seen.loss),
            "push_flip": seen.push_flip,
            "per_epoch": per_epoch,
            "accuracy": history.accuracy,
            "stopped": history.stopped,
        }
    )
    rows += [
        {"quantity": "split", "name": name, "layer": i + 1, **{k: list(v) for k, v in parts.items()}}
        for i, (name, parts) in enumerate(seen.split.items())
    ]
    return rows + early + weight_rows(net, weights) + change_rows(sites, site_rows(net, source.test.x))


def summary(rows: Sequence[Row]) -> Mapping[str, Any]:
    facts: dict[str, Any] = {}
    runs = [r for r in rows if r["check"] == "persistence"]
    for key in dict.fromkeys((r["loss"], r["data"], r["gain"]) for r in runs):
        mine = [r for r in runs if (r["loss"], r["data"], r["gain"]) == key]
        flips = [r["push_flip"] for r in mine if r["quantity"] == "run"]
        drift = ", ".join(f"{z:+.4f}" for z in hidden_drift(mine).values())
        facts[f"{key[0]} on {key[1]}, weights × {key[2]:g}"] = f"⟨o, ∇ℓ⟩ flips at {flips}; hidden drift_z {drift}"
    return facts


STUDIES = (
    Study(
        name="weight-drift-signs",
        reduced="an MLP on digits",
        paper="weight-drift",
        title="P1, P2: sign of the gradient at initialisation and over ten epochs, covariance part, first step",
        scales={
            "smoke": Signs(inits=16, epochs=2, seeds=1, width=64),
            "small": Signs(),
            "medium": Signs(inits=256, seeds=10, width=256),
            "paper": Signs(inits=256, seeds=10, width=512),
        },
        resources=Resources(cpus=1, memory_gb=2, core_hours=2),
        trials=trials,
        trial=trial,
        summary=summary,
    ),
)
