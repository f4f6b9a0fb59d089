"""Exact rules and training checks: V7, V8 and D7–D11 of the theory."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise, product

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from netvitals.activations import expect, get
from netvitals.drift import euler
from netvitals_lab import Row, data, models, stats
from netvitals_lab.theory import drift_signs as theory
from netvitals_lab.training import gradient_step

PATTERNS: dict[str, tuple[str, ...]] = {
    "relu": ("relu",) * 4,
    "gelu": ("gelu",) * 4,
    "silu": ("silu",) * 4,
    "neg_relu": ("neg_relu",) * 4,
    "alternating": ("relu", "neg_relu") * 2,
    "tanh": ("tanh",) * 4,
    "identity": ("identity",) * 4,
}
LOGGED = (0, 1, 2, 5, 10, 20, 40, 80, 120, 180, 240, 300)


def euler_in_training(steps: int, seed: int) -> list[Row]:
    """V7: Σ p ∂ℓ/∂p = ⟨o, ∇ℓ⟩ per sample in every layer of a bias-free ReLU MLP, while it learns digits."""
    torch.manual_seed(seed)
    model = models.build("mlp:64-128x4-10,act=relu,bias=false,init=he")
    digits = data.load("digits")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    generator = torch.Generator().manual_seed(seed)
    rows: list[Row] = []
    step = 0
    while step <= steps:
        for x, y in data.batches(digits, 128, generator):
            if step in LOGGED and step <= steps:
                rows += _euler_defects(model, x, y, step)
            if step >= steps:
                return rows
            gradient_step(optimizer, F.cross_entropy(model(x), y))
            step += 1
    return rows


def _euler_defects(model: nn.Module, x: Tensor, y: Tensor, step: int) -> list[Row]:
    """Largest error over samples, of the mean-reduced loss as autograd gives it, in float32 and in a float64 twin."""
    rows: list[Row] = []
    for dtype in (torch.float32, torch.float64):
        seen = euler(copy.deepcopy(model).to(dtype), F.cross_entropy, (x.to(dtype), y), mode="eval")
        rows += [
            {
                "quantity": "euler",
                "dtype": str(dtype).removeprefix("torch."),
                "step": step,
                "layer": layer,
                "mean": seen.mean,
                "stderr": seen.stderr,
                "samples": len(x),
                "defect": gap / len(x),
                "relative": gap / seen.output.abs().max(),
            }
            for layer, gap in seen.defects.items()
        ]
    return rows


def enumeration() -> list[Row]:
    """V8: one downstream unit, two inputs, every outcome counted; skewed weights as in D10 and symmetric ones."""
    laws: dict[str, Mapping[int, Fraction]] = {
        "skewed": {3: Fraction(1, 4), -1: Fraction(3, 4)},
        "rademacher": {1: Fraction(1, 2), -1: Fraction(1, 2)},
        "symmetric": {3: Fraction(1, 8), 1: Fraction(3, 8), -1: Fraction(3, 8), -3: Fraction(1, 8)},
    }
    rows: list[Row] = []
    for name, law in laws.items():
        for a in ((1, 1), (1, 2)):
            alive = inner = push = ties = Fraction(0)
            for (w, pw), (u, pu) in product(law.items(), repeat=2):
                z, chance = w * a[0] + u * a[1], pw * pu
                ties += chance * (z == 0)
                if z > 0:
                    alive, inner, push = alive + chance, inner + chance * w * u, push + chance * w * z
            rows.append(
                {
                    "quantity": "enumeration",
                    "law": name,
                    "activation": list(a),
                    "inner": inner.numerator / inner.denominator,
                    "exact": str(inner),
                    "given alive": str(inner / alive),
                    "push": str(push),
                    "ties": float(ties),
                }
            )
    return rows


def first_step(pattern: str, inits: int, seed: int, width: int = 64, batch: int = 64) -> list[Row]:
    """D7, D11: mean gradient of every weight matrix over initialisations of 64-64×4-10, random data, squared error."""
    generator = torch.Generator().manual_seed(seed)
    names = PATTERNS[pattern]
    functions = [get(name) for name in names]
    sizes = [64, *[width] * len(names), 10]
    weights = [
        torch.randn(inits, d, before, generator=generator) * ((2 if i < len(names) else 1) / before) ** 0.5
        for i, (before, d) in enumerate(pairwise(sizes))
    ]
    x = torch.randn(inits, batch, sizes[0], generator=generator)
    y = F.one_hot(torch.randint(10, (inits, batch), generator=generator), 10).float()
    leaves = [w.requires_grad_() for w in weights]
    h, preactivations = x, []
    for w, f in zip(leaves, functions):
        p = h @ w.transpose(1, 2)
        preactivations.append(p)
        h = f(p)
    loss = 0.5 * (h @ leaves[-1].transpose(1, 2) - y).square().sum() / batch  # a sum over initialisations
    grads = torch.autograd.grad(loss, [*leaves, *preactivations])
    rows: list[Row] = []
    means = [0.0, *(expect(get(name)) for name in names)]
    for i, name in enumerate(names):
        drift = stats.mean(-grads[i].mean((1, 2)))
        rows.append(
            {
                "quantity": "first step",
                "layer": i + 1,
                "sign": theory.drift_sign(name, means[i]),
                "mean": drift.value,
                "stderr": drift.stderr,
                "inits": inits,
            }
        )
        on = preactivations[i] > 0
        g = grads[len(leaves) + i] * batch
        push = stats.mean((g * on).sum((1, 2)) / on.sum((1, 2)))
        rows.append(
            {
                "quantity": "gradient where p > 0",
                "layer": i + 1,
                "mean": push.value,
                "stderr": push.stderr,
                "inits": inits,
            }
        )
    return rows


def batch_norm(seed: int) -> list[Row]:
    """D8: behind a linear layer, train-mode BatchNorm makes Σ_batch ∂ℓ/∂p vanish in every channel."""
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randn(64, 20, generator=generator, dtype=torch.float64), torch.randint(5, (64,), generator=generator)
    sums = {}
    for normed in (True, False):
        torch.manual_seed(seed)
        norm = nn.BatchNorm1d(24) if normed else nn.Identity()
        head = nn.Sequential(norm, nn.ReLU(), nn.Linear(24, 5)).double()
        p = nn.Linear(20, 24).double()(x)
        (g,) = torch.autograd.grad(F.cross_entropy(head(p), y), p)
        sums[normed] = float(g.sum(0).abs().max() / g.abs().sum(0).max())
    return [{"quantity": "batch norm", "with": sums[True], "without": sums[False]}]


def readout_mean(steps: int, seed: int) -> list[Row]:
    """D9: cross-entropy with SGD, momentum or not, keeps the column means of the readout; Adam and MSE do not."""
    rows: list[Row] = []
    cases = (("ce", "sgd", 0.0), ("ce", "sgd", 0.9), ("ce", "adam", 0.0), ("mse", "sgd", 0.0))
    for loss, kind, momentum in cases:
        generator = torch.Generator().manual_seed(seed)
        first = (torch.randn(32, 16, generator=generator, dtype=torch.float64) * (2 / 16) ** 0.5).requires_grad_()
        readout = (torch.randn(6, 32, generator=generator, dtype=torch.float64) * (1 / 32) ** 0.5).requires_grad_()
        begin = readout.detach().mean(0).clone()
        optimizer: torch.optim.Optimizer = (
            torch.optim.Adam([first, readout], lr=1e-2)
            if kind == "adam"
            else torch.optim.SGD([first, readout], lr=0.05, momentum=momentum)
        )
        for _ in range(steps):
            x = torch.randn(32, 16, generator=generator, dtype=torch.float64)
            y = torch.randint(6, (32,), generator=generator)
            o = (x @ first.T).relu() @ readout.T
            gradient_step(optimizer, F.cross_entropy(o, y) if loss == "ce" else F.mse_loss(o, F.one_hot(y, 6).double()))
        moved: Tensor = readout.detach().mean(0) - begin
        rows.append(
            {
                "quantity": "readout mean",
                "loss": loss,
                "optimizer": kind,
                "momentum": momentum,
                "steps": steps,
                "moved": moved.abs().max(),
                "mean": moved.mean(),
            }
        )
    return rows
