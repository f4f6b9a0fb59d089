r"""What is read off a layer's K-FAC factors: bottom eigenvalue, dead entry, Schur complement, lifted directions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from netvitals.capture import Result, undisturbed

FLOOR = 1e-14  # of the largest eigenvalue: float64 rounding
FLOOR_SINGLE = 1e-11  # where activations or gradients were float32; their rounding of 6e-8 enters squared


@dataclass(frozen=True, kw_only=True)
class Factor(Result):
    """One layer's factors with the spectra they are read by."""

    A: Tensor  # (in [+1 with bias], …) float64
    G: Tensor  # (out, out) float64
    A_spectrum: Tensor  # ascending
    G_spectrum: Tensor
    positions: int  # tokens or pixels an example contributes
    floor: float = FLOOR  # of the largest eigenvalue, below which rounding decides

    @property
    def condition(self) -> float:
        """κ(G) above the rounding floor."""
        spectrum = self.G_spectrum if len(self.G_spectrum) else torch.linalg.eigvalsh(self.G)
        low, _ = lambda_min(self.G, spectrum, self.floor)
        return float(spectrum[-1]) / low if low > 0 else math.inf

    def row(self) -> dict[str, Any]:
        """Sizes, and the ends of both spectra where they were computed."""
        ends = {
            f"{name}_{end}": float(values[i]) if len(values) else math.nan
            for name, values in (("A", self.A_spectrum), ("G", self.G_spectrum))
            for end, i in (("smallest", 0), ("largest", -1))
        }
        return {"inputs": len(self.A), "outputs": len(self.G), "positions": self.positions, **ends}

    def __str__(self) -> str:
        if not len(self.A_spectrum):
            return f"A {tuple(self.A.shape)}, G {tuple(self.G.shape)}"
        return (
            f"A {tuple(self.A.shape)} λ [{self.A_spectrum[0]:.2e}, {self.A_spectrum[-1]:.2e}], "
            f"G {tuple(self.G.shape)} λ [{self.G_spectrum[0]:.2e}, {self.G_spectrum[-1]:.2e}]"
        )


def lambda_min(matrix: Tensor, spectrum: Tensor | None = None, floor: float = FLOOR) -> tuple[float, int]:
    """Smallest eigenvalue above ``floor`` times the largest, and how many lie below (zeros of a gauge, or rounding).

    A factor of a float32 model has a higher ``Factor.floor``: pass it.

    >>> lambda_min(torch.diag(torch.tensor([0.0, 0.5, 2.0], dtype=torch.float64)))
    (0.5, 1)
    """
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.numel() or not torch.isfinite(matrix).all():
        raise ValueError(f"matrix= must be square with finite entries, got shape {tuple(matrix.shape)}")
    values = torch.linalg.eigvalsh(matrix.double()) if spectrum is None else spectrum
    above = values > floor * values[-1].clamp_min(1e-300)
    return (float(values[above][0]) if above.any() else 0.0), int((~above).sum())


def dead_entry(matrix: Tensor, direction: Tensor) -> float:
    """vᵀMv for the unit vector along ``direction``."""
    v = _unit(direction, matrix)
    return float(v @ matrix @ v)


def schur_complement(matrix: Tensor, direction: Tensor) -> float:
    """D − bᵀB⁻¹b of the entry along ``direction``: what the live directions do not explain."""
    v = _unit(direction, matrix)
    basis = torch.linalg.qr(torch.cat([v[:, None], torch.eye(len(v)).to(matrix)], 1))[0]
    m = basis.T @ matrix @ basis
    return float(m[0, 0] - m[0, 1:] @ torch.linalg.pinv(m[1:, 1:], hermitian=True, rtol=1e-12) @ m[0, 1:])


def schur_constant(
    width: int, dead: tuple[float, float] = (1.0, math.pi), live: tuple[float, float] | None = None
) -> float:
    r"""$b^\top B^{-1} b / D = m_d^2 m_n^2 (h-1) / (s_d\,[(s_n - m_n^2) + (h-1) m_n^2])$ from first and second moments.

    The default is ReLU on an isotropic Gaussian, (mean, second moment) proportional to (1, π): $(h-1)/(\pi(h-2+\pi))$.

    >>> round(schur_constant(8), 5)
    0.24374
    """
    if width < 1:
        raise ValueError(f"width= is the number of units of a layer and must be at least 1, got {width}")
    (m_d, s_d), (m_n, s_n) = dead, live or dead
    rest = width - 1
    return m_d**2 * m_n**2 * rest / (s_d * ((s_n - m_n**2) + rest * m_n**2))


def kronecker_lift(factor: Factor) -> tuple[Tensor, float]:
    r"""$\Delta W = g_{\min} a_{\min}^\top$, the bottom eigenvector of A ⊗ G as a matrix, and its eigenvalue.

    Alone it is a gauge direction (K ≡ 0): the order of a dead unit lives in its joint mode across layers.
    """
    a, g = torch.linalg.eigh(factor.A), torch.linalg.eigh(factor.G)
    return torch.outer(g.eigenvectors[:, 0], a.eigenvectors[:, 0]), float(a.eigenvalues[0] * g.eigenvalues[0])


@undisturbed
def joint_mode(
    model: nn.Module, first: str, second: str, unit: int, row: Tensor | None = None, column: Tensor | None = None
) -> dict[str, Tensor]:
    """Direction (incoming row ⊕ outgoing column)/√2 of a hidden unit, by parameter name.

    Without ``row`` and ``column`` the unit's own weights are used, or a fixed random vector where they vanish (a
    constant column would be the logit shift, which cross-entropy does not see).
    """
    w_in, w_out = model.get_submodule(first).weight, model.get_submodule(second).weight
    assert isinstance(w_in, Tensor) and isinstance(w_out, Tensor)
    if not 0 <= unit < w_in.shape[0] or w_out.shape[1] != w_in.shape[0]:
        raise ValueError(
            f"unit {unit} does not fit: it needs a row in {first} (shape {tuple(w_in.shape)}) and a column in "
            f"{second} (shape {tuple(w_out.shape)})"
        )
    r = w_in.detach()[unit] if row is None else row
    c = w_out.detach()[:, unit] if column is None else column
    r, c = (v if float(v.norm()) > 0 else _generic(v) for v in (r, c))
    into, out = torch.zeros_like(w_in), torch.zeros_like(w_out)
    into[unit], out[:, unit] = r / r.norm() / math.sqrt(2), c / c.norm() / math.sqrt(2)
    return {f"{first}.weight": into, f"{second}.weight": out}


def _unit(direction: Tensor, matrix: Tensor) -> Tensor:
    if direction.ndim != 1 or matrix.shape != (len(direction), len(direction)):
        raise ValueError(
            "direction= must have as many entries as the matrix has rows or columns: got shape "
            f"{tuple(direction.shape)} for a matrix of shape {tuple(matrix.shape)}"
        )
    if not torch.isfinite(direction).all() or float(direction.norm()) == 0.0:
        raise ValueError("direction= must be a finite vector that is not zero")
    return (direction / direction.norm()).to(matrix)


def _generic(like: Tensor) -> Tensor:
    drawn = torch.randn(like.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return (drawn - drawn.mean() if len(like) > 1 else drawn).to(like)
