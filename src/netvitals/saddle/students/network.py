r"""Many bias-free networks at once: weights with a leading axis for seeds, initial conditions or scales.

A stack is a list $W_1..W_L$ of tensors (copies, n_out, n_in); $f(x)=W_L\sigma(\cdots\sigma(W_1x))$.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

Stack = list[Tensor]


def output(weights: Stack, x: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor:
    """Outputs (copies, n, n_out) for inputs (n, d), shared, or (copies, n, d)."""
    h = x.expand(weights[0].shape[0], *x.shape) if x.ndim == 2 else x
    for w in weights[:-1]:
        h = f(h @ w.transpose(1, 2))
    return h @ weights[-1].transpose(1, 2)


def losses(weights: Stack, x: Tensor, y: Tensor, f: Callable[[Tensor], Tensor], weight: Tensor | None = None) -> Tensor:
    r"""$\tfrac12E(f-y)^2$ of every copy: (copies,)."""
    square = 0.5 * (output(weights, x, f) - y).square().sum(-1)
    return square.mean(-1) if weight is None else (square * weight).sum(-1)


def loss_beside(
    weights: Stack, near: Stack, known: float, x: Tensor, y: Tensor, f: Callable[[Tensor], Tensor]
) -> float:
    r"""$\tfrac12E(f-y)^2$ of one full network, from a network beside it whose loss is known exactly.

    The mean of the *difference* of the two losses over ``x`` is added to the known one: what both have in common
    cancels, so that a few thousand inputs show a distance off the manifold that is far below their own noise.

    >>> w = [torch.eye(2).expand(1, 2, 2), torch.ones(1, 1, 2)]
    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> loss_beside(w, w, 0.125, x, torch.zeros(2, 1), torch.tanh)
    0.125
    """
    full, projected = (losses(stack, x, y, f)[0] for stack in (weights, near))
    return known + float(full - projected)


def gradients(
    weights: Stack, x: Tensor, y: Tensor, f: Callable[[Tensor], Tensor], weight: Tensor | None = None
) -> tuple[Stack, Tensor]:
    """Gradients of every copy's loss with respect to its own weights, and the losses."""
    with torch.enable_grad():
        leaves = [w.detach().requires_grad_(True) for w in weights]
        loss = losses(leaves, x, y, f, weight)
        return list(torch.autograd.grad(loss.sum(), leaves)), loss.detach()


def widths_of(depth: int, width: int, inputs: int, outputs: int = 1) -> list[tuple[int, int]]:
    """(n_out, n_in) of every layer."""
    if depth < 2:
        raise ValueError(f"depth= must be at least 2, got {depth}: a chain needs two layers")
    sizes = [inputs, *[width] * (depth - 1), outputs]
    return [(b, a) for a, b in pairwise(sizes)]


def he_stack(
    depth: int,
    width: int,
    inputs: int,
    *,
    small: Sequence[int] | int,
    eps: float | Sequence[float],
    seeds: Sequence[int],
    outputs: int = 1,
    dtype: torch.dtype = torch.float32,
) -> Stack:
    r"""Draw a stack of He-normal networks with some layers multiplied by ε: one copy per (ε, seed), seeds varying
    fastest.

    Entries are drawn from $N(0, 2/n_{in})$ in every layer, including the readout. The same seed draws the same weights
    for every ε, up to the factor ε.

    Args:
        depth: number of layers, at least 2.
        width: hidden width.
        inputs: input dimension.
        small: how many layers are small, from the first on, or their indices counted from 0.
        eps: factor of the small layers, one or several.
        seeds: one network is drawn per seed.
        outputs: output dimension.
        dtype: dtype of the weights, which are drawn in float64.

    Returns:
        One tensor per layer, (copies, n_out, n_in) with copies = factors × seeds.

    >>> stack = he_stack(3, 8, 4, small=2, eps=[0.1, 0.01], seeds=[0, 1])
    >>> [tuple(w.shape) for w in stack], round(float(stack[0][0].norm() / stack[0][2].norm()), 3)
    ([(4, 8, 4), (4, 8, 8), (4, 1, 8)], 10.0)
    """
    layers = set(range(small)) if isinstance(small, int) else set(small)
    if not layers <= set(range(depth)):
        raise ValueError(f"indices of small layers must lie in 0..{depth - 1}, got {sorted(layers)}")
    scales = [float(eps)] if isinstance(eps, int | float) else [float(e) for e in eps]
    if any(e <= 0 for e in scales):
        raise ValueError(f"eps= must be positive, got {scales}")
    generators = [torch.Generator().manual_seed(s) for s in seeds]
    stack = []
    for i, (out, fan_in) in enumerate(widths_of(depth, width, inputs, outputs)):
        draw = torch.stack([torch.randn(out, fan_in, generator=g, dtype=torch.float64) for g in generators])
        draw = draw * math.sqrt(2 / fan_in)
        factors = scales if i in layers else [1.0] * len(scales)
        stack.append(torch.cat([draw * e for e in factors]).to(dtype))
    return stack


def ansatz_stack(x: Tensor, width: int, direction: Tensor) -> Stack:
    r"""Symmetric aligned networks with scalars ``x`` (L,) or (copies, L).

    $W_1=X_1\mathbf 1\hat w^\top$, $W_\ell=X_\ell\mathbf 1\mathbf 1^\top/N$, $W_L=X_L\mathbf 1^\top/\sqrt N$.
    """
    x = torch.atleast_2d(torch.as_tensor(x, dtype=torch.float64))
    copies, depth = x.shape
    v = direction.double() / direction.norm()
    ones = torch.ones(copies, width, width, dtype=torch.float64)
    stack = [x[:, 0, None, None] * v.expand(copies, width, -1)]
    stack += [x[:, ell, None, None] * ones / width for ell in range(1, depth - 1)]
    return [*stack, x[:, -1, None, None] * ones[:, :1] / math.sqrt(width)]


def project(weights: Stack, direction: Tensor) -> tuple[Tensor, Tensor]:
    r"""Scalars $\hat X$ (copies, L) of the nearest symmetric network and relative residuals off it (copies, L)."""
    width = weights[0].shape[1]
    v = (direction / direction.norm()).to(weights[0].dtype)
    x = [
        weights[0].mean(1) @ v,
        *(width * w.mean((1, 2)) for w in weights[1:-1]),
        math.sqrt(width) * weights[-1].mean((1, 2)),
    ]
    scalars = torch.stack(x, 1)
    nearest = ansatz_stack(scalars, width, direction)
    residual = torch.stack(
        [
            (w - n.to(w.dtype)).flatten(1).norm(dim=1) / w.flatten(1).norm(dim=1).clamp_min(1e-300)
            for w, n in zip(weights, nearest)
        ],
        1,
    )
    return scalars, residual


def permuted(weights: Stack, layer: int, order: Tensor) -> Stack:
    """The same function with the units of one hidden layer (counted from 1) renamed."""
    if not 1 <= layer <= len(weights) - 1:
        raise ValueError(f"the hidden layers are 1..{len(weights) - 1}, got layer {layer}")
    out = list(weights)
    out[layer - 1], out[layer] = weights[layer - 1][:, order], weights[layer][:, :, order]
    return out


def normalized_rates(depth: int, width: int) -> list[float]:
    """Rates of the normalized metric: 1 for the first layer, 1/N for the others."""
    return [1.0] + [1 / width] * (depth - 1)
