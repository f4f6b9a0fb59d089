r"""Hessian trace of every parameter tensor and of the whole net, from one pass over the probes.

$\mathrm{tr}\,H_{kk} = E\,z_k^\top (Hz)_k$ with signs $z$ over all parameters at once: every tensor reads its own entry
of the same product, so the traces of all tensors cost no more than the trace of the whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from netvitals.capture import undisturbed
from netvitals.capture.loss import LossFn
from netvitals.capture.observation import Mode
from netvitals.capture.result import Result
from netvitals.curvature.engine.checks import Symmetry
from netvitals.curvature.engine.probes import Distribution, ProbeSeries
from netvitals.curvature.engine.products import Products, Progress, flattened
from netvitals.curvature.engine.stream import Stream, several
from netvitals.curvature.engine.tape import recorded_parameters
from netvitals.curvature.measure.result import shortened, skipped_line


@dataclass(frozen=True, kw_only=True)
class Trace(Result):
    """Traces by parameter name, and of the whole; ``draws`` is (probes, tensors) in the order of ``names``."""

    names: tuple[str, ...]
    by_tensor: dict[str, float]
    by_tensor_stderr: dict[str, float]
    total: float
    total_stderr: float
    by_tensor_sampling: dict[str, float]
    total_sampling: float  # standard error over batches, of what other data would have given; NaN for one batch
    probes: int
    seed: int
    part: str
    draws: np.ndarray
    cost: float
    skipped: dict[str, str] = field(default_factory=dict)

    def rows(self) -> list[dict[str, Any]]:
        """One row a parameter tensor."""
        return [
            {"parameter": n, "trace": self.by_tensor[n], "trace_stderr": self.by_tensor_stderr[n]} for n in self.names
        ]

    def __str__(self) -> str:
        wide = max(len(n) for n in self.names)
        what = {"H": "Hessian", "GN": "Gauss–Newton", "T": "tensor part"}[self.part]
        spent = f"{self.probes} probes, {self.cost:.0f} gradient-equivalents"
        rows = [f"  {n.ljust(wide)}  {self.by_tensor[n]: .4g} ± {self.by_tensor_stderr[n]:.2g}" for n in self.names]
        data = f", ± {self.total_sampling:.2g} over batches" if np.isfinite(self.total_sampling) else ""
        head = f"{what} trace {self.total:.4g} ± {self.total_stderr:.2g}{data} ({spent})"
        return "\n".join([head, *shortened(rows), *skipped_line(self.skipped)])


def sampling_error(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    r"""Standard error of a weighted mean over batches, $\sqrt{\frac{B}{B-1}\sum_b w_b^2(x_b-\bar x)^2}$; NaN for one.

    Args:
        values: (B, ...), one row a batch.
        weights: (B,), not negative.

    >>> float(sampling_error(np.array([1.0, 3.0]), np.ones(2)))
    1.0
    """
    b, share = len(weights), weights / weights.sum()
    if b < 2:
        return np.full(values.shape[1:], np.nan)
    off = values - np.tensordot(share, values, 1)
    return np.sqrt(b / (b - 1) * np.tensordot(share**2, off**2, 1))


@undisturbed
def trace(
    model: nn.Module,
    loss_fn: LossFn,
    batch: Any,
    *,
    mode: Mode = "as_is",
    seed: int = 0,
    progress: Progress | None = None,
    probes: int = 50,
    part: Literal["H", "GN", "T"] = "H",
    distribution: Distribution = "rademacher",
    dtype: torch.dtype | None = None,
    memory: int = 2 << 30,
) -> Trace:
    r"""$\mathrm{tr}\,\nabla^2_\theta L$ and its share in each parameter tensor, with standard errors.

    Args:
        model: any module; left exactly as it was.
        loss_fn: ``loss_fn(output, target)``, its name, or None for the model's own ``output.loss``.
        batch: what a loader yields: ``(x, y)``, several inputs and a target, or a dict; or an iterable of batches, of
            which one is in memory at a time and the spread between them is reported too.
        mode: ``"as_is"``, ``"train"`` (batch statistics, dropout off) or ``"eval"``.
        seed: of the probes.
        progress: called with (products done, products planned).
        probes: number of Hessian-vector products, at least 2.
        part: the whole Hessian, its Gauss–Newton part, or what is left.
        distribution: of the probes, ``"rademacher"`` (signs) or ``"gaussian"``.
        dtype: measure a copy in this dtype.
        memory: bytes for graph and products.

    Returns:
        The trace of each trainable parameter tensor and of the whole; frozen ones are in ``skipped``.

    >>> net = nn.Linear(2, 1, bias=False)
    >>> x = torch.tensor([[3.0, 0.0], [0.0, 1.0]])                  # H = diag(9, 1): signs are exact on a diagonal
    >>> trace(net, nn.MSELoss(), (x, torch.zeros(2, 1)), probes=10).total
    10.0
    """
    if probes < 2:
        raise ValueError(f"probes is {probes}, expected at least 2: a standard error needs two")
    if part not in ("H", "GN", "T"):
        raise ValueError(f"part is {part!r}, expected 'H', 'GN' or 'T'")
    options: Any = {"dtype": dtype, "mode": mode, "memory": memory}

    def draws_of(products: Products) -> np.ndarray:
        rows = []
        series = ProbeSeries(products.flat, seed, distribution)
        symmetry = Symmetry(products.flat[0].dtype)
        for at in products.portions(probes):
            z = series.take(at.stop - at.start)
            hz = products.whole(z, part)
            for one, image in zip(flattened(z), flattened(hz)):
                symmetry.add(one, image)
            rows.append(torch.stack([torch.linalg.vecdot(a.flatten(1), b.flatten(1)) for a, b in zip(z, hz)], 1))
            if progress:
                progress(at.stop, probes)
        symmetry.demand()
        return torch.cat(rows).double().cpu().numpy()

    sampled = np.full(len(list(model.named_parameters())), np.nan)
    whole_sampled = float("nan")
    if several(batch):
        stream = Stream(model, loss_fn, batch, split=part != "H", tensors=True, **options)
        draws, means = np.zeros(()), []
        for n, one in stream.each(draws_of):
            draws = draws + n * one
            means.append(one.mean(0))
        weights = np.array(stream.weights, float)
        draws, tape, cost = draws / weights.sum(), stream.tape, stream.cost.gradients
        sampled = sampling_error(np.stack(means), weights)
        whole_sampled = float(sampling_error(np.stack(means).sum(1), weights))
    else:
        with recorded_parameters(model, loss_fn, batch, **options) as tape:
            products = Products(tape, memory=memory, split=part != "H")
            draws, cost = draws_of(products), products.cost.gradients
    names, skipped = tuple(n.name for n in tape.nodes), tape.skipped
    mean, error = draws.mean(0), draws.std(0, ddof=1) / np.sqrt(probes)
    whole = draws.sum(1)
    return Trace(
        names=names,
        by_tensor=dict(zip(names, mean.tolist())),
        by_tensor_stderr=dict(zip(names, error.tolist())),
        total=float(whole.mean()),
        total_stderr=float(whole.std(ddof=1) / np.sqrt(probes)),
        by_tensor_sampling=dict(zip(names, sampled.tolist())),
        total_sampling=whole_sampled,
        probes=probes,
        seed=seed,
        part=part,
        draws=draws,
        cost=cost,
        skipped=skipped,
    )
