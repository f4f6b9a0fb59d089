"""Sparsity over a whole data set: counts that stream through in one pass, in memory that does not grow with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor, nn

from netvitals.anatomy import channel_dim, chart, layer_kind, layers_after_activation
from netvitals.capture import (
    UNREACHED,
    ActivationView,
    LinearView,
    Mode,
    Only,
    Progress,
    Recorder,
    Result,
    Site,
    Task,
    Vital,
    picked,
    skipped_lines,
    stream_over,
    undisturbed,
)
from netvitals.drift.reductions import unit_shares
from netvitals.stats import MagnitudeHistogram

SOFT_RELATIVE = 0.01  # soft sparsity counts |a| up to this share of the largest |a|
SOFT_ABSOLUTE = 1e-3  # or up to this value
SHOWN = 32  # sites on one screen


@dataclass(frozen=True, kw_only=True)
class SiteSparsity(Result):
    """Sparsity of one activation over everything that streamed through.

    Part of :class:`SparsityReport`.

    Attributes:
        site: the place of the activation.
        hard: share of exact zeros.
        soft: share of |a| <= soft_tau * max |a|.
        soft_tau: the share of the maximum really used: within 0.8 % of the one asked for.
        soft_abs: share of |a| <= tau_abs (to the same precision).
        neg_preact: share of inputs at or below zero.
        dead: units that were zero on every example.
        always_on: units that were never zero.
        units: how many there are.
        elements: behind the shares.
    """

    site: Site
    hard: float
    soft: float
    soft_tau: float
    soft_abs: float
    neg_preact: float
    dead: int
    always_on: int
    units: int
    elements: int

    def __str__(self) -> str:
        return (
            f"{self.site.name}: {self.hard:.1%} zero, {self.soft:.1%} near zero, {self.neg_preact:.1%} negative "
            f"inputs, {self.dead} of {self.units} units dead, {self.always_on} always on"
        )


@dataclass(frozen=True)
class LayerFlops(Result):
    """A linear or convolution layer: how sparse its input is, and what skipping zeros would save.

    Part of :class:`SparsityReport`.

    Attributes:
        name: of the layer.
        input_sparsity: share of exact zeros in what enters.
        dense: floating-point operations per example.
        after_activation: whether an activation's output is what enters.
    """

    name: str
    input_sparsity: float
    dense: float
    after_activation: bool

    @property
    def sparse(self) -> float:
        return self.dense * (1 - self.input_sparsity)


@dataclass(frozen=True, kw_only=True)
class SparsityReport(Result):
    """Sparsity of a model over a data set.

    Returned by :func:`sparsity`.

    Attributes:
        sites: activations by name.
        layers: linear and convolution layers by name.
        examples: that streamed through.
        batches: that streamed through.
        skipped: place that could not be measured → reason.
    """

    sites: dict[str, SiteSparsity]
    layers: dict[str, LayerFlops]
    examples: int
    batches: int
    skipped: Mapping[str, str] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        """Unweighted mean of hard sparsity over activation sites."""
        return _average([(s.hard, 1) for s in self.sites.values()])

    @property
    def numel_weighted(self) -> float:
        return _average([(s.hard, s.elements) for s in self.sites.values()])

    @property
    def flop_weighted(self) -> float:
        """Input sparsity of the layers behind an activation, weighted by what they cost."""
        return _average([(f.input_sparsity, f.dense) for f in self.layers.values() if f.after_activation])

    @property
    def ffn(self) -> float:
        """Mean input sparsity of the layers behind an activation (the down-projections of a transformer)."""
        return _average([(f.input_sparsity, 1) for f in self.layers.values() if f.after_activation])

    @property
    def all_layers(self) -> float:
        """Mean input sparsity of all layers: diluted by the ones that read dense inputs."""
        return _average([(f.input_sparsity, 1) for f in self.layers.values()])

    @property
    def flops_dense(self) -> float:
        return sum(f.dense for f in self.layers.values())

    @property
    def flops_sparse(self) -> float:
        return sum(f.sparse for f in self.layers.values())

    def __str__(self) -> str:
        saved = 1 - self.flops_sparse / self.flops_dense if self.flops_dense else float("nan")
        head = (
            f"hard sparsity {self.mean:.1%} (by elements {self.numel_weighted:.1%}, by cost "
            f"{self.flop_weighted:.1%}, all layers {self.all_layers:.1%}) over {self.examples} examples; "
            f"{saved:.1%} of the operations read a zero"
        )
        shown = [f"  {site}" for site in list(self.sites.values())[:SHOWN]]
        more = [f"  … and {len(self.sites) - SHOWN} more"] * (len(self.sites) > SHOWN)
        return "\n".join([head, *shown, *more, *skipped_lines(self.skipped)])

    def rows(self) -> list[dict[str, Any]]:
        """One row an activation."""
        return [
            {"site": name, **{f.name: getattr(s, f.name) for f in fields(s) if f.name != "site"}}
            for name, s in self.sites.items()
        ]


@undisturbed
def measure(
    model: nn.Module,
    batch: Any,
    *,
    mode: Mode = "as_is",
    only: Only = None,
    seed: int = 0,
    progress: Progress | None = None,
    tau: float = SOFT_RELATIVE,
    tau_abs: float = SOFT_ABSOLUTE,
) -> SparsityReport:
    """Measure the sparsity of every activation over all batches of a loader; no loss is needed.

    Args:
        model: any model; it is not changed.
        batch: a loader, or one batch: a tensor, a dict, or a tuple or list that holds a tensor. Bare tensors are given
            as ``iter(tensors)``, so that a list ``[x, y]`` stays one batch. One pass is made.
        mode: ``"as_is"``, ``"train"`` or ``"eval"``.
        only: activations to report: names or patterns, or a function of a name.
        seed: seed of the random numbers that the model draws.
        progress: called with (batches done, batches planned).
        tau: soft sparsity counts |a| up to this share of the largest |a|.
        tau_abs: absolute soft sparsity counts |a| up to this value.

    Returns:
        Sparsity by activation, what reading zeros would save by layer, and what could not be measured.

    >>> net = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
    >>> report = measure(net, [(torch.zeros(3, 2),), (torch.ones(5, 2),)])
    >>> report.examples, sorted(report.layers)
    (8, ['0', '2'])
    """
    if not 0 <= tau < 1:
        raise ValueError(f"tau= is a fraction of the largest activation and must lie in [0, 1), got {tau}")
    meter = _Meter()
    streamed = stream_over(model, batch, meter, mode=mode, seed=seed, progress=progress, first=meter.chart)
    if not meter.sites:
        raise ValueError(
            "the model has no activation that can be measured, so it has no sparsity; sparsity needs at least one"
        )
    empty = {name: UNREACHED for name, counts in meter.sites.items() if not counts.elements}
    seen = {name: counts for name, counts in meter.sites.items() if name not in empty}
    return SparsityReport(
        sites={name: seen[name].result(tau, tau_abs) for name in picked(seen, only, "activation")},
        layers={c.name: c.result(streamed.examples) for c in meter.layers.values()},
        examples=streamed.examples,
        batches=streamed.batches,
        skipped={**streamed.skipped, **empty},
    )


@dataclass
class _SiteCounts:
    site: Site
    on: Tensor | None = None  # by channel, how often it was not zero
    rows: int = 0
    negative: float = 0.0
    elements: int = 0
    largest: float = 0.0
    sizes: MagnitudeHistogram = field(default_factory=MagnitudeHistogram)

    def add(self, view: ActivationView) -> None:
        if view.elements == 0:
            return  # an expert that got no token
        size = view.a_view.abs()
        on = (size != 0).sum(view.over)
        if self.on is not None and self.on.shape != on.shape:
            raise ValueError(
                f"{self.site.name} had {self.on.numel()} channels in the first batch and has {on.numel()} in this "
                "one: all batches must have the same number"
            )
        self.on = on if self.on is None else self.on + on
        self.rows += size.numel() // on.numel()
        self.negative += float((view.x <= 0).sum())
        self.elements += size.numel()
        self.largest = max(self.largest, float(size.amax()))
        self.sizes.add(size)

    def result(self, tau: float, tau_abs: float) -> SiteSparsity:
        on = self.on if self.on is not None else torch.zeros(0)
        soft, edge = self.sizes.share_at_most(tau * self.largest)
        units = on.numel()
        shares = unit_shares(on.cpu().numpy(), total=lambda v: int(v.sum()), units=units, full=self.rows)
        return SiteSparsity(
            site=self.site,
            hard=shares.hard,
            soft=soft,
            soft_tau=edge / self.largest if self.largest else 0.0,
            soft_abs=self.sizes.share_at_most(tau_abs)[0],
            neg_preact=self.negative / self.elements,
            dead=round(shares.dead * units),
            always_on=round(shares.always_on * units),
            units=units,
            elements=self.elements,
        )


@dataclass
class _LayerCounts:
    name: str
    zeros: int = 0
    elements: int = 0
    flops: float = 0.0
    after_activation: bool = False

    def result(self, examples: int) -> LayerFlops:
        return LayerFlops(
            self.name, self.zeros / max(1, self.elements), self.flops / max(1, examples), self.after_activation
        )


class _Meter(Vital):
    name = "sparsity meter"

    def __init__(self) -> None:
        self.sites: dict[str, _SiteCounts] = {}
        self.layers: dict[str, _LayerCounts] = {}
        self._after_activation: frozenset[str] = frozenset()

    def chart(self, task: Task) -> int | None:
        """Learn from the first batch which layers read an activation, and the dimension of examples."""
        anatomy = chart(task.model, task.inputs)
        self._after_activation = layers_after_activation(anatomy)
        return anatomy.batch_dim

    def activation(self, recorder: Recorder, view: ActivationView) -> None:
        self.sites.setdefault(view.site.name, _SiteCounts(view.site)).add(view)

    def linear(self, recorder: Recorder, view: LinearView) -> None:
        counts = self.layers.setdefault(view.site.name, _LayerCounts(view.site.name))
        x = view.x
        counts.zeros += int((x == 0).sum())
        counts.elements += x.numel()
        counts.flops += dense_flops(view)
        counts.after_activation = view.site.module in self._after_activation


def _average(weighted: list[tuple[float, float]]) -> float:
    total = sum(w for _, w in weighted)
    return sum(v * w for v, w in weighted) / total if total else float("nan")


def dense_flops(view: LinearView) -> float:
    """Two operations per weight and position: 2·in·out for each token of a linear layer."""
    weight = getattr(view.module, "weight", None)
    if not isinstance(weight, Tensor):
        return 0.0
    t = view.x if layer_kind(view.module) == "transposed convolution" else view.y
    return 2.0 * weight.numel() * (t.numel() // t.shape[channel_dim(view.module)])
