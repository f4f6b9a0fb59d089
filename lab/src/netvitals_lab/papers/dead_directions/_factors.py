"""Checks of K-FAC factors that are not exponents: constants, kernels, lifts, crossovers."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from netvitals import singular
from netvitals.singular.checkpoint.attention import value_output
from netvitals.singular.checkpoint.layernorm import ln_finite_t, ln_kernel_test
from netvitals.singular.checkpoint.stream import sigma_stream
from netvitals.singular.laws.crossover import rotation_crossover
from netvitals.singular.moments import factors
from netvitals.singular.moments.factors import Factor, kronecker_lift
from netvitals.singular.moments.schur import schur_profile, schur_ratios
from netvitals.singular.networks.architecture import Chain
from netvitals.singular.networks.ladders import freeze_probe
from netvitals.singular.orders import cross_entropy
from netvitals.singular.orders.fibre import quotient_fisher, vertical
from netvitals_lab import Row, models

f64 = torch.float64


def schur_constant(samples: int, seed: int) -> list[Row]:
    """c_h of ReLU against Monte Carlo (Lemma 18)."""
    rows: list[Row] = []
    for h in (2, 4, 8, 16, 32, 64):
        gen = torch.Generator().manual_seed(seed + h)
        drawn = samples * max(1, 32 // h)  # the constant of a narrow layer is the hardest to measure
        x = torch.relu(torch.randn(drawn, h, generator=gen, dtype=f64))
        measured = 1 - float(schur_ratios(x).mean())  # every unit is one draw of the same constant
        rows.append({"width": h, "drawn": drawn, "measured": measured, "predicted": factors.schur_constant(h)})
    return rows


def off_diagonals(samples: int, seed: int) -> list[Row]:
    """Dead–live correlation in G is sampling noise (X3), of order N^(−1/2)."""
    rows: list[Row] = []
    for n in (samples, 16 * samples):
        gen = torch.Generator().manual_seed(seed)
        chain = Chain(depth=3)
        x = torch.randn(n, 8, generator=gen, dtype=f64)
        trace = chain.trace(0.05, x)
        target = chain.trace(0.0, x).output.detach() + torch.randn(n, 8, generator=gen, dtype=f64)
        deltas = torch.autograd.grad(0.5 * (trace.output - target).square().sum(), trace.preactivations)
        for name, d in zip(trace.names, deltas):
            g = d.T @ d / n
            live = torch.sqrt(g.diagonal()[:-1] * g[-1, -1])
            rows.append({"samples": n, "layer": name, "correlation": float((g[-1, :-1] / live).abs().max())})
    return rows


def lift(samples: int, seed: int) -> list[Row]:
    """The lift: bottom eigenvector of A ⊗ G; alone it is a gauge direction; the joint mode of L layers has k = L."""
    gen = torch.Generator().manual_seed(seed)
    a, g = (torch.randn(5, 5, generator=gen, dtype=f64) for _ in range(2))
    a, g = a @ a.T, g @ g.T
    empty = torch.empty(0, dtype=f64)
    matrix, value = kronecker_lift(Factor(A=a, G=g, A_spectrum=empty, G_spectrum=empty, positions=1))
    spectrum = torch.linalg.eigh(torch.kron(g, a))
    overlap = float((spectrum.eigenvectors[:, 0] @ matrix.flatten()).abs())
    rows: list[Row] = [{"what": "lift", "overlap": overlap, "ratio": value / float(spectrum.eigenvalues[0])}]
    x = torch.randn(min(samples, 400), 4, generator=gen, dtype=f64)
    for depth in (2, 3, 4):

        def outputs(theta: Tensor, depth: int = depth) -> Tensor:
            h = x
            for w in theta.reshape(depth, 4, 4):
                h = h @ w.T
            return h

        start = torch.diag(torch.tensor([1.0, 1, 1, 0], dtype=f64)).repeat(depth, 1, 1)
        dead = torch.zeros(depth, 4, 4, dtype=f64)
        dead[:, 3, 3] = 1
        joint = singular.gauge_or_singular(outputs, start.flatten(), dead.flatten())
        alone = dead.clone()
        alone[1:] = 0
        single = singular.gauge_or_singular(outputs, start.flatten(), alone.flatten())
        rows.append({"what": "joint mode", "depth": depth, "order": joint.order, "single": single.verdict})
    return rows


def two_layers(samples: int, seed: int) -> list[Row]:
    """λ_min(G_1) = φ'(0)²σ²t² at the optimum, ½σ²t² for ReLU (§9.5, Table 5); any widths for linear nets."""
    known = {"linear": 1.0, "gelu": 0.25, "tanh": 1.0, "sigmoid-shifted": 1 / 16, "relu": 0.5}
    rows: list[Row] = []
    for name, constant in known.items():
        found = freeze_probe(Chain(depth=2, activation=name), (1e-3, 2e-3, 4e-3), examples=10 * samples, seed=seed)
        rows.append(
            {
                "activation": name,
                "coefficient": float(found.values["layer1"][0]) / 1e-6,
                "predicted": constant,
                "slope": found.G["layer1"].slope,
            }
        )
    gen = torch.Generator().manual_seed(seed)
    second = torch.randn(7, 3, generator=gen, dtype=f64)
    noise = torch.randn(100 * samples, 7, generator=gen, dtype=f64)
    g = (noise @ second).T @ (noise @ second) / len(noise)
    exact = torch.linalg.svdvals(second).square().flip(0)
    gap = float((torch.linalg.eigvalsh(g) / exact - 1).abs().max())
    return [*rows, {"activation": "linear 3 → 7", "coefficient": 1 + gap, "predicted": 1.0, "slope": 2.0}]


