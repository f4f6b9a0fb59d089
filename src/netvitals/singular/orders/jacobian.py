r"""Derivatives of a model's outputs along directions of its parameters, whitened by the likelihood.

For a Gaussian the whitened change is $(f - f_0)/\sqrt n$; for a softmax $\sqrt p \odot (d - E_p d)/\sqrt n$ with
$d = f - f_0$ and p at the point itself. Then $v^\top F v = \|J v\|^2$, and K and $\|g\|^2$ bound each other nearby.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import jvp

from netvitals.singular.orders.order import Outputs, check_outputs

_CHUNK = 64  # directions in one batched product
_STEPS = 12  # of Gauss–Newton


def whitened(outputs: Outputs, theta0: Tensor, likelihood: str) -> tuple[Callable[[Tensor], Tensor], int]:
    """The whitened change of the outputs as a flat function of θ, and how many scores it has.

    Its unit is the change that a random step of the size of θ makes, so that no threshold depends on the unit of the
    outputs.

    >>> g, scores = whitened(lambda th: 1e-20 * th[None], torch.zeros(3, dtype=torch.float64), "mse")
    >>> bool(0.5 < float(g(torch.ones(3, dtype=torch.float64)).norm()) < 2.0), scores
    (True, 3)
    """
    truth = outputs(theta0).detach()
    check_outputs(truth)
    n = math.sqrt(len(truth))
    if likelihood in ("gaussian", "mse"):
        plain = lambda th: ((outputs(th) - truth) / n).flatten()
        return _in_its_unit(plain, theta0), truth.numel()
    if likelihood not in ("categorical", "ce"):
        raise ValueError(f"likelihood= must be gaussian or categorical here, got {likelihood!r}")
    p = truth.softmax(-1)

    def g(theta: Tensor) -> Tensor:
        d = outputs(theta) - truth
        return (p.sqrt() * (d - (p * d).sum(-1, keepdim=True)) / n).flatten()

    return _in_its_unit(g, theta0), truth.numel() // truth.shape[-1] * (truth.shape[-1] - 1)


def _in_its_unit(g: Callable[[Tensor], Tensor], theta0: Tensor) -> Callable[[Tensor], Tensor]:
    drawn = torch.randn(theta0.shape, generator=torch.Generator().manual_seed(0), dtype=theta0.dtype)
    step = drawn.to(theta0) / drawn.norm() * max(float(theta0.norm()), math.sqrt(theta0.numel()))
    unit = float(g(theta0 + step).detach().norm())
    return g if not (unit > 0 and math.isfinite(unit)) else lambda theta: g(theta) / unit


def derivative(g: Callable[[Tensor], Tensor], theta: Tensor, directions: Tensor) -> Tensor:
    """J·directions, (scores, directions), by forward mode; batched where the model allows it."""
    one = lambda v: jvp(g, (theta,), (v,))[1]
    return _each(one, directions.T).T


def second_derivative(g: Callable[[Tensor], Tensor], theta: Tensor, kernel: Tensor, absorbed: Tensor) -> Tensor:
    """½ g″ on pairs of the kernel's columns, without what ``absorbed`` spans, in as few coordinates as it needs."""
    s = kernel.shape[1]
    pairs = [(i, j) for i in range(s) for j in range(i, s)]
    if not pairs:
        return theta.new_zeros(0, 0, 0)

    def twice(vw: Tensor) -> Tensor:
        inner = lambda th: jvp(g, (th,), (vw[0],))[1]
        return jvp(inner, (theta,), (vw[1],))[1] / 2

    both = torch.stack([torch.stack([kernel[:, i], kernel[:, j]]) for i, j in pairs])
    found = _each(twice, both)
    found = found - (found @ absorbed) @ absorbed.T
    left, values, _ = torch.linalg.svd(found, full_matrices=False)
    kept = max(1, int((values > 1e-12 * values[0].clamp_min(1e-300)).sum()))
    short = left[:, :kept] * values[:kept]
    out = theta.new_zeros(s, s, kept)
    for k, (i, j) in enumerate(pairs):
        out[i, j] = out[j, i] = short[k]
    return out


def solved(g: Callable[[Tensor], Tensor], start: Tensor, basis: Tensor, size: float) -> Tensor | None:
    """The zero of g near ``start`` in the directions of ``basis``, by Gauss–Newton; None where there is none."""
    theta, first = start, float(g(start).norm())
    floor = 1e-11 * max(1.0, float(start.norm()))
    for _ in range(_STEPS):
        value = g(theta)
        if float(value.norm()) <= floor or (first > 0 and float(value.norm()) <= 1e-9 * first):
            return theta
        if not basis.shape[1]:
            return None
        step = torch.linalg.lstsq(derivative(g, theta, basis), -value[:, None], driver="gelsd", rcond=1e-9).solution
        theta = theta + basis @ step[:, 0]
        if not torch.isfinite(theta).all() or float((theta - start).norm()) > size:
            return None
    return theta if float(g(theta).norm()) <= max(floor, 1e-9 * first) else None


def _each(f: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    """f of every row; a loop where the model cannot be batched."""
    if not len(rows):
        return f(torch.zeros_like(rows.new_zeros(rows.shape[1:])))[None][:0]
    try:
        return torch.vmap(f, chunk_size=_CHUNK)(rows)
    except (RuntimeError, ValueError, NotImplementedError):
        return torch.stack([f(row) for row in rows])
