r"""Extreme eigenvalues and spectral density of H, GN or T: of all parameters, of one node, in either space."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from netvitals.anatomy.lanczos import Lanczos
from netvitals.curvature.engine.nodes import Choice
from netvitals.curvature.engine.operator import Operator, Part, operators
from netvitals.curvature.engine.probes import generator
from netvitals.curvature.engine.problem import Loss
from netvitals.curvature.engine.products import Progress
from netvitals.curvature.engine.tape import Space

Which = Literal["LA", "SA", "LM"]


@dataclass(frozen=True)
class Eigenvalues:
    """The k extreme eigenvalues, most extreme first; ``residuals`` bound the distance of each to a true eigenvalue."""

    values: np.ndarray
    residuals: np.ndarray
    vectors: Tensor  # (k, d)
    converged: bool
    steps: int
    which: str
    part: str
    cost: float

    def __str__(self) -> str:
        kind = {"LA": "largest", "SA": "smallest", "LM": "largest in size"}[self.which]
        listed = ", ".join(f"{v:.4g} (±{r:.1g})" for v, r in zip(self.values, self.residuals))
        state = "" if self.converged else "; NOT converged: take more steps"
        return f"{len(self.values)} {kind} eigenvalues of {self.part} after {self.steps} steps: {listed}{state}"


@dataclass(frozen=True)
class SpectralDensity:
    """Density of eigenvalues on a grid (integrates to 1), with the spread over runs as standard error.

    ``nodes`` and ``weights`` are the Ritz values of each run and their shares, (runs, steps). ``negative_mass`` is the
    sum of |λ| over negative eigenvalues, ``trace`` the sum of all.
    """

    grid: np.ndarray
    density: np.ndarray
    density_stderr: np.ndarray
    nodes: np.ndarray
    weights: np.ndarray
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

    def __str__(self) -> str:
        low, high = self.nodes.min(), self.nodes.max()
        return (
            f"Spectrum of {self.part} ({self.size} × {self.size}) from {self.runs} runs of {self.steps} steps: "
            f"[{low:.4g}, {high:.4g}], trace {self.trace:.4g} ± {self.trace_stderr:.2g}, negative mass "
            f"{self.negative_mass:.4g} ± {self.negative_mass_stderr:.2g} ({self.cost:.0f} gradient-equivalents)"
        )


def top_eigenvalues(
    model: nn.Module,
    loss_fn: Loss,
    batch: Any,
    k: int = 5,
    *,
    which: Which = "LA",
    part: Part = "H",
    nodes: Choice = None,
    node: str | None = None,
    space: Space = "parameter",
    tol: float = 1e-4,
    most: int = 200,
    seed: int = 0,
    dtype: torch.dtype | None = None,
    train: bool | None = None,
    memory: int = 2 << 30,
    progress: Progress | None = None,
) -> Eigenvalues:
    """Extreme eigenvalues by Lanczos, as many steps as it takes.

    Args:
        k: how many.
        which: ``"LA"`` largest, ``"SA"`` smallest, ``"LM"`` largest in absolute value.
        part: of H, its Gauss–Newton part, or the tensor part.
        nodes, node, space: the whole matrix of the space; or only the diagonal block of ``node``.
        tol: stop when every residual is below ``tol`` times the largest eigenvalue in size.
        most: at most this many steps; ``converged`` says whether they sufficed.

    >>> net = nn.Linear(2, 1, bias=False)
    >>> batch = (torch.tensor([[3.0, 0.0], [0.0, 1.0]]), torch.zeros(2, 1))
    >>> top_eigenvalues(net, nn.MSELoss(), batch, k=2).values.round(4).tolist()
    [9.0, 1.0]
    """
    if k < 1:
        raise ValueError(f"k is {k}, expected at least 1 eigenvalue")
    if which not in ("LA", "SA", "LM"):
        raise ValueError(f"which is {which!r}, expected 'LA' (largest), 'SA' (smallest) or 'LM' (largest in size)")
    with _matrix(model, loss_fn, batch, part, nodes, node, space, dtype, train, memory) as matrix:
        d = matrix.shape[0]
        most = _affordable(min(most, d), 1, d, matrix, memory)
        start = torch.randn(1, d, generator=generator(seed, matrix.device), dtype=matrix.dtype, device=matrix.device)
        run = Lanczos(matrix.apply, start, most)
        while True:
            before = run.steps
            run.advance(max(2 * k, 10) if run.steps == 0 else 5)
            t = run.tridiagonal()
            values, vectors = t.ritz()
            order = _order(values[0], which)[:k]
            residuals = (t.last[0] * vectors[0, -1, order]).abs()
            done = len(order) == k and bool((residuals <= tol * values.abs().max()).all())
            if progress:
                progress(run.steps, most)
            if done or run.steps in (before, most) or bool(run.ended.all()):
                break
        found = vectors[0][:, order].to(matrix.dtype).to(matrix.device).mT @ t.basis[0]
        cost = matrix.cost.gradients if matrix.cost else float("nan")
        done = done or bool(run.ended.all()) or run.steps == d
    return Eigenvalues(values[0, order].numpy(), residuals.numpy(), found, done, run.steps, which, part, cost)


def spectral_density(
    model: nn.Module,
    loss_fn: Loss,
    batch: Any,
    *,
    steps: int = 40,
    runs: int = 4,
    part: Part = "H",
    nodes: Choice = None,
    node: str | None = None,
    space: Space = "parameter",
    points: int = 400,
    width: float | None = None,
    seed: int = 0,
    dtype: torch.dtype | None = None,
    train: bool | None = None,
    memory: int = 2 << 30,
    progress: Progress | None = None,
) -> SpectralDensity:
    r"""Eigenvalue density by stochastic Lanczos quadrature: $\frac1d\sum_i\delta(\lambda-\lambda_i)$, smoothed.

    Args:
        steps, runs: of Lanczos; all runs advance together.
        part, nodes, node, space: as in ``top_eigenvalues``.
        points: size of the grid.
        width: standard deviation of the smoothing; default 1 % of the range.

    >>> net = nn.Linear(4, 2)
    >>> found = spectral_density(net, nn.MSELoss(), (torch.randn(9, 4), torch.randn(9, 2)), steps=8, runs=3)
    >>> round(float(np.trapezoid(found.density, found.grid)), 2)
    1.0
    """
    if steps < 1 or runs < 1:
        raise ValueError(f"steps and runs are {steps} and {runs}, expected at least 1 each")
    with _matrix(model, loss_fn, batch, part, nodes, node, space, dtype, train, memory) as matrix:
        d = matrix.shape[0]
        steps = _affordable(min(steps, d), runs, d, matrix, memory)
        source = generator(seed, matrix.device)
        starts = torch.randn(runs, d, generator=source, dtype=matrix.dtype, device=matrix.device)
        run = Lanczos(matrix.apply, starts, steps)
        for done in range(steps):
            run.advance(1)
            if progress:
                progress(done + 1, steps)
        values, vectors = run.tridiagonal().ritz()
        cost = matrix.cost.gradients if matrix.cost else float("nan")
    x, weights = values.numpy(), vectors[:, 0].square().numpy()
    low, high = float(x.min()), float(x.max())
    width = width if width is not None else max(0.01 * (high - low), 1e-12)
    grid = np.linspace(low - 5 * width, high + 5 * width, points)
    curves = np.stack([_smooth(grid, a, b, width) for a, b in zip(x, weights)])
    mass = d * (weights * np.clip(-x, 0, None)).sum(1)
    trace = d * (weights * x).sum(1)
    error = lambda s: s.std(0, ddof=1) / np.sqrt(runs) if runs > 1 else np.full_like(s[0], np.nan)
    return SpectralDensity(
        grid,
        curves.mean(0),
        error(curves),
        x,
        weights,
        d,
        float(mass.mean()),
        float(error(mass)),
        float(trace.mean()),
        float(error(trace)),
        part,
        x.shape[1],
        runs,
        seed,
        cost,
    )


def _smooth(grid: np.ndarray, nodes: np.ndarray, weights: np.ndarray, width: float) -> np.ndarray:
    kernel = np.exp(-0.5 * ((grid[:, None] - nodes[None]) / width) ** 2) / (width * np.sqrt(2 * np.pi))
    return kernel @ weights


@contextmanager
def _matrix(
    model: nn.Module,
    loss_fn: Loss,
    batch: Any,
    part: Part,
    nodes: Choice,
    node: str | None,
    space: Space,
    dtype: torch.dtype | None,
    train: bool | None,
    memory: int,
) -> Iterator[Operator]:
    if part not in ("H", "GN", "T"):
        raise ValueError(f"part is {part!r}, expected 'H', 'GN' or 'T'")
    chosen = [node] if node is not None and nodes is None else nodes
    with operators(
        model,
        loss_fn,
        batch,
        nodes=chosen,
        space=space,
        dtype=dtype,
        train=train,
        memory=memory,
        split=part != "H" or node is not None,
    ) as of:
        yield of.whole(part) if node is None else of.block(node, node, part)


def _affordable(steps: int, runs: int, d: int, matrix: Operator, memory: int) -> int:
    """Full reorthogonalisation keeps every vector; refuse before the machine does."""
    item = torch.empty(0, dtype=matrix.dtype).element_size()
    needed = steps * runs * d * item
    if needed > memory:
        fit = memory // (runs * d * item)
        raise MemoryError(
            f"{steps} Lanczos vectors of {d} numbers in {runs} runs need {needed / 2**20:.4g} MiB, the "
            f"budget is {memory / 2**20:.4g} MiB: use {fit} steps, or raise memory="
        )
    return steps


def _order(values: Tensor, which: Which) -> Tensor:
    key = {"LA": -values, "SA": values, "LM": -values.abs()}[which]
    return torch.argsort(key)
