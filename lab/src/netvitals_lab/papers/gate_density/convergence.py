"""How the reconstruction converges (Fig. 30), where first (A.9.4), how hard it is (Fig. 32), and with a learned kernel
(Fig. 35): what needs every iteration, every picture or every kernel of a run.

One trial is one batch over stiffness values and seeds; a row holds lists over seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from netvitals_lab import Config, Resources, Row, Study
from netvitals_lab.engine.judges import some
from netvitals_lab.papers.gate_density import reconstruction as rec
from netvitals_lab.papers.gate_density.setups import (
    FEW,
    SETUPS,
    STARTS,
    STIFFENED,
    UNPRINTED,
    Open,
    configs_in,
    first,
    kernel_of,
    learned_from,
    of_picture,
    problem_in,
    spectral_norm,
)
from netvitals_lab.papers.gate_density.transition import CORE, GRID

NAME = "gate-density-convergence"
METHODS = ("adam", "pgd", "momentum", "nesterov")  # those that can be followed step by step
GROUPS = {"saturating": ("sigmoid", "tanh"), "self-gated": ("gelu", "silu", "mish"), "relu": ("relu",)}
SHOWN = 40  # iterations kept of a curve


@dataclass(frozen=True)
class Convergence:
    size: int = 32
    seeds: int = 8
    iterations: int = 200
    alphas: tuple[float, ...] = GRID
    core: tuple[float, ...] = CORE
    moments: tuple[int, ...] = (1, 2, 5, 10, 20, 50, 100, 200)
    setups: tuple[Open, ...] = SETUPS


def trials(p: Convergence) -> list[Config]:
    base: Config = {"size": p.size, "seeds": p.seeds, "iterations": p.iterations}
    out = [{**base, "check": "curves", "method": m, "alphas": list(p.core)} for m in METHODS]
    out += [{**base, "check": "activations", "act": a, "alphas": [40.0], "way": way} for a, way in STIFFENED]
    out += [{**base, "check": "kernels", "kernel": k, "alphas": list(p.alphas)} for k in rec.KERNELS]
    out += [{**base, "check": "joint", "alphas": list(p.alphas), "start": start} for start in STARTS]
    regions = {"check": "regions", "alphas": [5.0, 20.0], "moments": list(p.moments)}
    alike: list[Config] = [{**base, **regions, "target": t} for t in ("checkerboard", "disc", "cross")]
    return configs_in(p.setups, out) + configs_in(p.setups, alike, blocks=False)


def trial(config: Config) -> list[Row]:
    asked = {"curves": curves, "regions": regions, "activations": activations, "kernels": kernels, "joint": joint}
    return asked[config["check"]](config)


def _rows(config: Mapping[str, Any], **columns: Tensor) -> list[Row]:
    """One row a stiffness, with the part of every column that belongs to its seeds."""
    n = config["seeds"]
    return [
        {"alpha": a, **{k: v[i * n : (i + 1) * n].double().tolist() for k, v in columns.items()}}
        for i, a in enumerate(config["alphas"])
    ]


def curves(config: Config) -> list[Row]:
    """J after every iteration, kept at some; and of each seed the iteration by which 95 % of its fall is done."""
    problem, x0, _ = problem_in(config)
    found = rec.solve(problem, x0, config["method"], iterations=config["iterations"], trace=True)
    path = torch.cat([found.losses, found.loss[None]]).double()  # (iterations + 1, batch)
    done = path <= path[0] - 0.95 * (path[0] - path.amin(0))
    kept = np.unique(np.linspace(0, len(path) - 1, SHOWN).round().astype(int))
    rows = _rows(config, final=found.loss, iou=found.iou, settled=done.double().argmax(0))
    for i, row in enumerate(rows):
        part = path[kept, i * config["seeds"] : (i + 1) * config["seeds"]]
        row |= {"at": kept.tolist(), "mean": part.mean(1).tolist(), "deviation": part.std(1).tolist()}
    return rows


def regions(config: Config) -> list[Row]:
    """|h − y| on the target's edges and inside its regions, by iterations, over that at the start."""
    problem, x0, _ = problem_in(config)
    edge = edges(problem.y[0] if problem.y.ndim == 3 else problem.y)
    share = []
    for t in (0, *config["moments"]):
        x = rec.solve(problem, x0, "adam", iterations=t).x if t else x0
        error = (problem.forward(x) - problem.y).abs()
        share.append(torch.stack([error[:, edge].mean(1), error[:, ~edge].mean(1)]))
    both = torch.stack(share)  # (moments, region, batch)
    rows = []
    for i, alpha in enumerate(config["alphas"]):
        part = both[..., i * config["seeds"] : (i + 1) * config["seeds"]]
        left = (part / part[0]).mean(-1)
        rows.append({"alpha": alpha, "edge": left[:, 0].tolist(), "interior": left[:, 1].tolist()})
    return rows


