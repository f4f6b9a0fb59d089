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
from typing import Any, Literal

import torch
from torch import Tensor, nn

from netvitals.capture import (
    ActivationView,
    LinearView,
    ParameterView,
    Recorder,
    Site,
    TensorView,
    Vital,
)
from netvitals.drift.euler_identity import Euler, euler
from netvitals.drift.signs import (
    CovarianceSplit,
    GradientSigns,
    Reduction,
    _check_reduction,
    covariance_split,
    gradient_signs,
    row_means,
    split_sums,
)
from netvitals.stats import order as _order

__all__ = [
    "CovarianceSplit",
    "Drift",
    "Euler",
    "GradientSigns",
    "WeightDrift",
    "covariance_split",
    "euler",
    "gradient_signs",
    "role",
    "weight_drift",
]

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
GRADIENT_METRICS = ("grad_mean_abs", "grad_norm")
SIGN_METRICS = ("g_pos", "g_all", "rho_pos", "rho_all", "frac_units_pos", "slope", "euler")
SPLIT_METRICS = ("tot", "prod", "cov")
ROLES = ("weight", "bias", "norm_gain", "norm_shift", "embedding", "other")
EXTREME = 0.999
STD_FLOOR = 1e-8  # added to the sum of the two standard deviations in drift_z

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
    extreme_threshold: float  # 0.999 quantile of |W|
    drift_z: float
    drift_t: float
    numel: int

    def __str__(self) -> str:
        return (
            f"mean {self.weight_mean:+.3e}, drift_z {self.drift_z:+.4f}, drift_t {self.drift_t:+.2f}, "
            f"{self.neg_fraction:.1%} negative, |W| at 99.9 % {self.extreme_threshold:.3g}, {self.numel} entries"
        )


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
    columns += _drift_columns(w - w0, columns[1], _std(w0, w0.mean(1, keepdim=True)))
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
        spacing: weights move slowly, so their statistics are read on measured steps at least this far apart.
    """

    name = "drift"
    every = 10
    gradients_of = ("activation", "linear", "output")

    def __init__(self, reduction: Reduction = "mean", min_steps: int = 100) -> None:
        _check_reduction(reduction)
        if min_steps < 1:
            raise ValueError(f"spacing counts training steps and must be 1 or more, got {min_steps}")
        self.reduction = reduction
        self.weights_min_steps = min_steps
        self._read_at: int | None = None
        self._recorder: Recorder | None = None
        self._splits: dict[tuple[Any, ...], list[tuple[Site, Tensor, Tensor]]] = {}
        self._initial_std: dict[str, tuple[weakref.ref[Tensor], Tensor]] = {}
        self._roles: dict[tuple[object, ...], tuple[list[str], Tensor]] = {}

    def gradient(self, recorder: Recorder, view: ActivationView | LinearView | TensorView, g: Tensor) -> None:
        if isinstance(view, ActivationView):
            if g.numel():
                self._signs(recorder, view, view.as_view(g))
        elif isinstance(view, LinearView):
            self._split(recorder, view, g)
        elif view.site.kind == "output" and g.numel():
            total = torch.dot(view.view.reshape(-1), g.to(view.view.dtype).reshape(-1))
            recorder.write(view.site, ("euler",), total if self.reduction == "mean" else total / g.shape[0])

    def _split(self, recorder: Recorder, view: LinearView, g: Tensor) -> None:
        """Row means now, the sums of all layers together when the step ends."""
        means = row_means(view.module, view.x, g)
        if means is None:
            return
        if self._recorder is not recorder:
            self._recorder, self._splits = recorder, {}
            recorder.later(self._write_splits)
        per = 1 if self.reduction == "mean" else view.x.shape[0]
        groups, rows = means[0].shape
        self._splits.setdefault((groups, rows, per, means[0].device), []).append((view.site, *means))

    def _write_splits(self) -> None:
        if self._recorder is None:
            return
        for (_, _, per, _), layers in self._splits.items():
            tot, prod = split_sums(torch.stack([gm for _, gm, _ in layers]), torch.stack([xm for *_, xm in layers]))
            self._recorder.write(
                [site for site, *_ in layers], SPLIT_METRICS, torch.stack([tot, prod, tot - prod], dim=1) / per
            )
        self._recorder, self._splits = None, {}

    def _signs(self, recorder: Recorder, view: ActivationView, g: Tensor) -> None:
        a, on = view.a_view, view.positive
        g = g.to(a.dtype)
        if view.is_relu:  # the gradient vanishes where the input is not positive, and x = a where it is
            active = g * on
            by_unit = active.sum(view.over)
            pos = all_ = by_unit.sum()
            abs_pos = abs_all = torch.abs(active, out=view.scratch).sum()
            along = euler_sum = active.mul_(a).sum()
            energy = torch.linalg.vector_norm(a).square()
        else:
            gp = g * view.as_view(view.derivative)
            active = gp * on
            by_unit = active.sum(view.over)
            pos, all_ = by_unit.sum(), gp.sum()
            abs_pos, abs_all = active.abs().sum(), gp.abs().sum()
            along, euler_sum = (active * a).sum(), (gp * view.x_view).sum()
            energy = torch.linalg.vector_norm(a * on).square()
        share = view.positive_share
        units, seen = (by_unit > 0).sum(), (share > 0).sum()
        per = view.samples if self.reduction == "mean" else 1
        values = [
            pos * (per / view.rows) / share.sum(),
            all_ * (per / view.elements),
            pos / abs_pos,
            all_ / abs_all,
            units / seen,
            along * per / energy,
            euler_sum * (per / view.samples),
        ]
        recorder.write(view.site, SIGN_METRICS, torch.stack(values))

    def parameters(self, recorder: Recorder, view: ParameterView) -> None:
        if self._read_at is not None and 0 < recorder.step - self._read_at < self.weights_min_steps:
            return
        self._read_at = recorder.step
        rows: list[Tensor] = []
        order: list[str] = []
        for names in view.groups:
            w = view.rows("params", names)
            metrics: tuple[str, ...] = WEIGHT_METRICS
            columns = _weight_columns(w)
            if names[0] in view.initial:
                w0 = view.rows("initial", names)
                std0 = self._std_of_initial(names[0], view.initial[names[0]], w0)
                columns += _drift_columns(w - w0, columns[1], std0)
                metrics += DRIFT_METRICS
                rows.append(torch.stack([columns[0], columns[5], columns[8]], dim=1))
                order += names
            if names[0] in view.grads:
                g = view.rows("grads", names)
                columns += [g.abs().mean(1), torch.linalg.vector_norm(g, dim=1)]
                metrics += GRADIENT_METRICS
            recorder.write(names, metrics, torch.stack(columns, dim=1))
        if rows and len({t.device for t in rows}) == 1:
            table = torch.cat([t.to(rows[0].dtype) for t in rows])
            roles, weights = self._role_weights(order, view, table)
            recorder.write([f"model/{r}" for r in roles], ("weight_mean", "neg_fraction", "drift_z"), weights @ table)

    def _std_of_initial(self, name: str, first: Tensor, w0: Tensor) -> Tensor:
        """The initial values do not change, so their spread is computed once for as long as they are the same ones."""
        known = self._initial_std.get(name)
        if known is None or known[0]() is not first or known[1].numel() != w0.shape[0]:
            known = self._initial_std[name] = (weakref.ref(first), _std(w0, w0.mean(1, keepdim=True)))
        return known[1]

    def _role_weights(self, order: list[str], view: ParameterView, like: Tensor) -> tuple[list[str], Tensor]:
        key = (tuple(order), like.device, like.dtype)
        if key not in self._roles:
            each = [role(n, view.params[n], view.modules) for n in order]
            roles: list[str] = [r for r in ROLES if r in each]
            weights = [[float(e == r) / each.count(r) for e in each] for r in roles]  # type: ignore[arg-type]
            self._roles = {key: (roles, torch.tensor(weights, dtype=like.dtype, device=like.device))}
        return self._roles[key]


def _weight_columns(w: Tensor) -> list[Tensor]:
    mean = w.mean(1, keepdim=True)
    scratch = torch.empty_like(w)
    negative = torch.lt(w, 0, out=scratch).mean(1)
    positive = torch.gt(w, 0, out=scratch).mean(1)
    extreme = _order.upper_quantile(torch.abs(w, out=scratch), EXTREME)
    return [
        mean[:, 0],
        _std(w, mean, scratch),
        w.amin(1),
        w.amax(1),
        torch.linalg.vector_norm(w, dim=1),
        negative,
        positive,
        extreme,
    ]


def _drift_columns(delta: Tensor, std: Tensor, std0: Tensor) -> list[Tensor]:
    mean = delta.mean(1, keepdim=True)
    z = mean[:, 0] / ((std0 + std + STD_FLOOR) * 0.5)
    return [z, mean[:, 0] * delta.shape[1] ** 0.5 / _std(delta, mean)]


def _std(w: Tensor, mean: Tensor, scratch: Tensor | None = None) -> Tensor:
    """Sample standard deviation of each row from its mean; far faster than ``torch.std`` on a CPU."""
    centred = torch.sub(w, mean, out=scratch) if scratch is not None else w - mean
    return torch.linalg.vector_norm(centred, dim=1) / max(1, w.shape[1] - 1) ** 0.5
