"""The study of hidden-state models: orders, λ, m and ν of hidden Markov models and Boltzmann machines.

All answers are known by hand (``netvitals.singular.networks.latent``); everything is measured from probabilities of
finite observations, without an approximation but the sampling of data sets and of volumes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from netvitals import singular
from netvitals.singular.laws.fluctuation import nu_data_free
from netvitals.singular.laws.volume import eps_scan_volume
from netvitals.singular.networks import latent, zoo
from netvitals_lab import Config, Row, Study

f64 = torch.float64
NAME = "dead-directions-latent"
SHARE, MEMORY = 0.3, 0.5
VOLUMES = {  # λ and m, by hand; the range of ε in which the leading term leads
    "hidden Markov, mean and split": (0.75, 1, (1e-8, 1e-3)),
    "hidden Markov, split and memory": (0.25, 1, (1e-16, 1e-10)),
    "hidden Markov, split and first state": (0.5, 2, (1e-8, 1e-3)),
    "Boltzmann, 2 visible": (*latent.Boltzmann(2).known, (1e-8, 1e-3)),
    "Boltzmann, 3 visible": (*latent.Boltzmann(3).known, (1e-8, 1e-3)),
    "Boltzmann, 4 visible": (*latent.Boltzmann(4).known, (1e-8, 1e-3)),
}
LENGTHS = (2, 3, 4)


@dataclass(frozen=True)
class Latent:
    """Draws of a volume, data sets of a fluctuation, and their observations; seeds of both."""

    draws: int = 1_000_000
    data_sets: int = 4000
    n: int = 1_000_000
    seeds: int = 3


def trials(p: Latent) -> list[Config]:
    out: list[Config] = [{"check": "order", "model": s.name} for s in latent.specimens()]
    out += [{"check": "volume", "model": m, "draws": p.draws, "seed": s} for m in VOLUMES for s in range(p.seeds)]
    out += [
        {"check": "fluctuation", "length": t, "mean": mean, "data_sets": p.data_sets // (8 if mean else 1), "n": p.n}
        | {"seed": seed}
        for t in LENGTHS
        for mean in (False, True)
        for seed in range(p.seeds)
    ]
    return out


def trial(config: Config) -> list[Row]:
    if config["check"] == "order":
        return [order(config["model"])]
    if config["check"] == "volume":
        return [volume(config["model"], config["draws"], config["seed"])]
    return [fluctuation(config["length"], config["mean"], config["data_sets"], config["n"], config["seed"])]


def order(model: str) -> Row:
    """Order, Fisher–KL ratio, and λ, m, ν of the neighbourhood where it has a form that can be read."""
    specimen = next(s for s in latent.specimens() if s.name == model)
    found = zoo.examine(specimen)
    row: Row = {"order": specimen.order, "found": found.order, "estimate": found.estimate, "ratio": found.ratio}
    row |= {"lam": specimen.lam, "m": specimen.m, "lam_found": found.lam, "m_found": found.m}
    return {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()}


def volume(model: str, draws: int, seed: int) -> Row:
    """λ and m from the volume of {K < ε}."""
    lam, m, eps = VOLUMES[model]
    visible = int(model.split()[1]) if model.startswith("Boltzmann") else 0
    logp: Callable[[Tensor], Tensor] = latent.Boltzmann(visible).outputs if visible else _markov(model)
    dim, radius = visible or 2, 1.0 if visible else 0.3
    truth = logp(torch.zeros(1, dim, dtype=f64))[0]

    def kl(x: Tensor) -> Tensor:
        d = logp(x) - truth
        return (truth.exp() * (torch.expm1(d) - d)).sum(-1).clamp_min(0)  # the sum of p is 1: no cancellation is left

    found = eps_scan_volume(kl, dim, radius=radius, draws=draws, eps=eps, seed=seed)
    return {"lam": lam, "m": m, "lam_found": found.lam, "stderr": found.lam_stderr, "m_found": found.m}


def _markov(model: str) -> Callable[[Tensor], Tensor]:
    """A plane of the hidden Markov model's parameters."""
    chain = latent.HiddenMarkov(length=2 if "first" in model else 3, start="first" in model)

    def logp(x: Tensor) -> Tensor:
        a, b = x[:, 0], x[:, 1]
        nothing, share, memory = torch.zeros_like(a), torch.full_like(a, SHARE), torch.full_like(a, MEMORY)
        if "mean" in model:
            return chain.outputs(torch.stack([a, b, share, memory], 1))
        if "memory" in model:
            return chain.outputs(torch.stack([nothing, a, share, b], 1))
        return chain.outputs(torch.stack([nothing, a, share, memory, b], 1))

    return logp


