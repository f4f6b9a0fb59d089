r"""The answer in one call: which layers share curvature, how wrong Gauss–Newton is, what an optimizer should couple.

What an optimizer should do is said in parameter space, where it acts: the same ReLU network has $H=GN$ between its
activations and not between its weights. What Gauss–Newton misses is $\|H-GN\|_F/\|H\|_F$. Activation space, the
paper's own, says how the architecture carries curvature: which blocks are coupled, and where they are narrow.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from netvitals.capture import LossFn, Mode, Result, one_screen, skipped_lines, undisturbed
from netvitals.curvature.advice.design import Dropped, Recommendation, bottlenecks, dropped_blocks, recommend
from netvitals.curvature.advice.page import page_of
from netvitals.curvature.engine.journal import longer
from netvitals.curvature.engine.nodes import Choice, parameters_of
from netvitals.curvature.engine.products import Progress
from netvitals.curvature.measure.between_layers import between_layers
from netvitals.curvature.measure.result import InterlayerCurvature
from netvitals.curvature.measure.spectrum import Eigenvalues, top_eigenvalues

WORTH = 0.02  # share of the squared curvature from which a pair is worth coupling


@dataclass(frozen=True, kw_only=True)
class SharedPair(Result):
    """Two layers, how strongly they share curvature, and what of it is outside Gauss–Newton."""

    v: str
    w: str
    coupling: float
    coupling_stderr: float
    coupling_sampling: float  # standard error over batches; NaN for one batch
    missed: float  # ‖H − GN‖/‖H‖ of the block between them

    def __str__(self) -> str:
        data = f", ± {self.coupling_sampling:.2f} over batches" if np.isfinite(self.coupling_sampling) else ""
        return f"{self.v} – {self.w} (C = {self.coupling:.2f} ± {self.coupling_stderr:.2f}{data})"


@dataclass(frozen=True, kw_only=True)
class CurvatureReport(Result):
    """Curvature between the layers' parameters, the largest eigenvalue, and what follows.

    ``between`` has every number behind the sentences, ``edge`` the largest eigenvalue at which the optimizer is still
    stable (NaN where it has none or is not known), ``cost`` is in gradient-equivalents.

    Returned by :func:`report`.

    Attributes:
        model: class name of the model.
        parameters: trainable ones of the whole model.
        measured: those of the layers between which the blocks lie; tied ones count once.
        between: every number behind the sentences.
        sharpness: the largest eigenvalue of the Hessian of all parameters.
        optimizer: name of the optimizer; empty where none was given.
        edge: the largest eigenvalue at which it is still stable; NaN where it has none or is not known.
        activations: the same between the blocks' outputs; None where it could not be measured, see ``skipped``.
        cost: in gradient-equivalents.
        seconds: that the measurement took.
        skipped: part of the model that was left out → reason.
    """

    model: str
    parameters: int
    measured: int
    between: InterlayerCurvature
    sharpness: Eigenvalues
    optimizer: str
    edge: float
    cost: float
    seconds: float
    activations: InterlayerCurvature | None = None
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def pairs(self) -> list[SharedPair]:
        """Pairs of different layers, those that share most first."""
        found, missed = self.between, self.between.missed
        over = found.sampling.get("coupling", np.full_like(found.coupling, np.nan))
        pairs = [
            SharedPair(
                v=found.nodes[i],
                w=found.nodes[j],
                coupling=float(found.coupling[i, j]),
                coupling_stderr=float(found.coupling_stderr[i, j]),
                coupling_sampling=float(over[i, j]),
                missed=float(missed[i, j]),
            )
            for i, j in combinations(range(len(found.nodes)), 2)
            if np.isfinite(found.coupling[i, j])
        ]
        return sorted(pairs, key=lambda p: -p.coupling)

    @property
    def covered(self) -> str:
        """How much of the model the blocks between layers are about; the largest eigenvalue is of all of it."""
        return f"{len(self.between.nodes)} layers with {self.measured:,} of {self.parameters:,} trainable parameters"

    @property
    def advice(self) -> Recommendation:
        """Whether Gauss–Newton curvature is enough."""
        return recommend(self.between)

    @property
    def to_couple(self) -> list[Dropped]:
        """Blocks off the diagonal that hold at least 2 % of the squared curvature, largest first."""
        return dropped_blocks(self.between, least=WORTH)

    def rows(self) -> list[dict[str, Any]]:
        """One row a pair of layers, each layer with itself too: first of parameter space, then of activation space."""
        rows = []
        for found in (self.between, self.activations):
            if found is not None:
                missed, at = found.missed, found.position
                rows += [
                    {"space": found.space, **row, "missed": float(missed[at(row["v"]), at(row["w"])])}
                    for row in found.rows()
                ]
        return rows

    def sentences(self, most: int = 3) -> list[str]:
        """What was found, most important first.

        Args:
            most: at most so many pairs or layers in a sentence.
        """
        parts = (self._sharing(most), self._gauss_newton(most), self._coupling(most), self._sharpness())
        return [sentence for part in (*parts, self._architecture()) for sentence in part]

    def _architecture(self) -> list[str]:
        """What activation space says, and what to do with it."""
        found = self.activations
        if found is None or len(found.nodes) < 2:
            return []
        n = len(found.nodes)
        off = np.where(np.eye(n, dtype=bool), np.nan, found.coupling)
        said = []
        if np.isfinite(off).any():
            i, j = np.unravel_index(np.nanargmax(off), off.shape)
            said.append(
                f"Between activations {found.nodes[min(i, j)]} and {found.nodes[max(i, j)]} are coupled most "
                f"(C = {off[i, j]:.2f}): quantise, prune or freeze them together, not one by one."
            )
        necks = bottlenecks(found)
        if necks:
            neck = necks[0]
            most = f" to {neck.effective_dimension:.1f} (d_eff)" if np.isfinite(neck.effective_dimension) else ""
            said.append(
                f"{neck.node} is a bottleneck: width {neck.width}, and curvature passes it in {neck.stable_rank:.1f} "
                f"(D){most} directions. If these are nearly all of its width, widen it or add a skip connection around "
                "it. If they are far fewer, its width is not the limit."
            )
        return said

    def _sharing(self, most: int) -> list[str]:
        if not self.pairs:
            return []
        return [f"Layers that share curvature most: {', '.join(map(str, self.pairs[:most]))}."]

    def _gauss_newton(self, most: int) -> list[str]:
        found, own = self.between, np.diag(self.between.missed)
        whole, error = found.missed_in_all
        if whole <= found.floor:
            return ["Gauss–Newton is the Hessian here, up to rounding."]
        worst = [i for i in np.argsort(-own)[:most] if own[i] > 0.1]
        where = ", ".join(f"{found.nodes[i]} ({100 * own[i]:.0f} %)" for i in worst)
        tail = f", inside a layer most in {where}" if where else ""
        size = f"{100 * whole:.0f} ± {max(100 * error, 1):.0f} %"
        return [f"Gauss–Newton misses {size} of the curvature (‖H − GN‖/‖H‖){tail}: {self.advice.why}."]

    def _coupling(self, most: int) -> list[str]:
        share = 100 * self.between.off_diagonal_mass
        if len(self.between.nodes) < 2:
            return []
        named = [f"{d.v} with {d.w} ({100 * d.share:.0f} %)" for d in self.to_couple[:most]]
        then = f"; worth coupling: {', '.join(named)}" if named else "; no single pair is worth coupling"
        return [f"A block-diagonal optimizer drops {share:.0f} % of the squared curvature{then}."]

    def _sharpness(self) -> list[str]:
        top = float(self.sharpness.values[0])
        size = f"The largest eigenvalue is {top:.4g}" + ("" if self.sharpness.converged else " at least")
        over = float(self.sharpness.sampling_stderr[0])
        size += f" (± {over:.2g} over batches)" if np.isfinite(over) else ""
        if np.isfinite(self.edge):
            ratio = top / self.edge
            state = "beyond the edge of stability" if ratio > 1 else f"{100 * ratio:.0f} % of the edge of stability"
            return [f"{size}: {state} of {self.optimizer}, {self.edge:.4g}."]
        if self.optimizer:
            return [f"{size}; {self.optimizer} rescales its steps, so its edge 2/lr is not about this eigenvalue."]
        return [f"{size}: plain gradient descent is stable below a learning rate of {2 / top:.2g}."] if top > 0 else []

    def __str__(self) -> str:
        found = self.between
        wide = max(len(n) for n in found.nodes)
        missed = found.missed
        table = [f"{'layer'.ljust(wide)}  {'parameters':>10}  {'‖H‖':>9}  {'missed by GN':>12}"]
        table += [
            f"{n.ljust(wide)}  {found.sizes[i]:>10}  {found.resonance[i, i]:>9.3g}  {100 * missed[i, i]:>10.0f} %"
            for i, n in enumerate(found.nodes[:14])
        ]
        spent = f"{self.cost:.0f} gradient-equivalents, {self.seconds:.3g} s"
        head = f"Curvature of {self.model}: loss {found.loss:.4g} on {found.examples} examples, {found.probes} probes"
        return one_screen(
            [head, self.covered, "", *self.sentences(), "", *table, "", f"cost: {spent}", *skipped_lines(self.skipped)]
        )

    def to_html(self, path: str | os.PathLike[str]) -> Path:
        """Write the page: sentences, ranked pairs, labelled heat maps, cost.

        Args:
            path: the file, which is replaced if it is there; folders on the way are made.

        Returns:
            The file that was written.
        """
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(page_of(self), encoding="utf-8")
        return target


@undisturbed
def report(
    model: nn.Module,
    loss_fn: LossFn,
    batch: Any,
    *,
    mode: Mode = "as_is",
    nodes: Choice = None,
    seed: int = 0,
    progress: Progress | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    probes: int = 20,
    refine: int = 0,
    dtype: torch.dtype | None = None,
    memory: int = 2 << 30,
    resume: str | os.PathLike[str] | None = None,
) -> CurvatureReport:
    """Report the curvature of a model: layers that share curvature, errors of Gauss–Newton, and sharpness.

    Args:
        model: any module; it is not changed.
        loss_fn: ``loss_fn(output, target)``, its name, or None for the model's own ``output.loss``.
        batch: one batch, or a list of batches or a loader.
        mode: ``"as_is"``, ``"train"`` (batch statistics, dropout off) or ``"eval"``.
        nodes: the layers: names or globs of submodules, a rule ``(name, module) -> bool``, or None for the blocks.
        seed: seed of the random probes.
        progress: called with (products done, products planned).
        optimizer: the one in use; the largest eigenvalue is then held against its learning rate.
        probes: products spent on each layer.
        refine: rounds for the spectral norms, as in ``between_layers``.
        dtype: measure a copy of the model in this dtype.
        memory: memory budget in bytes for graph and products.
        resume: a folder for the state of a measurement of many batches: the same call goes on after an interruption.

    Returns:
        The numbers, sentences about them, a text of one screen and a page.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    >>> sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    >>> found = report(net, "mse", (torch.randn(8, 3), torch.randn(8, 2)), optimizer=sgd)
    >>> found.edge, len(found.pairs)
    (20.0, 1)
    """
    began = time.perf_counter()
    options: Any = {"mode": mode, "seed": seed, "dtype": dtype, "memory": memory}
    most = max(20, probes)
    swept = lambda done, planned: progress(done, planned + most) if progress else None
    blocks: Any = {"nodes": nodes, "space": "parameter", "probes": probes, "refine": refine, "progress": swept}
    kept = lambda part: None if resume is None else Path(resume) / part
    with longer(resume):
        between = between_layers(model, loss_fn, batch, resume=kept("blocks"), **blocks, **options)
        before = between.products
        stepped = lambda done, planned: progress(before + done, before + planned) if progress else None
        steps: Any = {"k": 1, "tol": 1e-2, "most": most, "progress": stepped, "resume": kept("sharpness")}
        sharpness = top_eigenvalues(model, loss_fn, batch, **steps, **options)
    skipped = {**sharpness.skipped, **between.skipped}
    activations = None
    seen: Any = {"nodes": nodes, "probes": probes, "refine": refine, "resume": kept("activations")}
    try:
        with longer(resume):
            activations = between_layers(model, loss_fn, batch, **seen, **options)
        skipped |= activations.skipped
    except ValueError as error:  # no blocks by default, or nodes= names parameters
        skipped["activation space"] = str(error)
    name, edge = edge_of(optimizer)
    return CurvatureReport(
        model=type(model).__name__,
        parameters=sum(p.numel() for p in model.parameters() if p.requires_grad),
        measured=sum(p.numel() for p in {p for n in between.nodes for p in parameters_of(model, n)}),
        between=between,
        sharpness=sharpness,
        optimizer=name,
        edge=edge,
        activations=activations,
        cost=between.cost + sharpness.cost + (activations.cost if activations else 0.0),
        seconds=time.perf_counter() - began,
        skipped=skipped,
    )


def edge_of(optimizer: torch.optim.Optimizer | None) -> tuple[str, float]:
    r"""The optimizer in words and the largest eigenvalue of a quadratic at which it is stable.

    Gradient descent $2/\eta$; with momentum β $2(1+\beta)/\eta$, Nesterov's $2(1+\beta)/(\eta(1+2\beta))$. Others
    rescale the gradient and have no edge in eigenvalues of H: NaN.

    >>> edge_of(torch.optim.SGD([torch.zeros(1)], lr=0.5, momentum=0.9))
    ('SGD at learning rate 0.5 and momentum 0.9', 7.6)
    """
    if optimizer is None:
        return "", float("nan")
    groups = optimizer.param_groups
    rate = max(float(g["lr"]) for g in groups)
    name = f"{type(optimizer).__name__} at learning rate {rate:g}"
    if type(optimizer) is not torch.optim.SGD or not rate > 0 or any(g.get("dampening") for g in groups):
        return name, float("nan")
    beta = max(float(g["momentum"]) for g in groups)
    nesterov = any(g["nesterov"] for g in groups)
    edge = 2 * (1 + beta) / (rate * (1 + 2 * beta if nesterov else 1))
    return name + (f" and momentum {beta:g}" if beta else ""), edge
