r"""What is recorded of every draw beside its loss, and what it says of the well that holds the chains.

Under $p \propto \exp(-n\beta L - \frac{\gamma}{2}\|w-w^*\|^2)$ the share of the D dimensions that the well holds and
not the data is $\gamma E\|w-w^*\|^2/D$: for a regular model λ̂ is D/2 times what is left. A singular model has free
directions that only the well can hold, so the share alone is no fault. What tells is how λ̂ would move with γ, which
the draws know exactly: $\partial\hat\lambda/\partial\log\gamma = -\frac{\gamma}{2}\mathrm{Cov}(n\beta L, \|w-w^*\|^2)$.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from netvitals.capture import Result

PROJECTIONS = 4
SLIGHT, STRONG = 0.05, 0.33  # change of λ̂ with log γ, as a share of λ̂, that is said, and that is refused


@dataclass(frozen=True)
class Basin(Result):
    """How much of the chains' place is due to the localisation."""

    share: float  # γ E‖w − w*‖² / D, between 0 and 1
    sensitivity: float  # ∂λ̂/∂log γ, at most 0 as a rule
    stderr: float  # of the sensitivity, between chains
    relative: float  # its size over λ̂, less its standard error

    @property
    def ok(self) -> bool:
        return not self.relative > STRONG

    def __str__(self) -> str:
        words = f"the well holds {self.share:.0%} of the dimensions"
        if self.relative > SLIGHT:
            words += f"; λ would be {-self.sensitivity * 0.69:.2g} higher with half the localization"
        if not self.ok:
            words += ": the well and not the data holds the chains, lower localization"
        return words


def observer(start: Tensor, seed: int) -> Callable[[Tensor], Tensor]:
    """A function from draws (chains, D) to the squared distance from ``start`` and random projections of the way to it.

    >>> look = observer(torch.zeros(3), seed=0)
    >>> look(torch.ones(2, 3)).shape, look(torch.ones(2, 3))[0].tolist()
    (torch.Size([5, 2]), [3.0, 3.0])
    """
    generator = torch.Generator().manual_seed(seed % 2**63)
    # each direction along memory: as columns they take five times as long
    rows = torch.randn(PROJECTIONS, start.numel(), generator=generator, dtype=start.dtype)
    rows = (rows / rows.norm(dim=1, keepdim=True)).to(start)

    def look(w: Tensor) -> Tensor:
        away = w - start
        return torch.cat([torch.linalg.vecdot(away, away)[None], rows @ away.T]).double()

    return look


def names() -> list[str]:
    """Of the loss and of what an observer sees, in order."""
    return ["loss", "distance", *(f"projection {i + 1}" for i in range(PROJECTIONS))]


def well(scaled: np.ndarray, distance: np.ndarray, gamma: float, parameters: int) -> Basin:
    """What the draws say of the well.

    >>> draws = np.random.default_rng(0).normal(size=(2, 100_000)) / np.sqrt([[1.5], [6.0]])  # curvature 1 and 5.5
    >>> found = well((draws**2 * [[1.0], [5.5]]).sum(0) / 2, (draws**2).sum(0), gamma=0.5, parameters=2)
    >>> round(found.share, 2), round(found.sensitivity, 2)  # ½ Σ s and −½ Σ s (1 − s), s = 1/3 and 1/12
    (0.21, -0.15)
    """
    scaled, distance = np.atleast_2d(scaled), np.atleast_2d(distance)
    mean = float(scaled.mean())
    by_chain = -gamma / 2 * ((scaled - mean) * (distance - distance.mean())).mean(1)
    sensitivity = float(by_chain.mean())
    stderr = float(by_chain.std(ddof=1)) / math.sqrt(len(by_chain)) if len(by_chain) > 1 else 0.0
    return Basin(
        share=gamma * float(distance.mean()) / parameters,
        sensitivity=sensitivity,
        stderr=stderr,
        relative=max(-sensitivity - stderr, 0.0) / abs(mean) if mean else 0.0,
    )
