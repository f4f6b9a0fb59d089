"""Order statistics of big tensors at small cost: no synchronisation, no sort of everything, no random numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

SAMPLE = 1024  # elements behind a quantile of an activation
TAIL_SAMPLE = 1 << 17  # elements behind an extreme quantile, which needs many to have a tail at all


def sampled(rows: Tensor, size: int = SAMPLE) -> Tensor:
    """At most ``size`` elements of each row (last dimension), evenly strided; all of them if there are no more.

    The stride shares no factor with the length: a stride of 16 over rows of 128 channels would see the same eight
    channels again and again.

    >>> sampled(torch.arange(12.0), size=3)
    tensor([ 0.,  5., 10.])
    """
    n = rows.shape[-1]
    if n <= size:
        return rows
    stride = -(-n // size)
    while math.gcd(stride, n) != 1:
        stride += 1
    return rows[..., ::stride].contiguous()


def quantile_rank(n: int, q: float) -> int:
    """Rank (from 0) of the q-quantile among ``n`` sorted values: the value at or just below it, never between two."""
    return math.floor(q * (n - 1))


def quantiles(rows: Tensor, qs: Sequence[float]) -> list[Tensor]:
    """Quantiles of each row as actual elements of it, without sorting.

    >>> quantiles(torch.tensor([4.0, 1.0, 3.0, 2.0]), (0.0, 0.5, 1.0))
    [tensor(1.), tensor(2.), tensor(4.)]
    """
    return [rows.kthvalue(quantile_rank(rows.shape[-1], q) + 1, dim=-1).values for q in qs]


def largest(rows: Tensor, k: int) -> Tensor:
    """The k largest elements of each row, in falling order.

    They lie in the k blocks with the largest maxima, so only those blocks are searched.

    >>> largest(torch.arange(4000.0)[None], 3)
    tensor([[3999., 3998., 3997.]])
    """
    n = rows.shape[-1]
    block = 1 << max(5, int(math.sqrt(n / k)).bit_length())
    blocks = n // block
    if k >= blocks // 2:
        return rows.topk(k, dim=-1).values
    body = rows[:, : blocks * block].unflatten(-1, (block, blocks))  # a block is a column: that is quicker to reduce
    best = body.amax(1).topk(k, dim=-1, sorted=False).indices
    candidates = body.gather(2, best[:, None].expand(-1, block, -1)).flatten(1)
    if blocks * block < n:
        candidates = torch.cat([candidates, rows[:, blocks * block :]], dim=1)
    return candidates.topk(k, dim=-1).values


def upper_quantile(rows: Tensor, q: float = 0.999, most: int = TAIL_SAMPLE) -> Tensor:
    """Quantile near the top of each row, between two elements where its rank is, as numpy and torch have it.

    Exact up to ``most`` elements a row (2¹⁷), from a strided sample of as many beyond.

    >>> upper_quantile(torch.tensor([[1.5, 0.5, 0.5]]), q=0.999)
    tensor([1.4980])
    """
    rows = sampled(rows, most)
    n = rows.shape[-1]
    low = quantile_rank(n, q)
    top, share = largest(rows, n - low), q * (n - 1) - low
    if not share:
        return top[:, -1]
    return (1 - share) * top[:, -1] + share * top[:, -2]


def host_nonzero_median(rows: np.ndarray) -> np.ndarray:
    """Median of the elements above zero of each row of magnitudes; NaN if a row has none.

    >>> host_nonzero_median(np.array([[0.0, 0.0, 1.0, 2.0, 3.0], [0.0, 0.0, 0.0, 0.0, 0.0]]))
    array([ 2., nan])
    """
    ordered = np.sort(np.where(rows == 0, np.nan, rows), axis=1)  # NaN come last
    count = (ordered == ordered).sum(1)
    middle = np.take_along_axis(ordered, np.maximum(count - 1, 0)[:, None] // 2, axis=1)[:, 0]  # the lower of two
    return np.where(count > 0, middle, np.nan)
