"""Spikes of a tensor, and over a whole data set in one pass and constant memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from netvitals.capture import ActivationView, Recorder, Site, TensorView, Vital
from netvitals.capture.streaming import stream_over
from netvitals.stats.histogram import MagnitudeHistogram

SPIKE_RMS = 20.0  # an entry this many root mean squares high is a spike
MASSIVE = 100.0  # massive activations: above this value ...
MASSIVE_OVER_MEDIAN = 1000.0  # ... and this many medians


@dataclass(frozen=True)
class SiteSpikes:
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
        return self.max_abs > MASSIVE and self.max_over_median > MASSIVE_OVER_MEDIAN

    def __str__(self) -> str:
        flag = ", massive" if self.massive else ""
        return (
            f"{self.name}: max {self.max_abs:.4g} at position {self.token}, channel {self.channel} "
            f"({self.max_over_mean:.1f}× mean, {self.max_over_median:.1f}× median{flag}), p999 {self.p999:.4g}, "
            f"kurtosis {self.kurtosis:.1f}, {self.spike_count} spikes in {self.elements}"
        )


@dataclass(frozen=True)
class SpikeReport:
    """Spikes of a model over a data set."""

    sites: dict[str, SiteSpikes]
    samples: int
    batches: int

    def profile(self, kind: str = "activation") -> tuple[float, ...]:
        """Largest |entry| by depth, of the activations or of the residual stream."""
        return tuple(s.max_abs for s in self.sites.values() if s.kind == kind)

    @property
    def intermediate_peak(self) -> bool:
        return intermediate_peak(self.profile())

    def __str__(self) -> str:
        where = "an intermediate layer" if self.intermediate_peak else "the first or last layer"
        return "\n".join(
            [f"spikes over {self.samples} samples; the highest is in {where}", *(f"  {s}" for s in self.sites.values())]
        )


def intermediate_peak(profile: Sequence[float]) -> bool:
    """Whether the largest of a profile over depth is neither the first nor the last.

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

    >>> import torch
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
    centred = rows - rows.mean()
    variance = float(centred.square().mean())
    limit = k * float(size.square().mean()) ** 0.5
    return SiteSpikes(
        name,
        kind,
        largest,
        float(ordered[math.floor(0.999 * (ordered.numel() - 1))]),
        largest / float(size.mean()) if largest else math.nan,
        largest / float(on[(on.numel() - 1) // 2]) if on.numel() else math.nan,
        float((centred**4).mean()) / variance**2 if variance else math.nan,
        int((size > limit).sum()),
        limit,
        (place // rows.shape[1]) % (rows.shape[0] if a.ndim <= 2 else rows.shape[0] // a.shape[0]),
        place % rows.shape[1],
        a.numel(),
    )


def measure(
    model: nn.Module, loader: Iterable[Any], *, k: float = SPIKE_RMS, progress: Callable[[int], None] | None = None
) -> SpikeReport:
    """Spikes at every activation and residual block in evaluation mode, over all batches of ``loader`` in one pass.

    Quantiles come from a histogram with bins of 1.6 %, so ``p999`` and the median are good to 0.8 %; maxima, means and
    kurtosis are those of the whole data set.

    >>> import torch
    >>> net = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
    >>> measure(net, [torch.ones(3, 2), torch.zeros(3, 2)]).sites["1"].elements
    24
    """
    if not k > 0:
        raise ValueError(f"k counts root mean squares and must be positive, got {k}")
    meter = _Meter()
    samples, batches = stream_over(model, loader, meter, progress)
    if not meter.sites:
        raise ValueError("the model has no activation or residual block that could be looked at for spikes")
    return SpikeReport({name: sums.result(k) for name, sums in meter.sites.items()}, samples, batches)


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
            per_sample = view.shape[0] if raw.ndim <= 2 else max(1, view.shape[0] // raw.shape[0])
            self.token = position if view.ndim == 3 else row % per_sample

    def result(self, k: float) -> SiteSpikes:
        m1, m2, m3, m4 = (p / self.n for p in self.powers)
        variance = m2 - m1 * m1
        fourth = m4 - 4 * m1 * m3 + 6 * m1 * m1 * m2 - 3 * m1**4
        count, edge = self.sizes.count_above(k * m2**0.5)
        median = self.sizes.quantile(0.5, nonzero=True)
        return SiteSpikes(
            self.site.name,
            self.site.kind,
            self.largest,
            self.sizes.quantile(0.999),
            self.largest * self.n / self.mean_abs if self.mean_abs else math.nan,
            self.largest / median,
            fourth / variance**2 if variance > 0 else math.nan,
            count,
            edge,
            self.token,
            self.channel,
            self.n,
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
