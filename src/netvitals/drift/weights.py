r"""Drift of one parameter tensor: with $\Delta W = W_t - W_0$, ``drift_z`` = mean(ΔW) / ½(std W_0 + std W_t).

``drift_t`` = mean(ΔW)·√n / std(ΔW) is descriptive: entries of ΔW are correlated. Significance is the sign over five or
more seeds. A parameter's role (weight, bias, gain or shift of a norm, embedding) says which tensors may be averaged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from netvitals.stats import row_norms, upper_quantile

WEIGHT_METRICS = (
    "weight_mean",
    "weight_std",
    "min",
    "max",
    "norm",
    "neg_fraction",
    "pos_fraction",
    "extreme_threshold",
)
DRIFT_METRICS = ("drift_z", "drift_t")
ROLES = ("weight", "bias", "norm_gain", "norm_shift", "embedding", "other")
EXTREME = 0.999
STD_FLOOR = 1e-8  # added to the sum of the two standard deviations in drift_z

Role = Literal["weight", "bias", "norm_gain", "norm_shift", "embedding", "other"]


@dataclass(frozen=True)
class WeightDrift:
    """Drift statistics of one tensor against its initial value.

    Returned by :func:`weight_drift`.

    Attributes:
        weight_mean: mean entry.
        weight_std: standard deviation of entries.
        min: smallest entry.
        max: largest entry.
        norm: length of the tensor.
        neg_fraction: share of negative entries.
        pos_fraction: share of positive entries.
        extreme_threshold: 0.999 quantile of |W|.
        drift_z: mean change over the spread of the entries.
        drift_t: mean change times √n over its spread.
        numel: number of entries.
    """

    weight_mean: float
    weight_std: float
    min: float
    max: float
    norm: float
    neg_fraction: float
    pos_fraction: float
    extreme_threshold: float
    drift_z: float
    drift_t: float
    numel: int

    def __str__(self) -> str:
        return (
            f"mean {self.weight_mean:+.3e}, drift_z {self.drift_z:+.4f}, drift_t {self.drift_t:+.2f}, "
            f"{self.neg_fraction:.1%} negative, |W| at 99.9 % {self.extreme_threshold:.3g}, {self.numel} entries"
        )


def weight_drift(weight: Tensor, initial: Tensor) -> WeightDrift:
    """Compute drift statistics of one weight tensor since initialisation, in float64.

    Args:
        weight: the tensor now.
        initial: the tensor at the start, in the same shape.

    Returns:
        Statistics of the entries now, their mean change in units of the average spread (z), and its t value over
        entries (t).

    >>> print(weight_drift(torch.tensor([-1.0, 0.0, 1.0]) - 0.5, torch.tensor([-1.0, 0.0, 1.0])))
    mean -5.000e-01, drift_z -0.5000, drift_t -inf, 66.7% negative, |W| at 99.9 % 1.5, 3 entries
    """
    if weight.shape != initial.shape:
        raise ValueError(
            f"weight= and initial= must have the same shape, got {tuple(weight.shape)} and {tuple(initial.shape)}"
        )
    if weight.numel() == 0:
        raise ValueError("expected a tensor with entries, got an empty one")
    w, w0 = (t.detach().double().reshape(1, -1) for t in (weight, initial))
    columns = weight_columns(w)
    columns += drift_columns(w - w0, columns[1], row_std(w0, w0.mean(1, keepdim=True)))
    values = dict(zip(WEIGHT_METRICS + DRIFT_METRICS, (float(c) for c in columns)))
    return WeightDrift(**values, numel=weight.numel())


def role(name: str, parameter: Tensor, modules: Mapping[str, nn.Module], ndim: int | None = None) -> Role:
    """What a parameter is, from the module that owns it and its own shape.

    Args:
        name: dotted name of the parameter.
        parameter: the parameter.
        modules: the model's modules, by name.
        ndim: dimensions of the whole tensor, where ``parameter`` is a piece of it.

    Returns:
        "weight", "bias", "norm_gain", "norm_shift", "embedding" or "other".

    >>> role("0.bias", torch.zeros(2), {"0": nn.BatchNorm1d(2)})
    'norm_shift'
    """
    owner, _, leaf = name.rpartition(".")
    module = modules.get(owner)
    if isinstance(module, nn.Embedding):
        return "embedding"
    kind = type(module).__name__
    if "Norm" in kind or isinstance(module, nn.modules.batchnorm._NormBase):
        return "norm_shift" if "bias" in leaf else "norm_gain"
    if "bias" in leaf:
        return "bias"
    # a table of positions is added to the stream, not multiplied with it
    return "weight" if (parameter.ndim if ndim is None else ndim) >= 2 and "pos" not in leaf else "other"


def weight_columns(w: Tensor) -> list[Tensor]:
    """Of each row: mean, spread, extremes, norm, shares of negative and positive weights, a high quantile of |w|."""
    mean = w.mean(1, keepdim=True)
    scratch = torch.empty_like(w)
    negative = torch.lt(w, 0, out=scratch).mean(1)
    positive = torch.gt(w, 0, out=scratch).mean(1)
    extreme = upper_quantile(torch.abs(w, out=scratch), EXTREME)
    return [
        mean[:, 0],
        row_std(w, mean, scratch),
        w.amin(1),
        w.amax(1),
        row_norms(w),
        negative,
        positive,
        extreme,
    ]


def drift_columns(delta: Tensor, std: Tensor, std0: Tensor) -> list[Tensor]:
    """Of each row's change since the start: its mean in units of the average spread, and its own t value.

    A row of one entry has no spread and gets NaN.
    """
    mean = delta.mean(1, keepdim=True)
    if delta.shape[1] < 2:
        return [torch.full_like(mean[:, 0], torch.nan)] * 2
    z = mean[:, 0] / ((std0 + std + STD_FLOOR) * 0.5)
    z = torch.where((std0 + std > 0) | (mean[:, 0] == 0), z, torch.nan)  # entries that are all the same have no spread
    return [z, mean[:, 0] * delta.shape[1] ** 0.5 / row_std(delta, mean)]


def row_std(w: Tensor, mean: Tensor, scratch: Tensor | None = None) -> Tensor:
    """Sample standard deviation of each row from its mean; far faster than ``torch.std`` on a CPU."""
    centred = torch.sub(w, mean, out=scratch) if scratch is not None else w - mean
    return row_norms(centred) / max(1, w.shape[1] - 1) ** 0.5
