r"""Spikes: single entries that tower over the rest of an activation or of the residual stream.

Of a tensor $a$: ``max_abs``; ``p999``, the 0.999 quantile of $|a|$; ``max_over_mean`` = max|a| / mean|a|;
``max_over_median`` over the non-zero $|a|$; ``kurtosis`` $= E(a-\bar a)^4 / (\mathrm{Var}\,a)^2$; ``spike_count``, the
number of entries above $k$ times the root mean square ($k = 20$); ``token`` and ``channel`` of the largest entry;
``massive``, whether it exceeds 100 and 1000 medians.
"""

from __future__ import annotations

import torch
from torch import Tensor

from netvitals.capture import ActivationSight, ParameterSight, Sheet, Site, TensorSight, Vital
from netvitals.vitals import _order
from netvitals.vitals.spike_meter import (
    MASSIVE,
    MASSIVE_OVER_MEDIAN,
    SPIKE_RMS,
    SiteSpikes,
    SpikeReport,
    amplification,
    intermediate_peak,
    measure,
    spikes,
)

__all__ = ["SiteSpikes", "SpikeReport", "Spikes", "amplification", "intermediate_peak", "measure", "spikes"]

METRICS = ("max_abs", "p999", "max_over_mean", "max_over_median", "kurtosis", "spike_count", "token", "channel",
           "massive")


class Spikes(Vital):
    """The nine numbers above at every activation and at every block of the residual stream.

    The median comes from at most 1024 evenly strided entries. ``token`` is the position in the sequence or image (the
    sample, where there are no positions). Of the model: ``peak_layer`` (which activation, in order, has the largest
    maximum), ``intermediate_peak`` (1 if it is neither the first nor the last) and ``max_abs``.
    """

    name = "spikes"

    def __init__(self, k: float = SPIKE_RMS) -> None:
        if not k > 0:
            raise ValueError(f"k counts root mean squares and must be positive, got {k}")
        self.k = k
        self._sheet: Sheet | None = None
        self._maxima: list[Tensor] = []

    def activation(self, sheet: Sheet, sight: ActivationSight) -> None:
        if sight.a.numel() == 0:
            return
        self._write(sheet, sight.site, sight.a, sight.a_view, sight.abs_a, sight.channel_max, sight.max_abs)
        if self._sheet is not sheet:
            self._sheet, self._maxima = sheet, []
        self._maxima.append(sight.max_abs)

    def tensor(self, sheet: Sheet, sight: TensorSight) -> None:
        if sight.site.kind == "stream" and sight.value.numel():
            h = sight.view
            size = h.abs()
            by_channel = size.amax((0,) if h.ndim == 2 else (0, 2))
            self._write(sheet, sight.site, sight.value, h, size, by_channel, by_channel.amax())

    def parameters(self, sheet: Sheet, sight: ParameterSight) -> None:
        if self._sheet is sheet and self._maxima:
            maxima = torch.stack(self._maxima)
            top, peak = maxima.max(0)
            inside = (peak > 0) & (peak < len(self._maxima) - 1)
            sheet.write("model", ("max_abs", "peak_layer", "intermediate_peak"),
                        torch.stack([top, peak.to(top.dtype), inside.to(top.dtype)]))
        self._sheet, self._maxima = None, []

    def _write(self, sheet: Sheet, site: Site, raw: Tensor, a: Tensor, size: Tensor, by_channel: Tensor,
               largest: Tensor) -> None:
        n = a.numel()
        mean = a.mean()
        mean_abs = mean if size is a else size.mean()
        centred = a - mean
        squares = centred.mul_(centred).reshape(-1)
        variance = squares.mean()
        kurtosis = torch.dot(squares, squares) / (variance * variance * n)
        limit = (variance + mean * mean).sqrt() * self.k
        count = torch.gt(size, limit, out=centred).sum()
        median = _order.nonzero_median(_order.sampled(size))
        rows = size.amax(1).reshape(-1)
        token = rows.argmax() % _positions(raw, a, site)
        over_median = largest / median
        massive = (largest > MASSIVE) & (over_median > MASSIVE_OVER_MEDIAN)
        p999 = _order.upper_quantile(size.reshape(-1))
        place = torch.stack([token, by_channel.argmax(), massive]).to(largest.dtype)
        numbers = torch.stack([largest, p999, largest / mean_abs, over_median, kurtosis, count])
        sheet.write(site, METRICS, torch.cat([numbers, place]))


def _positions(raw: Tensor, view: Tensor, site: Site) -> int:
    """How many positions one sample has, for the index of the largest entry; samples themselves if it has none."""
    if view.ndim == 3:
        return view.shape[2]
    return view.shape[0] if raw.ndim <= 2 else view.shape[0] // raw.shape[0]
