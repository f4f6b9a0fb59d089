"""What tangential LoRA and safe directions do for an old task while a new one is learned, beside plain LoRA.

    python bench/adapters.py [--seeds 10] [--out bench/results/adapters.json]

A network learns the old task; adapters of equal rank on every linear layer then learn the new one until its training
loss falls to a target, at that of two learning rates that gets there and forgets less on the old training data, or
comes nearest. Compared is the loss and the error on held-out examples of the old task at that moment: equal new-task
loss, how much was forgotten. Two pairs of tasks on the digits of scikit-learn: digits 0 to 4, then 5 to 9; all digits,
then the same ones turned by a quarter. Safe directions are those of the last layer of a small network, on
the first pair.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import os
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from netvitals import singular
from netvitals_lab.papers.dead_directions._continual import plain as plain_lora

torch.set_num_threads(1)
RESULTS = Path(__file__).parents[1] / "results" / "adapters.json"
RANK, STEPS, RATES = 8, 700, (5e-3, 5e-2)
EXAMPLES = 60  # that safe directions are found with
Pair = tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]


def digits() -> tuple[Tensor, Tensor]:
    from sklearn.datasets import load_digits

    found = load_digits()
    return torch.tensor(found.data / 16.0, dtype=torch.float32), torch.tensor(found.target)


def tasks(name: str) -> Pair:
    """Old task, new task."""
    x, y = digits()
    if name == "0–4 then 5–9":
        low = y < 5
        return (x[low], y[low]), (x[~low], y[~low])
    turned = torch.rot90(x.view(-1, 8, 8), 1, (1, 2)).reshape(-1, 64)
    return (x, y), (turned, y)


def halves(task: tuple[Tensor, Tensor], seed: int) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    order = torch.randperm(len(task[1]), generator=torch.Generator().manual_seed(seed))
    cut = 500
    return tuple((task[0][o], task[1][o]) for o in (order[:cut], order[cut:]))  # type: ignore[return-value]


def trained(
    model: nn.Module, parameters: list[nn.Parameter], task: tuple[Tensor, Tensor], target: float, lr: float
) -> tuple[int, float]:
    """Full-batch Adam until the loss is below the target: steps and the loss reached."""
    optimizer = torch.optim.Adam(parameters, lr=lr)
    loss = torch.tensor(torch.inf)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(task[0]), task[1])
        if float(loss.detach()) <= target:
            return step, float(loss.detach())
        loss.backward()
        optimizer.step()
    return STEPS, float(loss.detach())


def plain(model: nn.Module, train_down: bool) -> list[nn.Parameter]:
    """The study's plain adapters; without ``train_down`` only the half that starts at zero."""
    attached = plain_lora(model, RANK)
    return attached if train_down else attached[::2]


def methods(old: Tensor, new: Tensor) -> dict[str, Callable[[nn.Module], list[nn.Parameter]]]:
    def tangential(exact: bool, ranked: bool) -> Callable[[nn.Module], list[nn.Parameter]]:
        def attach(model: nn.Module) -> list[nn.Parameter]:
            found = singular.tangential_lora(model, old, rank=RANK, new=new if ranked else None, exact=exact)
            return found.attach(model) if found.placements else []

        return attach

    return {
        "all weights": lambda m: list(m.parameters()),
        "plain LoRA": lambda m: plain(m, True),
        "plain LoRA, down frozen": lambda m: plain(m, False),
        "tangential LoRA": tangential(False, True),
        "tangential LoRA, exact layers only": tangential(True, True),
    }


def measured(model: nn.Module, task: tuple[Tensor, Tensor]) -> tuple[float, float]:
    with torch.no_grad():
        out = model(task[0])
        return float(F.cross_entropy(out, task[1])), float((out.argmax(1) != task[1]).float().mean())


def network(seed: int, *widths: int) -> nn.Sequential:
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(widths):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def compare(pair: str, seed: int, target: float = 0.4) -> list[dict[str, Any]]:
    old, new = tasks(pair)
    (old, old_test), (new, new_test) = halves(old, seed), halves(new, seed)
    base = network(seed, 64, 48, 48, 10)
    trained(base, list(base.parameters()), old, 0.02, 5e-3)
    before = measured(base, old_test)
    rows = []
    for name, attach in methods(old[0], new[0]).items():
        row = {"pair": pair, "method": name, "seed": seed, "before": before}
        tried = []
        for rate in RATES:
            model = copy.deepcopy(base)
            torch.manual_seed(seed)
            parameters = attach(model)
            if parameters:
                tried.append((*trained(model, parameters, new, target, rate), model, parameters))
        if not tried:
            rows.append(row | {"reached": False, "why": "no layer has a kernel of that rank"})
            continue
        steps, loss, model, parameters = min(
            tried, key=lambda t: (t[1] > target, measured(t[2], old)[0] if t[1] <= target else t[1])
        )
        after = measured(model, old_test)
        rows.append(
            row
            | {
                "reached": loss <= target,
                "steps": steps,
                "new_loss": loss,
                "new_test": measured(model, new_test),
                "old_loss": after[0],
                "old_error": after[1],
                "trained": sum(p.numel() for p in parameters),
            }
        )
    return rows


