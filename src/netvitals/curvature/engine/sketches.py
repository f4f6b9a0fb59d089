r"""How batches differ, from a few numbers of each: $\langle\bar Hz, H_bz\rangle$ without keeping any $H_bz$.

Random signs and a fold to $s$ numbers keep inner products in expectation, $E\langle Sa, Sb\rangle=\langle a,b\rangle$
with a variance of about $\|a\|^2\|b\|^2/s$; a vector no longer than $s$ is kept as it is. The influence of a batch on
$\|\bar H\|_F$ is $\langle\bar H, H_b\rangle/\|\bar H\|_F$, whose mean over batches is the norm itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from netvitals.curvature.engine.probes import flattened, generator, signs

if TYPE_CHECKING:
    from netvitals.curvature.engine.products import Column

LENGTH = 256  # numbers that a vector is folded to
SHORT = 1 << 14  # a vector that is copied, since its pieces are not worth a loop
PIECES = 1_000_003  # between the seeds of the pieces of one vector


def folded(pieces: Sequence[Tensor], seed: int, known: dict[tuple[int, int], Tensor] | None = None) -> Tensor:
    """Vectors in pieces (m, ...) as (m, s) with the same inner products in expectation, in float64.

    >>> folded([torch.ones(2, 3)], 0).shape, folded([torch.ones(2, 30, 30), torch.ones(2, 100)], 0).shape
    (torch.Size([2, 3]), torch.Size([2, 256]))
    """
    m, known = pieces[0].shape[0], {} if known is None else known
    rows = [piece.reshape(m, -1) for piece in pieces]
    length = sum(one.shape[1] for one in rows)
    if length < SHORT:
        rows = [flattened(list(pieces))]
    if length <= LENGTH:
        return rows[0].double()
    out = rows[0].new_zeros(m, LENGTH)
    for i, one in enumerate(rows):
        d = one.shape[1]
        if (seed, i) not in known or known[seed, i].shape[1] != d:
            source = generator(seed + PIECES * i, one.device)
            known[seed, i] = signs(1, d, source, one.device).to(one.dtype)
        turned, whole = one * known[seed, i], d // LENGTH * LENGTH
        out += turned[:, :whole].reshape(m, -1, LENGTH).sum(1)
        out[:, : d - whole] += turned[:, whole:]
    return out.double()


def sketched(column: Column, known: dict[tuple[int, int], Tensor] | None = None) -> list[list[Tensor]]:
    """H, GN and T of a column, folded: by part and node, (m, s)."""
    parts: list[list[Tensor]] = [[], [], []]
    for v, pieces in enumerate(column.gauss_newton):
        tensor = column.tensor[v]
        gn = folded(pieces, v, known)
        t = torch.zeros_like(gn) if tensor is None else folded(tensor, v, known)
        for part, value in zip(parts, (gn + t, gn, t)):
            part.append(value)
    return parts


def inner_products(batches: list[list[list[Tensor]]], weights: np.ndarray) -> np.ndarray:
    """⟨mean Hz, Hz of a batch⟩ as (batches, 3, N, m)."""
    share = torch.as_tensor(weights / weights.sum(), dtype=torch.float64)
    out = []
    for k in range(3):
        nodes = []
        for v in range(len(batches[0][k])):
            rows = torch.stack([one[k][v] for one in batches]).cpu()  # (batches, m, s)
            mean = torch.tensordot(share, rows, 1)
            nodes.append(torch.linalg.vecdot(rows, mean[None]))
        out.append(torch.stack(nodes, 1))
    return torch.stack(out, 1).numpy()
