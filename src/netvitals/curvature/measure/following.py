"""The parameters' Hessian looked at again and again in training: each look begins where the last one ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch  # noqa: F401
from torch import Tensor, nn

from netvitals.curvature.measure.spectrum import top_eigenvalues
from netvitals.curvature.measure.traces import trace


@dataclass(frozen=True)
class ParameterLook:
    """The Hessian of the parameters at one step: its largest eigenvalue, and its trace by layer with standard error."""

    sharpness: float
    residual: float
    converged: bool
    steps: int  # products that the eigenvalue took
    traces: dict[str, tuple[float, float]]
    cost: float
    vector: Tensor | None  # from which the next look begins


def look_at(model: nn.Module, loss_fn: Any, batch: Any, probes: int, before: Tensor | None) -> ParameterLook:
    """The largest eigenvalue to 2 %, begun from the vector of the last look, and traces by layer.

    >>> net, batch = nn.Linear(2, 1, bias=False), (torch.tensor([[3.0, 0.0], [0.0, 1.0]]), torch.zeros(2, 1))
    >>> round(look_at(net, "mse", batch, 4, None).sharpness, 3)
    9.0
    """
    size = sum(p.numel() for p in model.parameters() if p.requires_grad)
    start = before if before is not None and before.numel() == size else None
    top = top_eigenvalues(model, loss_fn, batch, k=1, tol=0.02, most=30, start=start)
    found = trace(model, loss_fn, batch, probes=max(probes, 4))
    layers: dict[str, list[int]] = {}
    for i, name in enumerate(found.names):
        layers.setdefault(name.rpartition(".")[0] or name, []).append(i)
    draws = {layer: found.draws[:, columns].sum(1) for layer, columns in layers.items()}
    return ParameterLook(
        sharpness=float(top.values[0]),
        residual=float(top.residuals[0]),
        converged=top.converged,
        steps=top.steps,
        traces={n: (float(d.mean()), float(d.std(ddof=1) / len(d) ** 0.5)) for n, d in draws.items()},
        cost=top.cost + found.cost,
        vector=top.vectors[0],
    )
