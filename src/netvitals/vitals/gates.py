r"""Gates: how much gradient an activation lets through.

The gate of an input is $\Gamma = |f'(x)|$; gate density is the share of open gates,
$D(\theta) = \frac1n \sum_i 1[\Gamma_i > \theta]$, strictly above the threshold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from netvitals.capture import ActivationView, Recorder, Vital
from netvitals.gates.measurement import checked_thetas, measure
from netvitals.gates.prediction import PREDICTORS, Margins, margins, predict
from netvitals.gates.report import GateReport, SiteGates
from netvitals.stats import order as _order
from netvitals.vitals._pooling import Pool, Rows, Table

__all__ = [
    "PREDICTORS",
    "GateDensity",
    "GateReport",
    "Gates",
    "Margins",
    "SiteGates",
    "density",
    "margins",
    "measure",
    "predict",
]

QUANTILES = (0.05, 0.50, 0.95)


@dataclass(frozen=True)
class GateDensity:
    """Share of gates above a threshold, over the elements that could be measured."""

    theta: float
    density: float  # in [0, 1]; NaN only if nothing could be measured
    measured: int  # elements behind the number
    skipped: int  # elements whose gate is undefined there

    @property
    def valid(self) -> float:
        return self.measured / max(1, self.measured + self.skipped)

    def __str__(self) -> str:
        return f"D({self.theta:g}) = {self.density:.4f} over {self.measured} elements ({self.valid:.1%} valid)"


def density(gate: Tensor, theta: float, valid: Tensor | None = None) -> GateDensity:
    r"""$D(\theta)$ of a tensor of gates; ``valid`` marks the elements that count (default: those that are not NaN).

    >>> print(density(torch.tensor([0.0, 0.2, 1.0, float("nan")]), theta=0.1))
    D(0.1) = 0.6667 over 3 elements (75.0% valid)
    """
    if not theta >= 0:
        raise ValueError(f"theta must not be negative, got {theta}: it is compared with |f'|")
    valid = ~torch.isnan(gate) if valid is None else valid
    measured = int(valid.sum())
    active = int(((gate.abs() > theta) & valid).sum())
    return GateDensity(float(theta), active / measured if measured else math.nan, measured, gate.numel() - measured)


class Gates(Vital):
    """Density at each theta (pooled, per channel, per model), mean, quantiles 5/50/95 and variance of the gates.

    Metrics of a site: ``density@θ`` (also an array by channel), ``mean``, ``q05``, ``q50``, ``q95`` (from at most
    1024 evenly strided elements), ``variance`` (of the signed f') and ``valid`` (share of channels without NaN).
    Of the model: ``density@θ`` pooled over elements, ``density@θ:site``, ``density@θ:channel``, and the same for the
    sites after a BatchNorm (``model/bn_direct``) and after a residual addition (``model/post_add``).
    """

    name = "gates"

    def __init__(self, thetas: Sequence[float] = (0.01, 0.1)) -> None:
        self.thetas = checked_thetas(thetas)
        self._densities = [f"density@{t:g}" for t in self.thetas]
        self._metrics = (*self._densities, "mean", *(f"q{round(100 * q):02d}" for q in QUANTILES), "variance", "valid")
        self._pool = Pool(self._densities)
        self._relu, self._smooth = Table(self._finish_relu), Table(self._finish_smooth)

    def activation(self, recorder: Recorder, view: ActivationView) -> None:
        if view.elements == 0:
            return
        if view.is_relu:
            self._relu.add(recorder, view.layout, (view.mean, view.positive_share))
            return
        slope = view.as_view(view.derivative)
        gate, scratch = slope.abs(), view.scratch
        shares = [torch.gt(gate, t, out=scratch).mean(view.over) for t in self.thetas]
        spread = torch.linalg.vector_norm(torch.sub(slope, slope.mean(), out=scratch))
        quantiles = _order.quantiles(_order.sampled(gate.reshape(-1)), QUANTILES)
        self._smooth.add(recorder, view.layout, (view.mean, gate.mean(), spread, *quantiles, *shares))

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
        self, recorder: Recorder, rows: Rows, mean: np.ndarray, gate: np.ndarray, spread: np.ndarray, *rest: np.ndarray
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
