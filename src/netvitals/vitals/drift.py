r"""Weight drift: where the weights have gone since the start, and where the gradient's sign sends them next.

Per parameter tensor with $\Delta W = W_t - W_0$: the effect size ``drift_z`` = mean(ΔW) / ½(std W_0 + std W_t), the
descriptive ``drift_t`` = mean(ΔW)·√n / std(ΔW), signs, extremes. Per layer: the gradient-sign statistics of
:mod:`~netvitals.vitals.gradient_signs` and Euler's sum. ``drift_z`` is an effect size, not a test, and entries of ΔW
are correlated, so that ``drift_t`` is none either: significance is the sign over five or more seeds.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from netvitals.capture import ActivationSight, LinearSight, ParameterSight, Sheet, TensorSight, Vital
from netvitals.vitals import _order
from netvitals.vitals.euler import Euler, euler
from netvitals.vitals.gradient_signs import (
    CovarianceSplit,
    GradientSigns,
    Reduction,
    _check_reduction,
    covariance_split,
    gradient_signs,
    sight_split,
)

__all__ = ["CovarianceSplit", "Drift", "Euler", "GradientSigns", "WeightDrift", "covariance_split", "euler",
           "gradient_signs", "role", "weight_drift"]

WEIGHT_METRICS = ("weight_mean", "weight_std", "min", "max", "norm", "neg_fraction", "pos_fraction",
                  "extreme_threshold")
DRIFT_METRICS = ("drift_z", "drift_t")
GRADIENT_METRICS = ("grad_mean_abs", "grad_norm")
SIGN_METRICS = ("g_pos", "g_all", "rho_pos", "rho_all", "frac_units_pos", "slope", "euler")
SPLIT_METRICS = ("tot", "prod", "cov")
ROLES = ("weight", "bias", "norm_gain", "norm_shift", "embedding", "other")
EXTREME = 0.999
STD_FLOOR = 1e-8            # added to the sum of the two standard deviations in drift_z

Role = Literal["weight", "bias", "norm_gain", "norm_shift", "embedding", "other"]


@dataclass(frozen=True)
class WeightDrift:
    """Drift statistics of one tensor against its initial value."""

    weight_mean: float
    weight_std: float
    min: float
    max: float
    norm: float
    neg_fraction: float
    pos_fraction: float
    extreme_threshold: float        # 0.999 quantile of |W|
    drift_z: float
    drift_t: float
    numel: int

    def __str__(self) -> str:
        return (f"mean {self.weight_mean:+.3e}, drift_z {self.drift_z:+.4f}, drift_t {self.drift_t:+.2f}, "
                f"{self.neg_fraction:.1%} negative, |W| at 99.9 % {self.extreme_threshold:.3g}, {self.numel} entries")


def weight_drift(weight: Tensor, initial: Tensor) -> WeightDrift:
    """The row of drift statistics of one tensor, in float64.

    >>> print(weight_drift(torch.tensor([-1.0, 0.0, 1.0]) - 0.5, torch.tensor([-1.0, 0.0, 1.0])))
    mean -5.000e-01, drift_z -0.5000, drift_t -inf, 66.7% negative, |W| at 99.9 % 0.5, 3 entries
    """
    if weight.shape != initial.shape:
        raise ValueError(f"the tensor has shape {tuple(weight.shape)} and its initial value {tuple(initial.shape)}")
    if weight.numel() == 0:
        raise ValueError("expected a tensor with entries, got an empty one")
    w, w0 = (t.detach().double().reshape(1, -1) for t in (weight, initial))
    columns = _weight_columns(w)
    columns += _drift_columns(w, w0, columns[1])
    values = dict(zip(WEIGHT_METRICS + DRIFT_METRICS, (float(c) for c in columns)))
    return WeightDrift(**values, numel=weight.numel())


def role(name: str, parameter: Tensor, modules: Mapping[str, nn.Module]) -> Role:
    """What a parameter is, from the module that owns it and its own shape.

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
    if parameter.ndim >= 2 and ("weight" in leaf or isinstance(module, nn.Linear)):
        return "weight"
    return "other"


