"""Activations whose backward is not the derivative of their forward, or whose forward is random."""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from netvitals.activations.functions import B_SILU_ALPHA, b_silu_slope


class _ReLUWithBSiLUSlope(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, alpha: float) -> Tensor:
        return F.relu(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
        x, ctx.alpha = inputs
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return grad * b_silu_slope(x, ctx.alpha), None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:
        (x,) = ctx.saved_tensors
        return tangent * b_silu_slope(x, ctx.alpha)


def sugar_b_silu(x: Tensor, alpha: float = B_SILU_ALPHA) -> Tensor:
    """Compute ReLU(x) in the forward pass, and use the derivative of B-SiLU in the backward pass.

    Args:
        x: values of any shape and floating dtype.
        alpha: the shift α of the B-SiLU in the backward pass; the forward pass does not use it.

    Returns:
        Max(0, x), in x's shape.

    >>> x = torch.tensor([-1.0], requires_grad=True)
    >>> y = sugar_b_silu(x); y.sum().backward(); (y.item(), round(x.grad.item(), 4))
    (0.0, 0.4007)
    """
    return _ReLUWithBSiLUSlope.apply(x, alpha)


class SugarBSiLU(nn.Module):
    """ReLU with a surrogate gradient that is not zero for negative inputs, see :func:`sugar_b_silu`.

    Args:
        alpha: shift of the surrogate, see :func:`b_silu`.

    >>> x = torch.tensor([-0.5], requires_grad=True)
    >>> y = SugarBSiLU()(x); y.sum().backward()
    >>> y.item(), bool(x.grad != 0)  # a ReLU that is shut, with a gradient
    (0.0, True)
    """

    def __init__(self, alpha: float = B_SILU_ALPHA) -> None:
        super().__init__()
        self.alpha = alpha

    def forward(self, x: Tensor) -> Tensor:
        """Apply ReLU to ``x``, with the surrogate gradient in the backward pass."""
        return sugar_b_silu(x, self.alpha)

    def extra_repr(self) -> str:
        """Return the shift, for printing the module."""
        return f"alpha={self.alpha:g}"


def noisy_relu(x: Tensor, p: Tensor | float, noise: Tensor, alpha: float = 1.0, scale: float = 1.0) -> Tensor:
    r"""$\max(0,x) + 1[x<0]\,\big((1-\alpha)x \pm c\,(s(-px)-\tfrac12)^2\,\varepsilon\big)$, s the logistic function.

    Args:
        x: values of any shape.
        p: how fast the noise grows below zero; a number, or a tensor that broadcasts to x.
        noise: ε in the shape of x, drawn by the caller.
        alpha: one minus the slope below zero; above 1 the sign of the noise is −, else +.
        scale: the size c of the noise.

    Returns:
        A tensor of x's shape.

    >>> [round(v, 6) for v in noisy_relu(torch.tensor([2.0, -1.0]), 1.0, torch.ones(2)).tolist()]
    [2.0, 0.053388]
    """
    sign = -1.0 if alpha > 1 else 1.0
    spread = sign * scale * (torch.sigmoid(-p * x) - 0.5) ** 2 * noise
    return torch.where(x < 0, (1 - alpha) * x + spread, x)


class NoisyReLU(nn.Module):
    """ReLU in evaluation, and a leaky ReLU with learned noise on its negative side in training, see :func:`noisy_relu`.

    The negative side has slope 1 − α. The noise scale ``p`` is one learnable number, drawn from N(0, 1).

    Args:
        alpha: 1 minus the slope of the leaky side.
        scale: size of the noise.
        noise: ``"half_normal"`` (ε = |N(0, 1)|) or ``"normal"``.

    >>> NoisyReLU().eval()(torch.tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    def __init__(
        self, alpha: float = 1.0, scale: float = 1.0, noise: Literal["half_normal", "normal"] = "half_normal"
    ) -> None:
        super().__init__()
        if noise not in ("half_normal", "normal"):
            raise ValueError(f"noise= must be 'half_normal' or 'normal', got {noise!r}")
        self.alpha = alpha
        self.scale = scale
        self.noise = noise
        self.p = nn.Parameter(torch.randn(()))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the noisy ReLU to ``x`` in training, and ReLU in evaluation."""
        if not self.training:
            return F.relu(x)
        draw = torch.randn_like(x)
        return noisy_relu(x, self.p, draw.abs() if self.noise == "half_normal" else draw, self.alpha, self.scale)

    def extra_repr(self) -> str:
        """Return the settings, for printing the module."""
        return f"alpha={self.alpha:g}, scale={self.scale:g}, noise={self.noise}"