class Along(nn.Module):
    """A model whose parameters move along the columns of a basis; only the place among them is trained."""

    def __init__(self, model: nn.Module, names: Sequence[str], basis: Tensor) -> None:
        super().__init__()
        named = dict(model.named_parameters())
        self.run = lambda moved, x: torch.func.functional_call(model, moved, (x,))
        self.shapes = {n: named[n].shape for n in names}
        self.origin = torch.cat([named[n].detach().flatten() for n in names])
        self.basis, self.place = basis.float(), nn.Parameter(torch.zeros(basis.shape[1]))

    def forward(self, x: Tensor) -> Tensor:
        moved = (self.origin + self.basis @ self.place).split([s.numel() for s in self.shapes.values()])
        return self.run({n: t.view(s) for (n, s), t in zip(self.shapes.items(), moved)}, x)


def safe(pair: str, only: str, seed: int, target: float) -> list[dict[str, Any]]:
    """Along safe directions of one layer of a small network, beside as many random directions of it."""
    old, new = tasks(pair)
    (old, old_test), (new, new_test) = halves(old, seed), halves(new, seed)
    base = network(seed, 64, 6, 10)
    trained(base, list(base.parameters()), old, 0.1, 1e-2)
    few = slice(0, EXAMPLES)
    found = singular.safe_directions(
        base, "ce", (old[0][few], old[1][few]), new=(new[0][few], new[1][few]), only=only, seed=seed
    )
    named = f"{pair}, parameters {only}"
    row = {"pair": named, "seed": seed, "before": measured(base, old_test)}
    if not found.spaces:
        return [row | {"method": "safe directions", "reached": False, "why": "no safe direction was found"}]
    basis = found.best.basis
    torch.manual_seed(seed)
    bases = {"safe directions": basis, "random directions": torch.linalg.qr(torch.randn_like(basis))[0]}
    rows = []
    for name, columns in bases.items():
        model = Along(base, found.names, columns)
        steps, loss = trained(model, [model.place], new, target, 5e-2)
        after = measured(model, old_test)
        rows.append(
            row
            | {
                "method": name,
                "reached": loss <= target,
                "steps": steps,
                "new_loss": loss,
                "new_test": measured(model, new_test),
                "old_loss": after[0],
                "old_error": after[1],
                "trained": columns.shape[1],
            }
        )
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    print("| tasks | method | reached the target | old error before → after | old loss after | steps | trained |")
    print("|---|---|---|---|---|---|---|")
    for pair, method in dict.fromkeys((r["pair"], r["method"]) for r in rows):
        some = [r for r in rows if (r["pair"], r["method"]) == (pair, method)]
        seen = [r for r in some if "old_loss" in r]
        if not seen:
            print(f"| {pair} | {method} | 0/{len(some)}: {some[0]['why']} | | | | |")
            continue

        def line(values: list[float]) -> str:
            error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
            return f"{statistics.mean(values):.3f} ± {error:.3f}"

        print(
            f"| {pair} | {method} | {sum(r['reached'] for r in some)}/{len(some)} (new loss "
            f"{statistics.mean(r['new_loss'] for r in seen):.2f}) | {line([r['before'][1] for r in seen])} → "
            f"{line([r['old_error'] for r in seen])} | {line([r['old_loss'] for r in seen])} | "
            f"{statistics.mean(r['steps'] for r in seen):.0f} | {seen[0]['trained']} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--safe-seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for seed in range(options.seeds):
        for pair in ("0–4 then 5–9", "upright then turned"):
            rows += compare(pair, seed)
        options.out.parent.mkdir(exist_ok=True)
        options.out.write_text(json.dumps({"rows": rows}, indent=0))
    for seed in range(options.safe_seeds):
        rows += safe("0–4 then 5–9", "2.*", seed, target=1.5)
        options.out.write_text(json.dumps({"rows": rows}, indent=0))
    show(rows)


if __name__ == "__main__":
    main()
