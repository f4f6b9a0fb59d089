"""One entry of the BalancedAdam comparison: a model, an optimiser, a seed; the rate is chosen on validation data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from netvitals.optim import DDC, BalancedAdam, DDCAdam, Gauges, Rescale, SGDBase, Shift, find_gauges
from netvitals.optim.balance import Balance
from netvitals_lab import Row, models
from netvitals_lab.data import Dataset, Split
from netvitals_lab.training import Recipe, evaluate, train

NETWORKS = {
    "mlp": "mlp:64-64x2-10",
    "resnet": "resnet-mini,width=8",
    "gpt": "gpt-micro,depth=2,width=32,heads=2",
    "finetune": "mlp:64-64x2-10",
    "images": "resnet-mini,width=8",
}
TUNED_ON = 200  # examples of the fine-tuning task
CONTEXT = 32


def race(
    architecture: str, optimizer: str, seed: int, rates: Sequence[float], rescaled: float, steps: int, data: str
) -> list[Row]:
    """Train at every rate, take the one with the lowest validation loss, and say its test loss and way along gauges.

    The test examples have no say in the choice. A second row is of a start that was moved along its gauges, at the
    same rate.
    """
    dataset, held = parted(source(data))
    runs = [_run(architecture, optimizer, lr, seed, 0.0, steps, dataset, held) for lr in rates]
    ended = [r for r in runs if r["validation"] is not None]
    if not ended:
        raise LookupError(f"no rate of {optimizer} on {architecture} ended with a finite loss, seed {seed}")
    chosen = min(ended, key=lambda r: r["validation"])
    return [chosen, _run(architecture, optimizer, chosen["lr"], seed, rescaled, steps, dataset, held)]


def _run(
    architecture: str, optimizer: str, lr: float, seed: int, rescaled: float, steps: int, data: Dataset, held: Split
) -> Row:
    model = models.build(NETWORKS[architecture], data=data, seed=seed)
    if architecture == "finetune":  # what was trained upright goes on with the pictures turned by a quarter
        recipe = Recipe(steps=300, batch=32, schedule="cosine", evaluate_on=0, seed=seed, weight_decay=0.0)
        train(model, data, recipe, optimizer=torch.optim.Adam(model.parameters(), lr=1e-2))
        data, held = turned(data, TUNED_ON), turned_split(held)
    gauges = find_gauges(model, "ce", data.train.x[:8])
    if rescaled:
        turn(gauges, rescaled, seed)
    start = orbit(gauges)
    recipe = Recipe(steps=steps, batch=32, schedule="cosine", evaluate_on=0, seed=seed, weight_decay=0.0)
    history = train(model, data, recipe, optimizer=build(optimizer, model, gauges, lr))
    found, valid = (evaluate(model, s, recipe_loss(data), examples=512) for s in (data.test, held))
    moved = [float((a - b).square().mean().sqrt()) for a, b in zip(orbit(gauges), start)]
    last = history.loss[-max(1, len(history.loss) // 10) :]
    return {
        "lr": lr,
        "rescaled": rescaled,
        "train": _plain(sum(last) / len(last)),
        "validation": None if history.stopped else _plain(valid.loss),
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
    if name == "sgd":
        return torch.optim.SGD(model.parameters(), lr=lr)
    if name == "ddcadam-printed":
        return DDCAdam(model.parameters(), gauges.disjoint(), lr=lr)
    if name == "ddc-sgd":
        return DDC(model.parameters(), gauges.disjoint(), SGDBase(), lr=lr, vertical="sgd")
    return BalancedAdam(
        model.parameters(), gauges.gauges, lr=lr, lr_radial=3 * lr if name == "ddcadam-radial" else None
    )


def parted(data: Dataset) -> tuple[Dataset, Split]:
    """The data with the last fifth of the training examples set aside for validation."""
    x, y = data.train.x, data.train.y
    cut = len(x) - len(x) // 5
    return replace(data, train=Split(x[:cut], y[:cut])), Split(x[cut:], y[cut:])


def turned(data: Dataset, examples: int) -> Dataset:
    """The first so many training examples and all test examples, turned by a quarter."""
    few = Split(data.train.x[:examples], data.train.y[:examples])
    return replace(data, train=turned_split(few), test=turned_split(data.test))


def turned_split(split: Split) -> Split:
    x = split.x
    side = math.isqrt(x[0].numel())
    return Split(torch.rot90(x.reshape(len(x), side, side), dims=(1, 2)).reshape(x.shape), split.y)


def orbit(gauges: Gauges) -> list[torch.Tensor]:
    """Where on their orbits the gauges' parameters sit: their potentials, and the means of the logits' parameters."""
    shifts = {g.param: g for g in gauges if isinstance(g, Shift)}
    balance = Balance([g for g in gauges if isinstance(g, Rescale)], shifts)
    balance.find()
    return [p.clone() for p in balance.potentials] + [shift.charge().clone() for shift in shifts.values()]


def turn(gauges: Gauges, size: float, seed: int) -> None:
    """Move the start along every rescaling; the function stays what it was."""
    gen = torch.Generator().manual_seed(seed)
    for gauge in gauges:
        if isinstance(gauge, Rescale):
            gauge.act(size * torch.randn(gauge.modes, generator=gen))


def source(name: str) -> Dataset:
    """Data by name; text is a small corpus in windows, and natural images are halved in size."""
    if name == "text":
        from netvitals_lab.papers.weight_drift import _text

        return _text.text(_text.source(), CONTEXT)
    from netvitals_lab.papers.gate_density import _training

    return _training.load(name, pool=2 if name.startswith("cifar") else 1)


def recipe_loss(data: Dataset) -> Any:
    from netvitals_lab.training import loss_named

    return loss_named("auto", data)


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None
