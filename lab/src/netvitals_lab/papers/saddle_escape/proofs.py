"""What the proofs of Appendices C and E say beside their theorems: cones, shells, stages of several modes, rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from netvitals import saddle
from netvitals.activations import gauss_hermite
from netvitals.saddle.laws.chain import ScalarChain
from netvitals.saddle.students.network import Stack, normalized_rates, output
from netvitals.saddle.students.task import Sample, Teacher, aligned_sample, antithetic_sample
from netvitals.saddle.students.trajectories import descend, flow
from netvitals_lab import Config, Row, Study
from netvitals_lab.papers.saddle_escape import _row_modes as rows_of
from netvitals_lab.theory.saddle import perturbation
from netvitals_lab.theory.saddle.blocks import BlockChain
from netvitals_lab.theory.saddle.rows import row_moments
from netvitals_lab.theory.saddle.shells import exact_integral, integrand, shell_estimate, shell_sum
from netvitals_lab.theory.saddle.stages import printed_stage_integral, stage_forces, stage_integral, stage_law

NAME = "saddle-proofs"
BETAS, DEPTH, BLOCK, INPUTS = (1.0, 0.3, 0.08), 4, 20, 16  # of Figure 5
DIRECTION = (1.5, 1.2, 0.8, 0.9, 1.1)  # off the balanced ray


@dataclass(frozen=True)
class ProofSizes:
    """Nodes per mode, ε of starts with several modes, width where rows are followed, seeds of random starts."""

    nodes: int = 12
    eps: tuple[float, ...] = (0.1, 0.05)
    width: int = 12
    seeds: int = 3
    sample: int = 1024
    batch: int = 256


def trials(p: ProofSizes) -> list[Config]:
    cones = [("tanh", 4), ("tanh", 5), ("sin", 4), ("gelu", 4), ("silu", 5)]
    asked: list[Config] = [{"question": "cone", "activation": a, "depth": d} for a, d in cones]
    asked += [{"question": "shell", "eta": e} for e in (0.1, 0.01, 0.001, 0.0001)]
    asked += [{"question": "shell law", "r": r, "eps": e} for r in (1, 2, 3, 4) for e in (1e-2, 1e-3, 1e-4)]
    asked += [{"question": "forces", "mode": k, "rho": rho, "nodes": p.nodes} for k in (1, 2) for rho in (0.1, 0.05)]
    asked += [{"question": "stages", "start": "blocks", "eps": e, "nodes": p.nodes, "seed": 0} for e in p.eps]
    he = {"question": "stages", "start": "he", "eps": p.eps[0], "sample": p.sample}
    asked += [{**he, "seed": s} for s in range(p.seeds)]
    net: Config = {"activation": "tanh", "depth": DEPTH, "width": p.width}
    asked += [{"question": "rates", **net, "spread": s, "eps": e} for s in (0.0, 0.3) for e in (0.1, 0.05)]
    asked += [{"question": "residuals", **net, "eps": e} for e in (0.08, 0.04, 0.02)]
    starts = {"question": "rows", **net, "eps": 0.05, "batch": p.batch}
    asked += [{**starts, "spread": 0.0, "seed": 0}, *({**starts, "spread": 0.1, "seed": s} for s in range(p.seeds))]
    return asked


def trial(config: Config) -> list[Row]:
    asked = {"cone": cone, "shell": shell, "shell law": shell_law, "forces": forces, "stages": stages}
    asked |= {"rates": rows_of.rates_by_degree, "residuals": rows_of.residuals, "rows": rows}
    return [asked[config["question"]](config)]


# --------------------------------------------------------------------------------- Theorem 16: off the balanced ray


def cone(config: Config) -> Row:
    """Order at which X_1² − X_L², the invariant and its printed form drift, off the ray; and the same for U."""
    depth = config["depth"]
    chain = ScalarChain(config["activation"], 64)
    told = perturbation.expansion(config["activation"], depth, 64)
    x = torch.tensor([*DIRECTION[: depth - 1], 1.0], dtype=torch.float64)
    forms = {
        "gap": lambda z: z[..., 0] ** 2 - z[..., -1] ** 2,
        "invariant": told.invariant,
        "printed": lambda z: told.invariant(z, printed=True),
    }
    order = {
        k: float(perturbation.measured_order(_along(chain, f), x, (0.005, 0.01, 0.02))[0]) for k, f in forms.items()
    }
    u = lambda z: (z[..., -1] ** 2 + told.invariant(z)).sqrt()  # U_1; U_i = X_i for the others at this order

    def uneven(z: Tensor) -> Tensor:
        """How far U̇_1/Π_{m≠1}U_m is from U̇_L/Π_{m≠L}U_m, over their mean."""
        others = z[..., 1:-1].prod(-1)
        first = _along(chain, u)(z)[0] / (others * z[..., -1])
        last = chain.velocity(z)[..., -1] / (others * u(z))
        return ((first - last) / (first + last) * 2)[None]

    return {
        **order,
        "first order": depth + told.d.q - 1,
        "next order": min(depth + 2 * (told.d.q - 1), 2 * depth),
        "product form": float(perturbation.measured_order(uneven, x, (0.01, 0.02, 0.04))[0]),
        "shift of U": float(perturbation.measured_order(lambda z: (u(z) - z[..., 0])[None], x, (0.005, 0.01, 0.02))[0]),
        "q": told.d.q,
    }


def _along(chain: ScalarChain, form: Any) -> Any:
    def derivative(x: Tensor) -> Tensor:
        leaf = x.detach().clone().requires_grad_(True)
        (slope,) = torch.autograd.grad(form(leaf), leaf)
        return (slope * chain.velocity(x.detach())).sum()[None]

    return derivative


# ------------------------------------------------------------------------------------------ Lemma 19: inside shells


def shell(config: Config) -> Row:
    """Four scales a factor η apart: error of the estimate in the middle of every shell, at an edge, in the integral."""
    eta = config["eta"]
    s = [eta ** (3 - k) for k in range(4)]
    at = lambda y: float(integrand(y, s)) / shell_estimate(y, s) - 1
    return {
        "middle": [abs(at(a * b)) for a, b in pairwise(s)],
        "edge": abs(at(s[1] ** 2)),
        "integral": exact_integral(s) / shell_sum(s) - 1,
    }


def shell_law(config: Config) -> Row:
    """r scales at ε, the others at 0.8: the whole integral over that of shell r."""
    r, eps = config["r"], config["eps"]
    rest = 0.8 ** (6 - r)
    power = {1: 2 * (0.8 - eps), 2: 2 * math.log(0.8 / eps)}
    lead = power[r] if r < 3 else 2 / (r - 2) * eps ** (2 - r)
    return {"over shell": exact_integral([eps] * r + [0.8] * (6 - r)) / (lead / rest)}


# -------------------------------------------------------------------------------- Section E.6: stages of several modes


def forces(config: Config) -> Row:
    """F_k, H_k and ρ_op of a network whose first modes are fitted, beside the fastest velocity of that state."""
    chain = BlockChain("tanh", BETAS, DEPTH, BLOCK, nodes=config["nodes"])
    found = stage_forces(chain, config["mode"], config["rho"])
    times = {name: float(f(DEPTH, 3.0)) for name, f in (("law", stage_integral), ("ode", printed_stage_integral))}
    alone = saddle.reduced_flow([0.0] + [config["rho"] / 5] * 3, "tanh", 1, threshold=3 * config["rho"] / 5, keep=False)
    law = stage_law("tanh", DEPTH, 1, [1.0], [config["rho"] / 5], theta=3.0)
    return {
        "forcing over law": found.forcing / found.forcing_law,
        "drag over law": found.drag / found.drag_law,
        "rho of the forcing": found.rho,
        "fastest": found.fastest,
        "forcing": found.forcing,
        "chain over (53)": float(alone.escape_t) / law.times[0],
        "chain over (65)": float(alone.escape_t) / (law.times[0] * times["ode"] / times["law"]),
    }


def stages(config: Config) -> Row:
    """When E[f z_k] reaches half of its end value, for each of three modes, in a whole network.

    From blocks also when a block's own amplitude reaches three times ε, which is the event of the stage law.
    """
    if config["start"] == "blocks":
        task, sample, weights, rates = _blocks(config)
    else:
        task = saddle.teacher("tanh", INPUTS, BETAS)
        sample = antithetic_sample(config["sample"], INPUTS, seed=config["seed"])
        sizes = {"small": DEPTH, "eps": config["eps"], "seeds": [config["seed"]], "dtype": torch.float64}
        weights, rates = saddle.he_stack(DEPTH, 3 * BLOCK, INPUTS, **sizes), None
    z = sample.x @ task.directions.T
    ends = (task.target(sample.x) * z * sample.weight[:, None]).sum(0)

    def margins(w: Stack) -> Tensor:
        f = output(w, sample.x, task.f)[..., 0]
        signal = torch.einsum("cn,nk,n->ck", f, z, sample.weight) / (ends / 2) - 1
        if config["start"] != "blocks":
            return signal
        own = (w[0] @ task.directions.T).unflatten(1, (3, BLOCK)).mean(2).diagonal(dim1=1, dim2=2)
        return torch.cat([signal, own / (3 * config["eps"]) - 1], 1)

    law = stage_law("tanh", DEPTH, BLOCK, BETAS, [config["eps"]] * 3)
    options: dict[str, Any] = {"rates": rates, "rtol": 1e-6, "s_max": BLOCK * law.times[0]}  # twice what it takes
    run = flow(weights, task, sample, thresholds=(), events=margins, max_steps=400, **options)
    found = [t if np.isfinite(t) else None for t in run.escape[0].tolist()]
    return {"times": found[:3], "own": found[3:], "law": [BLOCK * t for t in law.times], "status": run.status[0]}


def _blocks(config: Config) -> tuple[Teacher, Sample, Stack, list[float]]:
    chain = BlockChain("tanh", BETAS, DEPTH, BLOCK, nodes=config["nodes"])
    task = saddle.teacher("tanh", INPUTS, BETAS)
    z, w = gauss_hermite(config["nodes"], dim=3)
    keep = w > 1e-14
    sample = Sample(z[keep] @ task.directions, w[keep] / w[keep].sum())
    return task, sample, chain.embed(chain.aligned(config["eps"]), task.directions), normalized_rates(DEPTH, BLOCK)


# -------------------------------------------------------------------------- Theorem 25, Corollary 26: rows of a network


def rows(config: Config) -> Row:
    """Spread of the first layer's rows over their mean, at the start and at the escape; by flow and by SGD."""
    n, eps, spread = config["width"], config["eps"], config["spread"]
    task = saddle.teacher("tanh", 4)
    v = task.directions[0]
    start = rows_of.symmetric_start(eps, config["depth"], n, 4, spread, config["seed"])
    rates = normalized_rates(config["depth"], n)
    run = flow(start, task, aligned_sample(v, 24), thresholds=(task.baseline / 2,), rates=rates, rtol=1e-7)
    relative = lambda w: float((row_moments(w[0], v).spread / row_moments(w[0], v).mean)[0, 0])
    steps = 300
    noisy = descend(start, task, lr=0.05, steps=steps, batch=config["batch"], rates=rates, thresholds=())
    random = saddle.he_stack(config["depth"], n, 4, small=4, eps=0.2, seeds=[config["seed"]], dtype=torch.float64)
    drawn = flow(random, task, aligned_sample(v, 24), thresholds=(task.baseline / 2,))
    return {
        "start": relative(start),
        "escape": relative(run.weights()),
        "after SGD": relative(noisy.weights),
        "kept by means, He": float(row_moments(random[0], v).mean_share[0, 0]),
        "kept at its escape": float(row_moments(drawn.weights()[0], v).mean_share[0, 0]),
    }


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    told = {
        f"{r['activation']}, depth {r['depth']}: order of the invariant": r["invariant"]
        for r in rows
        if "invariant" in r
    }
    times = {f"t2/t1, t3/t1 from {r['start']}, ε = {r['eps']}": _ratios(r) for r in rows if r["question"] == "stages"}
    return {**told, **times}


def _ratios(row: Row) -> str:
    t = np.array(row["times"])
    return ", ".join(f"{x:.4f}" for x in t[1:] / t[0])


STUDIES = (
    Study(
        name=NAME,
        paper="saddle-escape",
        title="Cones, shells, stages of several modes, rows: what the proofs say, measured",
        scales={
            "smoke": ProofSizes(nodes=8, eps=(0.15,), seeds=1, sample=256),
            "small": ProofSizes(),
            "paper": ProofSizes(20, (0.1, 0.05, 0.025), 24, seeds=10, sample=8192, batch=4096),
        },
        trials=trials,
        settled="the theorems name no sizes beyond Figure 5's, which are used",
        trial=trial,
        summary=summary,
    ),
)
