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
from torch import Tensor

from netvitals.capture import ActivationView, Kind, Layout, Metric, Recorder, ReduceOverRanks, TensorView, Vital
from netvitals.drift import SPIKE_RMS, heights
from netvitals.stats import host_nonzero_median, norm, sampled, upper_quantile

MEDIAN_SAMPLE = 512  # entries behind the median, evenly strided
METRICS = (
    "max_abs",
    "p999",
    "max_over_mean",
    "max_over_median",
    "kurtosis",
    "spike_count",
    "token",
    "sample",
    "channel",
    "massive",
)
KINDS: tuple[Kind, ...] = ("max", "winner", "mean", "same", "same", "alone", "alone", "alone", "moments")
ALONE = "p999, spike_count, max_over_median, massive"


class Spikes(Vital):
    """The nine numbers above at every activation and, half as often, at every block of the residual stream.

    The median comes from at most 512 evenly strided entries. ``token`` is the position in the sequence or image (the
    sample, where there are no positions), ``sample`` the example of the batch. Of the model: ``peak_layer`` (which
    activation, in order, has the largest maximum), ``intermediate_peak`` (1 if it is neither the first nor the last)
    and ``max_abs``.

    Args:
        k: an entry above so many root mean squares is a spike.

    >>> import netvitals, torch
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    >>> seen = netvitals.checkup(net, nn.MSELoss(), (torch.randn(16, 4), torch.randn(16, 1)),
    ...                          vitals=[Spikes(k=3.0)], curvature=False)
    >>> [0 < r.value <= 1 for r in seen.measurements if r.metric == "max_abs" and r.site == "1"]  # of a tanh
    [True]
    """

    name = "spikes"
    title = "Spikes"
    meaning = "Single activations that are much larger than all others, and where they occur."
    metrics: ClassVar = {
        "max_abs": Metric("largest absolute activation", "activation"),
        "p999": Metric("99.9 % quantile of the absolute activations", "activation"),
        "max_over_mean": Metric("largest |a| divided by mean |a|"),
        "max_over_median": Metric("largest |a| divided by the median of the non-zero |a|"),
        "kurtosis": Metric("kurtosis: fourth central moment divided by the squared variance"),
        "spike_count": Metric("number of entries above 20 times the root mean square", "entries"),
        "token": Metric("position of the largest activation in its sequence or image", "index"),
        "sample": Metric("index of the example with the largest activation", "index"),
        "channel": Metric("channel of the largest activation", "index"),
        "massive": Metric("1 if the largest activation is above 100 and above 1000 times the median", "0 or 1"),
        "peak_layer": Metric("index of the layer with the largest activation", "index"),
        "intermediate_peak": Metric("1 if the largest activation is in neither the first nor the last layer", "0 or 1"),
    }
    absent = "no residual stream and no attention was found"
    headline = ("max_over_mean", "max_abs")
    default = True
    every = 5
    every_by_method: ClassVar = {"tensor": 10}
    tensors_of = ("stream",)

    def __init__(self, k: float = SPIKE_RMS) -> None:
        if not k > 0:
            raise ValueError(f"k= is a multiple of the root mean square and must be positive, got {k}")
        self.k = k
        self._recorder: Recorder | None = None
        self._maxima: list[tuple[int, float]] = []
        self._depth: dict[str, int] = {}  # sites in the order of the first look, which is the order of the pass

    def activation(self, recorder: Recorder, view: ActivationView) -> None:
        if view.elements:
            self._observe(recorder, view, pooled=True)

    def tensor(self, recorder: Recorder, view: TensorView) -> None:
        if view.site.kind == "stream" and view.value.numel():
            self._observe(recorder, ActivationView(view.site, view.value, view.value, torch.clone), pooled=False)

    def _observe(self, recorder: Recorder, view: ActivationView, *, pooled: bool) -> None:
        a, size = view.a_view, view.size
        mean = a.mean()
        squares = torch.sub(a, mean, out=view.scratch)
        squares.mul_(squares)
        variance, fourth = squares.mean(), norm(squares)
        flat = size.reshape(1, -1)
        p999, limit = upper_quantile(flat), (variance + mean * mean).sqrt() * self.k
        count = torch.gt(size, limit, out=squares).sum()
        sample = sampled(flat, MEDIAN_SAMPLE)
        row = size.amax(1).reshape(-1).argmax()
        mean_abs = mean if view.is_relu else size.mean()
        moments: tuple[Tensor, ...] = ()
        if recorder.ranks > 1:  # those of all ranks lie about another mean: the third is needed too
            centred = a - mean
            third, fourth_mean = (centred**3).mean(), (centred**4).mean()
            moments = (torch.stack([mean, variance, third, fourth_mean]),)
        recorder.on_host(
            (view.channel_max, row, mean_abs, variance, fourth, p999, count, sample, *moments),
            partial(self._finish, recorder, view.layout, pooled),
            ReduceOverRanks(KINDS[: 8 + len(moments)], view.elements, alone=ALONE),
        )

    def _finish(
        self,
        recorder: Recorder,
        layout: Layout,
        pooled: bool,
        channel_max: np.ndarray,
        row: np.ndarray,
        mean_abs: np.ndarray,
        variance: np.ndarray,
        fourth: np.ndarray,
        p999: np.ndarray,
        count: np.ndarray,
        middle: np.ndarray,
        *moments: np.ndarray,
    ) -> None:
        largest, elements = channel_max.max(), layout.elements
        if moments:  # fourth is the length of the squared deviations
            elements = layout.grown(recorder.growth).elements
            variance, fourth = moments[0][1], np.sqrt(moments[0][3] * elements)
        row, rank = (row[0], row[1]) if row.ndim else (row, 0)
        high = heights(
            largest,
            mean=mean_abs,
            median=host_nonzero_median(middle)[0],
            variance=variance,
            fourth=fourth,
            elements=elements,
        )
        sample, token = layout.place(int(row))
        sample += int(rank) * layout.samples  # the examples of a rank come after those of the ranks before it
        numbers = (largest, p999[0], high.over_mean, high.over_median, high.kurtosis, count, token, sample)
        recorder.put(layout.site, METRICS, np.array([*numbers, channel_max.argmax(), high.massive], dtype=float))
        if pooled:
            if self._recorder is not recorder:
                self._recorder, self._maxima = recorder, []
                recorder.on_host((), self._end)
            self._maxima.append((self._depth.setdefault(layout.site.name, len(self._depth)), largest))

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
