"""A histogram of magnitudes over the whole range of floats, in constant memory and without knowing the range first.

The upper bits of a float32 are a logarithmic bin number: 8 bits of exponent and 6 of mantissa make 16,384 bins, each
at most 1/64 of its lower edge wide. Counts below an edge are exact, so a share is reported together with the edge that
was really used; a quantile is off by at most half a bin, 0.8 %.
"""

from __future__ import annotations

import torch
from torch import Tensor

_SHIFT = 17
_BINS = 1 << (31 - _SHIFT)


class MagnitudeHistogram:
    """Counts of |values|; NaN are left out, infinities are the last bin.

    >>> h = MagnitudeHistogram()
    >>> h.add(torch.tensor([0.0, 1.0, 2.0, 4.0]))
    >>> h.share_at_most(2.0)
    (0.75, 2.0)
    """

    def __init__(self) -> None:
        self.counts: Tensor | None = None

    def add(self, magnitudes: Tensor) -> None:
        values = magnitudes.detach().reshape(-1).to(torch.float32)
        values = values[~values.isnan()].abs()
        if values.numel() == 0:
            return
        # a value on an edge belongs to the bin below it, so that "at most the edge" is a sum of whole bins
        bits = (values.view(torch.int32) - 1).clamp_min_(-1)
        found = torch.bincount((bits >> _SHIFT) + 1, minlength=_BINS + 1)
        self.counts = found if self.counts is None else self.counts.add_(found)

    @property
    def total(self) -> int:
        return 0 if self.counts is None else int(self.counts.sum())

    @property
    def zeros(self) -> int:
        return 0 if self.counts is None else int(self.counts[0])

    def share_at_most(self, threshold: float) -> tuple[float, float]:
        """(share of values ≤ edge, edge) with the bin edge that is nearest to ``threshold``."""
        if self.counts is None:
            return float("nan"), threshold
        if not threshold > 0:
            return self.zeros / self.total, 0.0
        below = _edges_around(threshold)
        index, edge = min(below, key=lambda e: abs(e[1] - threshold))
        return int(self.counts[: index + 1].sum()) / self.total, edge

    def count_above(self, threshold: float) -> tuple[int, float]:
        share, edge = self.share_at_most(threshold)
        return (0 if self.counts is None else self.total - round(share * self.total)), edge

    def quantile(self, q: float, *, nonzero: bool = False) -> float:
        """The q-quantile between the middles of the bins where its rank is; of values above zero only, if asked."""
        if self.counts is None:
            return float("nan")
        counts = self.counts.cpu()
        if nonzero:
            counts = counts.clone()
            counts[0] = 0
        total = int(counts.sum())
        if total == 0:
            return float("nan")
        rank, below = q * (total - 1), counts.cumsum(0)
        ends = [min(int(rank) + more, total - 1) for more in (0, 1)]
        low, high = (_middle(int(torch.searchsorted(below, end, right=True))) for end in ends)
        share = rank - int(rank)
        return (1 - share) * low + share * high


def _middle(index: int) -> float:
    return 0.0 if index == 0 else (_edge(index - 1) + _edge(index)) / 2


def _edge(index: int) -> float:
    """Upper edge of bin ``index``; bin 0 holds the zeros."""
    return float(torch.tensor(index << _SHIFT, dtype=torch.int32).view(torch.float32))


def _edges_around(threshold: float) -> list[tuple[int, float]]:
    bits = int(torch.tensor(threshold, dtype=torch.float32).view(torch.int32))
    low = bits >> _SHIFT
    return [(low, _edge(low)), (low + 1, _edge(low + 1))]
