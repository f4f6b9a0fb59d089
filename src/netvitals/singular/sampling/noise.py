r"""The random numbers of one chain.

A Langevin step on minibatches is a weak Euler step: what it does to expectations at order ε depends on the moments of
its noise alone. The three-point law (0 with probability 2/3, ±√3 with 1/6 each) has the first five moments of the
normal, as in the simplified weak schemes of Kloeden and Platen (§14), and costs a fifth of drawing normal numbers,
which costs as much as a gradient. Where a Metropolis test needs the density of a move, noise is normal.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

LAWS = ("three-point", "normal")
_THIRD = 21_845  # of the 2¹⁶ whole numbers from −2¹⁵ on, those from here on and those below minus it are a third
_TAIL = (2**15 - _THIRD) / 2**15


class NoiseSource:
    """A stream that ``seed`` and ``chain`` determine.

    >>> z = torch.zeros(100_001)
    >>> NoiseSource(seed=0, chain=3).add(z, std=1.0)
    >>> round(float(z.pow(2).mean()), 1), round(float(z.pow(4).mean()), 1)
    (1.0, 3.0)
    """

    def __init__(self, seed: int, chain: int) -> None:
        self.generator = torch.Generator().manual_seed(seed * 100_003 + chain)
        self.bits = np.random.SFC64(np.random.SeedSequence((seed % 2**64, chain)))

    def normal(self, count: int, dtype: torch.dtype) -> Tensor:
        return torch.randn(count, generator=self.generator, dtype=dtype)

    def add(self, out: Tensor, std: float, law: str = "three-point") -> None:
        """Add noise of mean 0 and standard deviation ``std`` to every entry of the vector ``out``."""
        if law == "normal":
            out.add_(self.normal(len(out), out.dtype).to(out.device), alpha=std)
            return
        words = np.asarray(self.bits.random_raw(-(-out.numel() // 4))).view(np.int16)[: out.numel()]  # 16 bits an entry
        points = (words >= _THIRD).view(np.int8) - (words < -_THIRD).view(np.int8)  # stays in the cache, unlike floats
        out.add_(torch.from_numpy(points).to(out.device), alpha=std / math.sqrt(_TAIL))

    def uniform(self, dtype: torch.dtype, count: int = 1) -> Tensor:
        return torch.rand(count, generator=self.generator, dtype=dtype)

    def rows(self, n: int, count: int) -> Tensor:
        """``count`` indices below n, drawn with replacement."""
        return torch.randint(n, (count,), generator=self.generator)
