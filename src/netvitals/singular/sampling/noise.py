"""The random numbers of one chain."""

from __future__ import annotations

import torch
from torch import Tensor


class NoiseSource:
    """A stream that ``seed`` and ``chain`` determine.

    >>> first, again = (NoiseSource(seed=0, chain=3).normal(2, torch.float32) for _ in range(2))
    >>> first.equal(again)
    True
    """

    def __init__(self, seed: int, chain: int) -> None:
        self.generator = torch.Generator().manual_seed(seed * 100_003 + chain)

    def normal(self, count: int, dtype: torch.dtype) -> Tensor:
        return torch.randn(count, generator=self.generator, dtype=dtype)

    def uniform(self, dtype: torch.dtype, count: int = 1) -> Tensor:
        return torch.rand(count, generator=self.generator, dtype=dtype)

    def rows(self, n: int, count: int) -> Tensor:
        """``count`` indices below n, drawn with replacement."""
        return torch.randint(n, (count,), generator=self.generator)
