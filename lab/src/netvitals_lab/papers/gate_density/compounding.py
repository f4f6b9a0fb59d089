"""Depth, other activations, learned kernels, deep networks and the bounds: E26, E27, E30, E31 and Lemma A.1 to A.3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch

from netvitals import gates
from netvitals_lab import Config, Resources, Row, Study, models
from netvitals_lab.papers.gate_density import reconstruction as rec
from netvitals_lab.papers.gate_density.setups import (
    FEW,
    SETUPS,
    STARTS,
    STIFFENED,
    UNPRINTED,
    Open,
    configs_in,
    kernel_of,
    learned_from,
    of_picture,
    problem_in,
)
from netvitals_lab.papers.gate_density.transition import GRID

NETWORKS = ("resnet18", "vgg11")
# of deep networks the text leaves open the norm, the weights (which a norm undoes), the sigmoid's centre, the inputs
DEEP_SETUPS = tuple(
    (norm, weights, centre, inputs)
    for (norm, weights), centre, inputs in product(
        (("none", "He"), ("none", "default"), ("batch", "He")), (0.5, 0.0), ("gaussian", "uniform")
    )
)
DEEP = ("norm", "weights", "centre", "inputs")
DEFAULT = 6**-0.5  # deviation of torch's default weights, 1/√(3n), over He's, √(2/n)


@dataclass(frozen=True)
class Compounding:
    size: int = 32
    seeds: int = 8
    iterations: int = 200
    alphas: tuple[float, ...] = GRID
    few: tuple[float, ...] = (1.0, 5.0, 10.0, 20.0, 40.0)
    width: int = 8
    side: int = 32
    draws: int = 20_000
    setups: tuple[Open, ...] = SETUPS
    deep: tuple[tuple[str, str, float, str], ...] = DEEP_SETUPS


def trials(p: Compounding) -> list[Config]:
    base = {"size": p.size, "seeds": p.seeds, "iterations": p.iterations}
    grid, few = list(p.alphas), list(p.few)
    out: list[Config] = [{**base, "check": "depth", "alphas": grid, "second": k} for k in ("sobel_x", "avg_blur")]
    out += [
        {**base, "check": "activations", "alphas": few, "act": a, "seeds": min(p.seeds, 5), "way": way}
        for a, way in STIFFENED
    ]
    out += [{**base, "check": "joint", "alphas": grid, "start": start} for start in STARTS]
    out = configs_in(p.setups, out)
    shape = {"width": p.width, "side": p.side, "nets": min(p.seeds, 3)}
    out += [
        {"check": "deep", "network": n, **dict(zip(DEEP, setup)), "alpha": a, **shape}
        for n in NETWORKS
        for setup in p.deep
        for a in (5.0, 10.0, 20.0, 40.0)
    ]
    out += [{"check": "gradient bound", "alpha": a, "draws": p.draws, "seed": 0} for a in (1.0, 5.0, 40.0)]
    out += configs_in(p.setups[:1], [{"check": "active bound", "size": p.size, "alphas": grid, "seeds": p.seeds}])
    return out


def trial(config: Config) -> list[Row]:
    return {
        "depth": _depth,
        "activations": _activations,
        "joint": _joint,
        "deep": _deep,
        "gradient bound": _gradient_bound,
        "active bound": _active_bound,
    }[config["check"]](config)


def _rows(config: Mapping[str, Any], **columns: torch.Tensor) -> list[Row]:
    """One row per stiffness, lists over seeds."""
    n = config["seeds"]
    return [
        {"alpha": a, **{k: v[i * n : (i + 1) * n].double() for k, v in columns.items()}}
        for i, a in enumerate(config["alphas"])
    ]


def _depth(config: Mapping[str, Any]) -> list[Row]:
    """F of one layer where it was solved, F of both layers and of Γ_eff = Γ¹ ⊙ A₂ᵀΓ² where the two were solved."""
    problem, x0, _ = problem_in(config)
    second = kernel_of(config, config["second"])
    one = rec.solve(problem, x0, iterations=config["iterations"])
    two = rec.solve(problem, x0, iterations=config["iterations"], second=second)
    _, g1, g2 = problem.two_layers(two.x, second)
    effective = g1 * problem.blur(g2, adjoint=True, kernels=second)

    def share(g: torch.Tensor) -> torch.Tensor:
        return (g.abs() > rec.GATE_FLOOR).double().mean((-1, -2))

    rows = _rows(
        config,
        one=one.active,
        inner=share(g1),
        outer=share(g2),
        effective=share(effective),
        iou=two.iou,
        correlation=rec.gate_correlation(problem, two.x, second),
    )
    return [{**r, "bound": rec.depth_bound(r["alpha"], second)} for r in rows]


def _activations(config: Mapping[str, Any]) -> list[Row]:
    problem, x0, picture = problem_in(config)
    found = rec.solve_activation(problem, x0, config["act"], iterations=config["iterations"], way=config["way"])
    of_input = of_picture(found.x, picture)
    return _rows(config, iou=found.iou, iou_input=of_input, active=found.active, loss=found.loss)


def _joint(config: Mapping[str, Any]) -> list[Row]:
    """The same problems with the kernel fixed, and with a kernel that is learned too."""
    problem, x0, picture = problem_in(config)
    fixed = rec.solve(problem, x0, iterations=config["iterations"])
    joint = rec.solve_joint(problem, x0, learned_from(config, problem), iterations=config["iterations"])
    return _rows(
        config,
        fixed_iou=fixed.iou,
        fixed_active=fixed.active,
        joint_iou=joint.iou,
        joint_active=joint.active,
        fixed_input=of_picture(fixed.x, picture),
        joint_input=of_picture(joint.x, picture),
    )


def _deep(config: Mapping[str, Any]) -> list[Row]:
    """Active share by layer of an untrained network whose every activation is the stiff sigmoid about its centre."""
    profiles = []
    for seed in range(config["nets"]):
        more = {"side": config["side"], "hidden": (64,)} if config["network"] == "vgg11" else {}
        net = models.build(
            config["network"],
            seed=seed,
            act=f"sigmoid:{config['alpha']:g}:{config['centre']:g}",
            norm=config["norm"],
            width=config["width"],
            **more,
        )
        if config["weights"] == "default":
            with torch.no_grad():
                for p in net.parameters():
                    p.mul_(DEFAULT if p.ndim > 1 else 1.0)
        g = torch.Generator().manual_seed(seed)
        draw = torch.randn if config["inputs"] == "gaussian" else torch.rand
        report = gates.measure(
            net,
            None,
            draw(16, 3, config["side"], config["side"], generator=g),
            thetas=(rec.GATE_FLOOR,),
            mode="train",
        )
        profiles.append([s.density(rec.GATE_FLOOR) for s in report.sites.values()])
    shares = np.mean(profiles, 0)
    law = rec.layer_profile(shares.tolist(), config["alpha"])
    return [
        {
            "shares": shares,
            "rate": law.rate,
            "r2": None if np.isnan(law.r2) else law.r2,
            "front": law.front,
            "layers": len(shares),
        }
    ]


def _gradient_bound(config: Mapping[str, Any]) -> list[Row]:
    g = torch.Generator().manual_seed(config["seed"])
    a = torch.randn(config["draws"], 4, 4, generator=g, dtype=torch.float64)
    h = torch.rand(config["draws"], 4, generator=g, dtype=torch.float64)
    y = torch.randint(0, 2, (config["draws"], 4), generator=g).double()
    check = rec.gradient_bound(a, h, y, config["alpha"])
    return [
        {
            "printed_violations": check.printed_violations,
            "printed_worst": float(check.printed.max()),
            "corrected_violations": check.corrected_violations,
            "corrected_worst": float(check.corrected.max()),
        }
    ]


def _active_bound(config: Mapping[str, Any]) -> list[Row]:
    """The printed bound on the mean of F over random pictures, and the exact strip |z − c| < width beside it."""
    problem, x0, _ = problem_in(config)
    z = problem.blur(x0)
    h = problem.sigmoid(z)
    inside = problem.gates(h) > rec.GATE_FLOOR
    rows = _rows(config, active=problem.active(h))
    for i, row in enumerate(rows):
        part = slice(i * config["seeds"], (i + 1) * config["seeds"])
        strip = (z[part] - problem.c).abs() < rec.active_width(row["alpha"])
        row |= {
            "bound": rec.active_bound(row["alpha"]),
            "width": rec.active_width(row["alpha"]),
            "disagree": int((strip != inside[part]).sum()),
            "smallest": float(problem.gates(h)[part].min()),
        }
    return rows


def summary(rows: Sequence[Row]) -> Mapping[str, Any]:
    facts: dict[str, Any] = {}
    for r in rows:
        if r["check"] == "deep" and tuple(r[name] for name in DEEP) == DEEP_SETUPS[0]:
            facts[f"{r['network']}, α = {r['alpha']:g}"] = " ".join(f"{s:.2f}" for s in r["shares"])
    return facts


STUDIES = (
    Study(
        name="gate-density-compounding",
        reduced="pictures of 32 × 32 pixels instead of 64 × 64",
        paper="gate-density",
        title="E26, E27, E30, E31, A.1–A.3: depth, six activations, learned kernels, deep networks, bounds",
        scales={
            "smoke": Compounding(
                size=16,
                seeds=3,
                iterations=50,
                alphas=(1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 60.0),
                width=4,
                side=16,
                draws=4000,
                setups=FEW,
                deep=DEEP_SETUPS[::4][:2],
            ),
            "small": Compounding(),
            "medium": Compounding(size=64, seeds=20, width=32),
            "paper": Compounding(size=64, seeds=20, width=64),
        },
        resources=Resources(cpus=1, memory_gb=4, core_hours=3),
        trials=trials,
        trial=trial,
        unprinted=UNPRINTED,
        summary=summary,
        depends=(
            "netvitals_lab.papers.gate_density.compounding",
            "netvitals_lab.papers.gate_density.setups",
            "netvitals_lab.papers.gate_density.reconstruction",
            "netvitals_lab.models.resnet",
            "netvitals_lab.models.vgg",
            "netvitals.gates.measurement",
        ),
    ),
)
