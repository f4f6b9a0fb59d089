r"""Steps that use curvature: Newton with damping, the way out of a saddle, and Newton by conjugate gradients."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from netvitals.anatomy import Lanczos
from netvitals.curvature.engine.operator import Operator
from netvitals.curvature.engine.probes import generator


@dataclass(frozen=True)
class Escape:
    """Smallest eigenvalue, its vector, and the step (zero when the eigenvalue is above −τ)."""

    eigenvalue: float
    direction: Tensor
    step: Tensor
    residual: float


@dataclass(frozen=True)
class NewtonCG:
    """Step, how it ended (``"converged"``, ``"negative curvature"`` or ``"steps"``), and products used."""

    step: Tensor
    ended: str
    products: int


def newton_step(h: Tensor, g: Tensor, *, damping: float = 0.0) -> Tensor:
    r"""$-(\mathrm{sym}(H)+\lambda I)^\dagger g$: the minimum-norm Newton step where H is singular.

    >>> newton_step(torch.tensor([[2.0, 0.0], [0.0, 0.0]]), torch.tensor([2.0, 0.0])).tolist()
    [-1.0, 0.0]
    """
    if damping < 0:
        raise ValueError(f"damping= must be at least 0, got {damping}")
    sym = (h + h.mT) / 2 + damping * torch.eye(len(g), dtype=h.dtype)
    values, vectors = torch.linalg.eigh(sym)
    keep = values.abs() > values.abs().max() * len(g) * torch.finfo(h.dtype).eps
    inverse = torch.where(keep, 1 / torch.where(keep, values, torch.ones_like(values)), torch.zeros_like(values))
    return 0.0 - vectors @ (inverse * (vectors.mT @ g))


def escape_step(
    op: Operator, g: Tensor, *, threshold: float = 1e-6, length: float = 1.0, most: int = 60, seed: int = 0
) -> Escape:
    r"""If $\lambda_{min}<-\tau$, a step of ``length`` along $-\mathrm{sign}(g\cdot v)v$, otherwise none (Cor. 86)."""
    start = torch.randn(1, op.shape[0], generator=generator(seed, op.device), dtype=op.dtype, device=op.device)
    run = Lanczos(op.apply, start, most)
    run.advance(most)
    t = run.tridiagonal()
    values, vectors = t.ritz()
    v = vectors[0, :, 0].to(op.dtype).to(op.device) @ t.basis[0]
    v = v / v.norm()
    low = float(values[0, 0])
    sign = -1.0 if float(g @ v) > 0 else 1.0
    step = length * sign * v if low < -threshold else torch.zeros_like(v)
    return Escape(low, v, step, float((t.last[0] * vectors[0, -1, 0]).abs()))


def newton_cg(op: Operator, g: Tensor, *, damping: float = 0.0, tol: float = 1e-6, most: int = 100) -> NewtonCG:
    """Solve H d = −g by conjugate gradients; on meeting negative curvature return the best step so far (or −g)."""
    x, r = torch.zeros_like(g), -g.clone()
    p, rr = r.clone(), float(r @ r)
    goal = tol**2 * rr
    for k in range(1, most + 1):
        hp = op.matvec(p) + damping * p
        bend = float(p @ hp)
        if bend <= 0:
            return NewtonCG(x if k > 1 else -g, "negative curvature", k)
        alpha = rr / bend
        x = x + alpha * p
        r = r - alpha * hp
        new = float(r @ r)
        if new <= goal:
            return NewtonCG(x, "converged", k)
        p, rr = r + (new / rr) * p, new
    return NewtonCG(x, "steps", most)
