"""Elementwise activations that torch lacks: as functions of a tensor, and as modules.

Every one is made of differentiable torch operations, so that autograd, ``torch.func`` and any dtype or device work.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

B_SILU_ALPHA = 1.67  # arXiv 2505.22074, the value of the B-SiLU that SUGAR uses


def squared(value: Tensor, clip: float | None = None) -> Tensor:
    r"""$v^2$, or $\min(v^2, c)$ with derivative zero wherever $v^2 \ge c$.

    >>> squared(torch.tensor([-2.0, 3.0, 5.0]), clip=15.0).tolist()
    [4.0, 9.0, 15.0]
    """
    square = value * value
    if clip is None:
        return square
    # not clamp: clamp passes the gradient at equality, the stated derivative is zero there
    return torch.where(square < clip, square, torch.full_like(square, clip))


def b_silu(x: Tensor, alpha: float = B_SILU_ALPHA) -> Tensor:
    r"""B-SiLU activation: $(x+\alpha)\,\sigma(x) - \alpha/2$ with the logistic function σ; its value at 0 is 0.

    Args:
        x: values of any shape and floating dtype.
        alpha: the shift α; the default 1.67 is that of arXiv 2505.22074.

    Returns:
        A tensor of x's shape.

    >>> b_silu(torch.zeros(2)).tolist()
    [0.0, 0.0]
    """
    return (x + alpha) * torch.sigmoid(x) - alpha / 2


def b_silu_slope(x: Tensor, alpha: float = B_SILU_ALPHA) -> Tensor:
    r"""Derivative of B-SiLU: $s + (x+\alpha)s(1-s)$."""
    s = torch.sigmoid(x)
    return s + (x + alpha) * s * (1 - s)


class Squared(nn.Module):
    """Square another activation, and clip the result at ``clip``.

    Args:
        inner: the activation that is squared.
        clip: ceiling on the square; None sets none.

    >>> Squared(nn.ReLU(), clip=15)
    Squared(
      clip=15
      (inner): ReLU()
    )
    """

    def __init__(self, inner: nn.Module, clip: float | None = None) -> None:
        super().__init__()
        if clip is not None and not clip > 0:
            raise ValueError(f"clip= must be positive, got {clip}: squared activations above it are set to this value")
        self.inner = inner
        self.clip = clip

    def forward(self, x: Tensor) -> Tensor:
        """Square the inner activation of ``x``, and clip the result."""
        return squared(self.inner(x), self.clip)

    def extra_repr(self) -> str:
        """Return the clip, for printing the module."""
        return "" if self.clip is None else f"clip={self.clip:g}"


class BSiLU(nn.Module):
    """Module for the B-SiLU activation, see :func:`b_silu`.

    Args:
        alpha: the shift α.

    >>> BSiLU()(torch.zeros(2)).tolist()
    [0.0, 0.0]
    """

    def __init__(self, alpha: float = B_SILU_ALPHA) -> None:
        super().__init__()
        self.alpha = alpha

    def forward(self, x: Tensor) -> Tensor:
        """Apply B-SiLU to every entry of ``x``."""
        return b_silu(x, self.alpha)

    def extra_repr(self) -> str:
        """Return the shift, for printing the module."""
        return f"alpha={self.alpha:g}"


class StiffSigmoid(nn.Module):
    r"""$1/(1+e^{-\alpha(x-c)})$: a logistic step of stiffness $\alpha$ at $c$.

    Args:
        stiffness: α, positive.
        center: c, where it is one half.

    >>> StiffSigmoid(40.0, center=0.5)(torch.tensor(0.5)).item()
    0.5
    """

    def __init__(self, stiffness: float = 1.0, center: float = 0.0) -> None:
        super().__init__()
        if not stiffness > 0:
            raise ValueError(f"the stiffness k of sigmoid(k x) must be positive, got {stiffness}")
        self.stiffness = stiffness
        self.center = center

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(self.stiffness * (x - self.center))

    def extra_repr(self) -> str:
        return f"stiffness={self.stiffness:g}" + (f", center={self.center:g}" if self.center else "")


class Identity(nn.Identity):
    """The linear control: an activation site where nothing happens.

    A class of its own, so that a model's placeholder ``nn.Identity`` is not taken for an activation.
    """


class Erf(nn.Module):
    """erf(x)."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.erf(x)


class Sin(nn.Module):
    """sin(x)."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(x)


class Arctan(nn.Module):
    """arctan(x)."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.atan(x)


class NegReLU(nn.Module):
    """−ReLU(−x) = min(0, x): the control whose outputs are never positive."""

    def forward(self, x: Tensor) -> Tensor:
        return -F.relu(-x)


class QuickGELU(nn.Module):
    """x·s(1.702 x), the logistic stand-in for GELU."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.702 * x)


class Polynomial(nn.Module):
    """Σ a_k x^k, coefficients in ascending order.

    >>> Polynomial(0, 1, 0, -0.5)(torch.tensor(2.0)).item()
    -2.0
    """

    def __init__(self, *coefficients: float) -> None:
        super().__init__()
        if not coefficients:
            raise ValueError("a polynomial needs at least one coefficient, e.g. 'poly:0:1:0:-0.1' for x - 0.1 x^3")
        self.coefficients = tuple(float(a) for a in coefficients)

    def forward(self, x: Tensor) -> Tensor:
        value = torch.full_like(x, self.coefficients[-1])
        for a in reversed(self.coefficients[:-1]):
            value = value * x + a
        return value

    def extra_repr(self) -> str:
        return ", ".join(f"{a:g}" for a in self.coefficients)


class Centered(nn.Module):
    """σ(x) − σ(0): the form of an activation for which the zero saddle exists (class D becomes B or C).

    Args:
        inner: the activation.

    >>> Centered(nn.Sigmoid())(torch.zeros(2)).tolist()
    [0.0, 0.0]
    """

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) - self.inner(x.new_zeros(1)).squeeze(0)


class ZeroMean(nn.Module):
    """σ(x) − E[σ(g)], g ~ N(0, 1): no mean is passed on, hence no drift of the next weights is asked for.

    Args:
        inner: the activation.

    >>> bool(ZeroMean(nn.ReLU())(torch.randn(100_000)).mean().abs() < 0.02)
    True
    """

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        from netvitals.activations.derivatives import in_double
        from netvitals.activations.moments import expect

        self.inner = inner
        self.mean = expect(in_double(inner))

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) - self.mean

    def extra_repr(self) -> str:
        return f"mean={self.mean:.6g}"


class Function(nn.Module):
    """A plain callable as a module.

    Args:
        function: of a tensor, entry by entry.

    >>> Function(torch.erf)(torch.zeros(2)).tolist()
    [0.0, 0.0]
    """

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)

    def extra_repr(self) -> str:
        return getattr(self.function, "__qualname__", None) or repr(self.function)
