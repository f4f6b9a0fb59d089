"""One condition of a study, trained and recorded: seeds of a perceptron all at once, other networks one at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from netvitals_lab import Config, Row, models
from netvitals_lab import data as datasets
from netvitals_lab.data import Dataset, Split
from netvitals_lab.papers.gate_density._recorder import THETAS, TrajectoryRecorder
from netvitals_lab.training import (
    Ensemble,
    Group,
    Recipe,
    integrated_decay,
    kinds,
    match_decay,
    multiplier,
    steps_of,
    train,
)

S = 2.44  # integrated decay of the paper's schedule under SGD
RATES = {"sgd": 0.1, "adam": 1e-3, "adamw": 1e-3}
SMOOTH = ("gelu", "silu", "mish")
FOUR = ("relu", *SMOOTH)
# what decides the rows of a trial, and nothing else: stored trials stay good while other rooms change
DEPENDS = (
    "netvitals_lab.papers.gate_density._training",
    "netvitals_lab.papers.gate_density._recorder",
    "netvitals.gates.measurement",
    "netvitals.gates.report",
    "netvitals.gates.prediction",
    "netvitals_lab.theory.gate_trends",
    "netvitals.activations.thresholds",
    "netvitals_lab.models.mlp",
    "netvitals_lab.models.resnet",
    "netvitals_lab.models.parts",
    "netvitals_lab.training.recipe",
    "netvitals_lab.training.optimizer",
    "netvitals_lab.training.loop",
    "netvitals_lab.training.ensemble",
    "netvitals_lab.training.stacked",
)


def condition(**more: Any) -> Config:
    """A configuration with the paper's defaults; ``S`` replaces ``weight_decay`` unless it is None, and ``exempt=True``
    takes the decay from the norms' scales and shifts."""
    base: Config = {
        "network": "mlp:64-128x3-10",
        "data": "digits",
        "pool": 1,
        "act": "relu",
        "norm": "batch",
        "optimizer": "sgd",
        "coupling": "coupled",
        "S": S,
        "weight_decay": 5e-4,
        "epochs": 25,
        "batch": 128,
    }
    return {**base, **more}


def run(config: Mapping[str, Any]) -> list[Row]:
    """Rows of a condition: with ``seeds`` that many at once, with ``seed`` that one."""
    data = load(config["data"], config["pool"])
    recipe, decay = prepared(config, data)
    if "seeds" in config:
        return _together(config, data, recipe, decay)
    return _alone(config, data, recipe, decay)


@lru_cache(maxsize=4)
def load(name: str, pool: int = 1) -> Dataset:
    """A dataset by name; ``pool`` averages squares of so many pixels into one."""
    data = datasets.load(name)
    if pool == 1:
        return data
    fewer, test, probe = (Split(F.avg_pool2d(s.x, pool), s.y) for s in (data.train, data.test, data.probe))
    return replace(data, train=fewer, test=test, probe=probe)


def prepared(config: Mapping[str, Any], data: Dataset) -> tuple[Recipe, float]:
    """The recipe to train with, and the decay λ of a decoupled SGD that the recipe itself does not know."""
    kind = config["optimizer"]
    recipe = Recipe(
        epochs=config["epochs"],
        batch=config["batch"],
        optimizer=kind,
        lr=config.get("lr", RATES[kind]),
        weight_decay=config["weight_decay"],
        augment=config.get("augment", False),
        groups=(Group(kinds=("norm",), weight_decay=0.0),) if config.get("exempt") else (),
    )
    if config["S"] is not None:
        recipe = match_decay(recipe, config["S"], data)
    if kind == "sgd" and config["coupling"] == "decoupled":
        return replace(recipe, weight_decay=0.0), recipe.weight_decay
    return recipe, 0.0


def build(config: Mapping[str, Any], data: Dataset, seed: int) -> nn.Module:
    return models.build(config["network"], seed=seed, data=data, act=config["act"], norm=config["norm"])


def _together(config: Mapping[str, Any], data: Dataset, recipe: Recipe, decay: float) -> list[Row]:
    seeds = list(range(config["seeds"]))
    nets = [build(config, data, seed) for seed in seeds]
    ensemble = Ensemble(nets, seeds)
    recorders = [TrajectoryRecorder(data.probe.x, config["act"], config.get("thetas", THETAS)) for _ in seeds]

    def each_epoch(moment: Any) -> None:
        for k, (recorder, member) in enumerate(zip(recorders, nets)):
            _copy(ensemble, k, member)
            if _healthy(member):
                score = moment.evaluation.accuracy
                recorder(moment.epoch, member, None if score is None else float(score[k]))

    on_step = OnStep(
        recipe=recipe,
        data=data,
        decay=decay,
        network=nets[0],
        parameters=lambda moment: moment.ensemble.parameters,
        count=len(seeds),
    )
    history = ensemble.train(data, recipe, callback=each_epoch, on_step=on_step)
    rows: list[Row] = []
    for k, (seed, recorder) in enumerate(zip(seeds, recorders)):
        rows += _noted(recorder, seed, on_step.realised[k], history.diverged.get(seed))
    return rows


