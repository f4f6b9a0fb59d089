"""Measure every gate of a model on one batch, by two backends, and pool them in three ways.

``local_vjp`` differentiates each activation at its own input: no loss, no division. ``ratio`` divides the gradient that
leaves an activation by the one that enters it, as a hook on a training run would: exact where the entering gradient is
not zero, and *biased* where zeros are not random. Behind max-pooling only the winners have a gradient, so a masked ReLU
density comes out far too high. Elements that cannot be divided are left out and the valid share is reported.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from itertools import chain
from types import CellType, FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from netvitals.capture import (
    LEFT_OUT,
    ActivationView,
    LinearView,
    Mode,
    Only,
    Recorder,
    Task,
    TensorView,
    Vital,
    check_finite,
    loss_and_batch,
    observe,
    picked,
    task_of,
    tensors,
    undisturbed,
)
from netvitals.gates.report import Backend, GateReport, SiteGates
from netvitals.stats import quantile_rank, sampled

SAMPLE = 1 << 14  # elements behind the percentiles of one site
RATIO_TOLERANCE = 1e-6  # 0.1·g / g may round to either side of 0.1


@undisturbed
def measure(
    model: nn.Module,
    loss_fn: Any = None,
    batch: Any = LEFT_OUT,
    *,
    mode: Mode = "as_is",
    only: Only = None,
    seed: int = 0,
    thetas: Sequence[float] | float = (0.01, 0.1),
    backend: Backend = "local_vjp",
    tiny: float | None = None,
) -> GateReport:
    """Measure gate density on one batch: the fraction of inputs where an activation's |f'| exceeds a threshold.

    Args:
        model: any model; modules and functional activations are both seen.
        loss_fn: a function of (output, target), its name, or None if the output contains the loss. Only ``ratio`` needs
            it; leave it out otherwise: ``measure(model, batch)``.
        batch: one batch as a data loader yields it: ``x``, ``(x, y)``, several inputs, a dict.
        mode: ``"as_is"``; ``"train"`` measures with batch statistics in BatchNorm and dropout modules off, restoring
            running statistics; ``"eval"`` uses the running statistics. Never compare across modes.
        only: activations to report: names or patterns (``"blocks.*"``), or a function of a name.
        seed: seed of the random numbers that the model draws.
        thetas: a gate is open where |f'| > theta, strictly.
        backend: ``"local_vjp"`` (exact) or ``"ratio"`` (from the gradients of a loss).
        tiny: the ratio is taken where |gradient| exceeds this (default: the smallest normal number).

    Returns:
        The gates of every activation; ``skipped`` has those that could not be measured.

    >>> net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU())
    >>> _ = net[0].weight.data.copy_(torch.eye(2))
    >>> measure(net, torch.tensor([[1.0, -1.0], [2.0, 0.0]])).density(0.01)
    0.5
    """
    thresholds = checked_thetas(thetas)
    loss_fn, batch = loss_and_batch(loss_fn, batch)
    task = task_of(model, loss_fn, batch)
    examples = _checked(task, backend, mode)
    collector = _Ratio(thresholds, tiny) if backend == "ratio" else _Local(thresholds)
    # the exact backend makes no backward pass; a batch with a target keeps it where the loss takes it off
    given = (loss_fn, batch) if backend == "ratio" else (None, _inputs(task))
    seen = observe(model, *given, vitals=[collector], mode=mode, seed=seed)
    if collector.error is not None:
        raise collector.error
    if backend == "ratio" and seen.loss is None:
        raise ValueError(
            "backend='ratio' divides gradients of a loss, but no loss_fn was given and the model's output holds no "
            "loss: give loss_fn, or use backend='local_vjp'"
        )
    skipped = dict(seen.skipped)
    for s in seen.sites:
        if s.kind == "activation" and s.name not in collector.found:
            skipped.setdefault(s.name, "no gradient reached it")
        elif s.kind == "product":
            skipped.setdefault(
                s.name, "a product of two branches has one gate per branch; the vital sign 'gates' measures both"
            )
    if not collector.found:
        why = "; ".join(f"{name}: {reason}" for name, reason in list(skipped.items())[:3])
        raise ValueError("the model has no activation whose gates could be measured" + (f" ({why})" if why else ""))
    order = picked([s.name for s in seen.sites if s.name in collector.found], only, "activation")
    return GateReport(
        sites={name: collector.found[name] for name in order},
        thetas=thresholds,
        backend=backend,
        mode=mode,
        examples=examples,
        skipped=skipped,
    )


def _inputs(task: Task) -> Any:
    """What the model is given, as a batch without a target."""
    return dict(task.kwargs) if task.kwargs else (task.args, None)


def _kept(f: Callable[..., Any]) -> Callable[..., Any]:
    """An activation as it is now: one with parameters is copied, since the model trains on."""
    owner = getattr(f, "__self__", None)
    if isinstance(owner, nn.Module) and any(True for _ in chain(owner.parameters(), owner.buffers())):
        return getattr(copy.deepcopy(owner), f.__name__)
    if isinstance(f, FunctionType) and f.__closure__:  # a traced one holds the tensors that it computes with
        own = lambda t: t.detach().clone() if isinstance(t, Tensor) else t
        cells = tuple(CellType(tree_map(own, cell.cell_contents)) for cell in f.__closure__)
        return FunctionType(f.__code__, f.__globals__, f.__name__, f.__defaults__, cells)
    return f


class _Collector(Vital):
    """Turns slopes into results, one site at a time; the first error is kept, not turned into a warning."""

    def __init__(self, thetas: tuple[float, ...]) -> None:
        self.thetas = thetas
        self.found: dict[str, SiteGates] = {}
        self.error: Exception | None = None

    def _note(self, view: ActivationView, slope: Tensor, valid: Tensor, tolerance: float) -> None:
        slope, valid = view.as_view(slope), view.as_view(valid)
        everything = bool(valid.all())
        gate = slope.abs()
        measured = slope.numel() if everything else int(valid.sum())
        by_channel = None if everything else valid.sum(view.over).double()
        shares: dict[float, np.ndarray] = {}
        densities: dict[float, float] = {}
        for theta in self.thetas:
            on = gate > theta * (1 + tolerance)
            if by_channel is None:
                share = on.to(gate.dtype).mean(view.over).double()
                densities[theta] = float(share.mean())
            else:
                active = (on & valid).sum(view.over).double()
                share = active / by_channel
                densities[theta] = float(active.sum()) / measured if measured else math.nan
            shares[theta] = share.cpu().numpy()
        kept = slope.reshape(-1) if everything else slope[valid]
        ordered = sampled(kept.abs(), SAMPLE).sort().values.double().cpu().numpy()
        percentiles = (
            ordered[[quantile_rank(ordered.size, p / 100) for p in range(1, 100)]]
            if measured
            else np.full(99, math.nan)
        )
        size = kept.abs()
        self.found[view.site.name] = SiteGates(
            site=view.site,
            densities=densities,
            channel_densities=shares,
            mean=float(size.mean()) if measured else math.nan,
            percentiles=percentiles,
            variance=_variance(kept),
            gate_variance=_variance(size),
            measured=measured,
            undefined=slope.numel() - measured,
            mu=view.mean.double().cpu().numpy(),
            sigma=view.variance.double().sqrt().cpu().numpy(),
            f=_kept(view.f),
        )


class _Local(_Collector):
    name = "gates by local derivative"

    def activation(self, recorder: Recorder, view: ActivationView) -> None:
        try:
            slope = view.derivative
            self._note(view, slope, torch.isfinite(slope), 0.0)
        except Exception as error:
            self.error = self.error or error


class _Ratio(_Collector):
    name = "gates by ratio of gradients"

    def __init__(self, thetas: tuple[float, ...], tiny: float | None) -> None:
        super().__init__(thetas)
        self.tiny = tiny

    def gradient(self, recorder: Recorder, view: ActivationView | LinearView | TensorView, g: Tensor) -> None:
        if not isinstance(view, ActivationView):
            return
        try:
            with torch.enable_grad():
                x = view.x.detach().requires_grad_(True)
                (inner,) = torch.autograd.grad(view.f(x), x, g)
            tiny = torch.finfo(g.dtype).tiny if self.tiny is None else self.tiny
            slope = inner / g
            self._note(view, slope, (g.abs() > tiny) & torch.isfinite(slope), RATIO_TOLERANCE)
        except Exception as error:
            self.error = self.error or error


def _variance(t: Tensor) -> float:
    if t.numel() == 0:
        return math.nan
    centred = t - t.mean()
    return float(torch.dot(centred, centred)) / t.numel()


def checked_thetas(thetas: Sequence[float] | float) -> tuple[float, ...]:
    """One threshold or several as a tuple."""
    values = (float(thetas),) if isinstance(thetas, int | float) else tuple(float(t) for t in thetas)
    if not values or not all(t >= 0 for t in values):
        raise ValueError(f"thetas= must be one or more non-negative thresholds, got {thetas}")
    return values


def _checked(task: Task, backend: str, mode: str) -> int:
    """Refuse what cannot be measured; the number of examples."""
    if backend not in ("local_vjp", "ratio"):
        raise ValueError(f"backend= must be 'local_vjp' or 'ratio', got {backend!r}")
    inputs = (task.args, dict(task.kwargs))
    x = next(tensors(inputs), None)
    if x is None or x.numel() == 0:
        raise ValueError("the batch has no tensor with elements: give at least one example")
    check_finite(inputs, "the batch")
    norms = [
        n
        for n, m in task.model.named_modules()
        if isinstance(m, nn.modules.batchnorm._BatchNorm) and (m.training if mode == "as_is" else mode == "train")
    ]
    if norms and x.shape[0] < 2:
        raise ValueError(
            f"BatchNorm ({norms[0]}) cannot compute statistics of a batch of {x.shape[0]}: give at least two "
            "examples, or use mode='eval'"
        )
    return x.shape[0] if x.ndim else 1
