r"""What stiffness does to the problem: the effective Jacobian $\mathrm{diag}(\Gamma)A$, the depth law, the bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from netvitals_lab.papers.gate_density.reconstruction.problem import GATE_FLOOR, Reconstruction


@dataclass(frozen=True)
class JacobianReport:
    """Singular values of diag(Γ(x))·A at one point, per problem."""

    sigma_min: Tensor
    sigma_max: Tensor
    null_dimension: Tensor
    stable_rank: Tensor
    condition: Tensor
    tolerance: float  # relative to the largest singular value
    rank_of_a: int


def dense_operator(problem: Reconstruction, index: int = 0) -> Tensor:
    """A of one problem as a matrix, by applying it to every unit picture."""
    size = problem.y.shape[-2:]
    eye = torch.eye(problem.pixels, dtype=problem.alpha.dtype).reshape(-1, *size)
    k = problem.kernels if problem.kernels.ndim == 2 else problem.kernels[min(index, len(problem.kernels) - 1)]
    one = Reconstruction(
        alpha=torch.ones(problem.pixels, dtype=problem.alpha.dtype),
        kernels=k,
        y=torch.zeros(size),
        c=problem.c,
        padding=problem.padding,
    )
    return one.blur(eye).reshape(problem.pixels, problem.pixels).T


def jacobian(problem: Reconstruction, x: Tensor, tolerance: float = 1e-6) -> JacobianReport:
    """Singular values of the effective Jacobian; one dense SVD per problem, so keep pictures small (16 × 16)."""
    gates = problem.gates(problem.forward(x)).reshape(problem.batch, -1)
    shared = problem.kernels.ndim == 2 or len(problem.kernels) == 1
    a = dense_operator(problem)
    matrices = gates[:, :, None] * (
        a[None] if shared else torch.stack([dense_operator(problem, i) for i in range(problem.batch)])
    )
    s = torch.linalg.svdvals(matrices)
    top = s[:, 0].clamp_min(1e-300)
    small = (s < tolerance * top[:, None]).sum(1)
    return JacobianReport(
        sigma_min=s[:, -1],
        sigma_max=s[:, 0],
        null_dimension=small,
        stable_rank=s.square().sum(1) / top.square(),
        condition=top / s[:, -1].clamp_min(1e-300),
        tolerance=tolerance,
        rank_of_a=int(torch.linalg.matrix_rank(a)),
    )


@dataclass(frozen=True)
class BoundCheck:
    """The printed inequality and the corrected one, as left side over right side; above 1 is a violation."""

    printed: Tensor
    corrected: Tensor

    @property
    def printed_violations(self) -> float:
        return float((self.printed > 1 + 1e-12).double().mean())

    @property
    def corrected_violations(self) -> float:
        return float((self.corrected > 1 + 1e-12).double().mean())


def gradient_bound(a: Tensor, h: Tensor, y: Tensor, alpha: float) -> BoundCheck:
    r"""Lemma A.1, $\|\nabla J\| \le \frac{\alpha}{2}\|A^\top(h - y)\|$, is false: the gate cannot be pulled out of it.

    Corrected: $\|\nabla J\| \le \frac{\alpha}{2}\|A\|_2\|h - y\|$. ``a`` is (n, n) or (cases, n, n).
    """
    gates = alpha * h * (1 - h)
    residual = h - y
    gradient = 2 * torch.einsum("...ij,...i->...j", a, gates * residual)
    pulled = torch.einsum("...ij,...i->...j", a, residual).norm(dim=-1)
    norm = torch.linalg.matrix_norm(a, 2)
    left = gradient.norm(dim=-1)
    return BoundCheck(left / (alpha / 2 * pulled), left / (alpha / 2 * norm * residual.norm(dim=-1)))


def active_bound(alpha: float, floor: float = GATE_FLOOR) -> float:
    """Theorem A.2 as printed: E[F] ≤ 1 − 2ε/α. False in general, and it tends to 1 where F tends to 0."""
    return 1 - 2 * floor / alpha


def active_width(alpha: float, floor: float = GATE_FLOOR) -> float:
    r"""Corrected A.2: a pixel is inactive unless $|z - c| < \frac{1}{\alpha}\ln(s_+/s_-)$.

    $s_\pm = \frac12(1 \pm \sqrt{1 - 4\epsilon/\alpha})$. Zero where no gate can exceed the floor (α < 4ε).

    >>> active_width(0.02)
    0.0
    """
    if alpha <= 4 * floor:
        return 0.0
    root = math.sqrt(1 - 4 * floor / alpha)
    return math.log((1 + root) / (1 - root)) / alpha


def depth_bound(alpha: float, second: Tensor, floor: float = GATE_FLOOR) -> float:
    """Theorem A.3: F²/F¹ ≤ 1/(1 + c₂α), c₂ = ε/‖A₂‖_∞ for a convolution (the sum of its entries' magnitudes)."""
    return 1 / (1 + floor / float(second.abs().sum()) * alpha)


def gate_correlation(problem: Reconstruction, x: Tensor, second: Tensor) -> Tensor:
    """Correlation over pixels of Γ¹ with A₂ᵀΓ², per problem: the independence that the depth law assumes."""
    _, g1, g2 = problem.two_layers(x, second)
    a, b = g1.flatten(1), problem.blur(g2, adjoint=True, kernels=second).flatten(1)
    a, b = a - a.mean(1, keepdim=True), b - b.mean(1, keepdim=True)
    return (a * b).sum(1) / (a.norm(dim=1) * b.norm(dim=1)).clamp_min(1e-300)
