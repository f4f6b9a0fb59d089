r"""Damped inverses of matrices known by products: $(M+\lambda I)^{-1}b$ by conjugate gradients, several b at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from netvitals.curvature.engine.operator import Operator


@dataclass(frozen=True)
class Solution:
    """``x`` in rows, the norm of what is left of each right side relative to it, and the products that it took."""

    x: Tensor
    residual: Tensor
    steps: int
    converged: bool


def solved(
    apply: Callable[[Tensor], Tensor], b: Tensor, *, damping: float = 0.0, tol: float = 1e-6, most: int = 200
) -> Solution:
    r"""$(M+\lambda I)x=b$ by conjugate gradients for rows b (m, d), each with its own step.

    >>> h = torch.diag(torch.tensor([1.0, 3.0]))
    >>> solved(lambda z: z @ h, torch.ones(1, 2), damping=1.0).x.tolist()
    [[0.5, 0.25]]
    """
    if damping < 0:
        raise ValueError(f"damping= must be at least 0, got {damping}")
    size = b.norm(dim=1).clamp_min(torch.finfo(b.dtype).tiny)
    x, r = torch.zeros_like(b), b.clone()
    p, rr, steps = r.clone(), (b * b).sum(1), 0
    while steps < most and bool((rr.sqrt() > tol * size).any()):
        hp = apply(p) + damping * p
        steps += 1
        bend, live = (p * hp).sum(1), rr.sqrt() > tol * size
        if bool((bend[live] <= 0).any()):
            low = float((bend / (p * p).sum(1))[live].min())
            raise ValueError(
                f"the matrix plus this damping has a direction of curvature {low:.3g}, so it is not positive "
                f"definite. Raise damping above {damping - low:.3g}, or use part='GN' or a Fisher matrix"
            )
        step = torch.where(live, rr / bend.clamp_min(torch.finfo(b.dtype).tiny), torch.zeros_like(rr))
        x, r = x + step[:, None] * p, r - step[:, None] * hp
        new = (r * r).sum(1)
        p, rr = r + torch.where(live, new / rr.clamp_min(torch.finfo(b.dtype).tiny), 0.0)[:, None] * p, new
    left = rr.sqrt() / size
    return Solution(x, left, steps, bool((left <= tol).all()))


def damped_inverse(op: Operator, damping: float, *, tol: float = 1e-6, most: int = 200) -> Operator:
    r"""The damped inverse $(M+\lambda I)^{-1}$ as an operator; each product is solved by conjugate gradients.

    Args:
        op: a symmetric matrix.
        damping: λ.
        tol: tolerance for the residual, relative to the right-hand side.
        most: largest number of products per solution; an error is raised if they do not suffice.

    Returns:
        An operator of the same shape.

    >>> two = Operator((2, 2), torch.float64, lambda rows: 2 * rows, lambda rows: 2 * rows)
    >>> (damped_inverse(two, 2.0) @ torch.ones(2).double()).tolist()
    [0.25, 0.25]
    """
    if op.shape[0] != op.shape[1]:
        raise ValueError(f"only a square matrix has an inverse; this one has shape {op.shape[0]} × {op.shape[1]}")

    def run(rows: Tensor) -> Tensor:
        with op.session():
            found = solved(op.apply, rows, damping=damping, tol=tol, most=most)
        if not found.converged:
            raise ValueError(
                f"conjugate gradients stopped after {found.steps} matrix-vector products with a relative residual "
                f"of {float(found.residual.max()):.2g} (wanted {tol:g}): allow more products with most=, or raise "
                "damping= or tol="
            )
        return found.x

    return replace(op, apply=run, apply_adjoint=run)