def fluctuation(length: int, mean: bool, data_sets: int, n: int, seed: int) -> Row:
    """ν from the functional variance over data sets, the posterior of the split (and of the mean) summed on a grid."""
    chain = latent.HiddenMarkov(length)
    pairs = sum((length - d) * MEMORY ** (2 * d) for d in range(1, length))
    variance = chain.truth * (1 - chain.truth)
    constant = (SHARE * (1 - SHARE)) ** 2 * pairs / (2 * variance**2)  # K = C δ⁴
    reach = 3.2 * (1 / (n * constant)) ** 0.25
    split = torch.linspace(-reach, reach, 201 if mean else 401, dtype=f64)
    wide = 6 * math.sqrt(variance / (n * length))
    shift = torch.linspace(-wide, wide, 61, dtype=f64) if mean else torch.zeros(1, dtype=f64)
    m, s = (v.flatten() for v in torch.meshgrid(shift, split, indexing="ij"))
    theta = torch.stack([m, s, torch.full_like(s, SHARE), torch.full_like(s, MEMORY)], 1)
    logp = chain.outputs(theta)
    truth = chain.outputs(torch.tensor([0.0, 0, SHARE, MEMORY], dtype=f64))[0]
    ratio = logp - truth
    rng = np.random.default_rng(seed)
    halves, edges = [], []
    exact = truth.exp().numpy()
    for _ in range(math.ceil(data_sets / 100)):
        counts = torch.from_numpy(rng.multinomial(n, exact / exact.sum(), size=100)).double()
        posterior = torch.softmax(counts @ ratio.T, 1)
        first, second = posterior @ ratio, posterior @ ratio.square()
        halves.append((counts * (second - first.square())).sum(1) / 2)
        ends = posterior.reshape(100, len(shift), len(split))
        edges.append(float(torch.maximum(ends[..., 0].sum(1), ends[..., -1].sum(1)).max()))
    values = torch.cat(halves)
    extra = 0.5 if mean else 0.0
    return {
        "nu": float(values.mean()),
        "stderr": float(values.std() / math.sqrt(len(values))),
        "wanted": singular.nu(2) + extra,
        "data_free": nu_data_free(2) + extra,
        "edge": max(edges),
    }


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    volumes = [r for r in rows if r["check"] == "volume"]
    return {
        "orders found": f"{sum(r['order'] == r['found'] for r in rows if r['check'] == 'order')} of "
        f"{sum(r['check'] == 'order' for r in rows)}",
        "largest gap of λ": max(abs(r["lam"] - r["lam_found"]) for r in volumes),
    }


STUDIES = (
    Study(
        NAME,
        "dead-directions",
        "hidden Markov models and Boltzmann machines: orders, λ, m and ν where the answers are known",
        trials=trials,
        settled="the paper names these families without an experiment; their answers follow by hand",
        trial=trial,
        summary=summary,
        scales={
            "smoke": Latent(draws=50_000, data_sets=400, seeds=1),
            "small": Latent(),
            "paper": Latent(draws=4_000_000, data_sets=40_000, seeds=10),
        },
    ),
)
