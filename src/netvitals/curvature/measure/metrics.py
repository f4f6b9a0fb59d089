r"""Numbers of one block or of all blocks at once: resonance, coupling, stable rank, GN-gap, negative-curvature mass."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

FLOOR = 1e-12  # coupling and gap: denominators below this are zero
ZERO = 1e-24  # stable rank: squared spectral norms below this are a zero block

Clip = Literal["never", "psd_only", "always"]


def resonance(block: Tensor) -> Tensor:
    r"""$R = \|H\|_F$; over the last two dimensions.

    >>> resonance(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
    tensor(5.)
    """
    return torch.linalg.matrix_norm(block)


def coupling(
    r_vw: np.ndarray, r_vv: np.ndarray, r_ww: np.ndarray, *, clip: Clip = "never", psd: bool = False
) -> np.ndarray:
    r"""$C = R(v,w)/\sqrt{R(v,v)R(w,w)}$, NaN where the denominator is below 1e-12.

    At most 1 when the assembled matrix is positive semidefinite (GN, or H of a piecewise-linear net); above 1 only
    through the tensor part, which is a signal, so it is clipped only on request.
    """
    if clip not in ("never", "psd_only", "always"):
        raise ValueError(f"clip is {clip!r}, expected 'never', 'psd_only' or 'always'")
    below = np.sqrt(np.asarray(r_vv, float) * np.asarray(r_ww, float))
    with np.errstate(divide="ignore", invalid="ignore"):
        c = np.where(below > FLOOR, np.asarray(r_vw, float) / below, np.nan)
    return np.minimum(c, 1.0) if clip == "always" or (clip == "psd_only" and psd) else c


def coupling_matrix(r: np.ndarray, *, clip: Clip = "never", psd: bool = False) -> np.ndarray:
    """Coupling of all pairs from the matrix of resonances."""
    diagonal = np.diagonal(r, axis1=-2, axis2=-1)
    return coupling(r, diagonal[..., :, None], diagonal[..., None, :], clip=clip, psd=psd)


def stable_rank(block: Tensor) -> Tensor:
    r"""$D = \|H\|_F^2 / \|H\|_2^2 \in [1, \mathrm{rank}]$, NaN for a zero block (erratum E7)."""
    top = torch.linalg.matrix_norm(block, 2) ** 2
    d = torch.linalg.matrix_norm(block) ** 2 / top
    return torch.where(top < ZERO, torch.full_like(d, torch.nan), d)


def effective_dimension(block: Tensor) -> Tensor:
    r"""$d_{eff} = \|H\|_*/\|H\|_2$; $D \le d_{eff} \le \sqrt{\mathrm{rank}\cdot D}$."""
    s = torch.linalg.svdvals(block)
    return torch.where(s[..., 0] ** 2 < ZERO, torch.full_like(s[..., 0], torch.nan), s.sum(-1) / s[..., 0])


def numerical_rank(block: Tensor, rtol: float | None = None) -> Tensor:
    """Singular values above ``rtol`` times the largest (default: machine precision times the larger side)."""
    s = torch.linalg.svdvals(block)
    rtol = torch.finfo(block.dtype).eps * max(block.shape[-2:]) if rtol is None else rtol
    return ((s > rtol * s[..., :1]) & (s > 0)).sum(-1)


def gn_gap(r_t: np.ndarray, r_gn: np.ndarray) -> np.ndarray:
    r"""$\mathrm{Gap} = \|H^T\|_F/(\|H^{GN}\|_F + 10^{-12})$: the size of what Gauss–Newton leaves out."""
    return np.asarray(r_t, float) / (np.asarray(r_gn, float) + FLOOR)


def gap_of_sums(r_t: np.ndarray, r_gn: np.ndarray) -> float:
    r"""Gap over pairs $i \le j$ as a ratio of sums, $\sum\|H^T\| / (\sum\|H^{GN}\| + 10^{-12})$."""
    upper = np.triu_indices(len(r_t))
    return float(r_t[upper].sum() / (r_gn[upper].sum() + FLOOR))


def negative_mass(matrix: Tensor) -> float:
    r"""$m^-(H) = \sum_{\lambda_i<0}|\lambda_i|$ of a symmetric matrix.

    >>> negative_mass(torch.diag(torch.tensor([2.0, -1.0, -0.5])))
    1.5
    """
    eigenvalues = torch.linalg.eigvalsh((matrix + matrix.mT) / 2)
    return float(-eigenvalues.clamp(max=0).sum())


def escape_vector(matrix: Tensor) -> tuple[float, Tensor]:
    """The smallest eigenvalue of a symmetric matrix and its unit eigenvector."""
    values, vectors = torch.linalg.eigh((matrix + matrix.mT) / 2)
    return float(values[0]), vectors[:, 0]


def symmetry_defect(h_vw: Tensor, h_wv: Tensor) -> float:
    r"""$\|H_{v,w}-H_{w,v}^\top\|_F/\|H_{v,w}\|_F$; zero up to rounding for smooth nets."""
    scale = torch.linalg.matrix_norm(h_vw).clamp_min(torch.finfo(h_vw.dtype).tiny)
    return float(torch.linalg.matrix_norm(h_vw - h_wv.mT) / scale)


def symmetrised(h_vw: Tensor, h_wv: Tensor) -> Tensor:
    r"""$\frac12(H_{v,w}+H_{w,v}^\top)$, for uses that need symmetry; it alters the spectrum at kinks."""
    return (h_vw + h_wv.mT) / 2


def noise_floor(dtype: torch.dtype, depth: int = 1) -> float:
    """Below this a gap cannot be told from rounding: a few machine epsilons per layer.

    >>> noise_floor(torch.float32) < 1e-6
    True
    """
    return 4.0 * torch.finfo(dtype).eps * max(depth, 1)
