"""The spike numbers of one tensor by their definitions, in float64: the reference of the meter and the watch."""

from __future__ import annotations

import math

from torch import Tensor

from netvitals.drift import SPIKE_RMS, SiteSpikes, heights
from netvitals.drift.spike_sums import coordinates_of
from netvitals.stats import norm, upper_quantile


def spikes(
    a: Tensor,
    *,
    channel_dim: int = -1,
    batch_dim: int | None = 0,
    k: float = SPIKE_RMS,
    name: str = "tensor",
    kind: str = "activation",
) -> SiteSpikes:
    if a.numel() == 0:
        raise ValueError(f"expected a tensor with elements, got shape {tuple(a.shape)}")
    if not k > 0:
        raise ValueError(f"k counts root mean squares and must be positive, got {k}")
    rows = a.detach().double()
    size = rows.abs().reshape(-1)
    ordered = size.sort().values
    on = ordered[ordered > 0]
    largest = float(ordered[-1])
    sample, token, channel = coordinates_of(int(size.argmax()), a.shape, channel_dim, batch_dim)
    squares = (rows - rows.mean()).square()
    limit = k * float(size.square().mean()) ** 0.5
    high = heights(
        largest,
        mean=float(size.mean()),
        median=float(on[(on.numel() - 1) // 2]) if on.numel() else math.nan,
        variance=float(squares.mean()),
        fourth=float(norm(squares)),
        elements=a.numel(),
    )
    return SiteSpikes(
        name=name,
        kind=kind,
        max_abs=largest,
        p999=float(upper_quantile(ordered[None], most=ordered.numel())),
        max_over_mean=high.over_mean,
        max_over_median=high.over_median,
        kurtosis=high.kurtosis,
        spike_count=int((size > limit).sum()),
        spike_threshold=limit,
        sample=sample,
        token=token,
        channel=channel,
        elements=a.numel(),
    )