def edges(y: Tensor) -> Tensor:
    """Pixels with a neighbour, of eight, of the other kind.

    >>> edges(torch.tensor([[0.0, 0, 0, 1, 1]]).expand(3, 5))[1].tolist()
    [False, False, True, True, False]
    """
    mask = F.pad((y > 0.5).double()[None, None], (1, 1, 1, 1), mode="replicate")
    return (F.max_pool2d(mask, 3, 1) != -F.max_pool2d(-mask, 3, 1))[0, 0]


def activations(config: Config) -> list[Row]:
    problem, x0, _ = problem_in(config)
    found = rec.solve_activation(problem, x0, config["act"], iterations=config["iterations"], way=config["way"])
    return _rows(config, active=found.active)


def kernels(config: Config) -> list[Row]:
    """Success by kernel and stiffness, with what the difficulty model knows of a problem."""
    problem, x0, picture = problem_in(config)
    found = rec.solve(problem, x0, iterations=config["iterations"])
    rows = _rows(config, iou=found.iou, iou_input=of_picture(found.x, picture))
    k = kernel_of(config, config["kernel"])
    return [{**r, "sigma_max": spectral_norm(k), "high_pass": abs(float(k.sum())) < 0.1} for r in rows]


def joint(config: Config) -> list[Row]:
    """Active share and IoU with the kernel fixed and learned, and the learned kernel's norm over the fixed one's."""
    problem, x0, picture = problem_in(config)
    fixed = rec.solve(problem, x0, iterations=config["iterations"])
    learned = rec.solve_joint(problem, x0, learned_from(config, problem), iterations=config["iterations"])
    assert learned.kernels is not None
    norm = torch.tensor([spectral_norm(k) for k in learned.kernels]) / spectral_norm(problem.kernels)
    return _rows(
        config,
        fixed_iou=fixed.iou,
        joint_iou=learned.iou,
        fixed_input=of_picture(fixed.x, picture),
        joint_input=of_picture(learned.x, picture),
        fixed_active=fixed.active,
        joint_active=learned.active,
        norm_ratio=norm,
    )


def table(rows: Sequence[Row], column: str, **where: Any) -> tuple[np.ndarray, np.ndarray]:
    """Stiffness values, and ``column`` as (stiffness values, seeds)."""
    chosen = sorted(some(rows, **where), key=lambda r: r["alpha"])
    return np.array([r["alpha"] for r in chosen]), np.array([r[column] for r in chosen], float)


def summary(rows: Sequence[Row]) -> Mapping[str, Any]:
    facts: dict[str, Any] = {}
    for method in METHODS:
        alphas, settled = table(first(rows), "settled", check="curves", method=method)
        facts[f"iterations to 95 % of the fall, {method}"] = "  ".join(
            f"{a:g}: {v:.0f}" for a, v in zip(alphas, settled.mean(1))
        )
    return facts


STUDIES = (
    Study(
        name=NAME,
        reduced="pictures of 32 × 32 pixels instead of 64 × 64",
        paper="gate-density",
        title="Fig. 30, 32, 35, A.9.4: convergence with bands, edges and interiors, difficulty, a learned kernel",
        scales={
            "smoke": Convergence(16, 5, 60, (1.0, 5.0, 10.0, 20.0, 40.0, 60.0), (1.0, 10.0, 40.0), (1, 5, 20, 60), FEW),
            "small": Convergence(),
            "medium": Convergence(64, 8),
            "paper": Convergence(64, 20),
        },
        resources=Resources(cpus=1, memory_gb=4, core_hours=1),
        trials=trials,
        trial=trial,
        unprinted=UNPRINTED,
        summary=summary,
        depends=tuple(f"netvitals_lab.papers.gate_density.{m}" for m in ("convergence", "setups", "reconstruction")),
    ),
)