class Drift(Vital):
    """Drift of every parameter tensor, gradient signs at every activation, ⟨o, ∇ℓ⟩ at the output.

    Metrics of a parameter: every row of the drift table, with the gradient's ``grad_mean_abs`` and ``grad_norm`` where
    gradients are known. Of an activation: ``g_pos``, ``g_all``, ``rho_pos``, ``rho_all``, ``frac_units_pos``,
    ``slope``, ``euler`` of its input. Of a linear or convolution layer: ``tot``, ``prod``, ``cov``, the split of its
    weight's mean gradient. Of the output: ``euler`` = mean ⟨o, ∇ℓ⟩. Of the model: mean drift by role
    (``model/weight``, ``model/bias``, ``model/norm_gain``, ...).

    Args:
        reduction: how the user's loss is reduced over the batch.
    """

    name = "drift"

    def __init__(self, reduction: Reduction = "mean") -> None:
        _check_reduction(reduction)
        self.reduction = reduction
        self._initial_std: dict[str, tuple[weakref.ref[Tensor], Tensor]] = {}
        self._constants: dict[tuple[object, ...], tuple[Tensor, Tensor]] = {}
        self._roles: dict[tuple[object, ...], list[tuple[str, Tensor]]] = {}

    def gradient(self, sheet: Sheet, sight: ActivationSight | LinearSight | TensorSight, g: Tensor) -> None:
        if isinstance(sight, ActivationSight):
            if sight.a.shape == sight.x.shape and g.numel():
                self._signs(sheet, sight, g)
        elif isinstance(sight, LinearSight):
            split = sight_split(sight, g)
            if split is not None:
                values = torch.stack([*split, split[0] - split[1]])
                sheet.write(sight.site, SPLIT_METRICS,
                            values if self.reduction == "mean" else values / max(1, sight.x.shape[0]))
        elif sight.site.kind == "output" and g.numel():
            total = torch.dot(sight.view.reshape(-1), g.to(sight.view.dtype).reshape(-1))
            sheet.write(sight.site, ("euler",), total if self.reduction == "mean" else total / g.shape[0])

    def _signs(self, sheet: Sheet, sight: ActivationSight, g: Tensor) -> None:
        x, a, on = sight.x_view, sight.a_view, sight.positive
        share = sight.positive_share
        g = sight.as_view(g).to(x.dtype)
        flat_x, flat_a = x.reshape(-1), a.reshape(-1)
        if sight.is_relu:       # the gradient vanishes where the input is not positive, and x = a where it is
            gp = active = g * on
            by_unit = active.sum(sight.over)
            pos = all_ = by_unit.sum()
            abs_pos = abs_all = active.abs().sum()
            flat = active.reshape(-1)
            euler_sum = along = torch.dot(flat_a, flat)
            energy = torch.dot(flat_a, flat_a)
        else:
            gp = g * sight.derivative.reshape(x.shape).to(x.dtype)
            active = gp * on
            by_unit = active.sum(sight.over)
            pos, all_ = by_unit.sum(), gp.sum()
            abs_pos, abs_all = active.abs().sum(), gp.abs().sum()
            euler_sum, along = torch.dot(flat_x, gp.reshape(-1)), torch.dot(flat_a, active.reshape(-1))
            a_on = (a * on).reshape(-1)
            energy = torch.dot(a_on, a_on)
        units = torch.gt(by_unit, 0, out=torch.empty_like(by_unit)).sum()
        seen = torch.gt(share, 0, out=torch.empty_like(share)).sum()
        n, numel = sight.x.shape[0], x.numel()
        one, scale = self._scale(x, n, numel, share.numel())
        values = torch.stack([pos, all_, pos, all_, units, along, euler_sum])
        values = values / torch.stack([share.sum(), one, abs_pos, abs_all, seen, energy, one])
        sheet.write(sight.site, SIGN_METRICS, values.mul_(scale))

    def _scale(self, like: Tensor, n: int, numel: int, channels: int) -> tuple[Tensor, Tensor]:
        """A one, and the factors that turn sums over a reduced loss into means of one sample's gradient."""
        key = (like.device, like.dtype, n, numel, channels)
        if key not in self._constants:
            if len(self._constants) > 256:      # batches of ever new sizes must not fill the memory
                self._constants.clear()
            per = n if self.reduction == "mean" else 1
            factors = [per * channels / numel, per / numel, 1, 1, 1, per, per / n]
            self._constants[key] = (torch.ones((), dtype=like.dtype, device=like.device),
                                    torch.tensor(factors, dtype=like.dtype, device=like.device))
        return self._constants[key]

    def parameters(self, sheet: Sheet, sight: ParameterSight) -> None:
        tables: list[Tensor] = []
        order: list[str] = []
        for names in sight.groups:
            w = sight.stack("params", names)
            metrics: tuple[str, ...] = WEIGHT_METRICS
            columns = _weight_columns(w)
            if names[0] in sight.initial:
                w0 = sight.stack("initial", names)
                std0 = self._std_of_initial(names[0], sight.initial[names[0]], w0)
                columns += _drift_columns(w, w0, columns[1], std0)
                metrics += DRIFT_METRICS
                tables.append(torch.stack([columns[0], columns[5], columns[8]], dim=1))
                order += names
            if names[0] in sight.grads:
                g = sight.stack("grads", names)
                columns += [g.abs().mean(1), torch.linalg.vector_norm(g, dim=1)]
                metrics += GRADIENT_METRICS
            for name, row in zip(names, torch.stack(columns, dim=1).unbind(0)):
                sheet.write(name, metrics, row)
        if tables and len({t.device for t in tables}) == 1:
            table = torch.cat([t.to(tables[0].dtype) for t in tables])
            for who, weights in self._role_weights(order, sight, table):
                sheet.write(f"model/{who}", ("weight_mean", "neg_fraction", "drift_z"), weights @ table)

    def _std_of_initial(self, name: str, first: Tensor, w0: Tensor) -> Tensor:
        """The initial values do not change, so their spread is computed once for as long as they are the same ones."""
        known = self._initial_std.get(name)
        if known is None or known[0]() is not first or known[1].numel() != w0.shape[0]:
            known = self._initial_std[name] = (weakref.ref(first), _std(w0, w0.mean(1, keepdim=True)))
        return known[1]

    def _role_weights(self, order: list[str], sight: ParameterSight, like: Tensor) -> list[tuple[str, Tensor]]:
        key = (tuple(order), like.device, like.dtype)
        if key not in self._roles:
            roles = [role(n, sight.params[n], sight.modules) for n in order]
            self._roles = {key: [(r, torch.tensor([float(q == r) / roles.count(r) for q in roles]).to(like))
                                 for r in ROLES if r in roles]}
        return self._roles[key]


