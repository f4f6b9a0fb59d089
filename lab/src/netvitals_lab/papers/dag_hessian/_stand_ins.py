"""What optimizers put in the place of a Hessian, and the step that a trust region takes with it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


def rank(block: Tensor, r: int) -> Tensor:
    """The nearest matrix of rank r."""
    u, s, v = torch.linalg.svd(block, full_matrices=False)
    return (u[:, :r] * s[:r]) @ v[:r]


def nearest_kronecker(block: Tensor, layer: nn.Module) -> Tensor:
    """G ⊗ A nearest to the block of a layer's weight (Van Loan and Pitsianis), its bias kept apart."""
    out, into = layer.weight.shape  # type: ignore[misc]
    m = out * into
    w = block[:m, :m].reshape(out, into, out, into).permute(0, 2, 1, 3).reshape(out * out, into * into)
    one = rank(w, 1).reshape(out, out, into, into).permute(0, 2, 1, 3).reshape(m, m)
    return torch.block_diag(one, block[m:, m:])


def in_region(model: Tensor, g: Tensor, radius: float) -> Tensor:
    """The step that minimises g·s + sᵀMs/2 within a radius, by the multiplier of its norm."""
    values, vectors = torch.linalg.eigh((model + model.mT) / 2)
    along = vectors.mT @ g
    low, high = max(0.0, -float(values[0])) + 1e-12, float(along.norm()) / radius + float(values.abs().max())
    at = lambda shift: -vectors @ (along / (values + shift))
    if float(at(low).norm()) <= radius:
        return at(low)
    for _ in range(80):
        mid = (low + high) / 2
        low, high = (mid, high) if float(at(mid).norm()) > radius else (low, mid)
    return at(high)


def secants(value: Callable[[Tensor], Tensor], flat: Tensor, count: int) -> Tensor:
    """The BFGS matrix of ``count`` steps of gradient descent that end at ``flat``."""
    gradient = torch.func.grad(value)
    g = torch.Generator().manual_seed(0)
    w = flat + 0.05 * torch.randn(flat.shape, generator=g, dtype=flat.dtype)
    b = torch.eye(len(flat), dtype=flat.dtype)
    for i in range(count):
        new = (
            w
            + (flat - w) / (count - i)
            + (0.01 * torch.randn(flat.shape, generator=g, dtype=flat.dtype) if i < count - 1 else 0)
        )
        s, d = new - w, gradient(new) - gradient(w)
        if float(s @ d) > 1e-12:
            if i == 0:
                b = b * float(d @ d) / float(s @ d)
            bs = b @ s
            b = b - torch.outer(bs, bs) / (s @ bs) + torch.outer(d, d) / (s @ d)
        w = new
    return b
