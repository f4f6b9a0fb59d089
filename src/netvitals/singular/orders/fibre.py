r"""Directions that change nothing, taken out: the normal bundle of a singular fibre, and the Fisher form on a quotient.

A smooth fibre $W_0$ of equal models has a tangent space T; the normal space N holds what can be learned, and
$q(x|n) = p(x|\theta_0 + B_N n)$ is the subfamily to read (dead-directions §2.3). A gauge group's orbits are such
fibres: F vanishes on the vertical space V and descends to $\bar F$ on the horizontal complement, which must be taken in
a metric that the group preserves (§2.10): the Euclidean one for shifts, a logarithmic one for rescalings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import jacfwd

from netvitals.capture import Result
from netvitals.singular.orders.likelihood import Likelihood
from netvitals.singular.orders.order import Outputs
from netvitals.singular.orders.spectrum import fisher_matrix

_RANK = 1e-10  # relative singular value below which a generator moves nothing


def normal_bundle(fibre: Callable[[Tensor], Tensor], tau0: Tensor) -> Tensor:
    """Orthonormal columns B_N (D, D − d_T) normal to the fibre τ ↦ θ(τ) at ``tau0``.

    >>> circle = lambda tau: torch.stack([torch.cos(tau[0]), torch.sin(tau[0])])
    >>> normal_bundle(circle, torch.zeros(1, dtype=torch.float64)).abs().T
    tensor([[1., 0.]], dtype=torch.float64)
    """
    if tau0.ndim != 1:
        raise ValueError(
            "tau0= must be a flat vector: the coordinates τ of one point θ(τ) on the fibre of equal models, got "
            f"shape {tuple(tau0.shape)}"
        )
    return _complement(jacfwd(fibre)(tau0.double()))


def subfamily(outputs: Outputs, theta0: Tensor, basis: Tensor) -> Outputs:
    """The family n ↦ outputs(θ0 + B n): hand it to ``fisher_matrix`` or ``kl_order`` at n = 0."""
    if basis.ndim != 2 or len(basis) != theta0.numel():
        raise ValueError(f"basis= must have shape (D, directions) with D = {theta0.numel()}, got {tuple(basis.shape)}")
    return lambda n: outputs(theta0 + basis @ n)


def vertical(action: Callable[[Tensor, Tensor], Tensor], theta: Tensor, modes: int) -> Tensor:
    r"""Generators $\partial_c\,(c \cdot \theta)|_{c=0}$ of a group action, (D, modes).

    >>> rescale = lambda c, th: torch.stack([th[0] * torch.exp(c[0]), th[1] * torch.exp(-c[0])])
    >>> vertical(rescale, torch.tensor([2.0, 3.0]), 1).T
    tensor([[ 2., -3.]], dtype=torch.float64)
    """
    theta = theta.double()
    zero = torch.zeros(modes, dtype=torch.float64)
    if not torch.allclose(action(zero, theta), theta):
        raise ValueError("the group action must leave the parameters unchanged at c = 0")
    return jacfwd(lambda c: action(c, theta))(zero)


def log_metric(theta: Tensor) -> Tensor:
    r"""Diagonal metric $1/\theta_i^2$, which rescalings preserve; parameters must not be zero."""
    if bool((theta == 0).any()):
        raise ValueError("the logarithmic metric needs parameters without zeros, because it measures relative changes")
    return 1 / theta.double().square()


@dataclass(frozen=True)
class QuotientFisher(Result):
    """The Fisher form on the horizontal space."""

    matrix: Tensor  # (H, H) in the metric's orthonormal horizontal coordinates
    basis: Tensor  # (D, H) horizontal vectors, orthonormal in the metric
    leak: float  # largest F-length of a vertical unit vector: 0 where the action is a gauge
    modes: int  # dimension of the orbit

    @property
    def spectrum(self) -> Tensor:
        return torch.linalg.eigvalsh(self.matrix)

    def __str__(self) -> str:
        values = self.spectrum
        return (
            f"quotient Fisher of dimension {len(values)} (orbit {self.modes}): λ in [{values[0]:.3g}, "
            f"{values[-1]:.3g}], vertical leak {self.leak:.1e}"
        )


def quotient_fisher(
    outputs: Outputs,
    theta: Tensor,
    generators: Tensor,
    *,
    metric: Tensor | None = None,
    likelihood: str | Likelihood = "gaussian",
) -> QuotientFisher:
    r"""$\bar F = B_H^\top F B_H$ with $B_H$ the metric-orthogonal complement of the generators.

    >>> chain = lambda th: th.prod().reshape(1, 1)
    >>> act = lambda c, th: th * torch.exp(torch.stack([c[0], c[1] - c[0], -c[1]]))
    >>> th = torch.full((3,), 0.1, dtype=torch.float64)
    >>> found = quotient_fisher(chain, th, vertical(act, th, 2))
    >>> round(float(found.spectrum[0]) / (3 * 0.1**4), 6), found.leak < 1e-12
    (1.0, True)
    """
    theta = theta.double()
    root = torch.ones_like(theta) if metric is None else metric.double().sqrt()
    if root.shape != theta.shape or not bool((root > 0).all()):
        raise ValueError(f"metric= must be a diagonal of {theta.numel()} positive entries")
    f = fisher_matrix(outputs, theta, likelihood)
    basis = _complement(root[:, None] * generators.double()) / root[:, None]
    unit = generators.double() / generators.double().norm(dim=0, keepdim=True)
    leak = float((unit.T @ f @ unit).diagonal().clamp_min(0).sqrt().max()) if unit.numel() else 0.0
    return QuotientFisher(basis.T @ f @ basis, basis, leak, theta.numel() - basis.shape[1])


def horizontal(direction: Tensor, generators: Tensor, metric: Tensor | None = None) -> Tensor:
    """The part of ``direction`` that is metric-orthogonal to the orbit: the order along it is intrinsic."""
    root = torch.ones_like(direction, dtype=torch.float64) if metric is None else metric.double().sqrt()
    basis = _complement(root[:, None] * generators.double())
    return basis @ (basis.T @ (root * direction.double())) / root


def _complement(columns: Tensor) -> Tensor:
    """Orthonormal complement of the column space."""
    u, s, _ = torch.linalg.svd(columns.reshape(len(columns), -1), full_matrices=True)
    rank = int((s > _RANK * s[0]).sum()) if len(s) and float(s[0]) > 0 else 0
    return u[:, rank:]
