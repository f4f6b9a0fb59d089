r"""Observed minus predicted rate, layer by layer, of a network of one's own (dead-directions §12, §15).

The theory is a reference frame: it says how $G_\ell$ and $A_\ell$ fall along a dead direction that is aligned through
all layers. A copy of the network is put on that path, one channel of every axis dead but for an entry t, everything
else as it was trained, and the exponents are read over a sweep of t. What differs from the prediction is the network's
own: a saturated unit, a closed one, a window that is not asymptotic.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from netvitals._plot import Plot, Series
from netvitals.capture import (
    LossFn,
    Mode,
    Result,
    in_double,
    in_mode,
    inputs_of,
    likelihood_of,
    one_screen,
    resolve_loss,
    undisturbed,
)
from netvitals.singular.laws.network_rates import network_rates
from netvitals.singular.laws.prediction import Rates
from netvitals.singular.moments.factors import dead_entry
from netvitals.singular.moments.kronecker import kfac
from netvitals.singular.networks.graph import RateGraph, Step, rate_graph
from netvitals.singular.orders.rates import RateFit, rate_fit

SWEEP = tuple(np.geomspace(1e-5, 1e-3, 5).tolist())  # LayerNorm is asymptotic below 1e-3 only, and here nothing rounds
TOLERANCE = 0.25  # half the distance at which an exponent would be another one, as for the selection rule


@dataclass(frozen=True, kw_only=True)
class LayerDeviation(Result):
    """One factor of one layer.

    Part of :class:`RateDeviation`.

    Attributes:
        layer: name of the layer.
        factor: ``G`` or ``A``.
        predicted: exponent; None where the factor is zero for every example.
        why: what sets it: the primitive that its cheapest way ends at.
        fit: the exponent that was measured, with everything needed to doubt it.
    """

    layer: str
    factor: str
    predicted: float | None
    why: str
    fit: RateFit

    @property
    def difference(self) -> float:
        """Observed minus predicted; NaN where one of them is missing."""
        return math.nan if self.predicted is None else self.fit.slope - self.predicted

    @property
    def error(self) -> float:
        """Standard error of the slope, and how far local slopes move over the window, in quadrature."""
        return math.hypot(self.fit.stderr, self.fit.drift)

    def row(self) -> dict[str, Any]:
        """Names and numbers, for a table."""
        return {
            "layer": self.layer,
            "factor": self.factor,
            "predicted": self.predicted,
            "observed": self.fit.slope,
            "difference": self.difference,
            "error": self.error,
            "why": self.why,
            "note": ", ".join(self.fit.flags),
        }


@dataclass(frozen=True, kw_only=True)
class RateDeviation(Result):
    """Observed minus predicted, for both factors of every layer.

    Returned by :func:`rates`.

    Attributes:
        parts: one a layer and factor, G first.
        law: by which it was predicted.
        notes: where the law is silent, and why.
        units: the channel that was made dead, by layer that writes it.
        ts: the sweep.
        skipped: layer → reason.
    """

    parts: tuple[LayerDeviation, ...]
    law: str
    notes: tuple[str, ...]
    units: dict[str, int]
    ts: tuple[float, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)

    @property
    def worst(self) -> LayerDeviation:
        """The part with the largest difference; the first where none has one."""
        return max(self.parts, key=lambda p: abs(p.difference) if math.isfinite(p.difference) else -1.0)

    @property
    def agrees(self) -> bool:
        """Whether every exponent that is predicted and was measured is within 0.25 of its prediction."""
        return all(not abs(p.difference) > TOLERANCE for p in self.parts)

    def rows(self) -> list[dict[str, Any]]:
        """One row a layer and factor."""
        return [p.row() for p in self.parts]

    def plot(self) -> Plot:
        """Exponents of all layers in the order they run, predicted and measured."""
        series = []
        for tone, factor in enumerate("GA"):
            parts = list(enumerate((p for p in self.parts if p.factor == factor), 1))
            law = [(i, p.predicted) for i, p in parts if p.predicted is not None]
            fits = [(i, p.fit.slope, p.error) for i, p in parts if math.isfinite(p.fit.slope + p.error)]
            x, y, error = ([fit[k] for fit in fits] for k in range(3))
            series += [
                Series(
                    f"{factor}, predicted", [i for i, _ in law], [v for _, v in law], line=True, dashed=True, tone=tone
                ),
                Series(f"{factor}, measured", x, y, error, tone=tone),
            ]
        return Plot("layer and head, in the order of the table", "exponent of t", series)

    def __str__(self) -> str:
        head = f"observed minus predicted rates over t = {self.ts[0]:g} … {self.ts[-1]:g}; {self.law}"
        return one_screen([head, *map(_line, self.parts), *(f"  note: {n}" for n in self.notes)])


def _line(part: LayerDeviation) -> str:
    said = "zero" if part.predicted is None else f"t^{part.predicted:g} predicted ({part.why})"
    seen = f"t^{part.fit.slope:.3f}" if math.isfinite(part.fit.slope) else ", ".join(part.fit.flags)
    off = f", {part.difference:+.3f} ± {part.error:.3f}" if math.isfinite(part.difference) else ""
    return f"  {part.layer:20s} {part.factor}  {said}, {seen} observed{off}"


@undisturbed
def rates(
    model: nn.Module,
    loss_fn: LossFn,
    batch: Any,
    *,
    mode: Mode = "eval",
    ts: Sequence[float] = SWEEP,
    units: Mapping[str, int] | None = None,
) -> RateDeviation:
    """Measure how K-FAC factors scale with the distance t to a dead unit in your network, and compare with the
    prediction.

    A copy of ``model`` is moved along a path on which, as t → 0, one channel of every hidden dimension becomes dead.
    The fitted exponents of t are compared with those predicted from the architecture.

    One dead channel is chosen in every hidden dimension, and one in every attention head. All biases and weights into
    and out of a dead channel are set to zero; only a weight that joins two dead channels gets the value t. In the first
    and last layer, the weight vector of a dead channel keeps its direction and is scaled to length t.

    Args:
        model: of linear layers, convolutions, embeddings, activations, norms, sums, products of branches and attention
            (fused or not, shared keys and values, rotary positions), with weights used once or more; a float64 copy of
            it is run. Anything else is refused by name.
        loss_fn: "mse", "ce", or torch's losses of that kind: the likelihood of the expected Fisher.
        batch: one batch as a data loader yields it; a target is not used.
        mode: "eval", "train" (batch statistics, dropout modules off) or "as_is".
        ts: three places on the path or more.
        units: which channel is made dead, by a layer that writes the axis; the one with the smallest weights where none
            is named.

    Returns:
        One exponent for each layer and factor (for each part of a fused layer), with its error.

    >>> net = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 2))
    >>> found = rates(net, "mse", torch.randn(32, 3))
    >>> found.agrees, [part.predicted for part in found.parts if part.factor == "G"]
    (True, [4, 2, 0])
    """
    ts = tuple(sorted(map(float, ts)))
    if len(ts) < 3 or not all(0 < t < math.inf for t in ts):
        raise ValueError(f"fitting an exponent needs at least three values t > 0 in ts, got {list(ts)}")
    resolve_loss(loss_fn)  # a wrong order gets its sentence
    task = in_double(inputs_of(model, batch))
    net, likelihood = task.model, likelihood_of(loss_fn, task.targets[0] if task.targets else None)
    with in_mode(net, mode):
        graph = rate_graph(net, task.inputs)
        predicted = network_rates(graph)
        path = _Path(net, graph, units or {})
        entries: dict[tuple[str, str, str], list[float]] = {}
        for t in ts:
            path.move(t)
            factors = kfac(net, likelihood, task.inputs, mode=mode, only=sorted(path.modules), spectra=False)
            for (step, which, head), direction in path.directions.items():
                if step.name in factors.layers:
                    factor = factors[step.name]
                    moment = factor.G if which == "G" else factor.A
                    entries.setdefault((step.label, which, head), []).append(dead_entry(moment, direction))
    order = sorted(entries, key=lambda key: key[1], reverse=True)
    parts = tuple(_part(name, which, head, predicted, ts, entries[name, which, head]) for name, which, head in order)
    return RateDeviation(
        parts=parts, law=predicted.law, notes=predicted.notes, units=path.units, ts=ts, skipped=factors.skipped
    )


def _part(name: str, which: str, head: str, predicted: Rates, ts: Sequence[float], ys: list[float]) -> LayerDeviation:
    exponent = (predicted.G if which == "G" else predicted.A)[name]
    why = predicted.why.get((name, which), "")
    return LayerDeviation(layer=name + head, factor=which, predicted=exponent, why=why, fit=rate_fit(ts, ys, floor=0.0))


class _Path:
    """The weights of a network as functions of t."""

    def __init__(self, net: nn.Module, graph: RateGraph, units: Mapping[str, int]) -> None:
        self.graph = graph
        parameters = dict(net.named_parameters(remove_duplicate=False))
        self.weights = {n: parameters[layer.weight] for n, layer in graph.layers.items()}
        self.biases = {n: parameters[layer.bias] for n, layer in graph.layers.items() if layer.bias}
        if unknown := [n for n in units if n not in self.weights]:
            raise ValueError(
                f"units= names the layer {unknown[0]!r}, which does not exist; the layers are {', '.join(self.weights)}"
            )
        for name, unit in units.items():
            width = next(len(s.rows) for s in graph.weights if s.name == name)
            if not 0 <= unit < width:
                raise ValueError(f"layer {name} has output channels 0 to {width - 1}, but units= gives channel {unit}")
        named = {graph.axes[s.output]: units[s.name] for s in graph.weights if s.name in units}
        self.dead = {axis: self._chosen(axis, named.get(axis)) for axis in set(graph.axes.values())}
        self.rows: dict[Step, list[list[int]]] = {}  # by head; [] at a free end
        self.columns: dict[Step, list[list[int]]] = {}
        for step in graph.weights:
            reads = graph.reads(step)
            self.rows[step] = [list(step.rows[k]) for k in self.dead[graph.axes[step.output]]]
            self.columns[step] = [
                [c for c, k in enumerate(reads) if k == dead] for dead in self.dead[graph.axes[step.inputs[0]]]
            ]
        self.units = {s.label + _head(h, rows): rows[h][0] for s, rows in self.rows.items() for h in range(len(rows))}
        # the path starts from the trained weights with the dead channels taken out
        self.fixed = {name: self._without(name) for name in self.weights}
        self.modules = {n for n in self.weights if n in dict(net.named_modules())}
        first = {s.label: s for s in reversed(graph.weights) if s.name in self.modules}  # a weight may be used twice
        self.directions = {
            (s, which, head): direction
            for s in graph.weights
            if s in first.values()
            for which, head, direction in self._directions(s)
        }
        with torch.no_grad():
            for step, rows in self.rows.items():
                if step.name in self.biases:
                    self.biases[step.name][_flat(rows)] = 0
            shifts = parameters | dict(net.named_buffers())
            for step in graph.steps:
                for name in step.bias:
                    if shifts.get(name) is not None:
                        shifts[name][self.dead[graph.axes[step.output]]] = 0

    def _matrix(self, name: str, weight: Tensor) -> Tensor:
        """As (out, in, …), a view."""
        return weight if self.graph.layers[name].out_dim == 0 else weight.transpose(0, 1)

    def _chosen(self, axis: int, named: int | None) -> list[int]:
        """The dead channel of an axis, of every attention head one: the one named, or that with the smallest weights.

        Empty at a free end.
        """
        if self.graph.free(axis):
            return []
        size = torch.zeros(self.graph.channels(axis), dtype=torch.float64)
        for step in self.graph.weights:
            w = self._matrix(step.name, self.weights[step.name].detach()).double()
            if self.graph.axes[step.output] == axis:
                own = w.flatten(1).square().sum(1)
                size += torch.stack([own[list(rows)].sum() for rows in step.rows])
            if self.graph.axes[step.inputs[0]] == axis:
                size.index_add_(0, torch.tensor(self.graph.reads(step)), w.transpose(0, 1).flatten(1).square().sum(1))
        if named is not None:
            size[named] = -1
        by_head = size.reshape(self.graph.heads(axis), -1)
        return [h * by_head.shape[1] + int(k) for h, k in enumerate(by_head.argmin(1))]

    def _without(self, name: str) -> tuple[Tensor, Tensor]:
        """The weight without its dead channels, and what is added to it for every t."""
        w = self._matrix(name, self.weights[name].detach().clone())
        rest, added = w.clone(), torch.zeros_like(w)
        for step in self.rows:
            if step.name == name:
                rest[_flat(self.rows[step])] = 0
                rest[:, _flat(self.columns[step])] = 0
        for step in self.rows:
            rows, columns = _flat(self.rows[step]), _flat(self.columns[step])
            if step.name != name or not (rows or columns):
                continue
            every = lambda chosen, size: chosen or list(range(size))
            at = torch.meshgrid(
                torch.tensor(every(rows, w.shape[0])), torch.tensor(every(columns, w.shape[1])), indexing="ij"
            )
            own = w[at]
            if rows and columns:
                own = own.abs()  # t is positive where two dead channels meet: a ReLU lets it through
            added[at] = own / own.norm() if float(own.norm()) > 0 else torch.ones_like(own)
        return rest, added

    def _directions(self, step: Step) -> Iterator[tuple[str, str, Tensor]]:
        """Dead unit vectors in the outputs of a layer ("G") and in its unfolded inputs ("A"), one a head."""
        rows, columns = self.rows[step], self.columns[step]
        _, added = self.fixed[step.name]
        width, channels, *kernel = added.shape
        for head, mine in enumerate(rows):
            g = torch.zeros(width, dtype=added.dtype)
            g[mine[0]] = 1
            yield "G", _head(head, rows), g
        if not rows:
            summed = added.flatten(1).sum(1)
            yield "G", "", summed if float(summed.norm()) > 0 else torch.ones_like(summed)
        for head, mine in enumerate(columns):
            a = torch.zeros(channels, math.prod(kernel), dtype=added.dtype)
            a[mine] = 1
            yield "A", _head(head, columns), a.flatten()
        if not columns:
            into = added[_flat(rows)] if rows else added
            summed = into.flatten(2).sum(0) if kernel else into.sum(0)[:, None]
            yield "A", "", (summed if float(summed.norm()) > 0 else torch.ones_like(summed)).flatten()

    @torch.no_grad()
    def move(self, t: float) -> None:
        """Put the network at t."""
        for name, (rest, added) in self.fixed.items():
            self._matrix(name, self.weights[name]).copy_(rest + t * added)


def _flat(groups: list[list[int]]) -> list[int]:
    return [k for group in groups for k in group]


def _head(head: int, groups: list[list[int]]) -> str:
    """Which head a name is of, where there are several."""
    return f", head {head}" if len(groups) > 1 else ""