def _alone(config: Mapping[str, Any], data: Dataset, recipe: Recipe, decay: float) -> list[Row]:
    net = build(config, data, config["seed"])
    recorder = TrajectoryRecorder(data.probe.x, config["act"], config.get("thetas", THETAS))

    def each_epoch(moment: Any) -> None:
        recorder(moment.epoch, moment.model, moment.evaluation.accuracy if moment.evaluation else None)

    on_step = OnStep(
        recipe=recipe,
        data=data,
        decay=decay,
        network=net,
        parameters=lambda moment: dict(moment.model.named_parameters()),
        count=1,
    )
    history = train(net, data, replace(recipe, seed=config["seed"]), callback=each_epoch, on_step=on_step)
    return _noted(recorder, config["seed"], on_step.realised[0], history.steps if history.stopped else None)


def _noted(recorder: TrajectoryRecorder, seed: int, realised: float, diverged: int | None) -> list[Row]:
    if diverged is not None:
        return [{"quantity": "diverged", "seed": seed, "step": diverged}]
    rows: list[Row] = [{"seed": seed, **row} for row in recorder.finish()]
    next(r for r in rows if r["quantity"] == "run")["realised S"] = realised
    return rows


@torch.no_grad()
def _copy(ensemble: Ensemble, index: int, member: nn.Module) -> None:
    """The values of one seed, into a network of its own that is used again and again."""
    stacked = {**ensemble.parameters, **ensemble.buffers}
    for name, value in member.state_dict().items():
        value.copy_(stacked[name][index])


def _healthy(network: nn.Module) -> bool:
    return all(bool(torch.isfinite(p).all()) for p in network.parameters())


class OnStep:
    r"""Decoupled decay for SGD, and the integrated decay that the norm scales γ really felt.

    $S = \sum_t η_t λ/(1-μ)$ for SGD and $\sum_t η_t λ$ for AdamW. Adam with coupled decay divides the decay by the size
    of the gradient as well, so its scales feel $S = \sum_t η_t λ / (\sqrt{\hat v_t} + ε)$, measured here.
    """

    def __init__(
        self,
        recipe: Recipe,
        data: Dataset,
        decay: float,
        network: nn.Module,
        parameters: Callable[[Any], Mapping[str, Tensor]],
        count: int,
    ) -> None:
        self.recipe, self.decay, self.parameters = recipe, decay, parameters
        self.total, self.per_epoch = steps_of(recipe, data)
        nominal = integrated_decay(replace(recipe, weight_decay=decay) if decay else recipe, data)
        self.adaptive = recipe.optimizer == "adam" and recipe.weight_decay > 0
        self.realised = [0.0 if self.adaptive else nominal] * count
        self.scales = [n for n, kind in kinds(network).items() if kind == "norm" and n.endswith("weight")]
        self.first = {n: p.detach().clone() for n, p in network.named_parameters() if n in self.scales}
        self.before: dict[str, Tensor] = {}
        self.second: dict[str, Tensor] = {}
        self.count = count

    @torch.no_grad()
    def __call__(self, moment: Any) -> None:
        rate = self.recipe.lr * multiplier(self.recipe, moment.step - 1, self.total, self.per_epoch)
        if self.decay:
            for p in self.parameters(moment).values():
                p.mul_(1 - rate * self.decay / (1 - self.recipe.momentum))
        if self.adaptive and self.scales:
            self._measure(self.parameters(moment), moment.step, rate)

    def _measure(self, parameters: Mapping[str, Tensor], step: int, rate: float) -> None:
        beta, decay = self.recipe.betas[1], self.recipe.weight_decay
        felt = []
        for n in self.scales:
            p = parameters[n]
            assert p.grad is not None
            if n not in self.before:  # scales start alike in every seed
                self.before[n], self.second[n] = self.first[n].expand_as(p).clone(), torch.zeros_like(p)
            pull = p.grad + decay * self.before[n]
            self.second[n].mul_(beta).addcmul_(pull, pull, value=1 - beta)
            size = (self.second[n] / (1 - beta**step)).sqrt_().add_(self.recipe.eps)
            felt.append((rate * decay / size).reshape(self.count, -1))
            self.before[n].copy_(p)
        mean = torch.cat(felt, 1).mean(1).tolist()
        self.realised = [a + b for a, b in zip(self.realised, mean)]
