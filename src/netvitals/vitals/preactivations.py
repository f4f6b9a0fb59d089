r"""Pre-activations: how the input of each activation is distributed, channel by channel.

With $\mu_c, \sigma_c$ the mean and standard deviation of channel $c$ over batch and positions: the pooled mean is
$\bar\mu$, the pooled variance $\overline{\sigma^2} + \mathrm{Var}\,\mu_c$, and ``preact_drift`` is their ratio
mean(p)/std(p). Sites directly after a BatchNorm have $\mu \approx \beta$ and $\sigma \approx |\gamma|$; sites after a
residual addition do not, so ``Site.follows`` keeps the two apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import numpy as np
from torch import Tensor

from netvitals.capture import (
    ActivationView,
    Kind,
    Metric,
    Recorder,
    ReduceOverRanks,
    Site,
    TensorView,
    Vital,
    is_distributed,
    is_put_away,
    local,
    piece_of,
)
from netvitals.vitals._pooling import Pool, PooledTable, Rows

SHAPE_EVERY = 20  # looks: the form of a distribution changes more slowly than its place
SHAPE_FIRST = (5,)  # and on these, so that a short run has it too
SHAPE_LEVELS = tuple((i + 0.5) / 17 for i in range(17))
SHAPE_ENTRIES = 128  # of a channel at most

METRICS = ("mean", "std", "sigma", "mean_spread", "sigma_spread", "preact_drift", "neg_preact")
AWAY = "FSDP had put its parameters away, on some steps"
KINDS: tuple[Kind, ...] = ("mean", "variance", "mean")


class Preactivations(Vital):
    """Channel means and standard deviations (arrays ``mu``, ``sigma``) and their pooled forms at every activation.

    Metrics of a site: pooled ``mean`` and ``std``; ``sigma`` (mean of σ_c), ``mean_spread`` and ``sigma_spread``
    (standard deviation of μ_c and of σ_c over channels), ``preact_drift`` = mean/std, ``neg_preact``.
    On every fifth look also the array ``shape``, and of a norm ``scale`` (mean |γ|) and ``shift`` (mean β).
    Of the model: averages over sites
    under three poolings, for all sites and for the ones after a BatchNorm and after an addition apart.

    >>> import netvitals, torch
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> seen = netvitals.checkup(net, nn.MSELoss(), (torch.randn(16, 4), torch.randn(16, 1)),
    ...                          vitals=["preactivations"], curvature=False)
    >>> "preact_drift" in {r.metric for r in seen.measurements if r.site == "1"}
    True
    """

    name = "preactivations"
    title = "Pre-activations"
    meaning = (
        "Mean and spread of the input of each activation. When they change, so does the derivative of the activation "
        "(its gates)."
    )
    metrics: ClassVar = {
        "mean": Metric("mean of the input", "activation"),
        "std": Metric("standard deviation over all entries", "activation"),
        "sigma": Metric("standard deviation within a channel, averaged over channels", "activation"),
        "mean_spread": Metric("standard deviation of the channel means", "activation"),
        "sigma_spread": Metric(
            "difference in spread between channels: standard deviation of the channels' own standard deviations",
            "activation",
        ),
        "preact_drift": Metric("mean divided by standard deviation; below zero, most inputs are negative"),
        "neg_preact": Metric("fraction of inputs that are zero or negative", "share"),
        "mu": Metric("mean of the input for each channel", "activation"),
        "shape": Metric("17 quantiles of the standardised input of each channel, from up to 128 sampled entries"),
        "scale": Metric("mean |γ| of a normalisation layer"),
        "shift": Metric("mean β of a normalisation layer"),
    }
    absent = "no activation function was met"
    headline = ("preact_drift", "sigma", "mean")
    default = True
    tensors_of = ("norm",)
    every_by_method: ClassVar = {"tensor": 5}  # the scale and shift of a norm move slowly

    def __init__(self) -> None:
        self._pool, self._table = Pool(METRICS), PooledTable(self._finish)
        self._recorder: Recorder | None = None
        self._norms: list[tuple[Site, str, np.ndarray]] = []
        self._looks, self._seen = -1, -1  # looks so far, and the step of the latest

    def activation(self, recorder: Recorder, view: ActivationView) -> None:
        if view.elements:
            self._table.add(recorder, view.layout, view.by_channel(recorder), KINDS)
            if recorder.step != self._seen:
                self._looks, self._seen = self._looks + 1, recorder.step
            if (self._looks in SHAPE_FIRST or self._looks % SHAPE_EVERY == 0) and view.rows > 1:
                numbers = view.by_channel(recorder)
                finish = partial(self._finish_shape, recorder, view.site)
                recorder.on_host((_few(view), numbers.mean, numbers.variance), finish)

    def _finish_shape(
        self, recorder: Recorder, site: Site, few: np.ndarray, mu: np.ndarray, variance: np.ndarray
    ) -> None:
        z = (few - mu) / np.maximum(np.sqrt(variance), 1e-30)
        recorder.put_array((site,), "shape", _quantiles(z, SHAPE_LEVELS).T[None])

    def _finish(
        self, recorder: Recorder, rows: Rows, mu: np.ndarray, variance: np.ndarray, positive: np.ndarray
    ) -> None:
        sigma = np.sqrt(variance)
        mean, width = rows.mean(mu), rows.mean(sigma)
        spread = rows.spread(mu, mean)
        std = np.sqrt(rows.mean(variance) + spread * spread)
        values = np.array([mean, std, width, spread, rows.spread(sigma, width), mean / std, 1 - rows.mean(positive)]).T
        recorder.put(rows.sites, METRICS, values)
        rows.write_arrays(recorder, "mu", mu)
        rows.write_arrays(recorder, "sigma", sigma)
        self._pool.add(recorder, rows, values)

    def tensor(self, recorder: Recorder, view: TensorView) -> None:
        if view.site.kind != "norm" or view.module is None:
            return
        for metric, name in (("scale", "weight"), ("shift", "bias")):
            p = getattr(view.module, name, None)
            if isinstance(p, Tensor) and is_distributed(p):  # a piece: the sum over ranks is that of the whole
                piece = piece_of(p, recorder.ranks)
                mine = local(p.detach())
                total = (mine.abs() if metric == "scale" else mine).sum() / piece.numel
                recorder.write(
                    view.site,
                    (metric,),
                    total[None],
                    ReduceOverRanks(("sum",), pieces=True, shares=np.array([1 / piece.holders])),
                )
            elif isinstance(p, Tensor) and is_put_away(p):
                recorder.skipped[f"{view.site.name}: scale and shift"] = AWAY
            elif isinstance(p, Tensor) and p.numel():
                # a copy, as it moves before the measurements leave the device
                take = partial(self._take, recorder, view.site, metric)
                recorder.on_host((p.detach().clone(),), take, ReduceOverRanks(("same",)))

    def _take(self, recorder: Recorder, site: Site, metric: str, p: np.ndarray) -> None:
        if self._recorder is not recorder:
            self._recorder, self._norms = recorder, []
            recorder.on_host((), self._end)
        self._norms.append((site, metric, p.reshape(-1)))

    def _end(self) -> None:
        recorder, self._recorder = self._recorder, None
        for metric in ("scale", "shift"):
            found = [(site, p) for site, what, p in self._norms if what == metric]
            if recorder is not None and found:
                sizes = np.array([len(p) for _, p in found])
                flat = np.concatenate([p for _, p in found])
                sums = np.add.reduceat(abs(flat) if metric == "scale" else flat, np.cumsum(sizes) - sizes)
                recorder.put([site for site, _ in found], (metric,), sums / sizes)


def _few(view: ActivationView) -> Tensor:
    """Evenly strided entries of every channel, entries × channels; a copy, for the input may be overwritten."""
    x = view.x_view
    across = max(1, -(-x.shape[0] // SHAPE_ENTRIES))
    few = x[::across]
    if x.ndim > 2:
        along = max(1, x.shape[2] * len(few) // SHAPE_ENTRIES)
        few = few[:, :, ::along].movedim(1, -1).reshape(-1, x.shape[1])[:SHAPE_ENTRIES]
    return few.clone()


def _quantiles(z: np.ndarray, levels: Sequence[float]) -> np.ndarray:
    """Of every column, levels × columns, with straight lines between the sorted entries.

    >>> _quantiles(np.array([[3.0], [1.0], [2.0]]), (0.25, 1.0)).tolist()
    [[1.5], [3.0]]
    """
    ordered = np.sort(z, axis=0)
    place = np.array(levels) * (len(z) - 1)
    low = np.floor(place).astype(int)
    high = np.minimum(low + 1, len(z) - 1)
    return ordered[low] + (place - low)[:, None] * (ordered[high] - ordered[low])
