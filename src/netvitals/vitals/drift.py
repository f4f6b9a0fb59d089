r"""Weight drift: where the weights have gone since the start, and where the gradient's sign sends them next.

Per parameter tensor with $\Delta W = W_t - W_0$: the effect size ``drift_z`` = mean(ΔW) / ½(std W_0 + std W_t), the
descriptive ``drift_t`` = mean(ΔW)·√n / std(ΔW), signs, extremes. Per layer: the gradient-sign statistics of
:mod:`~netvitals.drift.gradients` and Euler's sum. ``drift_z`` is an effect size, not a test, and entries of ΔW
are correlated, so that ``drift_t`` is none either: significance is the sign over five or more seeds.
"""

from __future__ import annotations

import weakref
from typing import ClassVar

import torch
from torch import Tensor

from netvitals import stats
from netvitals.capture import (
    ActivationView,
    LinearView,
    Metric,
    ParameterView,
    Recorder,
    TensorView,
    Vital,
)
from netvitals.drift import (
    DRIFT_METRICS,
    ROLES,
    WEIGHT_METRICS,
    Reduction,
    SignWriter,
    drift_columns,
    role,
    row_std,
    weight_columns,
    write_drift,
)

GRADIENT_METRICS = ("grad_mean_abs", "grad_norm")


