r"""Signs of the gradient at pre-activations, and the two parts of a weight's mean gradient.

$g_{n,i} = \partial \ell_n / \partial p_{n,i}$ is the gradient of one example's loss: what autograd gives for a
mean-reduced loss, times the number of examples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from netvitals.anatomy import layer_kind
from netvitals.capture import Result

Reduction = Literal["mean", "sum"]


@dataclass(frozen=True, kw_only=True)
class GradientSigns(Result):
    """Gradient-sign statistics of one layer on one batch. Their spread over re-initialisations, not over the
    examples of one, is the uncertainty: all examples share the weights downstream.

    Returned by :func:`gradient_signs`.

    Attributes:
        g_pos: mean gradient where p > 0.
        g_all: mean gradient over everything.
        rho_pos: g_pos over mean |g| on the same elements, in [-1, 1].
        rho_all: the same over everything.
        frac_units_pos: share of units with a positive mean gradient over their own active examples.
        slope: sum(a g) / sum(a²) over active elements.
        euler: mean over examples of sum_i p_i g_i.
        examples: of the batch.
    """

    g_pos: float
    g_all: float
    rho_pos: float
    rho_all: float
    frac_units_pos: float
    slope: float
    euler: float
    examples: int

    def __str__(self) -> str:
        return (
            f"g_pos {self.g_pos:+.3e} (rho {self.rho_pos:+.3f}), g_all {self.g_all:+.3e} "
            f"(rho {self.rho_all:+.3f}), {self.frac_units_pos:.1%} of units positive, slope {self.slope:+.3e}, "
            f"euler {self.euler:+.3e}, {self.examples} examples"
        )


def gradient_signs(
    p: Tensor, a: Tensor, g: Tensor, *, channel_dim: int = 1, reduction: Reduction = "mean"
) -> GradientSigns:
    """The gradient-sign statistics of one layer on one batch.

    Args:
        p: pre-activations, examples in the first dimension.
        a: their activations, in the same shape.
        g: autograd's gradient with respect to ``p``, in the same shape.
        channel_dim: the dimension that counts units.
        reduction: how the loss was reduced over the batch; with ``"mean"`` gradients are scaled back to one example.

    Returns:
        The statistics, gradients being those of the loss of one example.

    >>> p = torch.tensor([[1.0, -1.0], [2.0, 1.0]])
    >>> gradient_signs(p, p.relu(), torch.tensor([[0.5, 0.0], [0.5, -0.5]])).g_pos
    0.3333333333333333
    """
    check_reduction(reduction)
    if not p.shape == a.shape == g.shape:
        raise ValueError(f"p, a and g must have one shape, got {tuple(p.shape)}, {tuple(a.shape)} and {tuple(g.shape)}")
    n = p.shape[0]
    scale = n if reduction == "mean" else 1
    p, a, g = (t.detach().double() for t in (p, a, g))
    g = g * scale
    on = p > 0
    rows = (t.movedim(channel_dim, -1).flatten(0, -2) for t in (on, torch.where(on, g, 0.0)))
    by_unit, sums = (r.sum(0) for r in rows)
    seen = by_unit > 0
    return GradientSigns(
        g_pos=float(g[on].mean()),
        g_all=float(g.mean()),
        rho_pos=float(g[on].sum() / g[on].abs().sum()),
        rho_all=float(g.sum() / g.abs().sum()),
        frac_units_pos=float((sums[seen] > 0).double().mean()),
        slope=float((a[on] * g[on]).sum() / a[on].square().sum()),
        euler=float((p * g).sum() / n),
        examples=n,
    )


@dataclass(frozen=True)
class CovarianceSplit(Result):
    """Mean entry of a weight's gradient, split as E[g x] = E[g]E[x] + Cov(g, x).

    Returned by :func:`covariance_split`.

    Attributes:
        tot: mean entry of the gradient.
        prod: the part from the means, E[g]E[x].
    """

    tot: float
    prod: float

    @property
    def cov(self) -> float:
        return self.tot - self.prod

    def __str__(self) -> str:
        return f"mean weight gradient {self.tot:+.3e} = {self.prod:+.3e} (means) {self.cov:+.3e} (covariance)"


def covariance_split(module: nn.Module, x: Tensor, g: Tensor, *, reduction: Reduction = "mean") -> CovarianceSplit:
    r"""``tot`` = mean entry of E_n[g xᵀ], ``prod`` = the same from the means of g and x.

    Args:
        module: the linear or convolution layer.
        x: its input.
        g: autograd's gradient with respect to its output.
        reduction: how the loss was reduced over the batch, ``"mean"`` or ``"sum"``.

    Returns:
        Both mean entries, for the mean loss over the batch.

    >>> layer = nn.Linear(2, 1)
    >>> print(covariance_split(layer, torch.tensor([[1.0, 1.0], [3.0, 3.0]]), torch.tensor([[0.5], [0.5]])))
    mean weight gradient +2.000e+00 = +2.000e+00 (means) +0.000e+00 (covariance)
    """
    check_reduction(reduction)
    means = row_means(module, x.detach().double(), g.detach().double())
    if means is None:
        raise TypeError(f"expected a Linear or a zero-padded convolution, got {type(module).__name__}")
    parts = split_sums(means[0][None], means[1][None])
    tot, prod = (float(v) / (1 if reduction == "mean" else x.shape[0]) for v in parts)
    return CovarianceSplit(tot, prod)


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


def split_sums(gm: Tensor, xm: Tensor) -> tuple[Tensor, Tensor]:
    """(tot, prod) of layers stacked as (layers, groups, rows), for a mean-reduced loss."""
    tot, prod = joined(*split_parts(gm, xm))
    return tot, prod


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
            f"reduction must be 'mean' or 'sum', as the loss was reduced over the batch, got {reduction!r}"
        )
