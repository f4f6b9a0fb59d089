r"""Rows of a layer: how uneven its units are, as moments and Hermite coefficients of what they read of a direction.

With $u_j=w_j\cdot v$ for unit j of a block, mean m and spread s, $Q^{(p)}=\frac1{p!}\,\overline{He_p((u_j-m)/s)}$: 1
for p = 0, 0 for p = 1 and 2, a sixth of the skewness for p = 3. A closure that keeps block means alone takes s for 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from netvitals.capture.result import Result


@dataclass(frozen=True, kw_only=True)
class RowMoments(Result):
    """Moments of the rows of a weight within its blocks; every array is (copies, blocks).

    Returned by :func:`row_moments`.

    Attributes:
        mean: of the units' measurements of the direction.
        spread: their standard deviation.
        hermite: (copies, blocks, orders + 1), Q^(p) of the measurements in units of their spread; NaN without spread.
    """

    mean: Tensor
    spread: Tensor
    hermite: Tensor

    @property
    def mean_share(self) -> Tensor:
        """m²/(m² + s²): how much of the rows a block mean keeps."""
        return self.mean.square() / (self.mean.square() + self.spread.square())

    def __str__(self) -> str:
        share = self.mean_share
        return (
            f"block means keep {float(share.min()):.3g} to {float(share.max()):.3g} of the rows ({share.shape[1]} "
            f"blocks, {share.shape[0]} networks)"
        )


def row_moments(weight: Tensor, direction: Tensor, *, blocks: int = 1, orders: int = 4) -> RowMoments:
    r"""Moments of $u_j=w_j\cdot v$ over the units of each block.

    >>> found = row_moments(torch.tensor([[1.0, 0.0], [3.0, 5.0]]), torch.tensor([1.0, 0.0]))
    >>> float(found.mean), float(found.spread), [round(x, 3) for x in found.hermite[0, 0].tolist()]
    (2.0, 1.0, [1.0, 0.0, 0.0, 0.0, -0.083])
    """
    w = (weight[None] if weight.ndim == 2 else weight).detach().double()
    if w.shape[1] % blocks:
        raise ValueError(f"{w.shape[1]} units do not split evenly into {blocks} blocks")
    u = (w @ (direction.double() / direction.double().norm())).unflatten(1, (blocks, -1))
    mean = u.mean(2)
    spread = (u - mean[..., None]).square().mean(2).sqrt()
    x = torch.where(spread > 0, 1 / spread, torch.nan)[..., None] * (u - mean[..., None])
    values = [torch.ones_like(x), x]
    for p in range(1, orders):
        values.append(x * values[-1] - p * values[-2])
    hermite = torch.stack([v.mean(2) / math.factorial(p) for p, v in enumerate(values[: orders + 1])], 2)
    return RowMoments(mean=mean, spread=spread, hermite=hermite)