def norm_kernels(samples: int, seed: int) -> list[Row]:
    """LayerNorm models pass the kernel test, RMSNorm models fail it (Proposition 63)."""
    rows: list[Row] = []
    gen = torch.Generator().manual_seed(seed)
    for norm in ("layer", "rms"):
        for name in ("gpt-micro,depth=2,width=32,heads=2", "vit-mini,depth=2"):
            model = models.build(f"{name},norm={norm}", seed=seed)
            x = (
                torch.randint(0, 256, (16, 32), generator=gen)
                if "gpt" in name
                else torch.randn(32, 1, 8, 8, generator=gen)
            )
            with torch.no_grad():
                for m in model.modules():
                    if isinstance(m, nn.LayerNorm | nn.RMSNorm) and m.weight is not None:
                        m.weight.mul_(torch.exp(0.3 * torch.randn(m.weight.shape, generator=gen)))
            rows += [
                {
                    "norm": norm,
                    "model": name.split(",")[0],
                    "site": t.norm,
                    "overlap": t.overlap,
                    "variance": t.variance,
                    "passes": t.passes,
                }
                for t in ln_kernel_test(model, x)
            ]
    return rows


def finite_t(samples: int, seed: int) -> list[Row]:
    """E[z_h²] behind a LayerNorm against the expansion, with and without the terms the paper drops (erratum E9)."""
    rows: list[Row] = []
    for d in (8, 16, 64):
        gen = torch.Generator().manual_seed(seed + d)
        law = ln_finite_t(d)
        t = 0.1
        total = square = 0.0
        count = 0
        for _ in range(20):
            x = torch.randn(20 * samples, d, generator=gen, dtype=f64)
            x[:, -1] *= t
            centred = x - x.mean(1, keepdim=True)
            z2 = centred[:, -1].square() / centred.square().mean(1)
            total, square, count = total + float(z2.sum()), square + float(z2.square().sum()), count + len(z2)
        mean = total / count
        rows.append(
            {
                "width": d,
                "t": t,
                "measured": mean,
                "stderr": math.sqrt((square / count - mean**2) / count),
                "predicted": float(law.fisher(t)) / 4 / t**2,
                "printed": float(law.fisher(t, printed=True)) / 4 / t**2,
                "kappa2": law.kappa2,
                "kappa4": law.kappa4,
                "kappa4_printed": law.kappa4_printed,
            }
        )
    return rows


def crossover(samples: int, seed: int) -> list[Row]:
    """t_× against the angle of a rotation (Corollary 120, a model)."""
    return [
        {
            "activation": name,
            "layer": c.layer,
            "predicted": c.predicted,
            "measured": c.fit.slope,
            "stderr": c.fit.stderr,
            "angles": list(c.angles),
            "crossings": list(c.crossings),
        }
        for name in ("relu", "gelu")
        for c in rotation_crossover(Chain(depth=4, activation=name), examples=min(samples, 1000), seed=seed)
    ]


