r"""Off-block closures as printed (eqs. 62–64), beside the exact leading drive that contradicts their order.

The paper models couplings $C_{kk'}$ and rotations $\eta_{k,m}$ by linear equations whose drive is of order
$\varepsilon^{L-2+q}$. The exact block reduction shows a drive of order $\varepsilon^{L-1}$, as on the diagonal (E12).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from netvitals.capture.result import Result
from netvitals.saddle.laws.chain import _with_slope
from netvitals_lab.theory.saddle.blocks import BlockChain


@dataclass(frozen=True)
class OffBlock(Result):
    """Velocities of off-block scalars at a block-aligned state: exact, exact leading order, and as printed."""

    exact: np.ndarray  # (K, K) of dP/dt, diagonal included for comparison
    leading: np.ndarray  # β_{k'} h α^{L−1} √N_B Π X
    printed_coupling: np.ndarray  # (K, K) drive of C from eq. 62
    exact_coupling: np.ndarray  # (K, K) of dQ_2/dt

    @property
    def ratio(self) -> float:
        """Largest exact off-block velocity of P over the largest on-block one."""
        off = ~np.eye(len(self.exact), dtype=bool)
        return float(np.abs(self.exact[off]).max() / np.abs(np.diag(self.exact)).max())

    def __str__(self) -> str:
        return (
            f"off-block rotations move at {self.ratio:.3f} of the on-block speed; printed coupling drive is "
            f"{np.abs(self.printed_coupling).max():.2e}, the exact one {np.abs(self.exact_coupling).max():.2e}"
        )


def off_block(chain: BlockChain, theta: Tensor) -> OffBlock:
    """Compare the printed closures with the exact velocities at a block-aligned state."""
    from netvitals.activations import constants

    k, depth = chain.modes, chain.depth
    p, q, r = chain.split(theta)
    off = ~torch.eye(k, dtype=torch.bool)
    if bool((p[off].abs().max() > 0) | any(bool((m[off].abs() > 0).any()) for m in q)):
        raise ValueError("off_block compares velocities at a block-aligned state; this one has off-block entries")
    velocity_p, velocity_q, _ = chain.split(chain.velocity(theta))
    c = constants(chain.f)
    tail = torch.stack([m.diagonal() for m in q] + [r]).prod(0)  # Π_{ℓ≥2} X_{ℓ,k}
    leading = math.sqrt(chain.block) * c.h * c.slope ** (depth - 1) * tail[:, None] * chain.betas[None, :]
    deep = torch.stack([*(m.diagonal() for m in q[1:]), r]).prod(0)  # D_k = Π_{ℓ≥3} X_{ℓ,k}
    u = p.diagonal()
    _, beta = coupling_coefficients(chain, u)
    printed = deep[:, None] * beta[None, :] * u[None, :] ** c.q
    return OffBlock(velocity_p.numpy(), leading.numpy(), printed.numpy(), velocity_q[0].numpy())


def coupling_coefficients(chain: BlockChain, u: Tensor) -> tuple[Tensor, Tensor]:
    r"""$\alpha_{kk'}=\frac{\alpha^2}KE[\sigma'(U_{k'}z)^2]$, $\beta_{kk'}=\frac{a_q\alpha}KE[z^q\sigma'(U_{k'}z)]$."""
    from netvitals.activations import constants, gauss_hermite

    c = constants(chain.f)
    g, w = gauss_hermite(64)
    _, slope = _with_slope(chain.f, u[:, None] * g)
    alpha = c.slope**2 / chain.modes * (slope.square() * w).sum(-1)
    beta = c.a_q * c.slope / chain.modes * (g**c.q * slope * w).sum(-1)
    return alpha, beta


def quasi_steady(chain: BlockChain, u: Tensor) -> Tensor:
    r"""$C^*_{kk'}=(\beta_{kk'}/\alpha_{kk'})U_{k'}^{q-1}$, as printed."""
    from netvitals.activations import constants

    alpha, beta = coupling_coefficients(chain, u)
    return beta / alpha * u ** (constants(chain.f).q - 1)


def duhamel(t: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    r"""$C(t)=e^{-\int a}\int e^{\int a}b\,ds$ (eq. 63) on a time grid, by the trapezoidal rule."""
    step = np.diff(t)
    grown = np.concatenate([[0.0], np.cumsum(0.5 * (a[1:] + a[:-1]) * step)])
    inner = b * np.exp(grown)
    return np.exp(-grown) * np.concatenate([[0.0], np.cumsum(0.5 * (inner[1:] + inner[:-1]) * step)])


def rotation_coefficients(chain: BlockChain, theta: Tensor) -> tuple[Tensor, Tensor]:
    r"""$\tilde\alpha_k=\bar D_k^2E[\sigma'(U_kz)^2]$, $\tilde\beta_{km}=\bar D_k\bar D_m\mu_{k,m}$ (eq. 64, printed).

    $\mu_{k,m}=E[z^2\sigma'(U_kz)\sigma(U_mz)]+U_mE[\sigma'(U_kz)\sigma'(U_mz)]$,
    $\bar D_k=\alpha^{L-2}\prod_{\ell\ge2}X_{\ell,k}$.
    """
    from netvitals.activations import constants, gauss_hermite

    c = constants(chain.f)
    p, q, r = chain.split(theta)
    u = p.diagonal()
    d = c.slope ** (chain.depth - 2) * torch.stack([m.diagonal() for m in q] + [r]).prod(0)
    g, w = gauss_hermite(64)
    value, slope = _with_slope(chain.f, u[:, None] * g)
    first = torch.einsum("kn,mn,n->km", slope, value, w * g**2)
    second = u[None, :] * torch.einsum("kn,mn,n->km", slope, slope, w)
    return d**2 * (slope.square() * w).sum(-1), d[:, None] * d[None, :] * (first + second)
