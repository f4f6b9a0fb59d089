r"""Whether $w^*$ is a minimum: what a short descent gains, and how many draws lie below the baseline.

λ̂ compares with $L(w^*)$. If a descent from there lowers nβL by g nats within the well, λ̂ is too low by at least g;
at a minimum no draw lies below the baseline.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from netvitals.anatomy import Replicas
from netvitals.capture import Result

_MOST_BELOW = 0.02  # share of draws; rounding at a degenerate minimum leaves none
_MOST_GAIN = 0.1  # of λ
STEPS, FEW_STEPS = 20, 4  # of the descent; few where a pass over all the data is dear


@dataclass(frozen=True)
class Minimum(Result):
    """How far the parameters are from a minimum."""

    gain: float  # nβ(L(w*) − L) after a short descent, in nats
    below: float  # share of draws with a loss below the baseline; NaN where draws were on minibatches
    gradient: float  # ‖∇L(w*)‖
    ok: bool

    def __str__(self) -> str:
        if self.ok:
            return "a minimum"
        words = []
        if self.below > _MOST_BELOW:
            words.append(f"{self.below:.0%} of the draws lie below the baseline")
        if self.gain > 0:
            words.append(f"a short descent gains {self.gain:.3g} nats, by which λ is too low at least")
        return f"not a minimum: {', '.join(words) or 'the mean loss is below the baseline'}; train further"


def descended(
    copies: Replicas, data: tuple[Tensor, Tensor], nbeta: float, gamma: float, steps: int = STEPS
) -> tuple[float, float, float]:
    """Nats that a few steps of L-BFGS on nβL + γ/2 ‖w − w*‖² gain in nβL, the norm of ∇L(w*), and the passes used."""
    w = copies.start.detach().clone()[None].requires_grad_()
    passes = 0

    def losses(at: Tensor) -> tuple[Tensor, Tensor]:
        nonlocal passes
        passes += 1
        gradient = torch.zeros_like(at)
        return copies.add_gradient(copies.parts(at), *data, copies.parts(gradient)), gradient

    with torch.no_grad():
        first, gradient = losses(w.detach())
    norm = float(gradient.norm())
    start: tuple[Tensor, Tensor] | None = (first, gradient)
    optimizer = torch.optim.LBFGS([w], lr=1.0, max_iter=steps, line_search_fn="strong_wolfe")
    best = float(first)

    def closure() -> Tensor:
        nonlocal best, start
        with torch.no_grad():
            loss, slope = start or losses(w.detach())  # L-BFGS begins where we have been already
            start = None
            away = w.detach() - copies.start
            w.grad = nbeta * slope + gamma * away
            if torch.isfinite(loss).all():
                best = min(best, float(loss))
            return (nbeta * (loss - first) + gamma / 2 * away.square().sum()).sum()

    if norm > 0:
        with torch.enable_grad():
            optimizer.step(closure)
    return nbeta * (float(first) - best), norm, float(passes)


def judged(
    gain: float, gradient: float, scaled: np.ndarray, stderr: float, *, noisy: bool, rounding: float = 1e-4
) -> Minimum:
    """Whether the draws and the descent agree that w* is a minimum.

    >>> print(judged(0.0, 0.0, np.ones((2, 10)), 0.1, noisy=False))
    a minimum
    """
    mean = float(scaled.mean())
    below = float("nan") if noisy else float((scaled < -rounding).mean())
    ok = not below > _MOST_BELOW and gain <= max(_MOST_GAIN * max(mean, 0.0), rounding) and mean > -2 * stderr
    return Minimum(gain=gain, below=below, gradient=gradient, ok=ok)
