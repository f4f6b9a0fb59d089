"""What a vital sign is shown: the tensors of one site on one measured step, with shared reductions cached.

Several vital signs need the same intermediate (|a|, f'(x), the input by channel). A sight computes each of them
once, when first asked for, and is dropped as soon as every vital sign has looked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor, nn

from netvitals.capture.site import Site


@dataclass
class ActivationSight:
    """An activation as it ran: input ``x``, output ``a`` (both detached), and the function ``f`` itself."""

    site: Site
    x: Tensor
    a: Tensor
    f: Callable[[Tensor], Tensor]

    @cached_property
    def x_channels(self) -> Tensor:
        """Input as (samples × positions, channels)."""
        return _by_channel(self.x, self.site.channel_dim)

    @cached_property
    def a_channels(self) -> Tensor:
        return _by_channel(self.a, self.site.channel_dim)

    @cached_property
    def abs_a(self) -> Tensor:
        return self.a.abs()

    @cached_property
    def max_abs(self) -> Tensor:
        return self.abs_a.amax()

    @cached_property
    def derivative(self) -> Tensor:
        """f'(x) elementwise by a local vector-Jacobian product: needs no loss and never divides by zero."""
        if self.site.op in ("relu", "ReLU"):
            return (self.x > 0).to(self.x.dtype)
        with torch.enable_grad():
            x = self.x.detach().requires_grad_(True)
            return torch.autograd.grad(self.f(x).sum(), x)[0]


@dataclass
class LinearSight:
    """A linear or convolution layer as it ran: input ``x``, output ``y`` (detached), and the module."""

    site: Site
    x: Tensor
    y: Tensor
    module: nn.Module

    @cached_property
    def y_channels(self) -> Tensor:
        return _by_channel(self.y, self.site.channel_dim)


@dataclass
class TensorSight:
    """Any other tensor looked at as it passed: the residual stream, a norm's output, the model's output."""

    site: Site
    value: Tensor
    module: nn.Module | None = None

    @cached_property
    def channels(self) -> Tensor:
        return _by_channel(self.value, self.site.channel_dim)


@dataclass
class ParameterSight:
    """All parameters on a measured step, by dotted name.

    ``before`` and ``grads`` are there when an optimizer is watched: the values before its step and the gradients
    it used. ``initial`` holds the values when watching began.
    """

    params: Mapping[str, Tensor]
    initial: Mapping[str, Tensor]
    grads: Mapping[str, Tensor] = field(default_factory=dict)
    before: Mapping[str, Tensor] = field(default_factory=dict)
    modules: Mapping[str, nn.Module] = field(default_factory=dict)


def _by_channel(t: Tensor, dim: int) -> Tensor:
    if t.ndim <= 1:
        return t.reshape(-1, 1)
    return t.movedim(dim, -1).reshape(-1, t.shape[dim])
