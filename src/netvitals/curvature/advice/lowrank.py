r"""Low rank and banding: truncated blocks, the rank a tolerance needs, storage of a banded Hessian with its error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from netvitals.curvature.advice.distance import distances
from netvitals.curvature.engine.operator import Operator
from netvitals.curvature.engine.probes import generator
from netvitals.curvature.measure.exact import Blocks
from netvitals.curvature.measure.result import InterlayerCurvature


@dataclass(frozen=True)
class LowRankHessian:
    """U S Vᵀ with orthonormal U (d_v, r) and V (d_w, r)."""

    u: Tensor
    s: Tensor
    v: Tensor

    @property
    def rank(self) -> int:
        return len(self.s)

    def dense(self) -> Tensor:
        return (self.u * self.s) @ self.v.mT

    def __matmul__(self, z: Tensor) -> Tensor:
        return self.u @ (self.s * (self.v.mT @ z)) if z.ndim == 1 else self.u @ (self.s[:, None] * (self.v.mT @ z))


def randomised_svd(op: Operator, rank: int, *, extra: int = 8, passes: int = 1, seed: int = 0) -> LowRankHessian:
    """Leading singular triplets from ``rank + extra`` probes and ``passes`` more rounds of products."""
    if rank < 1:
        raise ValueError(f"rank= must be at least 1, got {rank}")
    width = min(rank + extra, *op.shape)
    z = torch.randn(width, op.shape[1], generator=generator(seed, op.device), dtype=op.dtype, device=op.device)
    y = op.apply(z)
    for _ in range(passes):
        y = op.apply(op.apply_adjoint(torch.linalg.qr(y.mT)[0].mT))
    q = torch.linalg.qr(y.mT)[0]  # (d_v, width)
    small = op.apply_adjoint(q.mT)  # QᵀH as rows (width, d_w)
    u, s, vt = torch.linalg.svd(small, full_matrices=False)
    return LowRankHessian((q @ u)[:, :rank], s[:rank], vt[:rank].mT)


def truncated(block: Tensor, rank: int) -> LowRankHessian:
    """The ``rank`` leading singular triplets of a dense block."""
    u, s, vt = torch.linalg.svd(block, full_matrices=False)
    return LowRankHessian(u[:, :rank], s[:rank], vt[:rank].mT)


def truncation_error(singular_values: Tensor, rank: int) -> tuple[float, float]:
    r"""Frobenius error $\sqrt{\sum_{i>r}\sigma_i^2}$ and its bound $\sqrt{d_{min}-r}\,\sigma_{r+1}$."""
    rest = singular_values[rank:]
    if not len(rest):
        return 0.0, 0.0
    return float(rest.norm()), float(len(rest) ** 0.5 * rest[0])


def needed_rank(singular_values: Tensor, eps: float) -> tuple[int, float]:
    r"""Smallest r with $\sigma_{r+1}/\sigma_1\le\epsilon/\sqrt{d_{min}-r}$, and the relative error that guarantees.

    >>> needed_rank(torch.tensor([1.0, 0.5, 1e-4, 1e-5]), eps=1e-2)
    (2, 0.01)
    """
    if eps <= 0:
        raise ValueError(f"eps= must be a positive relative error, got {eps}")
    d = len(singular_values)
    if d == 0 or float(singular_values[0]) == 0:
        return 0, eps
    for r in range(1, d):
        if float(singular_values[r] / singular_values[0]) <= eps / (d - r) ** 0.5:
            return r, eps
    return d, 0.0


def propagated_root(factors: Mapping[str, Tensor], jacobians: Mapping[str, Tensor], rank: int) -> Tensor:
    r"""A Gauss–Newton root factor one node up, $S_v=\sum_uD_{uv}^\top S_u$, cut back to ``rank`` columns."""
    s = sum((jacobians[u].mT @ factors[u] for u in factors), torch.zeros(()))
    u, sigma, _ = torch.linalg.svd(s, full_matrices=False)
    return u[:, :rank] * sigma[:rank]


@dataclass(frozen=True)
class BandedHessian:
    """Blocks within a band, off-diagonal ones of low rank; multiplies vectors over all nodes."""

    index: dict[str, slice]
    diagonal: dict[str, Tensor]
    off: dict[tuple[str, str], LowRankHessian]
    stored: int  # numbers kept
    full: int  # numbers of the dense matrix
    error: float  # relative Frobenius error of what was dropped
    dropped_by_band: float  # its part from whole blocks outside the band

    def __matmul__(self, z: Tensor) -> Tensor:
        out = torch.zeros_like(z)
        for v, at in self.index.items():
            out[at] += self.diagonal[v] @ z[at]
        for (v, w), block in self.off.items():
            out[self.index[v]] += block @ z[self.index[w]]
        return out


def banded(found: InterlayerCurvature | Blocks, bandwidth: int, eps: float) -> BandedHessian:
    """Keep blocks at most ``bandwidth`` apart, each off-diagonal one at the rank that ``eps`` needs."""
    if isinstance(found, InterlayerCurvature):
        if found.blocks is None:
            raise ValueError(
                "this result was estimated stochastically: it contains the norms of the Hessian blocks, but not "
                "the blocks themselves. Use between_layers(..., method='exact')"
            )
        blocks, apart = found.blocks, distances(found)
    else:
        places = np.arange(len(found.index))
        blocks, apart = found, np.abs(np.subtract.outer(places, places))
    names = list(blocks.index)
    diagonal = {v: blocks.block(v, v).H for v in names}
    off: dict[tuple[str, str], LowRankHessian] = {}
    lost, outside, stored = 0.0, 0.0, sum(b.numel() for b in diagonal.values())
    for i, v in enumerate(names):
        for j, w in enumerate(names):
            if i == j:
                continue
            h = blocks.block(v, w).H
            if apart[i, j] > bandwidth:
                outside += float(h.square().sum())
                continue
            s = torch.linalg.svdvals(h)
            rank = max(1, needed_rank(s, eps)[0])
            off[v, w] = truncated(h, rank)
            stored += rank * (h.shape[0] + h.shape[1])
            lost += float(s[rank:].square().sum())
    whole = float(blocks.hessian.square().sum())
    scale = max(whole, 1e-300)
    return BandedHessian(
        index=blocks.index,
        diagonal=diagonal,
        off=off,
        stored=stored,
        full=blocks.hessian.numel(),
        error=((lost + outside) / scale) ** 0.5,
        dropped_by_band=(outside / scale) ** 0.5,
    )
