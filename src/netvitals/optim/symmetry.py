r"""Does an optimiser respect a gauge? Run it from θ and from h·θ and compare after undoing h.

With *synchronised* gradients (g and its transport $dh^{-\top} g$) an equivariant optimiser leaves only round-off.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from netvitals.capture import Result
from netvitals.optim.gauges import Gauge, Shift


@dataclass(frozen=True)
class Equivariance(Result):
    """Largest relative difference between the run and the transported run."""

    residual: float
    steps: int
    dtype: str

    def __str__(self) -> str:
        return f"residual {self.residual:.2g} after {self.steps} steps in {self.dtype}"


def equivariance(
    gauge: Gauge, build: Callable[[list[Gauge]], Optimizer], *, steps: int = 200, seed: int = 0, size: float = 0.5
) -> Equivariance:
    """Synchronised-gradient test of ``build([gauge])``, an optimiser over the gauge's parameters.

    The gauge's own parameters are left as they were.
    """
    plain, moved = copy.deepcopy(gauge), copy.deepcopy(gauge)
    generator = torch.Generator().manual_seed(seed)
    like = gauge.params[0]
    h = size * torch.randn(gauge.modes, generator=generator, dtype=torch.float64).to(like.dtype)
    ones = copy.deepcopy(gauge)
    with torch.no_grad():
        for p in ones.params:
            p.fill_(1.0)
    ones.act(h)  # a rescale turns ones into its factors
    moved.act(h)
    factors = [torch.ones_like(p) if isinstance(gauge, Shift) else p.detach() for p in ones.params]
    first, second = build([plain]), build([moved])
    for _ in range(steps):
        for p, q, factor in zip(plain.params, moved.params, factors):
            g = torch.randn(p.shape, generator=generator, dtype=torch.float64).to(p.dtype)
            p.grad, q.grad = g, g / factor
        first.step()
        second.step()
    moved.act(-h)
    worst = max(_relative(p, q) for p, q in zip(plain.params, moved.params))
    return Equivariance(worst, steps, str(like.dtype).removeprefix("torch."))


def _relative(p: Parameter, q: Parameter) -> float:
    difference: Tensor = (p.detach() - q.detach()).norm() / p.detach().norm().clamp_min(1e-30)
    return float(difference)
