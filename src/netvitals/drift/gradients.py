r"""Signs of the gradient at pre-activations, and the two parts of a weight's mean gradient.

$g_{n,i} = \partial \ell_n / \partial p_{n,i}$ is the gradient of one example's loss: what autograd gives for a
mean-reduced loss, times the number of examples.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from netvitals import stats
from netvitals.anatomy import layer_kind
from netvitals.capture import ActivationView, Layout, LinearView, Recorder, ReduceOverRanks, Site, TensorView

Reduction = Literal["mean", "sum"]
SIGN_METRICS = ("g_pos", "g_all", "rho_pos", "rho_all", "frac_units_pos", "slope", "euler")
SPLIT_METRICS = ("tot", "prod", "cov")


def row_means(module: nn.Module, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor] | None:
    r"""Means over channels of g and of what it multiplies, (groups, rows) each; None for a layer of another kind.

    The mean entry of $\sum_r g_r x_r^\top$ over rows $r$ (examples and positions) is $\sum_r \bar g_r \bar x_r$, so no
    outer product is formed; a convolution's $\bar x_r$ is the mean of the patch at $r$.
    """
    if x.dtype in (torch.float16, torch.bfloat16):
        x = x.float()
    g = g.to(x.dtype)
    if layer_kind(module) == "linear":
        return g.mean(-1).reshape(1, -1), x.mean(-1).reshape(1, -1)
    if not isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d) or module.padding_mode != "zeros":
        return None
    spatial = len(module.kernel_size)
    if x.ndim != spatial + 2:
        return None
    groups = module.groups
    convolve = (F.conv1d, F.conv2d, F.conv3d)[spatial - 1]
    window = torch.full(
        (groups, 1, *module.kernel_size), 1 / math.prod(module.kernel_size), dtype=x.dtype, device=x.device
    )
    xm = convolve(
        x.unflatten(1, (groups, -1)).mean(2), window, None, module.stride, module.padding, module.dilation, groups
    )
    gm = g.unflatten(1, (groups, -1)).mean(2)
    return gm.transpose(0, 1).reshape(groups, -1), xm.transpose(0, 1).reshape(groups, -1)


def split_parts(gm: Tensor, xm: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What the two are made of, each of which may be averaged over ranks: Σ g x, Σ g and the mean x, by group."""
    return (gm * xm).sum(2), gm.sum(2), xm.mean(2)


def joined(both: Any, g: Any, x: Any) -> tuple[Any, Any]:
    """(tot, prod) of the three parts."""
    return both.mean(1), (g * x).mean(1)


def check_reduction(reduction: str) -> None:
    """A sentence where the way to reduce a gradient is none of those known."""
    if reduction not in ("mean", "sum"):
        raise ValueError(
            f"reduction= must be 'mean' or 'sum', the same reduction over the batch as in the loss; got {reduction!r}"
        )


class SignWriter:
    """Writes the gradient-sign statistics of every activation, the split of every weight's mean gradient, and ⟨o, ∇ℓ⟩
    of the output, as gradients arrive: for the vital sign ``drift`` and for ``drift.signs``."""

    def __init__(self, reduction: Reduction = "mean") -> None:
        check_reduction(reduction)
        self.reduction = reduction
        self._recorder: Recorder | None = None
        self._splits: dict[tuple[Any, ...], list[tuple[Site, Tensor, Tensor]]] = {}

    def gradient(self, recorder: Recorder, view: ActivationView | LinearView | TensorView, g: Tensor) -> None:
        if isinstance(view, ActivationView):
            if g.numel():
                self._signs(recorder, view, view.as_view(g))
        elif isinstance(view, LinearView):
            self._split(recorder, view, g)
        elif view.site.kind == "output" and g.numel():
            total = torch.dot(view.view.reshape(-1), g.to(view.view.dtype).reshape(-1))
            total = total if self.reduction == "mean" else total / g.shape[0]
            recorder.write(view.site, ("euler",), total, ReduceOverRanks(("mean",)))

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
            parts = split_parts(torch.stack([gm for _, gm, _ in layers]), torch.stack([xm for *_, xm in layers]))
            self._recorder.on_host(
                parts,
                partial(self._finish_splits, self._recorder, [site for site, *_ in layers], per),
                ReduceOverRanks(
                    ("mean",) * 3
                ),  # of equal batches: training averages the ranks' gradients in the same way
            )
        self._recorder, self._splits = None, {}

    def _finish_splits(self, recorder: Recorder, sites: list[Site], per: int, *parts: np.ndarray) -> None:
        tot, prod = joined(*parts)
        recorder.put(sites, SPLIT_METRICS, np.stack([tot, prod, tot - prod], axis=1) / per)

    def _signs(self, recorder: Recorder, view: ActivationView, g: Tensor) -> None:
        a, on = view.a_view, view.positive
        g = g.to(a.dtype)
        if view.is_relu:  # the gradient vanishes where the input is not positive, and x = a where it is
            active = g * on
            by_unit = active.sum(view.over)
            pos = all_ = by_unit.sum()
            abs_pos = abs_all = torch.abs(active, out=view.scratch).sum()
            along = euler_sum = active.mul_(a).sum()
            energy = stats.norm(a).square()
        else:
            gp = g * view.as_view(view.derivative)
            active = gp * on
            by_unit = active.sum(view.over)
            pos, all_ = by_unit.sum(), gp.sum()
            abs_pos, abs_all = active.abs().sum(), gp.abs().sum()
            along, euler_sum = (active * a).sum(), (gp * view.x_view).sum()
            energy = stats.norm(a * on).square()
        per = view.samples if self.reduction == "mean" else 1
        sums = torch.stack([pos, all_, abs_pos, abs_all, along, euler_sum]) * per
        recorder.on_host(
            (sums, by_unit, energy, view.by_channel(recorder).positive),
            partial(self._finish_signs, recorder, view.layout),
            ReduceOverRanks(("sum", "sum", "sum", "mean"), view.elements),
        )

    def _finish_signs(
        self,
        recorder: Recorder,
        layout: Layout,
        sums: np.ndarray,
        by_unit: np.ndarray,
        energy: np.ndarray,
        share: np.ndarray,
    ) -> None:
        layout = layout.grown(recorder.growth)
        pos, all_, abs_pos, abs_all, along, euler_sum = sums
        rows = layout.elements / max(1, layout.channels)
        values = [
            pos / rows / share.sum(),
            all_ / layout.elements,
            pos / abs_pos,
            all_ / abs_all,
            np.float64((by_unit > 0).sum()) / (share > 0).sum(),
            along / energy,
            euler_sum / layout.samples,
        ]
        recorder.put(layout.site, SIGN_METRICS, np.array(values))
