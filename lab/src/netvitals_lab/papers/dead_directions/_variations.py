"""One variation of the canonical bridge, all seeds at once: a chain on its singular path learns the function at t = 0.

Weights of all seeds are stacked, (seeds, width, width); nothing couples them. The dead entry of G₁ is that of the
expected Fisher, the mean of ‖∂z_L/∂z₁ e‖² over the inputs in the loss's metric.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter

from netvitals.optim.muon import newton_schulz
from netvitals.singular import predict_rates, rate_fit
from netvitals.singular.networks.architecture import ACTIVATIONS, Chain, normed
from netvitals_lab import Row

f64 = torch.float64
NEAR = 0.05  # how canonical a path has to be
Step = Callable[[], None]


@dataclass(frozen=True)
class Bridge:
    """The canonical configuration, from which a variation differs in one thing."""

    activation: str = "linear"
    optimizer: str = "sgd"
    norm: str = "none"
    loss: str = "mse"
    residual: str = "none"
    depth: int = 3
    start: float = 0.3
    inputs: str = "whitened"
    width: int = 8

    @property
    def skips(self) -> tuple[tuple[int, int], ...]:
        every = {"none": 0, "per-layer": 1, "per-block": 2}[self.residual]
        return tuple((i, i + every) for i in range(0, self.depth - every + 1, every)) if every else ()

    @property
    def norm_after(self) -> tuple[int, ...]:
        return () if self.norm == "none" else (1,)

    @property
    def predicted(self) -> float | None:
        """Exponent of the dead entry of G₁."""
        chain = Chain(
            depth=self.depth,
            width=self.width,
            activation=self.activation,
            norm_after=self.norm_after,
            norm="rms" if self.norm == "rms" else "layer",
            skips=self.skips,
        )
        return predict_rates(chain).G["layer1"]

    def forward(self, weights: list[Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
        """Output and the first pre-activation."""
        stream, phi, h = [x], ACTIVATIONS[self.activation], x
        first = x
        for i, w in enumerate(weights):
            z = (normed(h, self.norm) if i in self.norm_after else h) @ w.mT
            first = z if i == 0 else first
            h = phi(z) if i < self.depth - 1 else z
            for a, b in self.skips:
                if b == i + 1:
                    h = h + stream[a]
            stream.append(h)
        return h, first

    def above(self, weights: list[Tensor], z: Tensor, x: Tensor) -> Tensor:
        """The output as a function of the first pre-activation."""
        stream, phi = [x], ACTIVATIONS[self.activation]
        h = phi(z) if self.depth > 1 else z
        for i, w in enumerate(weights):
            if i:
                z = (normed(h, self.norm) if i in self.norm_after else h) @ w.mT
                h = phi(z) if i < self.depth - 1 else z
            for a, b in self.skips:
                if b == i + 1:
                    h = h + stream[a]
            stream.append(h)
        return h


def descend(bridge: Bridge, seeds: int, steps: int, examples: int = 256) -> list[Row]:
    """Train all seeds and fit the exponent of the dead entry of G₁ in t on the way down; one row a seed."""
    drawn = [torch.Generator().manual_seed(s) for s in range(seeds)]
    x = torch.stack([torch.randn(examples, bridge.width, generator=g, dtype=f64) for g in drawn])
    if bridge.inputs == "whitened":  # the second moment is the identity: a linear chain sees the population
        q, r = torch.linalg.qr(x)
        x = q * r.diagonal(dim1=1, dim2=2).sign()[:, None] * math.sqrt(examples)
    dead = torch.diag(torch.tensor([1.0] * (bridge.width - 1) + [bridge.start], dtype=f64))
    weights = [Parameter(dead.repeat(seeds, 1, 1)) for _ in range(bridge.depth)]
    truth = torch.diag(torch.tensor([1.0] * (bridge.width - 1) + [0.0], dtype=f64))
    with torch.no_grad():
        target = bridge.forward([truth] * bridge.depth, x)[0]
    step = stepper(bridge, weights, x)
    looks = set(np.unique(np.geomspace(1, steps, 80).astype(int)).tolist())
    ts, entries, canonical = [], [], []
    for i in range(1, steps + 1):
        out, _ = bridge.forward(list(weights), x)
        if bridge.loss == "mse":
            loss = 0.5 * (out - target).square().sum((1, 2)).sum() / examples
        else:
            loss = -(target.softmax(-1) * out.log_softmax(-1)).sum() / examples
        for w in weights:
            w.grad = None
        loss.backward()
        step()
        if i in looks:
            held = [w.detach() for w in weights]
            ts.append(torch.stack([w[:, -1, -1].abs() for w in held]).log().mean(0).exp())
            entries.append(dead_entry(bridge, held, x))
            canonical.append(on_path(held))
    times, values, kept = torch.stack(ts, 1).numpy(), torch.stack(entries, 1).numpy(), torch.stack(canonical, 1).numpy()
    return [{"seed": s, "t": float(times[s, -1]), **fitted(times[s], values[s], kept[s])} for s in range(seeds)]


def on_path(weights: list[Tensor]) -> Tensor:
    """Whether a seed is still canonical: its dead weights are alike, and what joins them to live units is small."""
    own = torch.stack([w[:, -1, -1].abs() for w in weights])
    beside = torch.stack([torch.cat([w[:, -1, :-1], w[:, :-1, -1]], 1).norm(dim=1) for w in weights])
    return ((beside / own).amax(0) < NEAR) & (own.amax(0) < (1 + NEAR) * own.amin(0))


def dead_entry(bridge: Bridge, weights: list[Tensor], x: Tensor) -> Tensor:
    """eᵀG₁e for every seed."""
    z = bridge.forward(weights, x)[1]
    axis = torch.zeros_like(z)
    axis[..., -1] = 1
    out, moved = torch.func.jvp(lambda v: bridge.above(weights, v, x), (z,), (axis,))[:2]
    if bridge.loss == "mse":
        return moved.square().sum(-1).mean(-1)
    p = out.softmax(-1)
    return ((p * moved.square()).sum(-1) - (p * moved).sum(-1).square()).mean(-1)


def fitted(t: np.ndarray, entry: np.ndarray, canonical: np.ndarray) -> Row:
    """The slope over the later two thirds of the way down, as long as the path is canonical; None where that is short.

    ``t`` has to fall by a factor 1.05.
    """
    end = int(np.argmin(canonical)) if not canonical.all() else len(t)
    t, entry = t[:end], entry[:end]
    row: Row = {"slope": None, "span": 0.0, "left": bool(not canonical.all()), "points": end}
    if end < 6 or not (np.isfinite(entry).all() and (t > 0).all() and (entry > 0).all()):
        return row
    low = int(np.argmin(t)) + 1
    t, entry = t[:low], entry[:low]
    row["span"] = float(math.log10(t[0] / t[-1]))
    down = t <= t[0] * 10 ** (-row["span"] / 3)
    if down.sum() >= 4 and row["span"] > 0.02:
        row["slope"] = float(rate_fit(t[down][::-1], entry[down][::-1], floor=0.0).slope)
    return row


def stepper(bridge: Bridge, weights: list[Parameter], x: Tensor) -> Step:
    """What one step of the optimiser does to the stacked weights."""
    name = bridge.optimizer
    # the curvature of the live channels: one path a layer, twice the amplitude behind every skip; a softmax flattens it
    lr = 0.6 / (bridge.depth * 4 ** len(bridge.skips)) * (bridge.width if bridge.loss == "ce" else 1)
    plain = {
        "sgd": lambda: torch.optim.SGD(weights, lr=lr),
        "momentum": lambda: torch.optim.SGD(weights, lr=lr / 10, momentum=0.9),
        "adam": lambda: torch.optim.Adam(weights, lr=1e-4),
        "adamw": lambda: torch.optim.AdamW(weights, lr=1e-4, weight_decay=0.01),
    }
    if name in plain:  # elementwise: a stack is as good as its parts
        return plain[name]().step
    return {"muon": muon, "shampoo": shampoo, "k-fac": natural}[name](weights, x)


def muon(weights: list[Parameter], x: Tensor, lr: float = 1e-4, momentum: float = 0.95) -> Step:
    """Orthogonalised momentum, matrix by matrix."""
    kept = [torch.zeros_like(w) for w in weights]

    @torch.no_grad()
    def step() -> None:
        for w, b in zip(weights, kept):
            assert w.grad is not None
            b.mul_(momentum).add_(w.grad)
            w.sub_(lr * newton_schulz(w.grad + momentum * b))

    return step


def shampoo(weights: list[Parameter], x: Tensor, lr: float = 1e-3, eps: float = 1e-12) -> Step:
    """L^(−1/4) G R^(−1/4) with the sums of GGᵀ and GᵀG so far."""
    eye = eps * torch.eye(weights[0].shape[-1], dtype=f64)
    left, right = ([eye.expand_as(w).clone() for w in weights] for _ in range(2))

    @torch.no_grad()
    def step() -> None:
        for w, a, b in zip(weights, left, right):
            assert w.grad is not None
            a.add_(w.grad @ w.grad.mT)
            b.add_(w.grad.mT @ w.grad)
            w.sub_(lr * root(a) @ w.grad @ root(b))

    return step


def root(matrix: Tensor) -> Tensor:
    """M^(−1/4) of symmetric positive matrices."""
    values, vectors = torch.linalg.eigh(matrix)
    return vectors * values.clamp_min(1e-30).pow(-0.25)[..., None, :] @ vectors.mT


def natural(weights: list[Parameter], x: Tensor, lr: float = 0.02, damping: float = 1e-3) -> Step:
    """K-FAC of a linear chain: (G + d)⁻¹ ∇ (A + d)⁻¹, with the factors of the expected Fisher at unit noise."""
    eye = damping * torch.eye(x.shape[-1], dtype=f64)
    moment = x.mT @ x / x.shape[1]

    @torch.no_grad()
    def step() -> None:
        below, above = [moment], [torch.eye(x.shape[-1], dtype=f64).expand_as(moment)]
        for w in weights[:-1]:
            below.append(w @ below[-1] @ w.mT)
        for w in reversed(weights[1:]):
            above.append(w.mT @ above[-1] @ w)
        moves = []
        for w, a, g in zip(weights, below, reversed(above)):
            assert w.grad is not None
            moves.append(torch.linalg.solve(g + eye, torch.linalg.solve(a + eye, w.grad.mT).mT))
        for w, move in zip(weights, moves):
            w.sub_(lr * move)

    return step
