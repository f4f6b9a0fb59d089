r"""Gates and their inputs in one tensor: how dense the gates are, and how what enters is distributed.

The share of open gates is $D(\theta) = \frac1n \sum_i 1[|f'(x_i)| > \theta]$, strictly above the threshold; mean and
standard deviation of the inputs, by channel and pooled, decide which gates are open.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class GateDensity:
    """Share of gates above a threshold, over the elements that could be measured.

    Returned by :func:`density`.

    Attributes:
        theta: threshold of the gates.
        density: in [0, 1]; NaN only if nothing could be measured.
        measured: elements behind the number.
        undefined: elements without a gate there.
    """

    theta: float
    density: float
    measured: int
    undefined: int

    @property
    def valid(self) -> float:
        return self.measured / max(1, self.measured + self.undefined)

    def __str__(self) -> str:
        return f"D({self.theta:g}) = {self.density:.4f} over {self.measured} elements ({self.valid:.1%} valid)"


def density(gate: Tensor, theta: float, valid: Tensor | None = None) -> GateDensity:
    r"""$D(\theta)$, the share of open gates, of a tensor of gates.

    Args:
        gate: values of f', of any shape.
        theta: a gate is open where |f'| > theta, strictly.
        valid: boolean, True where an element counts; by default where ``gate`` is not NaN.

    Returns:
        The share of open gates in [0, 1], NaN where nothing counts, and how many elements are behind it.

    >>> print(density(torch.tensor([0.0, 0.2, 1.0, float("nan")]), theta=0.1))
    D(0.1) = 0.6667 over 3 elements (75.0% valid)
    """
    if not theta >= 0:
        raise ValueError(f"theta must not be negative, got {theta}: it is compared with |f'|")
    valid = ~torch.isnan(gate) if valid is None else valid
    measured = int(valid.sum())
    active = int(((gate.abs() > theta) & valid).sum())
    return GateDensity(float(theta), active / measured if measured else math.nan, measured, gate.numel() - measured)


@dataclass(frozen=True)
class Moments:
    """Mean and standard deviation of an activation's input, by channel and pooled.

    Returned by :func:`moments`.

    Attributes:
        mu: per channel.
        sigma: per channel, population form.
        mean: over everything.
        std: over everything.
        neg_preact: share of inputs that are zero or below.
        elements: how many there were.
    """

    mu: np.ndarray
    sigma: np.ndarray
    mean: float
    std: float
    neg_preact: float
    elements: int

    @property
    def preact_drift(self) -> float:
        return self.mean / self.std if self.std else float("nan")

    def __str__(self) -> str:
        return (
            f"p = {self.mean:+.4f} ± {self.std:.4f} over {self.mu.size} channels ({self.elements} elements), "
            f"drift {self.preact_drift:+.3f}, {self.neg_preact:.1%} at or below zero"
        )


def moments(p: Tensor, channel_dim: int = 1) -> Moments:
    """The moments of one tensor of pre-activations.

    Args:
        p: pre-activations of any shape; fewer than two dimensions are one channel.
        channel_dim: the dimension of ``p`` that counts channels.

    Returns:
        Mean and population standard deviation by channel and pooled, and the share of inputs at or below zero.

    >>> print(moments(torch.tensor([[1.0, -1.0], [3.0, -1.0]])))
    p = +0.5000 ± 1.6583 over 2 channels (4 elements), drift +0.302, 50.0% at or below zero
    """
    if p.numel() == 0:
        raise ValueError(f"expected pre-activations with elements, got shape {tuple(p.shape)}")
    x = p.detach().double()
    x = x.reshape(-1, 1) if x.ndim < 2 else x.movedim(channel_dim, -1).flatten(0, -2)
    return Moments(
        mu=x.mean(0).cpu().numpy(),
        sigma=x.std(0, correction=0).cpu().numpy(),
        mean=float(x.mean()),
        std=float(x.std(correction=0)),
        neg_preact=float((x <= 0).double().mean()),
        elements=x.numel(),
    )
