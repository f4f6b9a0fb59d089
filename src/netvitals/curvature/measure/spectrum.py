r"""Extreme eigenvalues of H, GN or T: of all parameters, of one node, in either space."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from netvitals._help import hint
from netvitals.anatomy import Lanczos
from netvitals.capture import LossFn, Mode, Result, undisturbed
from netvitals.curvature.engine.journal import Journal, opened
from netvitals.curvature.engine.nodes import Choice
from netvitals.curvature.engine.operator import Operator, Operators, Part, operators
from netvitals.curvature.engine.probes import generator
from netvitals.curvature.engine.products import Products, Progress
from netvitals.curvature.engine.stream import BatchStream
from netvitals.curvature.engine.tape import Space
from netvitals.curvature.measure.block_estimates import sampling_error
from netvitals.curvature.measure.result import shortened, skipped_line

Which = Literal["LA", "SA", "LM"]


@dataclass(frozen=True, kw_only=True)
class Eigenvalues(Result):
    """The k extreme eigenvalues, most extreme first; ``residuals`` bound the distance of each to a true eigenvalue.

    Returned by :func:`top_eigenvalues`.

    Attributes:
        values: most extreme first.
        residuals: bound of the distance of each to a true eigenvalue.
        vectors: (k, d), one unit vector a row.
        sampling_stderr: over batches, at these vectors; NaN for one batch.
        converged: whether all residuals are below the tolerance.
        steps: of Lanczos.
        which: ``LA`` largest, ``SA`` smallest, ``LM`` largest in size.
        part: ``H``, ``GN`` (Gauss–Newton) or ``T`` (the rest).
        cost: in gradient-equivalents.
        skipped: parameter that was left out → reason.
    """

    values: np.ndarray
    residuals: np.ndarray
    vectors: Tensor
    sampling_stderr: np.ndarray
    converged: bool
    steps: int
    which: str
    part: str
    cost: float
    skipped: dict[str, str] = field(default_factory=dict)

    def rows(self) -> list[dict[str, Any]]:
        """One row an eigenvalue."""
        pairs = zip(self.values.tolist(), self.residuals.tolist())
        return [{"place": i, "eigenvalue": v, "residual": r} for i, (v, r) in enumerate(pairs)]

    def to_dict(self) -> dict[str, Any]:
        """Plain data without the vectors, each as long as the model has parameters."""
        found = Result.to_dict(replace(self, vectors=self.vectors[:0]))
        del found["vectors"]
        return found

    def __str__(self) -> str:
        kind = {"LA": "largest", "SA": "smallest", "LM": "largest in size"}[self.which]
        listed = shortened([f"{v:.4g} (±{r:.1g})" for v, r in zip(self.values, self.residuals)])
        state = "" if self.converged else "; NOT converged: take more steps"
        head = f"{len(self.values)} {kind} eigenvalues of {self.part} after {self.steps} steps: "
        over = np.isfinite(self.sampling_stderr).all() and f"; ± {self.sampling_stderr.max():.2g} over batches"
        return "\n".join([head + ", ".join(listed) + (over or "") + state, *skipped_line(self.skipped)])


@undisturbed
def top_eigenvalues(
    model: nn.Module,
    loss_fn: LossFn,
    batch: Any,
    *,
    mode: Mode = "as_is",
    nodes: Choice = None,
    seed: int = 0,
    progress: Progress | None = None,
    k: int = 5,
    which: Which = "LA",
    part: Part = "H",
    node: str | None = None,
    space: Space = "parameter",
    tol: float = 1e-4,
    most: int = 200,
    dtype: torch.dtype | None = None,
    memory: int = 2 << 30,
    resume: str | os.PathLike[str] | None = None,
    start: Tensor | None = None,
) -> Eigenvalues:
    """Compute the largest or smallest eigenvalues of the Hessian by the Lanczos method, until they converge.

    Args:
        model: any module; it is not changed.
        loss_fn: ``loss_fn(output, target)``, its name, or None for the model's own ``output.loss``.
        batch: one batch as a data loader yields it; or a list of batches or a loader, whose mean Hessian is then meant.
        mode: ``"as_is"``, ``"train"`` (batch statistics, dropout off) or ``"eval"``.
        nodes: submodules the matrix is over; None is every trainable parameter, or the blocks in activation space.
        seed: seed of the random start vector.
        progress: called with (steps done, at most).
        k: how many.
        which: ``"LA"`` largest, ``"SA"`` smallest, ``"LM"`` largest in absolute value.
        part: ``"H"``, its Gauss–Newton part ``"GN"`` or the tensor part ``"T"``.
        node: only the diagonal block of this node; None is the whole matrix.
        space: ``"parameter"`` or ``"activation"``.
        tol: stop when every residual is below ``tol`` times the largest eigenvalue in size.
        most: largest number of steps; ``converged`` says whether they sufficed.
        dtype: measure a copy of the model in this dtype.
        memory: memory budget in bytes for graph, products and Lanczos vectors.
        resume: a folder for the state of a measurement of many batches, as in ``between_layers``.
        start: a vector to begin with, such as ``vectors[0]`` of an earlier measurement of the same model; it saves
            steps.

    Returns:
        Eigenvalues with residuals, vectors, and whether they converged.

    >>> net = nn.Linear(2, 1, bias=False)
    >>> batch = (torch.tensor([[3.0, 0.0], [0.0, 1.0]]), torch.zeros(2, 1))
    >>> top_eigenvalues(net, nn.MSELoss(), batch, k=2).values.round(4).tolist()
    [9.0, 1.0]
    """
    if k < 1:
        raise ValueError(f"k= must be at least 1, got {k}")
    if which not in ("LA", "SA", "LM"):
        raise ValueError(
            f"which= must be 'LA' (largest), 'SA' (smallest) or 'LM' (largest absolute value), got {which!r}"
        )
    options: Any = {"mode": mode, "part": part, "nodes": nodes, "node": node, "space": space, "dtype": dtype}
    journal = opened(resume, "top_eigenvalues", model, {**options, "seed": seed, "k": k, "which": which, "tol": tol})
    with matrix_of(model, loss_fn, batch, memory=memory, journal=journal, **options) as (matrix, of):
        d = matrix.shape[0]
        most = affordable(min(most, d), 1, d, matrix, memory)
        first = _start(start, seed, matrix)
        run = Lanczos(matrix.apply, first, most)
        while True:
            before = run.steps
            run.advance((max(2 * k, 10) if start is None else k + 2) if run.steps == 0 else 5 if start is None else 2)
            t = run.tridiagonal()
            values, vectors = t.ritz()
            order = _order(values[0], which)[:k]
            residuals = (t.last[0] * vectors[0, -1, order]).abs()
            done = len(order) == k and bool((residuals <= tol * values.abs().max()).all())
            if progress:
                progress(run.steps, most)
            if done or run.steps in (before, most) or run.ended:
                break
        found = vectors[0][:, order].to(matrix.dtype).to(matrix.device).mT @ t.basis[0]
        skipped, sampling = of.tape.skipped, _sampling(of, found, part, node)
        cost = matrix.cost.gradients if matrix.cost else float("nan")
        done = done or run.ended or run.steps == d
    return Eigenvalues(
        values=values[0, order].numpy(),
        residuals=residuals.numpy(),
        vectors=found,
        sampling_stderr=sampling,
        converged=done,
        steps=run.steps,
        which=which,
        part=part,
        cost=cost,
        skipped=skipped,
    )


@contextmanager
def matrix_of(
    model: nn.Module,
    loss_fn: LossFn,
    batch: Any,
    *,
    mode: Mode,
    part: Part,
    nodes: Choice,
    node: str | None,
    space: Space,
    dtype: torch.dtype | None,
    memory: int,
    journal: Journal | None = None,
) -> Iterator[tuple[Operator, Operators]]:
    """The ``part`` of the Hessian of ``loss_fn`` on ``batch`` whose spectrum is asked for, in a ``space`` of ``model``,
    over all ``nodes`` or one ``node``, and the operators it comes from; ``mode``, ``dtype``, ``memory`` and
    ``journal`` are as for :func:`top_eigenvalues`.
    """
    if part not in ("H", "GN", "T"):
        raise ValueError(f"part= must be 'H', 'GN' or 'T', got {part!r}")
    chosen = [node] if node is not None and nodes is None else nodes
    options: Any = {"space": space, "dtype": dtype, "mode": mode, "memory": memory, "journal": journal}
    with operators(model, loss_fn, batch, nodes=chosen, **options) as of:
        yield of.whole(part) if node is None else of.block(node, node, part), of
    if journal is not None:
        journal.close()


def _sampling(of: Operators, vectors: Tensor, part: Part, node: str | None) -> np.ndarray:
    """How far the Rayleigh quotients of the batches spread around their mean."""
    if not isinstance(of.products, BatchStream):
        return np.full(len(vectors), np.nan)

    def quotients(products: Products) -> tuple[None, np.ndarray]:
        one = Operators(products)
        matrix = one.whole(part) if node is None else one.block(node, node, part)
        return None, torch.linalg.vecdot(vectors, matrix.apply(vectors)).double().cpu().numpy()

    found = of.products.each(quotients)[1]
    return sampling_error(np.stack(found), np.array(of.products.weights, float))


def _start(given: Tensor | None, seed: int, matrix: Operator) -> Tensor:
    """The first vector: random, or the one that was given with a little that is random, in case it is invariant."""
    d = matrix.shape[0]
    noise = torch.randn(1, d, generator=generator(seed, matrix.device), dtype=matrix.dtype, device=matrix.device)
    if given is None:
        return noise
    if given.numel() != d:
        raise ValueError(f"start is a vector of {given.numel()} numbers, but the matrix has size {d} × {d}")
    known = given.reshape(1, -1).to(matrix.dtype).to(matrix.device)
    return known / known.norm() + 0.1 * noise / noise.norm()


def affordable(steps: int, runs: int, d: int, matrix: Operator, memory: int) -> int:
    """As many ``steps`` of ``runs`` vectors of ``d`` numbers as fit in ``memory``, in the precision of ``matrix``: full
    reorthogonalisation keeps every vector; refuse before the machine does.
    """
    item = torch.empty(0, dtype=matrix.dtype).element_size()
    needed = steps * runs * d * item
    if needed > memory:
        fit = memory // (runs * d * item)
        raise MemoryError(
            f"{steps} Lanczos vectors of {d} numbers in {runs} runs need {needed / 2**20:.4g} MiB, but the budget is "
            f"{memory / 2**20:.4g} MiB: use {fit} steps, or raise memory= {hint('no-memory')}"
        )
    return steps


def _order(values: Tensor, which: Which) -> Tensor:
    key = {"LA": -values, "SA": values, "LM": -values.abs()}[which]
    return torch.argsort(key)
