"""How often is the direction of ``report.forecast()`` right? BatchNorm perceptrons on digits, by optimizer.

    python bench/papers/gate_direction.py        about three minutes; writes bench/results/gate_direction.json

Each run is measured after a tenth of its steps and forecast with the integrated decay that is left; the outcome is the
density at the end. A site counts as moved where its density changes by a point or more.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn

from netvitals import gates

OUT = Path(__file__).parents[1] / "results" / "gate_direction.json"
ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU, "mish": nn.Mish}
STEPS, BATCH, SEEDS, S = 1400, 64, 3, 2.44
THETA = 0.1
RULES = {
    "SGD, S = 2.44": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=S / (STEPS * 0.5)),
    "Adam, λ = 5e-4": lambda p: torch.optim.Adam(p, 1e-3, weight_decay=5e-4),
    "AdamW, λ = 5e-4": lambda p: torch.optim.AdamW(p, 1e-3, weight_decay=5e-4),
    "AdamW, S = 2.44": lambda p: torch.optim.AdamW(p, 5e-3, weight_decay=S / (STEPS * 0.5 * 5e-3)),
}


def run(rule: str, activation: str, seed: int, x: torch.Tensor, y: torch.Tensor) -> list[dict]:
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for a, b in ((64, 128), (128, 128), (128, 128)):
        layers += [nn.Linear(a, b), nn.BatchNorm1d(b), ACTIVATIONS[activation]()]
    net = nn.Sequential(*layers, nn.Linear(128, 10))
    optimizer = RULES[rule](net.parameters())
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    held, made = x[:256], None
    for step in range(STEPS):
        if step == STEPS // 10:
            report = gates.measure(net, held, mode="train", thetas=THETA)
            left = gates.will_collapse(optimizer, schedule, STEPS - step, model=net)
            made = report.forecast(decay=None if left.answer == "unknown" else left), report
        index = torch.randint(256, len(x), (BATCH,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x[index]), y[index]).backward()
        optimizer.step()
        schedule.step()
    assert made is not None
    found, before = made
    after = gates.measure(net, held, mode="train", thetas=THETA)
    rows = []
    for name, site in before.sites.items():
        moved = after.sites[name].density(THETA) - site.density(THETA)
        outcome = "neither" if abs(moved) < 0.01 else "rise" if moved > 0 else "fall"
        said = found.sites[name].direction if name in found.sites else "skipped"
        paper = {1: "rise", -1: "fall", 0: "neither"}[found.sites[name].paper] if name in found.sites else "skipped"
        shrunk = float(after.sites[name].sigma.mean() / site.sigma.mean())
        rows.append({"rule": rule, "activation": activation, "seed": seed, "site": name, "said": said, "paper": paper,
                     "outcome": outcome, "moved": moved, "sigma": shrunk})  # fmt: skip
    return rows


def main() -> None:
    digits = load_digits()
    x = torch.tensor(digits.data / 16, dtype=torch.float32)
    x, y = (x - x.mean(0)) / (x.std(0) + 1e-3), torch.tensor(digits.target)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    x, y = x[order], y[order]
    rows = [r for rule in RULES for a in ACTIVATIONS for s in range(SEEDS) for r in run(rule, a, s, x, y)]
    table = {}
    for rule in RULES:
        mine = [r for r in rows if r["rule"] == rule]
        spoken = [r for r in mine if r["said"] in ("rise", "fall")]
        paper = [r for r in mine if r["paper"] in ("rise", "fall")]
        table[rule] = {
            "sites": len(mine),
            "skipped": sum(r["said"] == "skipped" for r in mine),
            "neither": sum(r["said"] == "neither" for r in mine),
            "neither_right": sum(r["said"] == r["outcome"] == "neither" for r in mine),
            "spoken": len(spoken),
            "right": sum(r["said"] == r["outcome"] for r in spoken),
            "opposite": sum({r["said"], r["outcome"]} == {"rise", "fall"} for r in spoken),
            "paper_spoken": len(paper),
            "paper_right": sum(r["paper"] == r["outcome"] for r in paper),
            "paper_opposite": sum({r["paper"], r["outcome"]} == {"rise", "fall"} for r in paper),
            "sigma": math.exp(sum(math.log(r["sigma"]) for r in mine) / len(mine)),
        }
    OUT.write_text(json.dumps({"table": table, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    for rule, row in table.items():
        print(rule, row)


if __name__ == "__main__":
    main()
