"""The study of adapters: tangential LoRA beside plain LoRA, orthogonal gradients and null-space updates.

A network learns an old task; each method then learns a new one until its training loss falls to the same target, at the
setting that gets there with the least old training loss. What counts is the old task on held-out examples. Beside that,
how the directions that these methods call safe lie to the dead ones, along which K is zero at any distance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from netvitals.singular.orders.likelihood import Categorical
from netvitals_lab import Config, Row, Study
from netvitals_lab.papers.dead_directions import _continual
from netvitals_lab.papers.dead_directions._continual import METHODS, PAIRS

NAME = "dead-directions-adapters"
TARGET, FIRST = 0.4, 0.02  # training losses of the new task and of the old
REACHES = (0.1, 1.0, 10.0)  # how far a direction is followed


@dataclass(frozen=True)
class Adapters:
    """Steps of each task, and seeds."""

    steps: int = 700
    seeds: int = 10


def trials(p: Adapters) -> list[Config]:
    return [
        {"check": check, "pair": pair, "steps": p.steps, "seed": seed}
        for check in ("forgetting", "directions")
        for pair in PAIRS
        for seed in range(p.seeds)
    ]


def trial(config: Config) -> list[Row]:
    pair, steps, seed = config["pair"], config["steps"], config["seed"]
    first, second = _continual.tasks(pair)
    (old, old_test), (new, new_test) = _continual.halves(first, seed), _continual.halves(second, seed)
    base = _continual.network(seed)
    _continual.learn(base, list(base.parameters()), old, FIRST, 5e-3, steps, None)
    if config["check"] == "directions":
        return directions(base, old, old_test, seed)
    before = _continual.measured(base, old_test)
    rows = []
    for method in METHODS:
        model, loss, setting = _continual.best(base, method, old, new, TARGET, steps, seed)
        after, learned = _continual.measured(model, old_test), _continual.measured(model, new_test)
        rows.append(
            {
                "method": method,
                "setting": setting,
                "reached": loss <= TARGET,
                "new_loss": loss,
                "before": before[0],
                "before_error": before[1],
                "old_loss": after[0],
                "old_error": after[1],
                "new_error": learned[1],
            }
        )
    return rows


def directions(base: nn.Module, old: _continual.Task, unseen: _continual.Task, seed: int) -> list[Row]:
    """Unit directions of the first layer: dead ones, those that each method leaves free, and any; K along each."""
    gen = torch.Generator().manual_seed(seed)
    weight = base.get_parameter("0.weight")
    rows = _continual.layer_inputs(base, old[0])["0"][:, :-1].double()
    values, vectors = torch.linalg.eigh(rows.T @ rows)
    dead = vectors[:, values <= 1e-10 * values[-1]]  # pixels that are never inked, in the main
    into = torch.randn(weight.shape, generator=gen, dtype=torch.float64)
    free = _continual.free_inputs(_continual.layer_inputs(base, old[0])["0"], 0.99)[:-1, :-1].double()
    stored = _continual.stored_gradients(base, old, 200)[: weight.numel()].double()
    basis = torch.linalg.qr(stored)[0]  # of the first layer's part of the gradients
    flat = into.flatten()
    chosen = {
        "dead": into @ dead @ dead.T,
        "null space": into @ free,
        "OGD": (flat - basis @ (basis.T @ flat)).view_as(into),
        "any": into,
    }
    found = []
    for name, move in chosen.items():
        move = move / move.norm()
        kept = float((move - move @ dead @ dead.T).square().sum())
        growth = {
            f"{who}_{reach:g}": moved(base, weight, move, reach, x)
            for who, x in (("seen", old[0][:200]), ("unseen", unseen[0]))
            for reach in REACHES
        }
        null = float((move @ free).square().sum() / move.square().sum())
        left = move.flatten() - basis @ (basis.T @ move.flatten())
        row = {"direction": name, "outside_dead": kept, "in_null_space": null, "in_OGD": float(left.square().sum())}
        found.append({**row, "kernel": dead.shape[1], **growth})
    return found


def moved(base: nn.Module, weight: nn.Parameter, move: Tensor, reach: float, x: Tensor) -> float:
    """K between the old network and the one with its first layer moved so far."""
    twin = {n: p.detach().double() for n, p in base.named_parameters()}
    further = {**twin, "0.weight": twin["0.weight"] + reach * move}
    run = lambda w: torch.func.functional_call(base.double(), w, (x.double(),))
    with torch.no_grad():
        value = float(Categorical().kl(run(twin), run(further)))
    base.float()
    return value


def summary(rows: Sequence[Row]) -> Mapping[str, Any]:
    out: dict[str, Any] = {}
    for pair in dict.fromkeys(r["pair"] for r in rows):
        for method in METHODS:
            some = [r for r in rows if r["pair"] == pair and r.get("method") == method]
            if some:
                reached = sum(bool(r["reached"]) for r in some)
                out[f"{pair}, {method}"] = (
                    f"old error {np.mean([r['old_error'] for r in some]):.3f}, before "
                    f"{np.mean([r['before_error'] for r in some]):.3f}; reached in {reached} of {len(some)}"
                )
    return out


STUDIES = (
    Study(
        NAME,
        "dead-directions",
        "does tangential LoRA forget less than orthogonal gradients and null-space updates?",
        trials=trials,
        settled="the paper asks the question and names no benchmark; digits in two tasks decide it here",
        trial=trial,
        summary=summary,
        scales={
            "smoke": Adapters(steps=40, seeds=1),
            "small": Adapters(),
            "paper": Adapters(steps=3000, seeds=20),
        },
    ),
)
