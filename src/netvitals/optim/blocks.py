r"""Blocks of a gauge: parameters, or rows and columns of them, that one factor per channel multiplies.

A channel may own one row, several (all columns behind a flattened feature map), or rows of a part of a fused matrix
only; ``rows`` says which channel each position along the dimension belongs to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import Parameter


@dataclass(frozen=True)
class GaugeBlock:
    """Parameters scaled together; ``dims[i]`` is the channel dimension of ``params[i]``, None: all of it scales.

    >>> w = Parameter(torch.ones(4, 2))
    >>> GaugeBlock((w,), (0,), (torch.tensor([-1, -1, 0, 1]),)).spread(torch.tensor([2.0, 3.0]), 0).T
    tensor([[1., 1., 2., 3.]])
    """

    params: tuple[Parameter, ...]
    dims: tuple[int | None, ...]
    # for each parameter the channel of every position along its dimension, −1 for none; None or left out: its own
    rows: tuple[Tensor | None, ...] = field(default=(), compare=False)

    def rows_of(self, i: int) -> Tensor | None:
        """The channels of parameter i's positions; None where position and channel are the same."""
        return self.rows[i] if self.rows else None

    @property
    def channels(self) -> int:
        p, d, rows = self.params[0], self.dims[0], self.rows_of(0)
        return 1 if d is None else p.shape[d] if rows is None else int(rows.max()) + 1

    def spread(self, values: Tensor, i: int, missing: float = 1.0) -> Tensor:
        """One number per channel in the shape that multiplies parameter i; ``missing`` where no channel is."""
        p, d, rows = self.params[i], self.dims[i], self.rows_of(i)
        if d is None:
            return values.reshape(())
        if rows is not None:
            rows = rows.to(values.device)
            values = torch.cat([values, values.new_full((1,), missing)])[rows]
        return values.reshape([-1 if j == d % p.ndim else 1 for j in range(p.ndim)])

    def sums(self, i: int, by_position: Tensor) -> Tensor:
        """What was summed over all other dimensions of parameter i, by channel."""
        rows = self.rows_of(i)
        if rows is None:
            return by_position
        rows = rows.to(by_position.device)
        out = by_position.new_zeros(int(rows.max()) + 2)
        return out.index_add(0, rows.clamp_min(-1) + 1, by_position)[1:]

    def inner(self, left: Sequence[Tensor], right: Sequence[Tensor]) -> Tensor:
        """⟨left, right⟩ by channel over all parameters of the block, (channels,)."""
        total = None
        for i, (a, b) in enumerate(zip(left, right)):
            d = self.dims[i]
            if d is None:
                dense = a.is_contiguous() and b.is_contiguous()
                part = (torch.dot(a.view(-1), b.view(-1)) if dense else (a * b).sum()).reshape(1)
            elif a.ndim == 1:
                part = self.sums(i, a * b)
            elif a.ndim == 2:
                part = self.sums(i, torch.linalg.vecdot(a, b, dim=1 - d % 2))
            else:
                part = self.sums(i, (a * b).sum([j for j in range(a.ndim) if j != d % a.ndim]))
            total = part if total is None else total + part
        assert total is not None
        return total

    def check(self, name: str) -> None:
        """A sentence for channels that do not exist or do not agree."""
        for i, (p, d) in enumerate(zip(self.params, self.dims)):
            if d is not None and not -p.ndim <= d < p.ndim:
                raise ValueError(f"{name}: a parameter of shape {tuple(p.shape)} has no dimension {d} for its channels")
            rows = self.rows_of(i)
            if rows is not None and (d is None or rows.shape != (p.shape[d],) or int(rows.max()) < 0):
                raise ValueError(
                    f"{name}: rows= must contain, for each of the {p.shape[d or 0]} entries of the channel "
                    "dimension, the number of its channel, or −1 for none"
                )
        counts = {
            p.shape[d] if (rows := self.rows_of(i)) is None else int(rows.max()) + 1
            for i, (p, d) in enumerate(zip(self.params, self.dims))
            if d is not None
        }
        if len(counts) > 1 or not self.params:
            raise ValueError(
                f"{name}: parameters that are scaled together must have the same number of channels, got shapes "
                f"{[tuple(p.shape) for p in self.params]} with channels in dimensions {list(self.dims)}"
            )
