"""The study of Table 13: one thing changed at a time on the canonical bridge, and the three other regimes.

The paper sweeps seven axes in 22 variations and prints four. Here every level of every axis is changed alone from the
canonical configuration, which makes 24 with it; the optimisers run once more on inputs that are sampled and not
whitened. Seeds are draws of the inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

from netvitals.singular.checkpoint.stream import sigma_stream
from netvitals_lab import Config, Resources, Row, Study, data, models
from netvitals_lab.papers.dead_directions import _learning
from netvitals_lab.papers.dead_directions._variations import Bridge, descend
from netvitals_lab.training import gradient_step

NAME = "dead-directions-variations"
OPTIMIZERS = ("sgd", "momentum", "adam", "adamw", "shampoo", "muon", "k-fac")
AXES: dict[str, tuple[Any, ...]] = {
    "activation": ("relu", "gelu", "tanh"),
    "optimizer": OPTIMIZERS[1:],
    "norm": ("layer", "rms"),
    "loss": ("ce",),
    "residual": ("per-layer", "per-block"),
    "depth": (2, 4, 6, 8, 12, 20, 32),
    "start": (0.2, 0.6),
}
STARTS = {4: 0.5, 6: 0.6, 8: 0.7, 12: 0.8, 20: 0.9, 32: 0.95}  # t^(2L−1) must move within the steps
REGIMES = ("gelu", "swiglu", "modular addition")


@dataclass(frozen=True)
class Variations:
    """Steps of a bridge and its seeds; steps and seeds of the other regimes, and the modulus of addition."""

    steps: int = 1500
    seeds: int = 10
    regime: int = 200
    regimes: int = 3
    modulus: int = 19


def trials(p: Variations) -> list[Config]:
    bridges: list[Config] = [{"axis": "canonical", "level": "canonical"}]
    bridges += [{"axis": axis, "level": level} for axis, levels in AXES.items() for level in levels]
    bridges += [{"axis": "sampled inputs", "level": name} for name in OPTIMIZERS]
    out = [{"check": "bridge", **b, "steps": p.steps, "seeds": p.seeds} for b in bridges]
    return out + [
        {"check": "regime", "name": name, "steps": p.regime, "modulus": p.modulus, "seed": seed}
        for name in REGIMES
        for seed in range(p.regimes)
    ]


def bridge(config: Config) -> Bridge:
    """The canonical configuration with one thing changed."""
    axis, level = config["axis"], config["level"]
    if axis == "canonical":
        return Bridge()
    if axis == "sampled inputs":
        return Bridge(optimizer=level, inputs="sampled")
    changed: dict[str, Any] = {axis: level}
    if axis == "depth" and level in STARTS:
        changed["start"] = STARTS[level]
    return Bridge(**changed)


def trial(config: Config) -> list[Row]:
    if config["check"] == "regime":
        return regime(config["name"], config["steps"], config["modulus"], config["seed"])
    net = bridge(config)
    return [{"predicted": net.predicted, **row} for row in descend(net, config["seeds"], config["steps"])]


def regime(name: str, steps: int, modulus: int, seed: int) -> list[Row]:
    """σ_r of a mixer's stream under SGD and squared error, or λ_min(G) of an MLP on modular addition under Adam."""
    if name == "modular addition":
        return _learning._addition_rates(steps, seed, modulus)
    digits = data.load("digits")
    torch.manual_seed(seed)
    model = models.build(f"mixer-mini,depth=4,norm={'layer' if name == 'gelu' else 'rms'}", data=digits, seed=seed)
    if name == "swiglu":
        for block in model.blocks:  # type: ignore[union-attr]
            block.tokens, block.channels = _learning.GatedNet(16, 64), _learning.GatedNet(32, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gen = torch.Generator().manual_seed(seed)
    for _ in range(2 * steps):
        rows = torch.randint(0, len(digits.train.x), (64,), generator=gen)
        error = model(digits.train.x[rows]) - F.one_hot(digits.train.y[rows], 10)
        gradient_step(optimizer, error.square().sum(1).mean())
    with torch.no_grad():
        right = float((model(digits.test.x).argmax(1) == digits.test.y).float().mean())
    found = sigma_stream(model, digits.test.x[:128])
    return [
        {"depth": i, "sigma": s, "ratio": r, "largest": top, "accuracy": right}
        for i, (s, r, top) in enumerate(zip(found.sigma, found.ratio, found.largest))
    ]


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for axis, level in dict.fromkeys((r["axis"], r["level"]) for r in rows if r["check"] == "bridge"):
        mine = [r for r in rows if r["check"] == "bridge" and (r["axis"], r["level"]) == (axis, level)]
        slopes = [r["slope"] for r in mine if r["slope"] is not None]
        text = f"{sum(slopes) / len(slopes):.3f} in {len(slopes)} of {len(mine)}" if slopes else "none to read"
        out[f"{axis} {level}"] = (
            f"{text}, predicted {mine[0]['predicted']}; left the path in {sum(r['left'] for r in mine)}"
        )
    return out


STUDIES = (
    Study(
        NAME,
        "dead-directions",
        "Table 13: which variations of the canonical bridge keep its rate?",
        trials=trials,
        resources=Resources(cpus=1, memory_gb=2, core_hours=4),
        trial=trial,
        summary=summary,
        scales={
            "smoke": Variations(steps=60, seeds=1, regime=15, regimes=1),
            "small": Variations(),
            "medium": Variations(steps=5000, regime=1000, regimes=5, modulus=53),
            "paper": Variations(steps=20_000, regime=5000, regimes=10, modulus=113),
        },
        unprinted="sizes, rates and data of its variations in a text that kept them",
    ),
)
