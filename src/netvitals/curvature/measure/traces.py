r"""Hessian trace of every parameter tensor and of the whole net, from one pass over the probes.

$\mathrm{tr}\,H_{kk} = E\,z_k^\top (Hz)_k$ with signs $z$ over all parameters at once: every tensor reads its own entry
of the same product, so the traces of all tensors cost no more than the trace of the whole.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from netvitals._help import hint
from netvitals.capture import LossFn, Mode, Result, undisturbed
from netvitals.curvature.engine.journal import opened
from netvitals.curvature.engine.probes import Distribution, ProbeSeries, flattened, pieces_of
from netvitals.curvature.engine.products import Pieces, Products, Progress
from netvitals.curvature.engine.stream import BatchStream, several
from netvitals.curvature.engine.tape import Tape, recorded_parameters
from netvitals.curvature.matrices.deflation import PAYS, Deflated, by_tensor, left_out, widened
from netvitals.curvature.matrices.example_probes import example_draws
from netvitals.curvature.matrices.example_tape import ExampleTape, layers_of, recorded_examples, why_not
from netvitals.curvature.measure.block_estimates import sampling_error
from netvitals.curvature.measure.result import shortened, skipped_line

Method = Literal["auto", "examples", "hutchinson", "hutch++"]
SHORT = 4_000_000  # numbers of probes that are kept from batch to batch


@dataclass(frozen=True, kw_only=True)
class Trace(Result):
    """Traces by parameter name, and of the whole; ``draws`` is (samples, tensors) in the order of ``names``.

    Returned by :func:`trace`.

    Attributes:
        names: of the parameter tensors.
        by_tensor: trace over each of them.
        by_tensor_stderr: standard error over probes.
        total: trace of the whole.
        total_stderr: standard error over probes.
        by_tensor_sampling: standard error over batches.
        total_sampling: standard error over batches, of what other data would have given; NaN for one batch.
        probes: random vectors.
        seed: seed of the random probes.
        part: ``H``, ``GN`` (Gauss–Newton) or ``T`` (the rest).
        method: "examples" where every example had probes of its own, "hutchinson" where all shared them, or "hutch++"
            where the large part was taken out first.
        draws: (samples, tensors), in the order of ``names``.
        cost: in gradient-equivalents.
        skipped: parameter that was left out → reason.
        note: why examples could not have probes of their own; empty where they had, or where that was not asked for.
    """

    names: tuple[str, ...]
    by_tensor: dict[str, float]
    by_tensor_stderr: dict[str, float]
    total: float
    total_stderr: float
    by_tensor_sampling: dict[str, float]
    total_sampling: float
    probes: int
    seed: int
    part: str
    method: str
    draws: np.ndarray
    cost: float
    skipped: dict[str, str] = field(default_factory=dict)
    note: str = ""

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
        note = [f"All examples share their probes: {self.note}."] if self.note else []
        return "\n".join([head, *shortened(rows), *note, *skipped_line(self.skipped)])


@dataclass
class _Plan:
    """How the probes are spent on one batch."""

    probes: int
    seed: int
    part: Literal["H", "GN", "T"]
    distribution: Distribution
    method: str
    room: int  # bytes for products that are kept
    kept: list[Pieces] = field(default_factory=list)  # the probes, while they are short: many batches see the same

    def plain(self, products: Products, step: Progress | None = None) -> np.ndarray:
        """Draws (probes, tensors) of plain probes."""
        rows, series = [], ProbeSeries(products.flat, self.seed, self.distribution)
        short = self.probes * sum(leaf.numel() for leaf in products.flat) < SHORT
        for i, at in enumerate(products.portions(self.probes)):
            z = self.kept[i] if i < len(self.kept) else series.take(at.stop - at.start)
            if short and i == len(self.kept):
                self.kept.append(z)
            hz = products.whole(z, self.part)
            rows.append(_dots(z, hz))
            if step:
                step(at.stop, self.probes)
        return np.concatenate(rows)

    def run(self, products: Products, step: Progress | None = None) -> tuple[np.ndarray, str]:
        """Draws, and the method that gave them."""
        size = sum(leaf.numel() for leaf in products.flat)
        third, item = self.probes // 3, products.flat[0].element_size()
        fits = 3 * self.probes * size * item < self.room
        if self.method == "hutch++" and not fits:
            raise MemoryError(
                f"method='hutch++' stores {self.probes} products of {size} numbers, which exceeds the memory budget: "
                f"raise memory= {hint('no-memory')}"
            )
        wide = size > (third if self.method == "hutch++" else 2 * self.probes)
        if self.method == "hutchinson" or self.distribution != "rademacher" or third < 3 or not (fits and wide):
            return self.plain(products, step), "hutchinson"
        series = ProbeSeries(products.flat, self.seed)
        z = series.take(third)
        hz = products.whole(z, self.part)
        if step:
            step(third, self.probes)
        sketch = flattened(hz)
        if self.method == "auto" and left_out(sketch) > PAYS:
            rest = series.take(self.probes - third)
            draws = np.concatenate([_dots(z, hz), _dots(rest, products.whole(rest, self.part))])
            if step:
                step(self.probes, self.probes)
            return draws, "hutchinson"
        large, signs = Deflated.of(sketch), flattened(series.take(self.probes - 2 * third))
        rows = torch.cat([large.basis, large.cleaned(signs)])
        images = flattened(products.whole(pieces_of(rows, products.flat), self.part))
        if step:
            step(self.probes, self.probes)
        sizes = [leaf.numel() for leaf in products.flat]
        known = by_tensor(large.known(images[:third])[None], sizes)
        return known + by_tensor(large.samples(signs, images[third:]), sizes), "hutch++"

    @property
    def by_example(self) -> bool:
        """Whether examples may have probes of their own."""
        return self.method in ("auto", "examples") and self.distribution == "rademacher"

    def allowed(self, products: Products, tape: ExampleTape) -> str:
        """Why they cannot; empty where they can."""
        why = why_not(products, tape, self.seed)
        if why and self.method == "examples":
            raise ValueError(f"method='examples' cannot be used here: {why}. Leave method= out")
        return why


def _of_one(
    plan: _Plan, model: nn.Module, loss_fn: LossFn, batch: Any, options: Any, progress: Progress | None
) -> tuple[np.ndarray, str, tuple[str, ...], Tape, float, str]:
    """Draws, method, names, tape, cost and note of one batch."""
    split, memory, note = plan.part != "H", options["memory"], ""
    if plan.by_example:
        with recorded_examples(model, loss_fn, batch, **options) as own:
            own.look_beyond()
            products = Products(own, memory=memory, split=split, roots="never")
            note, names = plan.allowed(products, own), own.layers.names
            if not note:
                draws = example_draws(products, names, plan.probes, plan.seed, plan.part, progress)
                return draws, "examples", names, own, products.cost.gradients, ""
    with recorded_parameters(model, loss_fn, batch, **options) as tape:
        products = Products(tape, memory=memory, split=split)
        draws, used = plan.run(products, progress)
        return draws, used, tuple(n.name for n in tape.nodes), tape, products.cost.gradients, note


def _of_stream(plan: _Plan, stream: BatchStream) -> tuple[list[np.ndarray], str, tuple[str, ...], str]:
    """Draws by batch, method, names and note of many batches; the first one tells whether examples see each other."""
    note = ""
    if plan.by_example:
        layers = layers_of(stream.tape.problem)
        own = ExampleTape(stream.tape.problem, layers, stream.tape.kept_bytes)
        own.record(checked=True)
        note = plan.allowed(Products(own, memory=stream.memory, split=False, roots="never", cost=stream.cost), own)
        if not note:
            stream.make = lambda problem, kept: ExampleTape(problem, layers, kept)
            stream.cost.back = 1.0
            seed = lambda products: plan.seed * 1_000_003 + products.seed  # another one a batch
            do = lambda products: example_draws(products, layers.names, plan.probes, seed(products), plan.part)
            return stream.each(lambda products: (None, do(products)))[1], "examples", layers.names, ""
        for name, p in stream.tape.problem.model.named_parameters():
            p.requires_grad_(name not in layers.skipped or layers.skipped[name] != "frozen")
    names = tuple(n.name for n in stream.tape.nodes)
    return stream.each(lambda products: (None, plan.plain(products)))[1], "hutchinson", names, note


def _dots(z: Pieces, hz: Pieces) -> np.ndarray:
    """zᵀHz by tensor, (m, tensors); a copy, so that no tensor stays behind."""
    dots = [torch.linalg.vecdot(a.flatten(1), b.flatten(1)) for a, b in zip(z, hz)]
    return torch.stack(dots, 1).double().numpy(force=True)


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
    method: Method = "auto",
    dtype: torch.dtype | None = None,
    memory: int = 2 << 30,
    resume: str | os.PathLike[str] | None = None,
) -> Trace:
    r"""Trace of the Hessian, $\mathrm{tr}\,\nabla^2_\theta L$, in total and for each parameter tensor.

    Args:
        model: any module; it is not changed.
        loss_fn: ``loss_fn(output, target)``, its name, or None for the model's own ``output.loss``.
        batch: one batch as a data loader yields it: ``(x, y)``, several inputs and a target, or a dict; or an iterable
            of batches, of which one is in memory at a time and the spread between them is reported too.
        mode: ``"as_is"``, ``"train"`` (batch statistics, dropout off) or ``"eval"``.
        seed: seed of the random probes.
        progress: called with (products done, products planned).
        probes: number of Hessian-vector products, at least 2.
        part: the whole Hessian, its Gauss–Newton part, or what is left.
        distribution: distribution of the probes, ``"rademacher"`` (signs) or ``"gaussian"``.
        method: ``"examples"`` (every example has probes of its own, which is right where examples do not see each
            other), ``"hutchinson"`` (all share them), ``"hutch++"`` (the large part of the matrix is taken out with a
            third of the probes first), or ``"auto"``: the first where a look at the Hessian between examples finds
            nothing there, else one of the others, and ``note`` says why.
        dtype: measure a copy of the model in this dtype.
        memory: memory budget in bytes for graph and products.
        resume: a folder for the state of a measurement of many batches, as in ``between_layers``.

    Returns:
        The trace of each trainable parameter tensor and of the whole; frozen ones are in ``skipped``.

    >>> net = nn.Linear(2, 1, bias=False)
    >>> x = torch.tensor([[3.0, 0.0], [0.0, 1.0]])                  # H = diag(9, 1): signs are exact on a diagonal
    >>> trace(net, nn.MSELoss(), (x, torch.zeros(2, 1)), probes=10).total
    10.0
    """
    if probes < 2:
        raise ValueError(f"probes= must be at least 2, got {probes}: the standard error is estimated from them")
    if part not in ("H", "GN", "T"):
        raise ValueError(f"part= must be 'H', 'GN' or 'T', got {part!r}")
    if method not in ("auto", "examples", "hutchinson", "hutch++"):
        raise ValueError(f"method= must be 'auto', 'examples', 'hutchinson' or 'hutch++', got {method!r}")
    options: Any = {"dtype": dtype, "mode": mode, "memory": memory}

    plan = _Plan(probes=probes, seed=seed, part=part, distribution=distribution, method=method, room=memory // 4)
    sampled = np.full(len(list(model.named_parameters())), np.nan)
    whole_sampled = float("nan")
    if several(batch):
        if method == "hutch++":
            raise ValueError(
                "method='hutch++' reads its data twice and accepts only one batch; for many batches leave method= out"
            )
        about = {"seed": seed, "probes": probes, "part": part, "distribution": distribution, "method": method}
        journal = opened(resume, "trace", model, {**about, "mode": mode, "dtype": dtype})
        streamed: Any = {"split": part != "H", "tensors": True, "once": True, "journal": journal, **options}
        with BatchStream(model, loss_fn, batch, **streamed) as stream:
            if progress:
                tick = lambda share: progress(int(share * probes), probes)
                stream.tick = tick
            each, used, names, note = _of_stream(plan, stream)
        if journal is not None:
            journal.close()
        weights, tape, cost = np.array(stream.weights, float), stream.tape, stream.cost.gradients
        draws = np.tensordot(weights / weights.sum(), np.stack(each), 1)
        means = np.stack([one.mean(0) for one in each])
        sampled = sampling_error(means, weights)
        whole_sampled = float(sampling_error(means.sum(1), weights))
    else:
        draws, used, names, tape, cost, note = _of_one(plan, model, loss_fn, batch, options, progress)
    few = widened(len(draws)) / np.sqrt(len(draws))
    mean, error = draws.mean(0), draws.std(0, ddof=1) * few
    whole = draws.sum(1)
    return Trace(
        names=names,
        by_tensor=dict(zip(names, mean.tolist())),
        by_tensor_stderr=dict(zip(names, error.tolist())),
        total=float(whole.mean()),
        total_stderr=float(whole.std(ddof=1) * few),
        by_tensor_sampling=dict(zip(names, sampled.tolist())),
        total_sampling=whole_sampled,
        probes=probes,
        seed=seed,
        part=part,
        method=used,
        draws=draws,
        cost=cost,
        skipped=tape.skipped,
        note=note,
    )