def _weight_columns(w: Tensor) -> list[Tensor]:
    mean = w.mean(1, keepdim=True)
    scratch = torch.empty_like(w)
    negative = torch.lt(w, 0, out=scratch).mean(1)
    positive = torch.gt(w, 0, out=scratch).mean(1)
    extreme = _order.upper_quantile(torch.abs(w, out=scratch), EXTREME)
    return [mean.view(-1), _std(w, mean, scratch), w.amin(1), w.amax(1), torch.linalg.vector_norm(w, dim=1), negative,
            positive, extreme]


def _drift_columns(w: Tensor, w0: Tensor, std: Tensor, std0: Tensor | None = None) -> list[Tensor]:
    delta = w - w0
    mean = delta.mean(1, keepdim=True)
    if std0 is None:
        std0 = _std(w0, w0.mean(1, keepdim=True))
    z = mean.view(-1) / (0.5 * (std0 + std + STD_FLOOR))
    return [z, mean.view(-1) * w.shape[1] ** 0.5 / _std(delta, mean, delta)]


def _std(w: Tensor, mean: Tensor, scratch: Tensor | None = None) -> Tensor:
    """Sample standard deviation of each row from its mean; far faster than ``torch.std`` on a CPU."""
    centred = torch.sub(w, mean, out=scratch) if scratch is not None else w - mean
    return torch.linalg.vector_norm(centred, dim=1) / max(1, w.shape[1] - 1) ** 0.5
