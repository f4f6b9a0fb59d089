"""What enters an activation: mean and standard deviation by channel and pooled; they decide which gates are open."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor


@dataclass(frozen=True)
class Moments:
    """Mean and standard deviation of an activation's input, by channel and pooled."""

    mu: np.ndarray  # per channel
    sigma: np.ndarray  # per channel, population form
    mean: float
    std: float
    neg_preact: float  # share of inputs that are zero or below
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

    >>> import torch
    >>> print(moments(torch.tensor([[1.0, -1.0], [3.0, -1.0]])))
    p = +0.5000 ± 1.6583 over 2 channels (4 elements), drift +0.302, 50.0% at or below zero
    """
    if p.numel() == 0:
        raise ValueError(f"expected pre-activations with elements, got shape {tuple(p.shape)}")
    x = p.detach().double()
    x = x.reshape(-1, 1) if x.ndim < 2 else x.movedim(channel_dim, -1).flatten(0, -2)
    return Moments(
        x.mean(0).cpu().numpy(),
        x.std(0, correction=0).cpu().numpy(),
        float(x.mean()),
        float(x.std(correction=0)),
        float((x <= 0).double().mean()),
        x.numel(),
    )
