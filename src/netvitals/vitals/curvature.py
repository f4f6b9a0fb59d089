r"""Curvature between layers over a training run: measured every so often, within a time budget, with alerts.

Of every node the Frobenius norm of its block of the Hessian, its stable rank and what Gauss–Newton leaves out; of every
pair of nodes the norm of the block between them and its coupling $R(v,w)/\sqrt{R(v,v)R(w,w)}$.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from netvitals._help import hint
from netvitals.capture import Metric, ParameterView, Recorder, Vital, WatchContext, in_mode, preserved

if TYPE_CHECKING:
    from netvitals.curvature import InterlayerCurvature, ParameterLook

NODE = ("resonance", "gn_gap", "stable_rank")
PAIR = ("resonance", "coupling", "gn_gap")
MATRICES = ("resonance", "gn_gap", "stable_rank", "coupling")


@dataclass(frozen=True)
class Jump:
    """A metric that changed by more than the threshold between two measurements, beyond its error bars."""

    step: int
    metric: str
    pair: tuple[str, str]
    before: float
    after: float

    def __str__(self) -> str:
        return (
            f"step {self.step}: {self.metric} of {self.pair[0]} and {self.pair[1]} went from {self.before:.3g} to "
            f"{self.after:.3g}"
        )


class Curvature(Vital):
    """How the layers share curvature, on a fixed batch, so that only the net changes.

    Readings: at every node ``resonance``, ``gn_gap`` and ``stable_rank``, at every pair ``v→w`` ``resonance``,
    ``coupling`` and ``gn_gap``, each with its standard error (``…_stderr``); the matrices over all pairs as arrays. Of
    the parameters: ``sharpness`` at ``model``, begun from the vector of the last look, ``trace`` of every layer, and
    ``cost`` of the look.
    ``history`` keeps every result with its step, ``jumps`` what changed suddenly, ``passed_over`` the steps for which
    there was no time. Without a watch, call :meth:`step` in the training loop.

    Args:
        model: left out, the watch gives its own.
        loss_fn: of (output, target); left out, that of the watch's probe.
        batch: a fixed one (inputs, targets); left out, that of the watch's probe.
        nodes: as for :func:`netvitals.curvature.between_layers`.
        min_steps: training steps between measurements, at least.
        share: at most this share of the time since it began is spent measuring.
        probes: products spent on each node; the seed stays the same, so that differences are of the net.
        factor: a change by this factor between measurements is a jump.
        alert: the metrics in which jumps are looked for.
        examples: so many examples of the batch are used, its first ones.
        sharpness: also the largest eigenvalue and the traces of the parameters' Hessian.
        mode: ``"train"`` (batch statistics in BatchNorm, dropout modules off), ``"eval"`` or ``"as_is"``.

    >>> net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    >>> seen = Curvature(net, nn.MSELoss(), (torch.randn(4, 2), torch.randn(4, 1)), min_steps=5, share=1.0)
    >>> [seen.step(i) is not None for i in range(6)]
    [True, False, False, False, False, True]
    """

    name = "curvature"
    title = "Curvature"
    meaning = (
        "How strongly layers interact in the Hessian. Each cell of the matrix shows the Hessian block of two "
        "layers; the diagonal shows the blocks of single layers."
    )
    metrics: ClassVar = {
        "resonance": Metric("Frobenius norm of the Hessian block between two layers"),
        "coupling": Metric(
            "norm of the Hessian block between two layers, divided by the geometric mean of the norms of the two "
            "diagonal blocks"
        ),
        "stable_rank": Metric("stable rank of the Hessian block: how many directions it uses", "directions"),
        "gn_gap": Metric("GN-gap: norm of the Hessian minus Gauss–Newton, divided by the norm of Gauss–Newton"),
        "resonance_stderr": Metric(
            "standard error of the norm of the Hessian block between two layers (resonance), estimated over random "
            "probes"
        ),
        "coupling_stderr": Metric(
            "standard error of the normalised norm of the Hessian block between two layers (coupling), estimated "
            "over random probes"
        ),
        "stable_rank_stderr": Metric("standard error of the stable rank, estimated over random probes", "directions"),
        "gn_gap_stderr": Metric("standard error of the GN-gap, estimated over random probes"),
        "sharpness": Metric("lower bound on the largest eigenvalue of the Hessian of all parameters"),
        "sharpness_residual": Metric("error bound of the sharpness: some true eigenvalue is at most this far away"),
        "sharpness_edge": Metric("sharpness divided by the stability limit of SGD: 2/lr, or 2(1+β)/lr with momentum"),
        "trace": Metric("trace of the Hessian block of the layer's parameters"),
        "trace_stderr": Metric("standard error of the trace, estimated over random probes"),
        "cost": Metric("cost of this measurement, in gradients of the probe batch", "gradients"),
    }
    headline = ("resonance", "sharpness")
    needs = "probe=(x, y, loss_fn)"
    min_steps = 500

    def __init__(
        self,
        model: nn.Module | None = None,
        loss_fn: Callable[..., Tensor] | None = None,
        batch: Any = None,
        *,
        nodes: Any = None,
        min_steps: int = 500,
        share: float = 0.05,
        probes: int = 12,
        factor: float = 2.0,
        alert: Sequence[str] = ("resonance", "coupling", "gn_gap"),
        examples: int = 64,
        sharpness: bool = True,
        mode: Any = "train",
    ) -> None:
        if min_steps < 1:
            raise ValueError(f"min_steps= is a number of training steps and must be at least 1, got {min_steps}")
        if not share >= 0:
            raise ValueError(f"share= is a fraction of training time and must not be negative, got {share}")
        if unknown := [m for m in alert if m not in MATRICES]:
            raise ValueError(
                f"alert= must contain only metrics of pairs of layers ({', '.join(MATRICES)}), got {unknown[0]!r}"
            )
        self.model, self.loss_fn, self.batch = model, loss_fn, batch
        self.nodes, self.min_steps, self.share, self.probes = nodes, min_steps, share, probes
        self.factor, self.alert, self.examples, self.mode = factor, tuple(alert), examples, mode
        self.sharpness = sharpness
        self._optimizers: Callable[[], Sequence[torch.optim.Optimizer]] = tuple
        self._given = model is not None
        self._reset()

    def _reset(self) -> None:
        self.history: list[tuple[int, InterlayerCurvature]] = []
        self.jumps: list[Jump] = []
        self.passed_over: list[int] = []  # steps on which the budget was spent
        self.looks: list[ParameterLook] = []  # at the parameters' Hessian, one a measurement
        self._due = 0
        self._began, self._spent = time.perf_counter(), 0.0

    def begin(self, context: WatchContext) -> None:
        if not self._given:
            self.loss_fn, self.batch = context.fixed_batch(self.name)
            self.model, self._optimizers = context.model, context.known_optimizers
            self._reset()

    def parameters(self, recorder: Recorder, view: ParameterView) -> None:
        found = self.measure(recorder.step)
        if found is None:
            return
        n = len(found.nodes)
        diagonal, upper = (np.arange(n), np.arange(n)), np.triu_indices(n, 1)
        pairs = [f"{found.nodes[i]}→{found.nodes[j]}" for i, j in zip(*upper)]
        for sites, metrics, where in ((list(found.nodes), NODE, diagonal), (pairs, PAIR, upper)):
            if sites:
                names = (*metrics, *(f"{m}_stderr" for m in metrics))
                recorder.put(sites, names, np.stack([getattr(found, m)[where] for m in names], axis=1))
        for metric in MATRICES:
            recorder.put_array(["model"], metric, getattr(found, metric)[None])
        spent = found.cost
        if self.sharpness:
            look = self.looks[-1]
            spent += look.cost
            values = {"sharpness": look.sharpness, "sharpness_residual": look.residual, "sharpness_edge": self._edge()}
            known = {k: v for k, v in values.items() if np.isfinite(v)}
            recorder.put(["model"], tuple(known), np.array([list(known.values())]))
            recorder.put(list(look.traces), ("trace", "trace_stderr"), np.array(list(look.traces.values())))
        recorder.put(["model"], ("cost",), np.array([[spent]]))

    def _edge(self) -> float:
        """The largest eigenvalue against the one at which the optimizer is still stable; NaN where none is known."""
        from netvitals.curvature import edge_of

        optimizers = list(self._optimizers())
        return self.looks[-1].sharpness / edge_of(optimizers[0])[1] if len(optimizers) == 1 else float("nan")

    def step(self, step: int) -> InterlayerCurvature | None:
        """Measure if ``min_steps`` have passed and the budget allows; for loops without a watch.

        Args:
            step: number of the training step.
        """
        if step < self._due:
            return None
        self._due = step + self.min_steps
        return self.measure(step)

    def measure(self, step: int) -> InterlayerCurvature | None:
        """Measure now, unless the budget is spent. The model is left bit for bit as it was.

        Args:
            step: number of the training step, for the history.
        """
        from netvitals.curvature import between_layers, look_at

        if self.model is None or self.loss_fn is None:
            raise ValueError(
                "the vital sign 'curvature' needs a model: pass it to watch(vitals=[...]), or give model, loss_fn "
                f"and batch {hint('needs-probe')}"
            )
        start = time.perf_counter()
        if self.history and self._spent > self.share * (start - self._began):
            self.passed_over.append(step)
            return None
        with preserved(self.model), in_mode(self.model, self.mode):
            torch.manual_seed(0)  # what noise is left in the model is the same on every look
            found = between_layers(self.model, self.loss_fn, self._few(), nodes=self.nodes, probes=self.probes)
            if self.sharpness:
                before = self.looks[-1].vector if self.looks else None
                self.looks.append(look_at(self.model, self.loss_fn, self._few(), self.probes, before))
                self.looks[:-1] = [replace(look, vector=None) for look in self.looks[:-1]]
        self._spent += time.perf_counter() - start
        if self.history:
            self.jumps += self._compare(step, self.history[-1][1], found)
        self.history.append((step, found))
        return found

    def _few(self) -> Any:
        if isinstance(self.batch, tuple | list) and all(isinstance(t, Tensor) and t.ndim for t in self.batch):
            return tuple(t[: self.examples] for t in self.batch)
        return self.batch

    def series(self, metric: str, v: str, w: str) -> tuple[list[int], list[float], list[float]]:
        """Steps, values and standard errors of one pair.

        Args:
            metric: ``resonance``, ``coupling``, ``gn_gap`` or ``stable_rank``.
            v: name of a node.
            w: name of the other; the same for its diagonal.
        """
        steps, values, errors = [], [], []
        for step, found in self.history:
            at = found.at(v, w)
            steps.append(step)
            values.append(at[metric])
            errors.append(at[metric + "_stderr"])
        return steps, values, errors

    def _compare(self, step: int, old: InterlayerCurvature, new: InterlayerCurvature) -> list[Jump]:
        if old.nodes != new.nodes:
            return []
        out = []
        for metric in self.alert:
            a, b = getattr(old, metric), getattr(new, metric)
            noise = 2 * np.hypot(getattr(old, metric + "_stderr"), getattr(new, metric + "_stderr"))
            for i in range(len(new.nodes)):
                for j in range(i, len(new.nodes)):
                    low, high = sorted((float(a[i, j]), float(b[i, j])))
                    if high - low > noise[i, j] and high > self.factor * max(low, new.floor):
                        out.append(
                            Jump(
                                step=step,
                                metric=metric,
                                pair=(new.nodes[i], new.nodes[j]),
                                before=float(a[i, j]),
                                after=float(b[i, j]),
                            )
                        )
        return out


def monitor(
    model: nn.Module,
    loss_fn: Callable[..., Tensor],
    batch: Any,
    nodes: Any = None,
    every: int = 500,
    share: float = 0.05,
    probes: int = 12,
    factor: float = 2.0,
    metrics: Sequence[str] = ("resonance", "coupling", "gn_gap"),
    train: bool | None = None,
) -> Curvature:
    """What ``netvitals.curvature.Monitor`` was, with its old options, for one version: a :class:`Curvature`."""
    mode = "as_is" if train is None else "train" if train else "eval"
    options: dict[str, Any] = {"probes": probes, "factor": factor, "alert": metrics, "mode": mode}
    return Curvature(model, loss_fn, batch, nodes=nodes, min_steps=every, share=share, examples=sys.maxsize, **options)
