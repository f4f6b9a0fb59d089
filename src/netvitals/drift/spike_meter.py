"""Spikes of a tensor, and over a whole data set in one pass and constant memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor, nn

from netvitals.capture import (
    ActivationView,
    Mode,
    Only,
    Recorder,
    Result,
    Site,
    TensorView,
    Vital,
    picked,
    skipped_lines,
    undisturbed,
)
from netvitals.capture.streaming import Progress, stream_over
from netvitals.drift.reductions import heights, is_massive
from netvitals.stats.histogram import MagnitudeHistogram

SPIKE_RMS = 20.0  # an entry this many root mean squares high is a spike
SHOWN = 32  # sites on one screen


@dataclass(frozen=True, kw_only=True)
class SiteSpikes(Result):
    """Spikes at one site over everything looked at."""

    name: str
    kind: str  # "activation" or "stream"
    max_abs: float
    p999: float
    max_over_mean: float
    max_over_median: float
    kurtosis: float
    spike_count: int  # entries above spike_threshold
    spike_threshold: float  # k·RMS, to the nearest bin edge (0.8 %) where the data streamed
    token: int
    channel: int
    elements: int

    @property
    def massive(self) -> bool:
        return bool(is_massive(self.max_abs, self.max_over_median))

    def __str__(self) -> str:
        flag = ", massive" if self.massive else ""
        return (
            f"{self.name}: max {self.max_abs:.4g} at position {self.token}, channel {self.channel} "
            f"({self.max_over_mean:.1f}× mean, {self.max_over_median:.1f}× median{flag}), p999 {self.p999:.4g}, "
            f"kurtosis {self.kurtosis:.1f}, {self.spike_count} spikes in {self.elements}"
        )


@dataclass(frozen=True, kw_only=True)
class SpikeReport(Result):
    """Spikes of a model over a data set."""

    sites: dict[str, SiteSpikes]
    examples: int
    batches: int
    skipped: Mapping[str, str] = field(default_factory=dict)  # place that could not be looked at → reason

    def profile(self, kind: str = "activation") -> tuple[float, ...]:
        """Largest |entry| by depth, of the activations or of the residual stream."""
        return tuple(s.max_abs for s in self.sites.values() if s.kind == kind)

    @property
    def intermediate_peak(self) -> bool:
        return intermediate_peak(self.profile())

    def __str__(self) -> str:
        where = "an intermediate layer" if self.intermediate_peak else "the first or last layer"
        shown = [f"  {s}" for s in list(self.sites.values())[:SHOWN]]
        more = [f"  … and {len(self.sites) - SHOWN} more"] * (len(self.sites) > SHOWN)
        head = f"spikes over {self.examples} examples; the highest is in {where}"
        return "\n".join([head, *shown, *more, *skipped_lines(self.skipped)])

    def rows(self) -> list[dict[str, Any]]:
        """One row a site."""
        return [
            {"site": name, **{f.name: getattr(s, f.name) for f in fields(s) if f.name != "name"}, "massive": s.massive}
            for name, s in self.sites.items()
        ]


def intermediate_peak(profile: Sequence[float]) -> bool:
    """Whether the largest of a profile over depth is neither the first nor the last.

    Args:
        profile: max|a| of each layer, in order of depth.

    Returns:
        True where it is in between.

    >>> intermediate_peak([1.0, 9.0, 2.0]), intermediate_peak([9.0, 1.0])
    (True, False)
    """
    if not profile:
        raise ValueError("expected the maxima of at least one layer, got none")
    peak = max(range(len(profile)), key=lambda i: profile[i])
    return 0 < peak < len(profile) - 1


def amplification(
    a: SpikeReport | Mapping[str, float] | Sequence[float], b: SpikeReport | Mapping[str, float] | Sequence[float]
) -> float:
    """Mean over layers of max|a| in run A, over the same in run B.

    Args:
        a: run A: a report, or the maxima by layer.
        b: run B, likewise.

    Returns:
        A factor; NaN where the maxima of B are all 0.

    >>> amplification([50.0, 100.0], [2.0, 4.0])
    25.0
    """

    def mean(run: SpikeReport | Mapping[str, float] | Sequence[float], label: str) -> float:
        maxima = list(
            run.profile() if isinstance(run, SpikeReport) else run.values() if isinstance(run, Mapping) else run
        )
        if not maxima:
            raise ValueError(f"run {label} has no layers to take a maximum from")
        return sum(maxima) / len(maxima)

    below = mean(b, "B")
    return mean(a, "A") / below if below else math.nan


def spikes(
    a: Tensor, *, channel_dim: int = -1, k: float = SPIKE_RMS, name: str = "tensor", kind: str = "activation"
) -> SiteSpikes:
    """The spike numbers of one tensor, exactly, in float64.

    Args:
        a: the tensor; fewer than two dimensions are one channel.
        channel_dim: the dimension that counts channels.
        k: an entry above so many root mean squares is a spike.
        name: of the site, for the result.
        kind: of the site, ``"activation"`` or ``"stream"``, for the result.

    Returns:
        Maximum and its place, quantile, ratios, kurtosis and the number of spikes.

    >>> print(spikes(torch.tensor([[0.0, 1.0], [2.0, 9.0]])))
    tensor: max 9 at position 1, channel 1 (3.0× mean, 4.5× median), p999 2, kurtosis 2.2, 0 spikes in 4
    """
    if a.numel() == 0:
        raise ValueError(f"expected a tensor with elements, got shape {tuple(a.shape)}")
    if not k > 0:
        raise ValueError(f"k counts root mean squares and must be positive, got {k}")
    rows = a.detach().double()
    rows = rows.reshape(-1, 1) if rows.ndim < 2 else rows.movedim(channel_dim, -1).flatten(0, -2)
    size = rows.abs().reshape(-1)
    ordered = size.sort().values
    on = ordered[ordered > 0]
    largest, place = float(ordered[-1]), int(size.argmax())
    squares = (rows - rows.mean()).square()
    limit = k * float(size.square().mean()) ** 0.5
    high = heights(
        largest,
        mean=float(size.mean()),
        median=float(on[(on.numel() - 1) // 2]) if on.numel() else math.nan,
        variance=float(squares.mean()),
        fourth=float(torch.linalg.vector_norm(squares)),
        elements=a.numel(),
    )
    return SiteSpikes(
        name=name,
        kind=kind,
        max_abs=largest,
        p999=float(ordered[math.floor(0.999 * (ordered.numel() - 1))]),
        max_over_mean=high.over_mean,
        max_over_median=high.over_median,
        kurtosis=high.kurtosis,
        spike_count=int((size > limit).sum()),
        spike_threshold=limit,
        token=(place // rows.shape[1]) % (rows.shape[0] if a.ndim <= 2 else rows.shape[0] // a.shape[0]),
        channel=place % rows.shape[1],
        elements=a.numel(),
    )


@undisturbed
def measure(
    model: nn.Module,
    batch: Any,
    *,
    mode: Mode = "as_is",
    only: Only = None,
    seed: int = 0,
    progress: Progress | None = None,
    k: float = SPIKE_RMS,
) -> SpikeReport:
    """Spikes at every activation and residual block, over all batches of a loader in one pass. No loss is taken.

    Quantiles come from a histogram with bins of 1.6 %, so ``p999`` and the median are good to 0.8 %; maxima, means and
    kurtosis are those of the whole data set.

    Args:
        model: left bit for bit as it was.
        batch: a loader, or one batch: a tensor, a dict, or a tuple or list that holds a tensor. Bare tensors are given
            as ``iter(tensors)``, so that a list ``[x, y]`` stays one batch.
        mode: ``"as_is"``, ``"train"`` or ``"eval"``.
        only: places to report: names or patterns, or a function of a name.
        seed: what noise is left in the model is drawn with it.
        progress: called with (batches done, batches planned).
        k: an entry above this many root mean squares counts as a spike.

    Returns:
        Spikes by place, and what could not be looked at.

    >>> net = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
    >>> measure(net, [(torch.ones(3, 2),), (torch.zeros(3, 2),)]).sites["1"].elements
    24
    """
    if not k > 0:
        raise ValueError(f"k counts root mean squares and must be positive, got {k}")
    meter = _Meter()
    streamed = stream_over(model, batch, meter, mode=mode, seed=seed, progress=progress)
    if not meter.sites:
        raise ValueError("the model has no activation or residual block that could be looked at for spikes")
    return SpikeReport(
        sites={name: meter.sites[name].result(k) for name in picked(meter.sites, only)},
        examples=streamed.examples,
        batches=streamed.batches,
        skipped=streamed.skipped,
    )


@dataclass
class _Sums:
    site: Site
    n: int = 0
    powers: list[float] = field(default_factory=lambda: [0.0] * 4)
    mean_abs: float = 0.0
    largest: float = -1.0
    token: int = 0
    channel: int = 0
    sizes: MagnitudeHistogram = field(default_factory=MagnitudeHistogram)

    def add(self, raw: Tensor, view: Tensor) -> None:
        wide = view.double().reshape(-1)
        square = wide * wide
        for i, power in enumerate((wide, square, square * wide, square * square)):
            self.powers[i] += float(power.sum())
        size = wide.abs()
        self.mean_abs += float(size.sum())
        self.n += size.numel()
        self.sizes.add(size)
        peak = int(size.argmax())
        if float(size[peak]) > self.largest:
            self.largest = float(size[peak])
            channels, inner = view.shape[1], view.shape[2] if view.ndim == 3 else 1
            row, rest = divmod(peak, channels * inner)
            self.channel, position = divmod(rest, inner)
            per_example = view.shape[0] if raw.ndim <= 2 else max(1, view.shape[0] // raw.shape[0])
            self.token = position if view.ndim == 3 else row % per_example

    def result(self, k: float) -> SiteSpikes:
        m1, m2, m3, m4 = (p / self.n for p in self.powers)
        variance = m2 - m1 * m1
        fourth = m4 - 4 * m1 * m3 + 6 * m1 * m1 * m2 - 3 * m1**4
        count, edge = self.sizes.count_above(k * m2**0.5)
        high = heights(
            self.largest,
            mean=self.mean_abs / self.n,
            median=self.sizes.quantile(0.5, nonzero=True),
            variance=max(variance, 0.0),
            fourth=math.sqrt(max(fourth, 0.0) * self.n),
            elements=self.n,
        )
        return SiteSpikes(
            name=self.site.name,
            kind=self.site.kind,
            max_abs=self.largest,
            p999=self.sizes.quantile(0.999),
            max_over_mean=high.over_mean,
            max_over_median=high.over_median,
            kurtosis=high.kurtosis,
            spike_count=count,
            spike_threshold=edge,
            token=self.token,
            channel=self.channel,
            elements=self.n,
        )


class _Meter(Vital):
    name = "spike meter"

    def __init__(self) -> None:
        self.sites: dict[str, _Sums] = {}

    def activation(self, recorder: Recorder, view: ActivationView) -> None:
        self.sites.setdefault(view.site.name, _Sums(view.site)).add(view.a, view.a_view)

    def tensor(self, recorder: Recorder, view: TensorView) -> None:
        if view.site.kind == "stream":
            self.sites.setdefault(view.site.name, _Sums(view.site)).add(view.value, view.view)