class Drift(Vital):
    """Drift of every parameter tensor, gradient signs at every activation, ⟨o, ∇ℓ⟩ at the output.

    Metrics of a parameter: every row of the drift table, with the gradient's ``grad_mean_abs`` and ``grad_norm`` where
    gradients are known. Of an activation: ``g_pos``, ``g_all``, ``rho_pos``, ``rho_all``, ``frac_units_pos``,
    ``slope``, ``euler`` of its input. Of a linear or convolution layer: ``tot``, ``prod``, ``cov``, the split of its
    weight's mean gradient. Of the output: ``euler`` = mean ⟨o, ∇ℓ⟩. Of the model: mean drift by role
    (``model/weight``, ``model/bias``, ``model/norm_gain``, ...).

    Args:
        reduction: how the user's loss is reduced over the batch.
        min_steps: weights move slowly, so their statistics are read on measured steps at least this far apart.

    >>> import netvitals, torch
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> opt = torch.optim.SGD(net.parameters(), lr=0.1)
    >>> with netvitals.watch(net, opt, every=1, vitals=["drift"]) as seen:
    ...     for _ in range(2):
    ...         loss = net(torch.randn(16, 4)).square().mean()
    ...         opt.zero_grad(); loss.backward(); opt.step()
    >>> sorted({r.site for r in seen.measurements if r.metric == "weight_mean"})
    ['0.bias', '0.weight', '2.bias', '2.weight', 'model/bias', 'model/weight']
    """

    name = "drift"
    title = "Drift"
    meaning = (
        "How much the weights have changed since the start of training, and in which direction the mean gradient "
        "pushes them. At the output o, a positive ⟨o, ∇ℓ⟩ means that the mean gradient keeps pushing the weights "
        "in the same direction."
    )
    metrics: ClassVar = {
        "weight_mean": Metric("mean of the entries", "weight"),
        "weight_std": Metric("standard deviation of entries", "weight"),
        "min": Metric("smallest entry", "weight"),
        "max": Metric("largest entry", "weight"),
        "norm": Metric("Euclidean norm of the tensor", "weight"),
        "neg_fraction": Metric("fraction of negative entries", "share"),
        "pos_fraction": Metric("fraction of positive entries", "share"),
        "extreme_threshold": Metric("99.9 % quantile of |W|", "weight"),
        "drift_z": Metric(
            "mean change of the entries since the start, divided by their standard deviation (an effect size)"
        ),
        "drift_t": Metric(
            "mean change of the entries since the start times √n (n entries), divided by the standard deviation of "
            "the change"
        ),
        "grad_mean_abs": Metric("mean |gradient|", "gradient"),
        "grad_norm": Metric("Euclidean norm of the gradient", "gradient"),
        "g_pos": Metric("mean gradient at the inputs where the activation is active", "gradient"),
        "g_all": Metric("mean gradient over all inputs of the activation", "gradient"),
        "rho_pos": Metric("g_pos divided by mean |g|"),
        "rho_all": Metric("g_all divided by mean |g|"),
        "frac_units_pos": Metric("fraction of units with a positive mean gradient", "share"),
        "slope": Metric("slope of the gradient g over the activation a, Σ a·g / Σ a²", "gradient / activation"),
        "euler": Metric(
            "Σ p·∂ℓ/∂p over the entries p (Euler sum); a positive value at the output means that outputs shrink", "loss"
        ),
        "tot": Metric("mean weight gradient", "gradient"),
        "prod": Metric(
            "part of the mean weight gradient that comes from the means of input and output gradient", "gradient"
        ),
        "cov": Metric(
            "part of the mean weight gradient that comes from the covariance of input and output gradient", "gradient"
        ),
    }
    absent = "no parameter of the model has moved"
    headline = ("drift_z", "weight_mean")
    default = True
    every = 10
    gradients_of = ("activation", "linear", "output")
    takes_pieces = True

    def __init__(self, reduction: Reduction = "mean", min_steps: int = 100) -> None:
        self._signs = SignWriter(reduction)
        if min_steps < 1:
            raise ValueError(f"min_steps= is a number of training steps and must be at least 1, got {min_steps}")
        self.weights_min_steps = min_steps
        self._read_at: int | None = None
        self._initial_std: dict[str, tuple[weakref.ref[Tensor], Tensor]] = {}
        self._roles: dict[tuple[object, ...], tuple[list[str], Tensor]] = {}

    def gradient(self, recorder: Recorder, view: ActivationView | LinearView | TensorView, g: Tensor) -> None:
        self._signs.gradient(recorder, view, g)

    def parameters(self, recorder: Recorder, view: ParameterView) -> None:
        if self._read_at is not None and 0 < recorder.step - self._read_at < self.weights_min_steps:
            return
        self._read_at = recorder.step
        why = "a complex tensor: its entries have no sign and no order"
        recorder.skipped.update({f"{n} (drift)": why for n, p in view.params.items() if p.is_complex()})
        if view.pieces:
            write_drift(recorder, view)
            return
        rows: list[Tensor] = []
        order: list[str] = []
        for names in view.groups:
            w = view.rows("params", names)
            metrics: tuple[str, ...] = WEIGHT_METRICS
            columns = weight_columns(w)
            if names[0] in view.initial:
                w0 = view.rows("initial", names)
                std0 = self._std_of_initial(names[0], view.initial[names[0]], w0)
                columns += drift_columns(w - w0, columns[1], std0)
                metrics += DRIFT_METRICS
                if w.shape[1] > 1:  # a single number has no spread that its drift could be measured in
                    rows.append(torch.stack([columns[0], columns[5], columns[8]], dim=1).nan_to_num_(nan=0.0))
                    order += names
            if names[0] in view.grads:
                g = view.rows("grads", names)
                columns += [g.abs().mean(1), stats.row_norms(g)]
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
            known = self._initial_std[name] = (weakref.ref(first), row_std(w0, w0.mean(1, keepdim=True)))
        return known[1]

    def _role_weights(self, order: list[str], view: ParameterView, like: Tensor) -> tuple[list[str], Tensor]:
        key = (tuple(order), like.device, like.dtype)
        if key not in self._roles:
            each = [role(n, view.params[n], view.modules) for n in order]
            roles: list[str] = [r for r in ROLES if r in each]
            weights = [[float(e == r) / each.count(r) for e in each] for r in roles]  # type: ignore[arg-type]
            self._roles = {key: (roles, torch.tensor(weights, dtype=like.dtype, device=like.device))}
        return self._roles[key]
