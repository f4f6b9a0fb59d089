"""The synthetic transition in stiffness: E21 to E25, E28 and E29 on the fixed-kernel reconstruction problem.

One trial is one batch over stiffness values and seeds; a row holds lists over seeds. What the paper leaves open
(padding, scale of Sobel, target, operands of IoU) is not chosen: a trial is run in each of the set-ups that it admits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from netvitals_lab import Config, Resources, Row, Study
from netvitals_lab.engine.judges import some
from netvitals_lab.papers.gate_density import reconstruction as rec
from netvitals_lab.papers.gate_density.setups import (
    FEW,
    SETUPS,
    UNPRINTED,
    Open,
    configs_in,
    first,
    kernel_of,
    of_picture,
    problem_in,
    spectral_norm,
)

CORE = (1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 60.0)
GRID = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0, 13.0, 16.0, 20.0, 25.0, 30.0, 40.0, 60.0)
PICTURES = ("checkerboard", "stripes", "disc", "cross", "noise")
SUCCESS = 0.7
BEST = ("adam", "lbfgsb", "momentum", "nesterov", "pgd")  # of Table 6


@dataclass(frozen=True)
class Transition:
    size: int = 64
    seeds: int = 20
    few: int = 8  # seeds of the oracle, the kernels and the sweeps
    iterations: int = 200
    alphas: tuple[float, ...] = GRID
    core: tuple[float, ...] = CORE
    cutoffs: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    snrs: tuple[float, ...] = (15.0, 30.0, 45.0, 60.0)
    sizes: tuple[int, ...] = (32, 64, 128)
    dense: int = 16  # side of the pictures for singular values
    restarts: int = 20
    setups: tuple[Open, ...] = SETUPS


def trials(p: Transition) -> list[Config]:
    base = {
        "size": p.size,
        "seeds": p.few,
        "iterations": p.iterations,
        "method": "adam",
        "kernel": "sobel_x",
        "target": "checkerboard",
        "c": 0.5,
        "snr": None,
    }
    grid, core, middle = list(p.alphas), list(p.core), [5.0, 10.0, 20.0]
    out: list[Config] = [{**base, "check": "transition", "alphas": grid, "seeds": p.seeds}]
    out += [{**base, "check": "oracle", "alphas": grid, "method": m} for m in ("adam", "oracle", "pgd")]
    out += [{**base, "check": "methods", "alphas": core, "seeds": min(p.few, 5), "method": m} for m in BEST]
    out += [{**base, "check": "kernels", "alphas": core, "kernel": k} for k in rec.KERNELS]
    out += [
        {**base, "check": "cutoff", "alphas": [10.0], "c": c, "method": m}
        for c in p.cutoffs
        for m in ("adam", "momentum", "pgd")
    ]
    out += [{**base, "check": "resolution", "alphas": grid, "size": s, "seeds": 4} for s in p.sizes]
    out += [{**base, "check": "noise", "alphas": [10.0, 25.0, 40.0], "snr": s, "seeds": 4} for s in p.snrs]
    out.append({**base, "check": "restarts", "alphas": middle, "seeds": p.restarts})
    alike: list[Config] = [{**base, "check": "targets", "alphas": core, "target": t, "seeds": 4} for t in PICTURES]
    alike.append({**base, "check": "landscape", "alphas": [1.0, 40.0], "seeds": 1, "size": p.dense})
    alike.append({**base, "check": "jacobian", "alphas": grid, "size": p.dense, "seeds": 4})
    ours = [{**base, "check": "cutoff", "alphas": [10.0], "c": c, "method": "lbfgsb"} for c in p.cutoffs]
    return (
        configs_in(p.setups, out) + configs_in(p.setups, alike, blocks=False) + configs_in(p.setups[:1], ours)
    )  # L-BFGS-B runs one problem after the other


def problem_of(config: Mapping[str, Any]) -> tuple[rec.Reconstruction, Tensor, Tensor]:
    """The batch of a configuration over stiffness values and seeds, its starts, one per seed, and the picture."""
    if config["snr"] is None:
        return problem_in(config)
    y, count = problem_in(config)[0].y, len(config["alphas"]) * config["seeds"]
    seen = torch.stack([rec.noisy(y, config["snr"], seed=1000 + i % config["seeds"]) for i in range(count)])
    return problem_in(config, observed=seen)


def trial(config: Config) -> list[Row]:
    problem, x0, picture = problem_of(config)
    found = rec.solve(problem, x0, config["method"], iterations=config["iterations"])
    rows = by_stiffness(config, replace(found, iou_input=of_picture(found.x, picture)))
    check = config["check"]
    if check == "jacobian":
        report = rec.jacobian(problem, found.x)
        for i, row in enumerate(rows):
            part = slice(i * config["seeds"], (i + 1) * config["seeds"])
            row |= {
                "sigma_min": report.sigma_min[part],
                "null": report.null_dimension[part],
                "pixels": problem.pixels,
                "stable_rank": report.stable_rank[part],
                "rank_a": report.rank_of_a,
                "tolerance": report.tolerance,
            }
    elif check == "kernels":
        top = spectral_norm(kernel_of(config, config["kernel"]))
        for row in rows:
            row |= {"sigma_max": top, "high_pass": abs(float(problem.kernels.sum())) < 0.1}
    elif check == "restarts":
        for i, row in enumerate(rows):
            part = slice(i * config["seeds"], (i + 1) * config["seeds"])
            s = rec.spread(problem.part(part), found.x[part])
            row |= {"input_spread": s.inputs, "output_spread": s.outputs, "agreement": s.agreement}
    elif check == "landscape":
        plane = rec.landscape(problem, found.x)
        steps = plane.diff(dim=1).abs().flatten(1) / plane.amax((1, 2))[:, None]
        for i, row in enumerate(rows):
            row |= {"flat": float((steps[i] < 1e-3).double().mean()), "slice": plane[i, 10]}
    return rows


def by_stiffness(config: Mapping[str, Any], found: rec.DescentSolution) -> list[Row]:
    """A row for each stiffness, with what was found over the seeds."""
    rows: list[Row] = []
    for i, alpha in enumerate(config["alphas"]):
        part = slice(i * config["seeds"], (i + 1) * config["seeds"])
        rows.append(
            {
                "alpha": alpha,
                **{
                    name: getattr(found, name)[part].double()
                    for name in ("loss", "iou", "iou_input", "active", "reduction")
                },
            }
        )
    return rows


def table(rows: Sequence[Row], column: str, **where: Any) -> tuple[np.ndarray, np.ndarray]:
    """Stiffness values, and ``column`` as (stiffness values, seeds)."""
    chosen = sorted(some(rows, **where), key=lambda r: r["alpha"])
    return np.array([r["alpha"] for r in chosen]), np.array([r[column] for r in chosen], float)


def summary(rows: Sequence[Row]) -> Mapping[str, Any]:
    facts: dict[str, Any] = {}
    for method in BEST:
        alphas, iou = table(first(rows), "iou", check="methods", method=method)
        facts[f"IoU by stiffness, {method}"] = "  ".join(f"{a:g}: {v:.3f}" for a, v in zip(alphas, iou.mean(1)))
    return facts


STUDIES = (
    Study(
        name="gate-density-transition",
        paper="gate-density",
        title="E21–E25, E28, E29: the fixed-kernel reconstruction by stiffness, optimiser, kernel, size and noise",
        scales={
            "smoke": Transition(
                size=16,
                seeds=3,
                few=3,
                iterations=60,
                alphas=(1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 60.0),
                core=(1.0, 5.0, 20.0),
                cutoffs=(0.3, 0.5, 0.7),
                sizes=(12, 16, 24),
                snrs=(15.0, 60.0),
                dense=12,
                restarts=4,
                setups=FEW,
            ),
            "small": Transition(seeds=8),
            "medium": Transition(few=16),
            "paper": Transition(few=20),
        },
        resources=Resources(cpus=1, memory_gb=4, core_hours=2),
        trials=trials,
        trial=trial,
        unprinted=UNPRINTED,
        summary=summary,
        depends=tuple(f"netvitals_lab.papers.gate_density.{m}" for m in ("transition", "setups", "reconstruction")),
    ),
)
