r"""Hessian trace of every parameter tensor and of the whole net, from one pass over the probes.

$\mathrm{tr}\,H_{kk} = E\,z_k^\top (Hz)_k$ with signs $z$ over all parameters at once: every tensor reads its own entry
of the same product, so the traces of all tensors cost no more than the trace of the whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from netvitals.curvature.engine.probes import Distribution, Series
from netvitals.curvature.engine.problem import Loss
from netvitals.curvature.engine.products import Products, Progress
from netvitals.curvature.engine.tape import recorded_parameters


@dataclass(frozen=True)
class Trace:
    """Traces by parameter name, and of the whole; ``samples`` is (probes, tensors) in the order of ``names``."""

    names: tuple[str, ...]
    by_tensor: dict[str, float]
    by_tensor_stderr: dict[str, float]
    total: float
    total_stderr: float
    probes: int
    seed: int
    part: str
    samples: np.ndarray
    cost: float

    def __str__(self) -> str:
        wide = max(len(n) for n in self.names)
        what = {"H": "Hessian", "GN": "Gauss–Newton", "T": "tensor part"}[self.part]
        spent = f"{self.probes} probes, {self.cost:.0f} gradient-equivalents"
        rows = [f"  {n.ljust(wide)}  {self.by_tensor[n]: .4g} ± {self.by_tensor_stderr[n]:.2g}" for n in self.names]
        return "\n".join([f"{what} trace {self.total:.4g} ± {self.total_stderr:.2g} ({spent})", *rows])


def trace(
    model: nn.Module,
    loss_fn: Loss,
    batch: Any,
    probes: int = 50,
    seed: int = 0,
    *,
    part: Literal["H", "GN", "T"] = "H",
    distribution: Distribution = "rademacher",
    dtype: torch.dtype | None = None,
    train: bool | None = None,
    memory: int = 2 << 30,
    progress: Progress | None = None,
) -> Trace:
    r"""$\mathrm{tr}\,\nabla^2_\theta L$ and its share in each parameter tensor, with standard errors.

    Args:
        model, loss_fn, batch: the loss is ``loss_fn(model(x), y)``; frozen parameters are left out.
        probes: number of Hessian-vector products, at least 2.
        seed: of the probes.
        part: the whole Hessian, its Gauss–Newton part, or what is left.

    >>> net = nn.Linear(2, 1, bias=False)
    >>> x = torch.tensor([[3.0, 0.0], [0.0, 1.0]])                  # H = diag(9, 1): signs are exact on a diagonal
    >>> trace(net, nn.MSELoss(), (x, torch.zeros(2, 1)), probes=10).total
    10.0
    """
    if probes < 2:
        raise ValueError(f"probes is {probes}, expected at least 2: a standard error needs two")
    if part not in ("H", "GN", "T"):
        raise ValueError(f"part is {part!r}, expected 'H', 'GN' or 'T'")
    with recorded_parameters(model, loss_fn, batch, dtype=dtype, train=train, memory=memory) as tape:
        products = Products(tape, memory=memory, split=part != "H")
        rows = []
        series = Series(products.flat, seed, distribution)
        for at in products.portions(probes):
            z = series.take(at.stop - at.start)
            hz = products.whole(z, part)
            rows.append(torch.stack([torch.linalg.vecdot(a.flatten(1), b.flatten(1)) for a, b in zip(z, hz)], 1))
            if progress:
                progress(at.stop, probes)
        samples = torch.cat(rows).double().cpu().numpy()
        names = tuple(n.name for n in tape.nodes)
        cost = products.cost.gradients
    return _trace(names, samples, seed, part, cost)


def _trace(names: tuple[str, ...], samples: np.ndarray, seed: int, part: str, cost: float) -> Trace:
    probes = len(samples)
    mean, error = samples.mean(0), samples.std(0, ddof=1) / np.sqrt(probes)
    whole = samples.sum(1)
    return Trace(
        names,
        dict(zip(names, mean.tolist())),
        dict(zip(names, error.tolist())),
        float(whole.mean()),
        float(whole.std(ddof=1) / np.sqrt(probes)),
        probes,
        seed,
        part,
        samples,
        cost,
    )
