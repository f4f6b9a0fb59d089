r"""The largest singular value of every block: Lanczos on the diagonal, Golub–Kahan off it, all blocks at once.

Started from the best vector that a sweep has found. One round applies $H_{v,w}$ to the newest right vector of a pair
and, off the diagonal, $H_{v,w}^\top=H_{w,v}$ to its image: two products a pair, one on the diagonal, $N^2$ for all.
The Krylov space knows $\hat\sigma_1=\sigma_{max}(HQ)\le\sigma_1$; the residual of the Ritz pair says how far it is off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

Apply = Callable[[int, Tensor], list[Tensor]]  # column w on rows (S, m, d_w): per node the images (S, m, d_v)


class Krylov:
    """The Krylov space of one block, (S, k, d): right vectors, their images, and what the transpose makes of these."""

    def __init__(self, start: Tensor, symmetric: bool) -> None:
        self.symmetric = symmetric
        self.newest = start / start.norm(dim=1, keepdim=True).clamp_min(torch.finfo(start.dtype).tiny)
        self.right: list[Tensor] = []
        self.images: list[Tensor] = []
        self.back: list[Tensor] = []

    def add(self, image: Tensor, back: Tensor) -> None:
        """H q of the newest vector and Hᵀ H q (or H q again on the diagonal); the next vector is orthogonal to all."""
        self.right.append(self.newest)
        self.images.append(image)
        self.back.append(back)
        known, new = torch.stack(self.right, 1), back[:, None]
        for _ in range(2):
            new = new - (new @ known.mT) @ known
        self.newest = new[:, 0] / new[:, 0].norm(dim=1, keepdim=True).clamp_min(torch.finfo(new.dtype).tiny)

    def square(self) -> tuple[np.ndarray, np.ndarray]:
        """σ₁² from below and its relative uncertainty, each (S,).

        A Ritz value is off by about ρ²/gap, with ρ the norm of its residual and the gap to the next Ritz value, and by
        ρ at most where the gap is not known.
        """
        q, u, b = (torch.stack(x, 1).double() for x in (self.right, self.images, self.back))
        top = torch.linalg.eigvalsh(u @ u.mT)[:, -1].clamp_min(0)
        small = q @ u.mT if self.symmetric else u @ u.mT
        values, vectors = torch.linalg.eigh((small + small.mT) / 2)
        order = values.abs().argsort(1, descending=True)
        values = values.gather(1, order)
        first = vectors.gather(2, order[:, None, :1].expand(-1, vectors.shape[1], -1)).mT  # (S, 1, k)
        residual = (first @ b - values[:, :1, None] * (first @ q)).norm(dim=2)[:, 0]
        size = values[:, 0].abs()
        gap = size - values[:, 1].abs() if values.shape[1] > 1 else torch.zeros_like(size)
        off = residual.square() / torch.maximum(gap, residual).clamp_min(1e-300)
        unsure = off / size.clamp_min(1e-300) * (2.0 if self.symmetric else 1.0)
        return top.cpu().numpy(), unsure.clamp(0, 1).cpu().numpy()


def leading_squares(
    starts: Mapping[tuple[int, int], Tensor], apply: Apply, rounds: int, most: int
) -> dict[tuple[int, int], tuple[np.ndarray, np.ndarray]]:
    """σ₁² of every block (v, w) and its relative uncertainty after some rounds.

    >>> h = torch.diag(torch.tensor([3.0, -4.0, 1.0], dtype=torch.float64))
    >>> found = leading_squares({(0, 0): torch.ones(1, 3).double()}, lambda w, z: [z @ h], 3, 1000)
    >>> [round(float(x[0]), 6) for x in found[0, 0]]
    [16.0, 0.0]
    """
    out: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}
    queue = list(starts)
    while queue:
        room = most
        group: list[tuple[int, int]] = []
        while queue and (not group or room > 0):
            pair = queue.pop(0)
            group.append(pair)
            room -= 6 * rounds * starts[pair].numel()
        spaces = {(v, w): Krylov(starts[v, w], symmetric=v == w) for v, w in group}
        for _ in range(rounds):
            images = _products(apply, {p: (p[0], p[1], s.newest) for p, s in spaces.items()})
            crossing = {(v, w): (w, v, images[v, w]) for v, w in spaces if v != w}
            backs = _products(apply, crossing)
            for pair, space in spaces.items():
                space.add(images[pair], backs.get(pair, images[pair]))
        out |= {pair: space.square() for pair, space in spaces.items()}
    return out


def _products(apply: Apply, wanted: Mapping[tuple[int, int], tuple[int, int, Tensor]]) -> dict[tuple[int, int], Tensor]:
    """H_{to,at} z for every entry (to, at, z), a column at a time."""
    out: dict[tuple[int, int], Tensor] = {}
    for at in sorted({at for _, at, _ in wanted.values()}):
        mine = {pair: (to, z) for pair, (to, here, z) in wanted.items() if here == at}
        columns = apply(at, torch.stack([z for _, z in mine.values()], 1))
        out |= {pair: columns[to][:, k] for k, (pair, (to, _)) in enumerate(mine.items())}
    return out
