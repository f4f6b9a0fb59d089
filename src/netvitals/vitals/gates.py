r"""Gates: how much gradient an activation lets through.

The gate of an input is $\Gamma = |f'(x)|$; gate density is the share of open gates,
$D(\theta) = \frac1n \sum_i 1[\Gamma_i > \theta]$, strictly above the threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch

from netvitals.capture import ActivationView, Metric, ProductView, Recorder, ReduceOverRanks, Vital
from netvitals.gates import checked_thetas
from netvitals.stats import norm, quantiles, sampled
from netvitals.vitals._pooling import Pool, PooledTable, Rows

QUANTILES = (0.05, 0.50, 0.95)


class Gates(Vital):
    """Density at each theta (pooled, per channel, per model), mean, quantiles 5/50/95 and variance of the gates.

    Metrics of a site: ``density@θ`` (also an array by channel), ``mean``, ``q05``, ``q50``, ``q95`` (from at most
    1024 evenly strided elements), ``variance`` (of the signed f') and ``valid`` (share of channels without NaN).
    Of the model: ``density@θ`` pooled over elements, ``density@θ:site``, ``density@θ:channel``, and the same for the
    sites after a BatchNorm (``model/bn_direct``) and after a residual addition (``model/post_add``).

    Args:
        thetas: thresholds of |f'|; a gate above one counts as open.

    >>> import netvitals, torch
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> seen = netvitals.checkup(net, nn.MSELoss(), (torch.randn(16, 4), torch.randn(16, 1)),
    ...                          vitals=["gates"], curvature=False)
    >>> site = {r.metric: r.value for r in seen.measurements if r.site == "1"}
    >>> site["density@0.01"] == site["mean"]  # the gates of a ReLU are 0 or 1
    True
    """

    name = "gates"
    title = "Gates"
    meaning = (
        "How much gradient each activation passes on. The gate of an input x is |f′(x)|, and gate density is the "
        "fraction of gates above a threshold. A layer whose density falls towards zero stops learning."
    )
    metrics: ClassVar = {
        "density@{theta}": Metric("fraction of gates |f′(x)| above the threshold", "share"),
        "mean": Metric("mean of the gates |f′(x)|"),
        "q05": Metric("5 % quantile of the gates"),
        "q50": Metric("median of the gates"),
        "q95": Metric("95 % quantile of the gates"),
        "variance": Metric("variance of the derivative f′(x)"),
        "first@{theta}": Metric(
            "in a product u·v: fraction of entries with |v|, the gate of u, above the threshold", "share"
        ),
        "second@{theta}": Metric(
            "in a product u·v: fraction of entries with |u|, the gate of v, above the threshold", "share"
        ),
        "valid": Metric("fraction of channels whose gates could be computed (not NaN)", "share"),
    }
    absent = "no activation function was met"
    headline = ("density@0.01", "density@0.1", "mean")
    default = True

    def __init__(self, thetas: Sequence[float] = (0.01, 0.1)) -> None:
        self.thetas = checked_thetas(thetas)
        self._densities = [f"density@{t:g}" for t in self.thetas]
        self._metrics = (*self._densities, "mean", *(f"q{round(100 * q):02d}" for q in QUANTILES), "variance", "valid")
        self._products = tuple(f"{which}@{t:g}" for which in ("first", "second") for t in self.thetas)
        self._kinds = ("mean", "mean", "mean", "scatter", *("alone" for _ in QUANTILES), *("mean" for _ in self.thetas))
        self._pool = Pool(self._densities)
        self._relu, self._smooth = PooledTable(self._finish_relu), PooledTable(self._finish_smooth)

    def activation(self, recorder: Recorder, view: ActivationView) -> None:
        if view.elements == 0:
            return
        numbers = view.by_channel(recorder)
        if view.is_relu:
            self._relu.add(recorder, view.layout, (numbers.mean, numbers.positive), ("mean", "mean"))
            return
        slope = view.as_view(view.derivative)
        gate, scratch = slope.abs(), view.scratch
        shares = [torch.gt(gate, t, out=scratch).mean(view.over) for t in self.thetas]
        mean = slope.mean()
        spread = norm(torch.sub(slope, mean, out=scratch))
        tails = quantiles(sampled(gate.reshape(-1)), QUANTILES)
        self._smooth.add(
            recorder,
            view.layout,
            (numbers.mean, gate.mean(), mean, spread, *tails, *shares),
            self._kinds,
            alone="q05, q50, q95",
        )

    def product(self, recorder: Recorder, view: ProductView) -> None:
        """The gate of each factor is the size of the other: ∂(u·v)/∂u = v.

        Args:
            recorder: where the numbers are written.
            view: the two factors.
        """
        if view.first.numel() == 0 or view.second.numel() == 0:
            return
        shares = [(factor.abs() > t).float().mean() for factor in reversed(view.views) for t in self.thetas]
        recorder.write(view.site, self._products, torch.stack(shares), ReduceOverRanks(("mean",), view.first.numel()))

    def _finish_relu(self, recorder: Recorder, rows: Rows, mean: np.ndarray, share: np.ndarray) -> None:
        """Gates are 0 or 1, so everything follows from the share of positive inputs: density is its value at each
        theta below 1, and the q-quantile is 1 as soon as the closed share is at most q."""
        d = rows.mean(share)
        self._write(
            recorder,
            rows,
            [share if t < 1 else 0 * share for t in self.thetas],
            d,
            [d >= 1 - q for q in QUANTILES],
            d - d * d,
            mean,
        )

    def _finish_smooth(
        self,
        recorder: Recorder,
        rows: Rows,
        mean: np.ndarray,
        gate: np.ndarray,
        _slope: np.ndarray,
        spread: np.ndarray,
        *rest: np.ndarray,
    ) -> None:
        quantiles, shares = rest[: len(QUANTILES)], rest[len(QUANTILES) :]
        self._write(recorder, rows, shares, gate, quantiles, spread * spread / rows.elements, mean)

    def _write(
        self,
        recorder: Recorder,
        rows: Rows,
        shares: Sequence[np.ndarray],
        gate: np.ndarray,
        quantiles: Sequence[np.ndarray],
        variance: np.ndarray,
        mean: np.ndarray,
    ) -> None:
        densities = [rows.mean(s) for s in shares]
        columns = np.array([*densities, gate, *quantiles, variance, rows.mean(mean == mean)])
        recorder.put(rows.sites, self._metrics, columns.T)
        for metric, share in zip(self._densities, shares):
            rows.write_arrays(recorder, metric, share)
        self._pool.add(recorder, rows, columns[: len(densities)].T)
