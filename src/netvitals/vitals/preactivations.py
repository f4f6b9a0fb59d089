r"""Pre-activations: how the input of each activation is distributed, channel by channel.

With $\mu_c, \sigma_c$ the mean and standard deviation of channel $c$ over batch and positions: the pooled mean is
$\bar\mu$, the pooled variance $\overline{\sigma^2} + \mathrm{Var}\,\mu_c$, and ``preact_drift`` is their ratio
mean(p)/std(p). Sites directly after a BatchNorm have $\mu \approx \beta$ and $\sigma \approx |\gamma|$; sites after a
residual addition do not, so ``Site.follows`` keeps the two apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from torch import Tensor

from netvitals.capture import ActivationView, Recorder, Site, TensorView, Vital
from netvitals.vitals._pooling import Pool, Rows, Table

METRICS = ("mean", "std", "sigma", "mean_spread", "sigma_spread", "preact_drift", "neg_preact")


@dataclass(frozen=True)
class Moments:
    """Mean and standard deviation of an activation's input, by channel and pooled."""

    mu: np.ndarray  # per channel
    sigma: np.ndarray  # per channel, population form
    mean: float
    std: float
    neg_preact: float  # share of inputs that are zero or below
    elements: int

    @property
    def preact_drift(self) -> float:
        return self.mean / self.std if self.std else float("nan")

    def __str__(self) -> str:
        return (
            f"p = {self.mean:+.4f} ± {self.std:.4f} over {self.mu.size} channels ({self.elements} elements), "
            f"drift {self.preact_drift:+.3f}, {self.neg_preact:.1%} at or below zero"
        )


def moments(p: Tensor, channel_dim: int = 1) -> Moments:
    """The moments of one tensor of pre-activations.

    >>> import torch
    >>> print(moments(torch.tensor([[1.0, -1.0], [3.0, -1.0]])))
    p = +0.5000 ± 1.6583 over 2 channels (4 elements), drift +0.302, 50.0% at or below zero
    """
    if p.numel() == 0:
        raise ValueError(f"expected pre-activations with elements, got shape {tuple(p.shape)}")
    x = p.detach().double()
    x = x.reshape(-1, 1) if x.ndim < 2 else x.movedim(channel_dim, -1).flatten(0, -2)
    return Moments(
        x.mean(0).cpu().numpy(),
        x.std(0, correction=0).cpu().numpy(),
        float(x.mean()),
        float(x.std(correction=0)),
        float((x <= 0).double().mean()),
        x.numel(),
    )


class Preactivations(Vital):
    """Channel means and standard deviations (arrays ``mu``, ``sigma``) and their pooled forms at every activation.

    Metrics of a site: pooled ``mean`` and ``std``; ``sigma`` (mean of σ_c), ``mean_spread`` and ``sigma_spread``
    (standard deviation of μ_c and of σ_c over channels), ``preact_drift`` = mean/std, ``neg_preact``.
    Of a norm, on every fifth look: ``scale`` (mean |γ|) and ``shift`` (mean β). Of the model: averages over sites
    under three poolings, for all sites and for the ones after a BatchNorm and after an addition apart.
    """

    name = "preactivations"
    tensors_of = ("norm",)
    every_by_method: ClassVar = {"tensor": 5}  # the scale and shift of a norm move slowly

    def __init__(self) -> None:
        self._pool, self._table = Pool(METRICS), Table(self._finish)
        self._recorder: Recorder | None = None
        self._norms: list[tuple[Site, str, np.ndarray]] = []

    def activation(self, recorder: Recorder, view: ActivationView) -> None:
        if view.elements:
            self._table.add(recorder, view.layout, (view.mean, view.variance, view.positive_share))

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
            if isinstance(p, Tensor) and p.numel():  # a copy, as it moves before the readings leave the device
                recorder.on_host((p.detach().clone(),), partial(self._take, recorder, view.site, metric))

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