def quotient(samples: int, seed: int) -> list[Row]:
    """λ(F̄) = L t^{2(L−1)} of the scalar chain on the quotient (Corollary 27)."""
    rows: list[Row] = []
    for depth in (2, 3, 4, 5):

        def act(c: Tensor, theta: Tensor) -> Tensor:
            padded = torch.cat([torch.zeros(1, dtype=f64), c, torch.zeros(1, dtype=f64)])
            return theta * torch.exp(padded.diff())

        ts = np.geomspace(1e-3, 1e-1, 6)
        values = []
        for t in ts:
            theta = torch.full((depth,), float(t), dtype=f64)
            found = quotient_fisher(lambda th: th.prod().reshape(1, 1), theta, vertical(act, theta, depth - 1))
            values.append(float(found.spectrum[0]))
        fit = singular.rate_fit(ts, values)
        rows.append({"depth": depth, "slope": fit.slope, "coefficient": fit.coefficient})
    return rows


def softmax_head(samples: int, seed: int) -> list[Row]:
    """The kernel of the head's G is the logit shift and nothing else; in linear chains each layer has its pull-back."""
    gen = torch.Generator().manual_seed(seed)
    rows: list[Row] = []
    for activation in ("linear", "tanh"):
        net = nn.Sequential(
            nn.Linear(6, 6, bias=False),
            nn.Identity() if activation == "linear" else nn.Tanh(),
            nn.Linear(6, 6, bias=False),
        ).double()
        with torch.no_grad():
            for p in net.parameters():
                p.copy_(torch.randn(p.shape, generator=gen, dtype=f64) / 2)
        found = singular.kfac(net, "ce", torch.randn(samples, 6, generator=gen, dtype=f64))
        for layer in ("0", "2"):
            values, vectors = torch.linalg.eigh(found[layer].G)
            ones = torch.ones(6, dtype=f64) / math.sqrt(6)
            rows.append(
                {
                    "activation": activation,
                    "layer": layer,
                    "smallest": float(values[0] / values[-1]),
                    "second": float(values[1] / values[-1]),
                    "overlap": float((vectors[:, 0] @ ones).abs()),
                }
            )
    return rows


def memorisation(samples: int, seed: int) -> list[Row]:
    """Per-sample bounds and the contrast of the two Fishers as labels are memorised (Corollary 39)."""
    gen = torch.Generator().manual_seed(seed)
    logits, labels = torch.randn(samples, 8, generator=gen), torch.randint(0, 8, (samples,), generator=gen)
    rows: list[Row] = []
    for level in (0.0, 2.0, 4.0, 8.0, 12.0):
        found = cross_entropy.softmax_head(logits + level * F.one_hot(labels, 8), labels)
        rows.append(
            {
                "level": level,
                "epsilon": found.epsilon,
                "contrast": found.contrast,
                "c0": found.c0,
                "bounds": found.bounds_hold,
            }
        )
    return rows


def trained_nets(samples: int, seed: int) -> list[Row]:
    """X31 on small networks trained here: the stream's floor over depth, V–O, and Schur ratios before and after."""
    from netvitals_lab import data
    from netvitals_lab.training import Recipe, train

    digits = data.load("digits")
    rows: list[Row] = []
    model = models.build("mlp:64-64x2-10", seed=seed)
    start = {p.layer: p.median for p in schur_profile(model, digits.train.x.flatten(1), references=0)}
    train(model, digits, Recipe(steps=20 + samples // 2, batch=64, lr=0.05, evaluate_on=0, seed=seed))
    rows += [
        {"what": "schur", "site": p.layer, "before": start[p.layer], "after": p.median}
        for p in schur_profile(model, digits.train.x.flatten(1), references=0)
    ]
    vit = models.build("vit-mini,depth=4", data=digits, seed=seed)
    train(vit, digits, Recipe(steps=10 + samples // 20, batch=64, optimizer="adamw", lr=1e-3, evaluate_on=0, seed=seed))
    stream = sigma_stream(vit, digits.test.x[:64])
    rows += [
        {"what": "stream", "site": n, "ratio": r, "sigma": s, "largest": top}
        for n, r, s, top in zip(stream.nodes, stream.ratio, stream.sigma, stream.largest)
    ]
    rows += [
        {"what": "value minus output", "site": f"{a.layer} {a.head}", "difference": a.difference}
        for a in value_output(vit, "ce", (digits.test.x[:16], digits.test.y[:16]))
    ]
    return rows


CHECKS: dict[str, Callable[[int, int], list[Row]]] = {
    "schur constant": schur_constant,
    "off-diagonals": off_diagonals,
    "lift": lift,
    "two layers": two_layers,
    "norm kernels": norm_kernels,
    "finite t": finite_t,
    "crossover": crossover,
    "quotient": quotient,
    "softmax head": softmax_head,
    "memorisation": memorisation,
    "trained networks": trained_nets,
}
