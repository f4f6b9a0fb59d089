"""The transition in stiffness over the set-ups that the paper's text admits (E22, E23, E28).

The paper prints levels and one midpoint, and leaves open the kernel's scale, the padding, the picture and whether it
can be reached at all: a checkerboard is hardly the *output* of an edge filter. Here a target is either a picture as it
is or reachable, $y = 1[A x_{true} > c]$, so that some input solves the problem; kernels are Sobel at two scales, the
Laplacian and a dozen random ones of unit norm. Each trial is one kernel, picture and padding over the stiffness values
and seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from netvitals_lab import Config, Resources, Row, Study
from netvitals_lab.papers.gate_density import reconstruction as rec
from netvitals_lab.papers.gate_density.transition import GRID, by_stiffness

NAMED = (("identity", 1.0), ("avg_blur", 1.0), ("sobel_x", 1.0), ("sobel_x", 0.5), ("laplacian", 1.0))
PICTURES = ("checkerboard", "disc", "noise")


@dataclass(frozen=True)
class Reachable:
    size: int = 64
    seeds: int = 5
    iterations: int = 200
    alphas: tuple[float, ...] = GRID
    random: int = 12  # random kernels
    pictures: tuple[str, ...] = PICTURES
    paddings: tuple[str, ...] = ("zero", "circular")


def trials(p: Reachable) -> list[Config]:
    kernels = [(name, scale, 0) for name, scale in NAMED] + [("random_norm", 1.0, s) for s in range(p.random)]
    base = {"size": p.size, "seeds": p.seeds, "iterations": p.iterations, "alphas": list(p.alphas), "c": 0.5}
    configs = [
        {
            **base,
            "kernel": k,
            "scale": scale,
            "draw": draw,
            "picture": picture,
            "reachable": reachable,
            "padding": "zero",
        }
        for k, scale, draw in kernels
        for picture in p.pictures[: 1 if k in ("identity", "avg_blur") else None]
        for reachable in (False, True)
        if picture == "checkerboard" or (reachable and k != "random_norm")
    ]
    configs += [{**c, "padding": other} for c in configs for other in p.paddings[1:] if c["kernel"] == "sobel_x"]
    return configs


def problem_of(config: Mapping[str, Any]) -> tuple[rec.Reconstruction, Tensor]:
    """The batch over stiffness values and seeds, and its starts."""
    kernel = rec.kernel(config["kernel"], config["scale"], config["draw"])
    picture = rec.target(config["picture"], config["size"], max(1, config["size"] // 8))
    options = {"c": config["c"], "padding": config["padding"]}
    if config["reachable"]:
        alone = rec.Reconstruction(torch.ones(1, dtype=torch.float64), kernel, picture, **options)
        picture = (alone.blur(picture[None])[0] > config["c"]).double()
    problem, keys = rec.grid(config["alphas"], config["seeds"], [kernel], picture, **options)
    return problem, problem.start(torch.tensor([seed for _, _, seed in keys]))


def trial(config: Config) -> list[Row]:
    problem, x0 = problem_of(config)
    found = rec.solve(problem, x0, "adam", iterations=config["iterations"])
    filled = float(problem.y.mean())  # an empty or full target makes every IoU trivial
    return [{**row, "filled": filled} for row in by_stiffness(config, found)]


def setup_of(row: Mapping[str, Any]) -> str:
    """A set-up in a few words."""
    kernel = f"random kernel {row['draw']}" if row["kernel"] == "random_norm" else f"{row['kernel']} × {row['scale']:g}"
    return f"{kernel}, {row['picture']}{' (reachable)' if row['reachable'] else ''}, {row['padding']} padding"


def summary(rows: Sequence[Row]) -> Mapping[str, Any]:
    facts: dict[str, Any] = {}
    for row in rows:
        mean = float(torch.tensor(row["iou"], dtype=torch.float64).mean())
        facts.setdefault(setup_of(row), []).append(f"{row['alpha']:g}: {mean:.3f}")
    return {name: "  ".join(values) for name, values in facts.items()}


STUDIES = (
    Study(
        name="gate-density-reachable",
        unprinted="the scale of its kernel, the padding, the target and the operands of IoU",
        paper="gate-density",
        title="E22, E23, E28 over the set-ups that the text admits: reachable targets, a dozen random kernels",
        scales={
            "smoke": Reachable(
                size=16, seeds=2, iterations=60, alphas=(1.0, 5.0, 10.0, 20.0, 40.0, 60.0), random=2, paddings=("zero",)
            ),
            "small": Reachable(),
            "medium": Reachable(seeds=10, random=30),
            "paper": Reachable(seeds=20, random=50),
        },
        resources=Resources(cpus=1, memory_gb=2, core_hours=0.5),
        trials=trials,
        trial=trial,
        summary=summary,
        depends=("netvitals_lab.papers.gate_density.reachable", "netvitals_lab.papers.gate_density.reconstruction"),
    ),
)
