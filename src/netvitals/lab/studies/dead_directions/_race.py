"""One training run of the DDCAdam comparison: a model, an optimiser, a rate, a seed, a rescaled start or not."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from netvitals.lab import models
from netvitals.lab.data import Dataset
from netvitals.lab.studies import Row
from netvitals.lab.training import Recipe, evaluate, train
from netvitals.optim import DDCAdam, Gauges, Rescale, find_gauges
from netvitals.optim.gauges import orbit_position

NETWORKS = {
    "mlp": "mlp:64-64x2-10",
    "resnet": "resnet-mini,width=8",
    "gpt": "gpt-micro,depth=2,width=32,heads=2",
    "images": "resnet-mini,width=8",
}
CONTEXT = 32


def race(architecture: str, optimizer: str, lr: float, seed: int, rescaled: float, steps: int, data: str) -> Row:
    """Train, and say loss, accuracy, and how far the weights went along their gauges."""
    dataset = source(data)
    model = models.build(NETWORKS[architecture], data=dataset, seed=seed)
    x = dataset.train.x[:8]
    gauges = find_gauges(model, "ce", x)
    if rescaled:
        turn(gauges, rescaled, seed)
    start = {g.name: orbit_position(g).clone() for g in gauges}
    chosen = build(optimizer, model, gauges, lr)
    recipe = Recipe(steps=steps, batch=32, schedule="cosine", evaluate_on=0, seed=seed, weight_decay=0.0)
    history = train(model, dataset, recipe, optimizer=chosen)
    found = evaluate(model, dataset.test, recipe_loss(dataset), examples=512)
    moved = [float((orbit_position(g) - start[g.name]).square().mean().sqrt()) for g in gauges]
    last = history.loss[-max(1, len(history.loss) // 10) :]
    return {
        "train": _plain(sum(last) / len(last)),
        "test": _plain(found.loss),
        "accuracy": found.accuracy,
        "gauges": len(gauges),
        "moved": max(moved, default=0.0),
        "stopped": history.stopped or "",
    }


def build(name: str, model: nn.Module, gauges: Gauges, lr: float) -> Optimizer:
    if name == "adam":
        return torch.optim.Adam(model.parameters(), lr=lr)
    if name == "adamw":
        return torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)
    return DDCAdam(model.parameters(), gauges.gauges, lr=lr)


def turn(gauges: Gauges, size: float, seed: int) -> None:
    """Move the start along every rescaling; the function stays what it was."""
    gen = torch.Generator().manual_seed(seed)
    for gauge in gauges:
        if isinstance(gauge, Rescale):
            gauge.act(size * torch.randn(gauge.modes, generator=gen))


def source(name: str) -> Dataset:
    """Data by name; text is a small corpus in windows, and natural images are halved in size."""
    if name == "text":
        from netvitals.lab.studies.weight_drift import _text

        return _text.text(_text.source(), CONTEXT)
    from netvitals.lab.studies.gate_density import _training

    return _training.load(name, pool=2 if name.startswith("cifar") else 1)


def recipe_loss(data: Dataset) -> Any:
    from netvitals.lab.training import loss_named

    return loss_named("auto", data)


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None
