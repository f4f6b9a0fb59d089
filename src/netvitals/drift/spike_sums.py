"""Spikes at one site: where the largest entry lies, and the sums that give its numbers over many batches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from netvitals.capture import Result, Site
from netvitals.drift.reductions import heights, is_massive
from netvitals.stats import MagnitudeHistogram


@dataclass(frozen=True, kw_only=True)
class SiteSpikes(Result):
    """Spikes at one site over everything looked at.

    Part of :class:`SpikeReport`.

    Attributes:
        name: name of the site.
        kind: "activation" or "stream".
        max_abs: largest |a|.
        p999: 99.9 % quantile of |a|.
        max_over_mean: largest over mean |a|.
        max_over_median: largest over median of the non-zero |a|.
        kurtosis: fourth moment over squared variance.
        spike_count: entries above spike_threshold.
        spike_threshold: k·RMS, to the nearest bin edge (0.8 %) where the data streamed.
        sample: of everything that was measured, from 0; −1 where the tensor has no dimension of examples.
        token: position of the largest in its sequence or image.
        channel: of the largest.
        elements: that were measured.
    """

    name: str
    kind: str
    max_abs: float
    p999: float
    max_over_mean: float
    max_over_median: float
    kurtosis: float
    spike_count: int
    spike_threshold: float
    sample: int
    token: int
    channel: int
    elements: int

    @property
    def massive(self) -> bool:
        return bool(is_massive(self.max_abs, self.max_over_median))

    def __str__(self) -> str:
        flag = ", massive" if self.massive else ""
        return (
            f"{self.name}: max {self.max_abs:.4g} in example {self.sample} at position {self.token}, "
            f"channel {self.channel} "
            f"({self.max_over_mean:.1f}× mean, {self.max_over_median:.1f}× median{flag}), p999 {self.p999:.4g}, "
            f"kurtosis {self.kurtosis:.1f}, {self.spike_count} spikes in {self.elements}"
        )


def coordinates_of(index: int, shape: Sequence[int], channel_dim: int, batch_dim: int | None) -> tuple[int, int, int]:
    """Where the entry of this flat index lies: example, position (over all other dimensions) and channel.

    >>> coordinates_of(13, (2, 3, 4), -1, 0), coordinates_of(13, (2, 3, 4), -1, 1)
    ((1, 0, 1), (0, 1, 1))
    """
    channel_at = channel_dim % len(shape) if len(shape) > 1 else None
    batch_at = None if batch_dim is None or not shape else batch_dim % len(shape)
    sample, token, channel = -1, 0, 0
    at = []
    for size in reversed(shape):
        index, here = divmod(index, size)
        at.append(here)
    for dim, (here, size) in enumerate(zip(reversed(at), shape)):
        if dim == batch_at:
            sample = here
        elif dim == channel_at:
            channel = here
        else:
            token = token * size + here
    return sample, token, channel


@dataclass
class SpikeSums:
    """Powers, maximum and histogram of everything that came through one site."""

    site: Site
    n: int = 0
    powers: list[float] = field(default_factory=lambda: [0.0] * 4)
    mean_abs: float = 0.0
    largest: float = -1.0
    sample: int = -1
    token: int = 0
    channel: int = 0
    sizes: MagnitudeHistogram = field(default_factory=MagnitudeHistogram)

    def add(self, raw: Tensor, batch_dim: int | None, before: int) -> None:
        """One batch; ``before`` examples came in earlier ones."""
        if raw.numel() == 0:
            return  # an expert that got no token
        wide = raw.double().reshape(-1)
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
            sample, self.token, self.channel = coordinates_of(peak, raw.shape, self.site.channel_dim, batch_dim)
            self.sample = before + sample if sample >= 0 else -1

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
            sample=self.sample,
            token=self.token,
            channel=self.channel,
            elements=self.n,
        )
