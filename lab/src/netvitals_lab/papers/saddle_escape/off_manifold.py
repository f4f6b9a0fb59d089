"""Off the symmetric manifold: chains, brackets of the escape time and its prefactor, along the flow of whole networks.

One trial integrates the flow of several seeds at one ε and asks everything of the same trajectories.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from netvitals import saddle
from netvitals.saddle.measure.chains import chains, linear_escape
from netvitals.saddle.measure.signal import comparison, exit_time, signal_margins, stack_signal
from netvitals.saddle.students.network import Stack, ansatz_stack, losses, normalized_rates
from netvitals.saddle.students.task import Sample, Teacher, aligned_sample
from netvitals.saddle.students.trajectories import FlowRun, flow
from netvitals_lab import Config, Row, Study

NAME = "saddle-off-manifold"
ACTIVATION = "tanh"


@dataclass(frozen=True)
class OffManifoldSizes:
    """Networks at He initialisation with r small layers first; ``level`` is m0, where the bootstrap interval ends."""

    depth: int = 5
    width: int = 32
    inputs: int = 8
    necks: tuple[int, ...] = (3, 4)
    eps: tuple[float, ...] = (0.03, 0.01, 0.003)
    seeds: int = 6
    draws: int = 2000
    level: float = 0.3
    nodes: int = 24


def trials(p: OffManifoldSizes) -> list[Config]:
    sizes: Config = {"depth": p.depth, "width": p.width, "inputs": p.inputs}
    start = [{"question": "start", **sizes, "draws": p.draws, "r": p.necks[0]}]
    way = {"question": "way", **sizes, "nodes": p.nodes, "level": p.level, "seeds": list(range(p.seeds))}
    manifold = {"question": "manifold", **sizes, "nodes": p.nodes, "eps": 1e-3}
    return [
        *start,
        *({**way, "r": r, "eps": e} for r in p.necks for e in p.eps),
        *({**manifold, "r": r, "flow": f} for r in p.necks for f in ("uniform", "normalized")),
    ]


def trial(config: Config) -> list[Row]:
    return {"start": start, "way": way, "manifold": manifold}[config["question"]](config)


def start(config: Config) -> list[Row]:
    """Appendix D at the start: the weakest chain of every draw, at two ε."""
    task = saddle.teacher(ACTIVATION, config["inputs"])
    draw = lambda eps: chains(_stack(config, eps, range(config["draws"])), task.directions[0])
    found, other = draw(0.01), draw(0.1)
    least, signed = found.least.numpy(), found.signed.abs().numpy()
    middle, path = float(np.median(least)), float(np.median(signed))
    return [
        {
            "least": float(least.min()),
            "lowest twentieth": float(np.quantile(least, 0.05)),
            "median": middle,
            "below half": float((least < middle / 2).mean()),
            "below quarter": float((least < middle / 4).mean()),
            "path below half": float((signed < path / 2).mean()),
            "largest": float(torch.cat([found.forward, found.backward], 1).max()),
            "change with eps": float((found.least / other.least - 1).abs().max()),
        }
    ]


def manifold(config: Config) -> list[Row]:
    """The prefactor on the manifold, with equal gains of the small layers, in the metric of the flow."""
    task = saddle.teacher(ACTIVATION, config["inputs"])
    v, r, eps, level = task.directions[0], config["r"], config["eps"], 0.02
    depth, width = config["depth"], config["width"]
    uniform = config["flow"] == "uniform"
    scales = [eps] * r + [0.8] * (depth - r)
    # the gain of the first layer is √N X_1: equal gains are not equal scales under uniform flow
    scales[0] = eps / width**0.5 if uniform else eps
    weights = ansatz_stack(torch.tensor(scales, dtype=torch.float64), width, v)
    d = saddle.drive(ACTIVATION, depth, width)
    plain = d.h * d.slope ** (depth - 1)  # without N; in the clock s
    k = (plain if uniform else plain / width**0.5) * 0.8 ** (depth - r)
    last = lambda w: (torch.linalg.matrix_norm(w[1], 2).log() - np.log(level))[:, None]
    rates = None if uniform else normalized_rates(depth, width)
    run = flow(weights, task, aligned_sample(v, config["nodes"]), thresholds=(), events=last, rates=rates, rtol=1e-8)
    seen = stack_signal(weights, task, aligned_sample(v, config["nodes"]), r)
    rate = torch.tensor(rates or [1.0] * depth, dtype=torch.float64)
    mass = (rate * seen.layer_energy[0].square())[:r]  # of γ̇: rate-weighted
    return [
        {
            "time over law": float(run.escape[0, 0]) / exit_time(eps, k, r, level),
            "am over gm": float(mass.mean() / mass.log().mean().exp()),
            "width root": width**0.5,
        }
    ]


def way(config: Config) -> list[Row]:
    """Chains, bounds and prefactor from W(0) to the escape, one row a seed."""
    task, r, level = saddle.teacher(ACTIVATION, config["inputs"]), config["r"], config["level"]
    v = task.directions[0]
    sample = aligned_sample(v, config["nodes"])
    weights = _stack(config, config["eps"], config["seeds"])
    d = saddle.drive(ACTIVATION, config["depth"], config["width"])
    drive = d.h * d.slope ** (config["depth"] - 1)
    half = task.baseline / 2
    events = signal_margins(task, sample, r, gammas=(d.h / 2,), scales=(level,))
    run = flow(weights, task, sample, thresholds=(half,), keep=True, events=events, rtol=1e-6)
    told = _told(run, task, sample, r)
    above = torch.stack([torch.linalg.matrix_norm(w, 2) for w in weights[r:]])
    growth = drive * (above.prod(0) if len(above) else torch.ones(len(weights[0]), dtype=torch.float64))
    linear = linear_escape(weights, v, r, strength=drive)
    rows = []
    for i, seed in enumerate(config["seeds"]):
        inside = told["scale"][:, i] <= level
        on = {name: value[inside, i].numpy() for name, value in told.items()}
        bound = comparison(float(on["scale"][0]), float(growth[i]), r, on["s"])
        fed = on["gamma"] > 0
        feed = on["gamma_dot"][fed] / on["gamma"][fed] ** (2 - 2 / r)
        rows.append(
            {
                "seed": seed,
                "positive": bool(on["gamma"][0] > 0),
                "least at start": on["least"][0],
                "least on the way": on["least"].min(),
                "least at the end": on["least"][-1],
                "path at start": on["signed"][0],
                "path at the end": on["signed"][-1],
                "loss time": run.escape[i, 0],
                "gamma time": run.escape[i, 1],
                "scale time": run.escape[i, 2],
                "scale over bound": (on["scale"] / bound).max(),
                "lower": exit_time(float(on["scale"][0]), float(growth[i]), r, level),
                "feed": feed.min(),
                "gamma at start": on["gamma"][0],
                "least drive ratio": on["drive"].min(),
                "loss fall over M^r": ((task.baseline - on["loss"]) / on["scale"] ** r).max(),
                "am over gm": on["am over gm"].max(),
                "energy over signal": on["energy over signal"][0],
                "at the end": on["energy over signal"][-1],
                "linear time": float(linear[i]),
            }
        )
    return [{k: v if isinstance(v, bool | int) else float(v) for k, v in row.items()} for row in rows]


def _stack(config: Config, eps: float, seeds: Sequence[int]) -> Stack:
    sizes = config["depth"], config["width"], config["inputs"]
    return saddle.he_stack(*sizes, small=config["r"], eps=eps, seeds=seeds, dtype=torch.float64)


def _told(run: FlowRun, task: Teacher, sample: Sample, r: int) -> dict[str, Tensor]:
    """(steps, copies) of all that is asked along the way."""
    seen: dict[str, list[Tensor]] = {}
    y = task.target(sample.x)
    for step in range(run.paths.t.shape[0]):
        now = run.weights(step)
        s, c = stack_signal(now, task, sample, r), chains(now, task.directions[0])
        mass = s.layer_energy[:, :r].square()
        parts = {
            "s": run.paths.t[step],
            "scale": s.scale,
            "gamma": s.gamma,
            "gamma_dot": s.gamma_dot,
            "drive": s.drive_ratio,
            "energy over signal": s.am_gm,
            "am over gm": mass.mean(1) / mass.log().mean(1).exp(),
            "least": c.least,
            "signed": c.signed,
            "loss": losses(now, sample.x, y, task.f, sample.weight),
        }
        for name, value in parts.items():
            seen.setdefault(name, []).append(value)
    return {name: torch.stack(values) for name, values in seen.items()}


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    last = [r for r in rows if r["question"] == "way"]
    smallest = min(r["eps"] for r in last)
    return {
        f"r = {r['r']}, seed {r['seed']}: time over the linear path's": r["loss time"] / r["linear time"]
        for r in last
        if r["eps"] == smallest
    }


STUDIES = (
    Study(
        name=NAME,
        paper="saddle-escape",
        title="Off the manifold: do chains and brackets hold along the way, and what sets the prefactor?",
        scales={
            "smoke": OffManifoldSizes(width=16, inputs=6, necks=(3,), eps=(0.03, 0.003), seeds=3, draws=400),
            "small": OffManifoldSizes(),
            "paper": OffManifoldSizes(8, 128, 16, (3, 5, 8), seeds=20, draws=10_000),
        },
        trials=trials,
        settled="proofs name no sizes; the flow of whole networks is integrated, with exact means along the teacher",
        trial=trial,
        summary=summary,
    ),
)
