r"""The share of open gates in one tensor: $D(\theta) = \frac1n \sum_i 1[|f'(x_i)| > \theta]$, strictly above."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class GateDensity:
    """Share of gates above a threshold, over the elements that could be measured."""

    theta: float
    density: float  # in [0, 1]; NaN only if nothing could be measured
    measured: int  # elements behind the number
    skipped: int  # elements whose gate is undefined there

    @property
    def valid(self) -> float:
        return self.measured / max(1, self.measured + self.skipped)

    def __str__(self) -> str:
        return f"D({self.theta:g}) = {self.density:.4f} over {self.measured} elements ({self.valid:.1%} valid)"


def density(gate: Tensor, theta: float, valid: Tensor | None = None) -> GateDensity:
    r"""$D(\theta)$ of a tensor of gates; ``valid`` marks the elements that count (default: those that are not NaN).

    >>> print(density(torch.tensor([0.0, 0.2, 1.0, float("nan")]), theta=0.1))
    D(0.1) = 0.6667 over 3 elements (75.0% valid)
    """
    if not theta >= 0:
        raise ValueError(f"theta must not be negative, got {theta}: it is compared with |f'|")
    valid = ~torch.isnan(gate) if valid is None else valid
    measured = int(valid.sum())
    active = int(((gate.abs() > theta) & valid).sum())
    return GateDensity(float(theta), active / measured if measured else math.nan, measured, gate.numel() - measured)
