r"""Numbers of one block or of all blocks at once: resonance, coupling, stable rank, GN-gap, negative-curvature mass."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

FLOOR = 1e-12  # of the largest block: a block that is smaller counts as zero

Clip = Literal["never", "psd_only", "always"]


def resonance(block: Tensor) -> Tensor:
    r"""$R = \|H\|_F$; over the last two dimensions.

    >>> resonance(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
    tensor(5.)
    """
    return torch.linalg.matrix_norm(block)


def floor(*norms: np.ndarray) -> np.ndarray:
    """Norms of blocks below this are zero: 1e-12 of the largest over the last two dimensions; NaNs do not count.

    >>> floor(np.array([[1.0, 4.0], [np.nan, 0.0]]))
    array([[4.e-12]])
    """
    return FLOOR * np.fmax.reduce([np.fmax.reduce(n, axis=(-2, -1), keepdims=True) for n in map(np.asarray, norms)])


def coupling_matrix(r: np.ndarray, *, clip: Clip = "never", psd: bool = False) -> np.ndarray:
    r"""$C = R(v,w)/\sqrt{R(v,v)R(w,w)}$ of all pairs from the matrix of resonances, NaN where the denominator is zero.

    At most 1 when the assembled matrix is positive semidefinite (GN, or H of a piecewise-linear net); above 1 only
    through the tensor part, which is a signal, so it is clipped only on request. The paper's denominator is zero below
    an absolute 1e-12; here it is so below :func:`floor`, whatever the unit of the loss.
    """
    if clip not in ("never", "psd_only", "always"):
        raise ValueError(f"clip= must be 'never', 'psd_only' or 'always', got {clip!r}")
    root = np.sqrt(np.diagonal(r, axis1=-2, axis2=-1))
    below = root[..., :, None] * root[..., None, :]
    c = ratio(r, np.where(below > floor(r), below, 0.0), np.nan)
    return np.minimum(c, 1.0) if clip == "always" or (clip == "psd_only" and psd) else c


def ratio(a: np.ndarray | float, b: np.ndarray | float, otherwise: float = 0.0) -> np.ndarray:
    """a / b, and something else where b is not positive."""
    a, b = np.broadcast_arrays(np.asarray(a, float), np.asarray(b, float))
    return np.divide(a, b, out=np.full_like(a, otherwise), where=b > 0)


def stable_rank(block: Tensor) -> Tensor:
    r"""$D = \|H\|_F^2 / \|H\|_2^2 \in [1, \mathrm{rank}]$, NaN for a zero block (erratum E7)."""
    top = torch.linalg.matrix_norm(block, 2)
    d = (torch.linalg.matrix_norm(block) / top) ** 2
    return torch.where(top > 0, d, torch.full_like(d, torch.nan))


def effective_dimension(block: Tensor) -> Tensor:
    r"""$d_{eff} = \|H\|_*/\|H\|_2$; $D \le d_{eff} \le \sqrt{\mathrm{rank}\cdot D}$."""
    s = torch.linalg.svdvals(block)
    return torch.where(s[..., 0] > 0, s.sum(-1) / s[..., 0], torch.full_like(s[..., 0], torch.nan))


def numerical_rank(block: Tensor, rtol: float | None = None) -> Tensor:
    """Singular values above ``rtol`` times the largest (default: machine precision times the larger side)."""
    s = torch.linalg.svdvals(block)
    rtol = torch.finfo(block.dtype).eps * max(block.shape[-2:]) if rtol is None else rtol
    return ((s > rtol * s[..., :1]) & (s > 0)).sum(-1)


def gn_gap(r_t: np.ndarray, r_gn: np.ndarray) -> np.ndarray:
    r"""$\mathrm{Gap} = \|H^T\|_F/(\|H^{GN}\|_F + \epsilon)$: the size of what Gauss–Newton leaves out.

    The paper's ε is 1e-12; here it is :func:`floor` of both, so that the gap does not depend on the unit of the loss.
    """
    return ratio(r_t, np.asarray(r_gn, float) + floor(r_t, r_gn))


def gap_of_sums(r_t: np.ndarray, r_gn: np.ndarray) -> float:
    r"""Gap over pairs $i \le j$ as a ratio of sums, $\sum\|H^T\| / (\sum\|H^{GN}\| + \epsilon)$."""
    upper = np.triu_indices(len(r_t))
    return float(gn_gap(r_t[upper].sum(keepdims=True)[None], r_gn[upper].sum(keepdims=True)[None]).item())


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
