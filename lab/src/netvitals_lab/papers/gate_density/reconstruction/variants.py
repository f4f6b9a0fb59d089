r"""Variants of the problem: other activations, a kernel that is learned too, and slices of the loss.

An activation f of stiffness α answers with $f_\alpha(z) = f(\alpha(z - c))$ where f is bounded (sigmoid, tanh). Where
it grows like the identity, there are three ways: $f(\alpha(z - c))/\alpha$, whose slope far out does not depend on α,
$f(\alpha(z - c))$, and $f(z - c)$, in which α has no say.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from netvitals import activations
from netvitals_lab.papers.gate_density.reconstruction.problem import GATE_FLOOR, Reconstruction, overlap

ACTIVATIONS = ("sigmoid", "tanh", "relu", "gelu", "silu", "mish")
BOUNDED = ("sigmoid", "tanh")
WAYS = {"divided": "f(α(z − c))/α", "plain": "f(α(z − c))", "without": "f(z − c)"}  # of those that grow


@dataclass(frozen=True)
class Variant:
    """Where the descent of a variant ended, per problem."""

    x: Tensor
    loss: Tensor
    iou: Tensor  # output against target
    iou_input: Tensor  # x against target
    active: Tensor  # share of pixels with |df_α/dz| above the floor
    kernels: Tensor | None = None


def solve_activation(
    problem: Reconstruction, x0: Tensor, name: str, *, iterations: int = 200, lr: float = 0.03, way: str = "divided"
) -> Variant:
    """Adam in the box with another activation in the place of the sigmoid; ``way`` is how α enters one that grows.

    >>> from netvitals_lab.papers.gate_density.reconstruction import kernel, target
    >>> p = Reconstruction(torch.ones(1).double(), kernel("identity"), target("stripes", 8, 2))
    >>> float(solve_activation(p, p.start(), "tanh", iterations=80).active)
    1.0
    """
    if name not in ACTIVATIONS:
        raise ValueError(f"there is no activation {name!r} for this problem; there are {', '.join(ACTIVATIONS)}")
    if way not in WAYS:
        raise ValueError(f"stiffness enters as {', '.join(WAYS)}, got {way!r}")
    f = activations.get(name)
    alpha = problem.alpha[:, None, None]
    grows = name not in BOUNDED
    inner = torch.ones_like(alpha) if grows and way == "without" else alpha
    gain = 1 / alpha if grows and way == "divided" else torch.ones_like(alpha)

    def answer(z: Tensor) -> Tensor:
        return gain * f(inner * (z - problem.c))

    x = _adam([x0], lambda x: problem.loss(answer(problem.blur(x))).sum(), iterations, [lr], [True])[0]
    z = problem.blur(x).requires_grad_()
    h = answer(z)
    (slope,) = torch.autograd.grad(h.sum(), z)
    h = h.detach()
    return Variant(
        x=x,
        loss=problem.loss(h),
        iou=problem.iou(h),
        iou_input=overlap(x > 0.5, problem.y > 0.5),
        active=(slope.abs() > GATE_FLOOR).to(h.dtype).mean((-1, -2)),
    )


def solve_joint(
    problem: Reconstruction, x0: Tensor, kernels0: Tensor, *, iterations: int = 200, lr: float = 0.03
) -> Variant:
    """Adam over picture and kernel together, from ``kernels0`` (batch, 3, 3); only the picture is held in the box."""
    if kernels0.shape != (problem.batch, 3, 3):
        raise ValueError(
            f"one 3 × 3 kernel to begin with is needed for each of {problem.batch} problems, got "
            f"{tuple(kernels0.shape)}"
        )

    def loss(x: Tensor, k: Tensor) -> Tensor:
        return problem.loss(problem.sigmoid(problem.blur(x, kernels=k))).sum()

    x, k = _adam([x0, kernels0], loss, iterations, [lr, lr], [True, False])
    h = problem.sigmoid(problem.blur(x, kernels=k))
    return Variant(
        x=x,
        loss=problem.loss(h),
        iou=problem.iou(h),
        iou_input=overlap(x > 0.5, problem.y > 0.5),
        active=problem.active(h),
        kernels=k,
    )


def _adam(start: list[Tensor], loss: object, iterations: int, lr: list[float], boxed: list[bool]) -> list[Tensor]:
    values = [v.detach().clone().requires_grad_() for v in start]
    optimizer = torch.optim.Adam([{"params": [v], "lr": r} for v, r in zip(values, lr)])
    for _ in range(iterations):
        grads = torch.autograd.grad(loss(*values), values)  # type: ignore[operator]
        for v, g in zip(values, grads):
            v.grad = g
        optimizer.step()
        with torch.no_grad():
            for v, inside in zip(values, boxed):
                if inside:
                    v.clamp_(0, 1)
    return [v.detach() for v in values]


def noisy(y: Tensor, snr: float, seed: int = 0) -> Tensor:
    """y with Gaussian noise of ``snr`` decibels below the power of y."""
    g = torch.Generator().manual_seed(seed)
    noise = torch.randn(y.shape, generator=g, dtype=torch.float64)
    return y + noise * (y.square().mean() / 10 ** (snr / 10)).sqrt()


@dataclass(frozen=True)
class Spread:
    """How far restarts end apart: root mean square distance between pairs, per pixel."""

    inputs: float
    outputs: float
    agreement: float  # mean overlap of the binarised inputs of two restarts


def spread(problem: Reconstruction, x: Tensor) -> Spread:
    """Distances among the solutions ``x`` of one problem from several starts."""
    if len(x) < 2:
        raise ValueError(f"a spread needs at least 2 restarts, got {len(x)}")
    rows, cols = torch.triu_indices(len(x), len(x), 1)

    def apart(v: Tensor) -> float:
        return float((v[rows] - v[cols]).square().mean((-1, -2)).mean().sqrt())

    h = problem.forward(x)
    return Spread(apart(x), apart(h), float(overlap(x[rows] > 0.5, x[cols] > 0.5).mean()))


def landscape(problem: Reconstruction, x: Tensor, *, reach: float = 0.5, points: int = 21, seed: int = 0) -> Tensor:
    """J on a plane through ``x``, (batch, points, points): two random directions of unit length per pixel."""
    g = torch.Generator().manual_seed(seed)
    first, second = torch.randn(2, *x.shape[-2:], generator=g, dtype=torch.float64).to(x.dtype)
    second = second - (first * second).sum() / first.square().sum() * first
    steps = torch.linspace(-reach, reach, points, dtype=x.dtype)
    lines = []
    for a in steps:
        lines.append(torch.stack([problem.loss(problem.forward(x + a * first + b * second)) for b in steps], -1))
    return torch.stack(lines, 1)
