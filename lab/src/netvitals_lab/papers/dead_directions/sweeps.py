"""The study of sweeps: the ladder over widths, depths, heads and angles (Tables 9, 10), the floor ε (Tables 11, 12)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter

from netvitals import optim
from netvitals.singular import rate_fit
from netvitals.singular.networks.builders import DiagonalNet
from netvitals_lab import Config, Row, Study
from netvitals_lab.papers.dead_directions import _bridge, rates
from netvitals_lab.papers.dead_directions._networks import NAMES, SMALL, USUAL
from netvitals_lab.training import gradient_step

NAME = "dead-directions-sweeps"
f64 = torch.float64
FLOORS = (1e-8, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)
SPAN = 0.15  # decades that t must fall for a slope
LATE = 3  # the last third of the descent
PROFILES = ((4, 5, 6), (9, 7, 5), (5, 9, 5), (6, 6, 12), (8, 4, 8), (12, 8, 6))  # hidden widths, repeated by depth
NORMS: dict[str, tuple[int, ...]] = {"none": (), "after first": (1,), "after last hidden": (3,), "every": (1, 2, 3)}


@dataclass(frozen=True)
class Sweeps:
    """Samples of a probe, widths and heads, steps of both descents, seeds; and which part of each topic is run."""

    samples: int = 600
    widths: tuple[int, ...] = (6, 10, 16)
    heads: tuple[int, ...] = (1, 2, 4)
    steps: int = 20_000
    diagonal: int = 8000
    seeds: int = 5
    every: int = 1


def probes(p: Sweeps) -> Iterator[Config]:
    """Every configuration of Tables 9 and 10."""

    def one(topic: str, options: dict[str, Any], ts: list[float] = USUAL, kind: str = "chain", **probe: Any) -> Config:
        probe = {"samples": p.samples, **probe}
        return {"check": "probe", "topic": topic, "kind": kind, "options": options, "ts": ts, "probe": probe}

    patterns = {
        "ones": lambda i: [1, 1, 1, 1],
        "layers": lambda i: [1, 2, 1, 2],
        "directions": lambda i: [1 + i, 1, 1, 2],
    }
    for width, deficit, name, pattern in product(p.widths, (1, 2, 3), ("linear", "relu", "gelu"), patterns):
        exponents = [patterns[pattern](i) for i in range(deficit)]
        for direction in range(deficit):
            chain = {"depth": 4, "width": width, "activation": name, "exponents": exponents}
            yield one("several directions", chain, direction=direction)
    for width, name in product(p.widths, NAMES):
        chain = {"depth": 4, "width": width, "activation": name}
        for seed in range(3):
            yield one("cross-entropy", chain, loss="ce", seed=seed, samples=min(p.samples, 300))
        for bias in (None, 1 if name in ("linear", "relu") else 2):
            yield one("biases", {**chain, "bias": bias})
        for angle in (0.1, 0.3, 1.0):
            yield one("rotation", {**chain, "rotation": angle}, SMALL)
        for place, norms in NORMS.items():
            if name != "relu" or place in ("none", "after last hidden"):  # a closed channel has no rate
                yield one("layer norm", {**chain, "norm_after": list(norms)}, SMALL)
        for skip in ([[2, 4]], [[1, 3]], [[0, 2]]):
            yield one("residual block", {**chain, "skips": skip})
        yield one("residual stream", {**chain, "skips": [[i, i + 1] for i in range(4)]}, SMALL)
    for profile, depth, name in product(PROFILES, (3, 4, 5), NAMES):
        widths = [profile[i % 3] for i in range(depth + 1)]
        yield one("rectangular", {"depth": depth, "widths": widths, "activation": name})
    for width, heads, blocks in product((8, 12, 16), p.heads, (2, 3)):
        attention = {"blocks": blocks, "tokens": 5, "width": width, "heads": heads}
        few = min(p.samples, 64)
        yield one("heads", attention, USUAL, "attention", samples=few)
        yield one("heads, stream", {**attention, "residual": True}, SMALL, "attention", samples=few)


def trials(p: Sweeps) -> list[Config]:
    seen: Counter[str] = Counter()
    out: list[Config] = []
    for config in probes(p):
        seen[config["topic"]] += 1
        out += [config] if seen[config["topic"]] % p.every == 1 % p.every else []
    out += [{"check": "floor", "eps": e, "depth": d, "steps": p.steps} for e in FLOORS for d in (2, 3)]
    drivers = ["sgd", *(f"eps {e:g}" for e in FLOORS)]
    out += [{"check": "reach", "driver": d, "steps": p.diagonal, "seed": s} for d in drivers for s in range(p.seeds)]
    return out


def trial(config: Config) -> list[Row]:
    if config["check"] == "probe":
        return rates.trial(config)
    if config["check"] == "floor":
        return [floor(config["eps"], config["depth"], config["steps"])]
    return [reach(config["driver"], config["steps"], config["seed"])]


def floor(eps: float, depth: int, steps: int, width: int = 4, lr: float = 1e-3, start: float = 0.3) -> Row:
    """Cell A at one ε and a fixed rate: how far t falls in the budget, and the late third's slope of λ_min(G_1)."""
    entries = torch.tensor([1.0] * (width - 1) + [start], dtype=f64)
    weights = [Parameter(torch.diag(entries)) for _ in range(depth)]
    target = torch.diag(torch.tensor([1.0] * (width - 1) + [0.0], dtype=f64))
    optimizer = optim.EpsFloor(weights, lr=lr, eps=eps)
    ts: list[float] = []
    lams: list[float] = []
    turned = 0.0
    looks = set(np.unique(np.geomspace(1, steps, 90).astype(int)).tolist())
    for i in range(1, steps + 1):
        product_: Tensor = weights[0]
        for w in weights[1:]:
            product_ = w @ product_
        gradient_step(optimizer, 0.5 * (product_ - target).square().sum())
        if i in looks:
            t, lam, off = _bridge.read([w.detach() for w in weights])
            if not 0 < t < (ts[-1] if ts else math.inf):
                break  # a step over zero, or a descent that has come to its end
            ts.append(t)
            lams.append(lam)
            turned = max(turned, off)
    late = slice(len(ts) - max(len(ts) // LATE, 3), None)
    span = math.log10(ts[0] / ts[-1]) if len(ts) > 3 else 0.0
    part = math.log10(ts[late][0] / ts[late][-1]) if len(ts) > 3 else 0.0
    fit = rate_fit(ts[late][::-1], lams[late][::-1], floor=0.0) if len(ts) > 3 and part > 0 else None
    return {
        "span": span,
        "late_span": part,
        "points": len(ts),
        "slope": fit.slope if fit is not None and math.isfinite(fit.slope) else None,
        "r2": fit.r2 if fit is not None and math.isfinite(fit.r2) else None,
        "turned": turned,
        "predicted": 2 * (depth - 1),
    }


def reach(driver: str, steps: int, seed: int, lr: float = 1e-3, start: float = 0.1) -> Row:
    """Cell B at one ε: how near inactive coordinates of a sparse diagonal network come to zero, and how many reach it.

    The rate is one for all ε below 1, and grows with it above, where the driver is SGD at that rate.
    """
    net = DiagonalNet(seed=seed)
    x, y = net.task()
    u, v = (Parameter(torch.full((net.width,), start, dtype=f64)) for _ in range(2))
    eps = float(driver.split()[1]) if driver != "sgd" else 0.0
    optimizer: torch.optim.Optimizer = torch.optim.SGD([u, v], lr=1e-2)
    if eps:
        optimizer = optim.EpsFloor([u, v], lr=lr * max(1.0, eps), eps=eps)
    generator = torch.Generator().manual_seed(seed + 1)
    for _ in range(steps):
        rows = torch.randint(0, len(x), (5,), generator=generator)
        gradient_step(optimizer, 0.5 * (net.outputs(torch.cat([u, v]), x[rows]) - y[rows]).square().mean())
    quiet = torch.stack([u.detach()[net.active :], v.detach()[net.active :]])
    return {
        "zeros": float((quiet == 0).double().mean()),
        "smallest": float(quiet.abs().min()),
        "median": float(quiet.abs().median()),
        "error": float((u * u - v * v - net.truth()).detach().norm()),
    }


def summary(rows: Sequence[Row]) -> Mapping[str, Any]:
    found = [r for r in rows if r["check"] == "probe" and r["predicted"] is not None and r["measured"] is not None]
    gaps = [abs(r["measured"] - r["predicted"]) for r in found]
    return {"exponents": len(gaps), "within 0.05": sum(g <= 0.05 for g in gaps), "largest gap": max(gaps)}


STUDIES = (
    Study(
        NAME,
        "dead-directions",
        "the ladder over widths, depths and heads; Adam's floor over eight decades",
        trials=trials,
        trial=trial,
        settled="the exponents lie apart by far more than the sample of small leaves open",
        summary=summary,
        scales={
            "smoke": Sweeps(samples=120, widths=(6,), heads=(1, 2), steps=500, diagonal=40, seeds=1, every=4),
            "small": Sweeps(),
            "paper": Sweeps(samples=20_000, widths=(6, 8, 10, 16, 32, 64), steps=200_000, diagonal=200_000, seeds=10),
        },
        unprinted="widths, start and rate of its diagonal networks in a text that kept them",
    ),
)
