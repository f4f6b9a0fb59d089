"""Order statistics of big tensors at small cost: no synchronisation, no sort of everything, no random numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

SAMPLE = 1024               # elements behind a quantile of an activation
TAIL_SAMPLE = 1 << 17       # elements behind an extreme quantile, which needs many to have a tail at all


def sampled(t: Tensor, size: int = SAMPLE) -> Tensor:
    """At most ``size`` elements of ``t``, evenly strided; all of them if there are no more.

    The stride shares no factor with the number of elements: a stride of 16 over rows of 128 channels would see the
    same eight channels in every row.

    >>> sampled(torch.arange(12.0).view(3, 4), size=3)
    tensor([ 0.,  5., 10.])
    """
    flat = t.reshape(-1)
    n = flat.numel()
    if n <= size:
        return flat
    stride = -(-n // size)
    while math.gcd(stride, n) != 1:
        stride += 1
    return flat[::stride]


def quantile_ranks(n: int, qs: Sequence[float]) -> list[int]:
    """Ranks (from 0) of the quantiles ``qs`` among ``n`` sorted values: the value at or just below, never between."""
    return [math.floor(q * (n - 1)) for q in qs]


def quantiles(sample: Tensor, qs: Sequence[float]) -> Tensor:
    """Quantiles of a sample as actual elements of it.

    >>> quantiles(torch.tensor([4.0, 1.0, 3.0, 2.0]), (0.0, 0.5, 1.0))
    tensor([1., 2., 4.])
    """
    ordered = sample.reshape(-1).sort().values
    return torch.stack([ordered[r] for r in quantile_ranks(ordered.numel(), qs)])


def upper_quantile(rows: Tensor, q: float = 0.999) -> Tensor:
    """Quantile near the top of each row (last dimension), exact up to 2¹⁷ elements, from a strided sample beyond.

    The k largest elements lie in the k blocks with the largest maxima, so only those blocks are searched.

    >>> upper_quantile(torch.arange(4000.0), q=0.999)
    tensor(3995.)
    """
    n = rows.shape[-1]
    if n > TAIL_SAMPLE:
        stride = -(-n // TAIL_SAMPLE)
        while math.gcd(stride, n) != 1:
            stride += 1
        rows = rows[..., ::stride]
        n = rows.shape[-1]
    k = n - quantile_ranks(n, (q,))[0]
    block = 1 << max(5, (int(math.sqrt(n / k)).bit_length()))
    blocks = n // block
    if k >= blocks // 2:
        return rows.topk(k, dim=-1).values[..., -1]
    body = rows[..., :blocks * block].unflatten(-1, (blocks, block))
    best = body.amax(-1).topk(k, dim=-1, sorted=False).indices
    if rows.ndim == 1:
        candidates = body.index_select(0, best).reshape(-1)
    else:
        candidates = torch.take_along_dim(body, best[..., None], dim=-2).flatten(-2)
    if blocks * block < n:
        candidates = torch.cat([candidates, rows[..., blocks * block:]], dim=-1)
    return candidates.topk(k, dim=-1).values[..., -1]


def nonzero_median(magnitudes: Tensor) -> Tensor:
    """Median of the elements above zero of a (sampled) tensor of magnitudes; NaN if there are none.

    >>> nonzero_median(torch.tensor([0.0, 0.0, 1.0, 2.0, 3.0]))
    tensor(2.)
    """
    return magnitudes.masked_fill(magnitudes == 0, math.nan).nanmedian()
