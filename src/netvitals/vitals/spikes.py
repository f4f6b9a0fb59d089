r"""Spikes: single entries that tower over the rest of an activation or of the residual stream.

Of a tensor $a$: ``max_abs``; ``p999``, the 0.999 quantile of $|a|$; ``max_over_mean`` = max|a| / mean|a|;
``max_over_median`` over the non-zero $|a|$; ``kurtosis`` $= E(a-\bar a)^4 / (\mathrm{Var}\,a)^2$; ``spike_count``, the
number of entries above $k$ times the root mean square ($k = 20$); ``token`` and ``channel`` of the largest entry;
``massive``, whether it exceeds 100 and 1000 medians.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import numpy as np
import torch

from netvitals.capture import ActivationStack, ActivationView, Layout, Recorder, TensorView, Vital
from netvitals.drift.reductions import heights
from netvitals.drift.spike_meter import (
    SPIKE_RMS,
    SiteSpikes,
    SpikeReport,
    amplification,
    intermediate_peak,
    measure,
    spikes,
)
from netvitals.stats import order as _order

__all__ = ["SiteSpikes", "SpikeReport", "Spikes", "amplification", "intermediate_peak", "measure", "spikes"]

MEDIAN_SAMPLE = 512  # entries behind the median, evenly strided
METRICS = (
    "max_abs",
    "p999",
    "max_over_mean",
    "max_over_median",
    "kurtosis",
    "spike_count",
    "token",
    "channel",
    "massive",
)


class Spikes(Vital):
    """The nine numbers above at every activation and, half as often, at every block of the residual stream.

    The median comes from at most 512 evenly strided entries. ``token`` is the position in the sequence or image (the
    sample, where there are no positions). Of the model: ``peak_layer`` (which activation, in order, has the largest
    maximum), ``intermediate_peak`` (1 if it is neither the first nor the last) and ``max_abs``.
    """

    name = "spikes"
    every = 5
    every_by_method: ClassVar = {"tensor": 10}
    takes_stacks = True
    tensors_of = ("stream",)

    def __init__(self, k: float = SPIKE_RMS) -> None:
        if not k > 0:
            raise ValueError(f"k counts root mean squares and must be positive, got {k}")
        self.k = k
        self._recorder: Recorder | None = None
        self._maxima: list[tuple[int, float]] = []
        self._depth: dict[str, int] = {}  # sites in the order of the first look, which is the order of the pass

    def activation(self, recorder: Recorder, view: ActivationView | ActivationStack) -> None:
        stack = view.stack
        if stack.elements:
            self._observe(recorder, stack, pooled=True)

    def tensor(self, recorder: Recorder, view: TensorView) -> None:
        if view.site.kind == "stream" and view.value.numel():
            h = view.view[None]
            self._observe(
                recorder,
                ActivationStack(
                    (view.site,), h, h, torch.clone, tuple(view.value.shape), view.value.dtype, view.memory
                ),
                pooled=False,
            )

    def _observe(self, recorder: Recorder, stack: ActivationStack, *, pooled: bool) -> None:
        a, size = (t.reshape(len(t), -1) for t in (stack.a, stack.size))
        mean = a.mean(1, keepdim=True)
        squares = torch.sub(a, mean, out=stack.scratch.view(a.shape))
        squares.mul_(squares)
        variance, fourth = squares.mean(1, keepdim=True), torch.linalg.vector_norm(squares, dim=1)
        p999, limit = _order.upper_quantile(size), (variance + mean * mean).sqrt() * self.k
        count = torch.gt(size, limit, out=squares).sum(1)
        sample = _order.sampled(size, MEDIAN_SAMPLE)
        row = stack.size.amax(2).reshape(len(a), -1).argmax(1)
        mean_abs = mean if stack.is_relu else size.mean(1)
        recorder.on_host(
            (stack.channel_max, mean_abs, variance, fourth, p999, count, sample, row),
            partial(self._finish, recorder, stack.outline, pooled),
        )

    def _finish(
        self,
        recorder: Recorder,
        stack: Layout,
        pooled: bool,
        channel_max: np.ndarray,
        mean_abs: np.ndarray,
        variance: np.ndarray,
        fourth: np.ndarray,
        p999: np.ndarray,
        count: np.ndarray,
        sample: np.ndarray,
        row: np.ndarray,
    ) -> None:
        largest = channel_max.max(1)
        high = heights(
            largest,
            mean=mean_abs.reshape(-1),
            median=_order.host_nonzero_median(sample),
            variance=variance[:, 0],
            fourth=fourth,
            elements=stack.elements,
        )
        recorder.put(
            stack.sites,
            METRICS,
            np.column_stack(
                [
                    largest,
                    p999,
                    high.over_mean,
                    high.over_median,
                    high.kurtosis,
                    count,
                    row % stack.positions,
                    channel_max.argmax(1),
                    high.massive,
                ]
            ),
        )
        if pooled:
            if self._recorder is not recorder:
                self._recorder, self._maxima = recorder, []
                recorder.on_host((), self._end)
            self._maxima += zip([self._depth.setdefault(s.name, len(self._depth)) for s in stack.sites], largest)

    def _end(self) -> None:
        if self._recorder is not None:
            maxima = np.array([largest for _, largest in sorted(self._maxima, key=lambda pair: pair[0])])
            peak = int(maxima.argmax())
            self._recorder.put(
                "model",
                ("max_abs", "peak_layer", "intermediate_peak"),
                np.array([maxima[peak], peak, 0 < peak < len(maxima) - 1], dtype=float),
            )
        self._recorder, self._maxima = None, []
