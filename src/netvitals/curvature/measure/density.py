r"""Spectral density of H, GN or T by stochastic Lanczos quadrature.

A run weighs an eigenvalue by the square of its start along the eigenvector: 1/d on the average, but anything from 0 to
several times that in one run. Large eigenvalues, which make up most of the trace, are few, so that this is most of the
error. Where every run has found one and the same eigenvector, its share is known: it gets 1/d in each of them, and the
other nodes share the rest. An eigenvalue that several eigenvectors have is not meddled with: each run then finds
another of them.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from netvitals.anatomy import Lanczos, Tridiagonal
from netvitals.capture import LossFn, Mode, Result, undisturbed
from netvitals.curvature.engine.journal import opened
from netvitals.curvature.engine.nodes import Choice
from netvitals.curvature.engine.operator import Part
from netvitals.curvature.engine.probes import generator
from netvitals.curvature.engine.products import Progress
from netvitals.curvature.engine.tape import Space
from netvitals.curvature.measure.result import skipped_line
from netvitals.curvature.measure.spectrum import affordable, matrix_of

FOUND = 1e-3  # residual of an eigenvector that a run has found, in units of the largest |eigenvalue|
SAME = 0.999  # squared cosine of two that are one


@dataclass(frozen=True, kw_only=True)
class SpectralDensity(Result):
    """Density of eigenvalues on a grid (integrates to 1), with the spread over runs as standard error.

    ``nodes`` and ``weights`` are the Ritz values of each run and their shares, (runs, steps); the shares of the
    eigenvectors that all runs have found are known. ``negative_mass`` is the sum of |λ| over negative eigenvalues,
    ``trace`` the sum of all.

    Returned by :func:`spectral_density`.

    Attributes:
        grid: eigenvalues.
        density: at each of them.
        density_stderr: standard error over runs.
        nodes: Ritz values of each run, (runs, steps).
        weights: their shares.
        known: eigenvectors that all runs have found.
        size: number of parameters.
        negative_mass: sum of |λ| over negative eigenvalues.
        negative_mass_stderr: standard error over runs, and what the number of steps leaves open.
        trace: sum of all eigenvalues.
        trace_stderr: standard error over runs.
        part: ``H``, ``GN`` (Gauss–Newton) or ``T`` (the rest).
        steps: of Lanczos.
        runs: random starts.
        seed: of the starts.
        cost: in gradient-equivalents.
        skipped: parameter that was left out → reason.
    """

    grid: np.ndarray
    density: np.ndarray
    density_stderr: np.ndarray
    nodes: np.ndarray
    weights: np.ndarray
    known: int
    size: int
    negative_mass: float
    negative_mass_stderr: float
    trace: float
    trace_stderr: float
    part: str
    steps: int
    runs: int
    seed: int
    cost: float
    skipped: dict[str, str] = field(default_factory=dict)

    def rows(self) -> list[dict[str, Any]]:
        """One row a point of the grid."""
        columns = zip(self.grid.tolist(), self.density.tolist(), self.density_stderr.tolist())
        return [{"eigenvalue": x, "density": y, "density_stderr": e} for x, y, e in columns]

    def __str__(self) -> str:
        low, high = self.nodes.min(), self.nodes.max()
        text = (
            f"Spectrum of {self.part} ({self.size} × {self.size}) from {self.runs} runs of {self.steps} steps: "
            f"[{low:.4g}, {high:.4g}], trace {self.trace:.4g} ± {self.trace_stderr:.2g}, negative mass "
            f"{self.negative_mass:.4g} ± {self.negative_mass_stderr:.2g} ({self.cost:.0f} gradient-equivalents)"
        )
        return "\n".join([text, *skipped_line(self.skipped)])


@undisturbed
def spectral_density(
    model: nn.Module,
    loss_fn: LossFn,
    batch: Any,
    *,
    mode: Mode = "as_is",
    nodes: Choice = None,
    seed: int = 0,
    progress: Progress | None = None,
    steps: int = 40,
    runs: int = 4,
    part: Part = "H",
    node: str | None = None,
    space: Space = "parameter",
    points: int = 400,
    width: float | None = None,
    dtype: torch.dtype | None = None,
    memory: int = 2 << 30,
    resume: str | os.PathLike[str] | None = None,
) -> SpectralDensity:
    r"""Estimate the eigenvalue density $\frac1d\sum_i\delta(\lambda-\lambda_i)$ by stochastic Lanczos quadrature.

    Args:
        model: any module; it is not changed.
        loss_fn: ``loss_fn(output, target)``, its name, or None for the model's own ``output.loss``.
        batch: one batch as a data loader yields it; or a list of batches or a loader, whose mean Hessian is then meant.
        mode: ``"as_is"``, ``"train"`` (batch statistics, dropout off) or ``"eval"``.
        nodes: submodules the matrix is over, as in ``top_eigenvalues``.
        seed: seed of the random start vectors.
        progress: called with (steps done, steps planned).
        steps: number of Lanczos steps in each run; at most the size of the matrix.
        runs: independent start vectors, which advance together; the spread over them is the standard error.
        part: ``"H"``, ``"GN"`` or ``"T"``, as in ``top_eigenvalues``.
        node: only the diagonal block of this node; None is the whole matrix.
        space: ``"parameter"`` or ``"activation"``.
        points: size of the grid.
        width: standard deviation of the smoothing; default 1 % of the range.
        dtype: measure a copy of the model in this dtype.
        memory: memory budget in bytes for graph, products and Lanczos vectors.
        resume: a folder for the state of a measurement of many batches, as in ``between_layers``.

    Returns:
        The density on a grid, the trace and the negative mass, with the spread over runs as standard error.

    >>> net = nn.Linear(4, 2)
    >>> found = spectral_density(net, nn.MSELoss(), (torch.randn(9, 4), torch.randn(9, 2)), steps=8, runs=3)
    >>> round(float(np.trapezoid(found.density, found.grid)), 2)
    1.0
    """
    if steps < 1 or runs < 1:
        raise ValueError(f"steps= and runs= must be at least 1, got steps={steps} and runs={runs}")
    options: Any = {"mode": mode, "part": part, "nodes": nodes, "node": node, "space": space, "dtype": dtype}
    journal = opened(resume, "spectral_density", model, {**options, "seed": seed, "steps": steps, "runs": runs})
    with matrix_of(model, loss_fn, batch, memory=memory, journal=journal, **options) as (matrix, of):
        d, skipped = matrix.shape[0], of.tape.skipped
        steps = affordable(min(steps, d), runs, d, matrix, memory)
        source = generator(seed, matrix.device)
        starts = torch.randn(runs, d, generator=source, dtype=matrix.dtype, device=matrix.device)
        run = Lanczos(matrix.apply, starts, steps)
        for done in range(steps):
            run.advance(1)
            if progress:
                progress(done + 1, steps)
        tridiagonal = run.tridiagonal()
        values, shares, known = _shares(tridiagonal, d)
        cost = matrix.cost.gradients if matrix.cost else float("nan")
    x, weights = values.numpy(), shares.numpy()
    low, high = float(x.min()), float(x.max())
    width = width if width is not None else 0.01 * ((high - low) or abs(high) or 1.0)
    grid = np.linspace(low - 5 * width, high + 5 * width, points)
    curves = np.stack([_smooth(grid, a, b, width) for a, b in zip(x, weights)])
    swing, unresolved = _negative_swing(tridiagonal, d)
    mass = d * ((weights * np.clip(-x, 0, None)).sum(1) + swing)
    trace = d * (weights * x).sum(1)
    error = lambda s: s.std(0, ddof=1) / np.sqrt(runs) if runs > 1 else np.full_like(s[0], np.nan)
    return SpectralDensity(
        grid=grid,
        density=curves.mean(0),
        density_stderr=error(curves),
        nodes=x,
        weights=weights,
        known=known,
        size=d,
        negative_mass=float(mass.mean()),
        negative_mass_stderr=math.hypot(float(error(mass)), d * unresolved),
        trace=float(trace.mean()),
        trace_stderr=float(error(trace)),
        part=part,
        steps=x.shape[1],
        runs=runs,
        seed=seed,
        cost=cost,
        skipped=skipped,
    )


def _shares(found: Tridiagonal, d: int) -> tuple[Tensor, Tensor, int]:
    """Nodes (runs, steps), their shares, and the number of eigenvectors whose share is known."""
    values, vectors = found.ritz()
    shares = vectors[:, 0].square()
    converged = found.last[:, None] * vectors[:, -1].abs() <= FOUND * values.abs().max()
    places = []  # of one eigenvector in each run
    for j in torch.nonzero(converged[0]).flatten().tolist() if len(values) > 1 else ():
        basis = found.basis
        mine = vectors[0, :, j].to(basis) @ basis[0]
        cosines = torch.stack([vectors[i].mT @ (basis[i] @ mine).to(vectors) for i in range(len(values))]).square()
        size, place = cosines.max(1)
        if bool((size > SAME).all()) and bool(converged.gather(1, place[:, None]).all()):
            places.append(place)
    if not places:
        return values, shares, 0
    at, known = torch.stack(places, 1), len(places)
    rest = shares.scatter(1, at, 0.0)
    left = rest.sum(1, keepdim=True).clamp_min(torch.finfo(rest.dtype).tiny)
    return values, (rest / left * max(0.0, 1 - known / d)).scatter(1, at, 1 / d), known


def _negative_swing(found: Tridiagonal, d: int) -> tuple[np.ndarray, float]:
    """What the mean over the last third of the steps adds to the mean negative part of each run, and its spread.

    The nodes next to zero wander from step to step, and with them the part that counts as negative.
    """
    steps = found.diagonal.shape[1]
    if steps == d or bool((found.last == 0).any()):  # all is resolved
        return np.zeros(len(found.last)), 0.0
    parts = []
    for k in range(math.ceil(2 * steps / 3), steps + 1):
        values, vectors = replace(found, diagonal=found.diagonal[:, :k], off=found.off[:, : k - 1]).ritz()
        parts.append((vectors[:, 0].square() * values.clamp(max=0).neg()).sum(1).numpy())
    by_step = np.array(parts)
    return by_step.mean(0) - by_step[-1], float(by_step.mean(1).std())


def _smooth(grid: np.ndarray, nodes: np.ndarray, weights: np.ndarray, width: float) -> np.ndarray:
    kernel = np.exp(-0.5 * ((grid[:, None] - nodes[None]) / width) ** 2) / (width * np.sqrt(2 * np.pi))
    return kernel @ weights
