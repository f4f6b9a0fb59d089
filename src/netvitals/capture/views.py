"""What a vital sign is shown: the tensors of one site on one measured step, with shared reductions cached.

Several vital signs need the same intermediate (|a|, f'(x), the input by channel). A view computes each of them
once, when first asked for, and is dropped as soon as every vital sign has looked.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor, nn

from netvitals.capture.site import Site
from netvitals.capture.stack import RELU, ActivationStack, Scratch


@dataclass
class ActivationView:
    """An activation as it ran: input ``x``, output ``a`` (both detached), and the function ``f`` itself."""

    site: Site
    x: Tensor
    a: Tensor
    f: Callable[[Tensor], Tensor]
    alike: Hashable = None  # equal for activations that may be stacked; None for one that stands alone
    memory: Scratch | None = None  # memory that is kept from look to look

    @cached_property
    def stack(self) -> ActivationStack:
        """This activation alone, in the shape that serves several."""
        return LoneStack(self.site, self.x_view[None], self.a, self.f, tuple(self.x.shape), self.x.dtype, self.memory)

    @cached_property
    def x_channels(self) -> Tensor:
        """Input as (samples × positions, channels)."""
        return _by_channel(self.x, self.site.channel_dim)

    @cached_property
    def a_channels(self) -> Tensor:
        return _by_channel(self.a, self.site.channel_dim)

    @property
    def is_relu(self) -> bool:
        return self.site.op in RELU

    @cached_property
    def x_view(self) -> Tensor:
        """Input as (samples, channels) or (samples, channels, positions), at least float32, without a copy."""
        return channel_view(self.x, self.site.channel_dim)

    @cached_property
    def a_view(self) -> Tensor:
        return channel_view(self.a, self.site.channel_dim)

    def as_view(self, t: Tensor) -> Tensor:
        """Any tensor of the input's shape (a gradient, say) in the layout of ``x_view``."""
        return channel_view(t, self.site.channel_dim)

    @property
    def over(self) -> tuple[int, ...]:
        """The dimensions of ``x_view`` and ``a_view`` that are not channels."""
        return (0,) if self.x_view.ndim == 2 else (0, 2)

    @cached_property
    def positive(self) -> Tensor:
        """1 where the input is above zero, else 0, in the layout of ``x_view``."""
        return torch.gt(self.x_view, 0, out=torch.empty_like(self.x_view))

    @cached_property
    def derivative(self) -> Tensor:
        """f'(x) elementwise by a local vector-Jacobian product: needs no loss and never divides by zero."""
        if self.is_relu:
            return self.positive.reshape(self.x.shape)
        with torch.enable_grad():
            x = self.x.detach().requires_grad_(True)
            return torch.autograd.grad(self.f(x).sum(), x)[0]


class LoneStack(ActivationStack):
    """A stack of one, whose output is brought into shape when somebody asks for it: of a ReLU, few do."""

    def __init__(
        self,
        site: Site,
        x: Tensor,
        a: Tensor,
        f: Callable[[Tensor], Tensor],
        raw: tuple[int, ...],
        dtype: torch.dtype,
        memory: Scratch | None,
    ) -> None:
        self.sites, self.x, self.f, self.raw, self.dtype, self.memory = (site,), x, f, raw, dtype, memory
        self._a = a

    @cached_property
    def a(self) -> Tensor:  # type: ignore[override]
        return channel_view(self._a, self.sites[0].channel_dim)[None]


@dataclass
class LinearView:
    """A linear or convolution layer as it ran: input ``x``, output ``y`` (detached), and the module."""

    site: Site
    x: Tensor
    y: Tensor
    module: nn.Module

    @cached_property
    def y_channels(self) -> Tensor:
        return _by_channel(self.y, self.site.channel_dim)


@dataclass
class TensorView:
    """Any other tensor looked at as it passed: the residual stream, a norm's output, the model's output."""

    site: Site
    value: Tensor
    module: nn.Module | None = None
    memory: Scratch | None = None  # memory that is kept from look to look

    @cached_property
    def view(self) -> Tensor:
        """The value as (samples, channels) or (samples, channels, positions), at least float32."""
        return channel_view(self.value, self.site.channel_dim)

    @cached_property
    def channels(self) -> Tensor:
        return _by_channel(self.value, self.site.channel_dim)


@dataclass
class ParameterView:
    """All parameters on a measured step, by dotted name.

    ``before`` and ``grads`` are there when an optimizer is watched: the values before its step and the gradients
    it used. ``initial`` holds the values when watching began.
    """

    params: Mapping[str, Tensor]
    initial: Mapping[str, Tensor]
    grads: Mapping[str, Tensor] = field(default_factory=dict)
    before: Mapping[str, Tensor] = field(default_factory=dict)
    modules: Mapping[str, nn.Module] = field(default_factory=dict)

    @cached_property
    def groups(self) -> list[list[str]]:
        """Names of parameters of equal size, so that one reduction serves a whole group."""
        groups: dict[tuple[object, ...], list[str]] = {}
        for name, p in self.params.items():
            if p.numel() == 0 or not p.is_floating_point():
                continue
            key: tuple[object, ...] = (
                p.numel(),
                p.dtype,
                p.device,
                name in self.initial,
                name in self.grads,
                name in self.before,
            )
            # a big tensor is looked at where it is: stacking would copy it
            groups.setdefault(key if p.numel() <= _STACKED else (*key, name), []).append(name)
        return list(groups.values())

    def rows(self, which: Literal["params", "initial", "grads", "before"], names: list[str]) -> Tensor:
        """The tensors of one group as rows of a matrix (tensors × elements), at least float32."""
        source: Mapping[str, Tensor] = getattr(self, which)
        rows = [source[name].detach().reshape(-1) for name in names]
        return _widened(torch.stack(rows) if len(rows) > 1 else rows[0][None])


_STACKED = 1 << 20


def channel_view(t: Tensor, dim: int) -> Tensor:
    """``t`` as (samples, channels) or (samples, channels, positions), at least float32, without a copy if it can be."""
    if t.ndim == 2 and dim in (1, -1) and t.dtype == torch.float32:
        return t  # the usual case, at no cost
    t = _widened(t.detach())
    if t.ndim <= 1:
        return t.reshape(-1, 1)
    dim %= t.ndim
    if dim == t.ndim - 1:
        return t.reshape(-1, t.shape[-1])
    return t.reshape(t.shape[:dim].numel(), t.shape[dim], -1)


def _widened(t: Tensor) -> Tensor:
    """Half precision is reduced in float32: its sums overflow and its means lose all digits."""
    return t.float() if t.dtype in (torch.float16, torch.bfloat16) else t


def _by_channel(t: Tensor, dim: int) -> Tensor:
    if t.ndim <= 1:
        return t.reshape(-1, 1)
    return t.movedim(dim, -1).reshape(-1, t.shape[dim])
