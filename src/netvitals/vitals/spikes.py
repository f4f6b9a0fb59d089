r"""Spikes: single entries that tower over the rest of an activation or of the residual stream.

Of a tensor $a$: ``max_abs``; ``p999``, the 0.999 quantile of $|a|$; ``max_over_mean`` = max|a| / mean|a|;
``max_over_median`` over the non-zero $|a|$; ``kurtosis`` $= E(a-\bar a)^4 / (\mathrm{Var}\,a)^2$; ``spike_count``, the
number of entries above $k$ times the root mean square ($k = 20$); ``token`` and ``channel`` of the largest entry;
``massive``, whether it exceeds 100 and 1000 medians.
"""

from __future__ import annotations

import torch
from torch import Tensor

from netvitals.capture import ActivationSight, ActivationStack, Sheet, TensorSight, Vital
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

MEDIAN_SAMPLE = 512         # entries behind the median, evenly strided
METRICS = ("max_abs", "p999", "max_over_mean", "max_over_median", "kurtosis", "spike_count", "token", "channel",
           "massive")


class Spikes(Vital):
    """The nine numbers above at every activation and at every block of the residual stream.

    The median comes from at most 512 evenly strided entries. ``token`` is the position in the sequence or image (the
    sample, where there are no positions). Of the model: ``peak_layer`` (which activation, in order, has the largest
    maximum), ``intermediate_peak`` (1 if it is neither the first nor the last) and ``max_abs``.
    """

    name = "spikes"
    together = True

    def __init__(self, k: float = SPIKE_RMS) -> None:
        if not k > 0:
            raise ValueError(f"k counts root mean squares and must be positive, got {k}")
        self.k = k
        self._sheet: Sheet | None = None
        self._maxima: list[tuple[list[int], Tensor]] = []
        self._depth: dict[str, int] = {}        # sites in the order of the first look, which is the order of the pass

    def activation(self, sheet: Sheet, sight: ActivationSight | ActivationStack) -> None:
        stack = sight.stack
        if stack.a.numel() == 0:
            return
        self._write(sheet, stack)
        if self._sheet is not sheet:
            self._sheet, self._maxima = sheet, []
            sheet.later(self._end)
        self._maxima.append(([self._depth.setdefault(s.name, len(self._depth)) for s in stack.sites], stack.max))

    def tensor(self, sheet: Sheet, sight: TensorSight) -> None:
        if sight.site.kind == "stream" and sight.value.numel():
            h = sight.view[None]
            self._write(sheet, ActivationStack((sight.site,), h, h, torch.clone, tuple(sight.value.shape),
                                               sight.value.dtype))

    def _end(self) -> None:
        if self._sheet is not None:
            order = [i for places, _ in self._maxima for i in places]
            maxima = torch.cat([m for _, m in self._maxima])
            if order != sorted(order):
                by_depth = sorted(range(len(order)), key=order.__getitem__)
                maxima = maxima[torch.tensor(by_depth, device=maxima.device)]
            top, peak = maxima.max(0)
            inside = (peak > 0) & (peak < len(order) - 1)
            self._sheet.write("model", ("max_abs", "peak_layer", "intermediate_peak"),
                              torch.stack([top, peak.to(top.dtype), inside.to(top.dtype)]))
        self._sheet, self._maxima = None, []

    def _write(self, sheet: Sheet, stack: ActivationStack) -> None:
        largest = stack.max
        a, size = (t.reshape(len(t), -1) for t in (stack.a, stack.size))
        n = a.shape[1]
        mean = a.mean(1, keepdim=True)
        mean_abs = mean[:, 0] if stack.is_relu else size.mean(1)
        squares = torch.sub(a, mean, out=stack.scratch.view(a.shape))
        squares.mul_(squares)
        variance = squares.mean(1, keepdim=True)
        kurtosis = (torch.linalg.vector_norm(squares, dim=1) / variance[:, 0]).square() / n
        limit = (variance + mean * mean).sqrt() * self.k
        p999, count = self._tail(size, limit)
        over_median = largest / _order.nonzero_median(_order.sampled(size, MEDIAN_SAMPLE))
        massive = (largest > MASSIVE) & (over_median > MASSIVE_OVER_MEDIAN)
        rows = stack.size.amax(2).reshape(len(a), -1)
        token = rows.argmax(1) % _positions(stack)
        place = torch.stack([token, stack.channel_max.argmax(1), massive], dim=1).to(largest.dtype)
        numbers = torch.stack([largest, p999, largest / mean_abs, over_median, kurtosis, count], dim=1)
        sheet.write(stack.sites, METRICS, torch.cat([numbers, place], dim=1))

    def _tail(self, size: Tensor, limit: Tensor) -> tuple[Tensor, Tensor]:
        """p999 and the number of spikes. At most n/k² entries can exceed k times the root mean square, so that both
        are found among the largest few."""
        n = size.shape[1]
        rank = n - _order.quantile_rank(n, 0.999)
        most = max(rank, int(n / self.k ** 2) + 1)
        if n > _order.TAIL_SAMPLE or most > n // 8:
            return _order.upper_quantile(size), (size > limit).sum(1)
        top = _order.largest(size, most)
        return top[:, rank - 1], (top > limit).sum(1)


def _positions(stack: ActivationStack) -> int:
    """Positions (tokens, pixels) of one example; the examples themselves if it has only one."""
    if stack.x.ndim == 4:
        return stack.x.shape[3]
    return stack.rows // stack.samples if stack.rows > stack.samples else stack.rows
