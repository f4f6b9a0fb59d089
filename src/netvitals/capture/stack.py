"""Several activations of one kind and shape, looked at together: one reduction serves them all.

A small network spends its time between operations, not in them. Ten layers of one width, stacked, are reduced in the
time of two. Shared intermediates are computed once, when first asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from netvitals.capture.site import Site


@dataclass(frozen=True)
class Layout:
    """What is known of a stack without its tensors: enough to finish its numbers when the tensors are gone."""

    sites: tuple[Site, ...]
    elements: int  # of one site
    channels: int
    positions: int  # tokens or pixels of one example; the examples themselves if it has only one


class Scratch:
    """Memory kept from look to look: fresh memory costs more than what is done in it, and it is not in the cache.

    Everything is asked for by name, and overwritten by whoever asks for the same name next.
    """

    LARGEST = 1 << 18  # elements; more is taken fresh

    def __init__(self) -> None:
        self._flat: dict[tuple[str, torch.dtype, torch.device], Tensor] = {}

    def empty(self, name: str, shape: Sequence[int], like: Tensor) -> Tensor:
        """Room of this shape, with the dtype and device of ``like``."""
        size, key = math.prod(shape), (name, like.dtype, like.device)
        if size > self.LARGEST:
            return torch.empty(tuple(shape), dtype=like.dtype, device=like.device)
        known = self._flat.get(key)
        if known is None or known.numel() < size:
            known = self._flat[key] = torch.empty(size, dtype=like.dtype, device=like.device)
        return known[:size].view(tuple(shape))


@dataclass
class ActivationStack:
    """Inputs ``x`` and outputs ``a`` of like activations: (sites, samples, channels[, positions]), float32 or wider."""

    sites: tuple[Site, ...]
    x: Tensor
    a: Tensor
    f: Callable[[Tensor], Tensor]  # takes an input shaped like ``raw``
    raw: tuple[int, ...]  # shape of one site's tensor as it ran
    dtype: torch.dtype  # as it ran
    memory: Scratch | None = None  # memory that is kept from look to look

    @property
    def stack(self) -> ActivationStack:
        return self

    @property
    def samples(self) -> int:
        """Examples in the batch."""
        return self.raw[0] if self.raw else 1

    @property
    def is_relu(self) -> bool:
        return self.sites[0].op in RELU

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.x.shape)

    @property
    def over(self) -> tuple[int, ...]:
        """The dimensions of ``x`` and ``a`` within a site that are not channels."""
        return (1,) if len(self.shape) == 3 else (1, 3)

    @property
    def rows(self) -> int:
        """Elements of a channel."""
        return self.elements // max(1, self.channels)

    @property
    def channels(self) -> int:
        return self.shape[2]

    @cached_property
    def elements(self) -> int:
        """Elements of one site."""
        return math.prod(self.shape[1:])

    @cached_property
    def outline(self) -> Layout:
        if len(self.shape) == 4:
            positions = self.shape[3]
        else:
            positions = self.rows // self.samples if self.rows > self.samples else self.rows
        return Layout(self.sites, self.elements, self.channels, positions)

    def like_x(self, t: Tensor) -> Tensor:
        """Statistics by channel, (sites, channels), ready to meet ``x``."""
        return t[:, None] if len(self.shape) == 3 else t[:, None, :, None]

    @cached_property
    def mean(self) -> Tensor:
        """Mean of the input by channel."""
        return self.x.mean(self.over)

    @cached_property
    def variance(self) -> Tensor:
        """Population variance of the input by channel (from centred values; ``torch.var`` is far slower)."""
        centred = torch.sub(self.x, self.like_x(self.mean), out=self.scratch)
        return centred.mul_(centred).mean(self.over)

    @cached_property
    def scratch(self) -> Tensor:
        """Room for an intermediate of the size of ``x``; overwritten by the next user, of this stack or another."""
        return torch.empty_like(self.x) if self.memory is None else self.memory.empty("scratch", self.shape, self.x)

    @cached_property
    def positive(self) -> Tensor:
        """1 where the input is above zero, else 0."""
        return torch.gt(self.x, 0, out=torch.empty_like(self.x))

    @cached_property
    def positive_share(self) -> Tensor:
        """Share of positive inputs by channel."""
        return torch.gt(self.x, 0, out=self.scratch).mean(self.over)

    @cached_property
    def size(self) -> Tensor:
        """|a|; the output of a ReLU is its own absolute value."""
        return self.a if self.is_relu else self.a.abs()

    @cached_property
    def channel_max(self) -> Tensor:
        """max |a| by channel."""
        return self.size.amax(1) if len(self.shape) == 3 else self.size.amax(3).amax(1)  # one by one is quicker

    @cached_property
    def max(self) -> Tensor:
        """max |a| by site."""
        return self.channel_max.amax(1)

    @cached_property
    def derivative(self) -> Tensor:
        """f'(x) elementwise by a local vector-Jacobian product: needs no loss and never divides by zero."""
        if self.is_relu:
            return self.positive
        with torch.enable_grad():
            x = self.x.to(self.dtype).detach().requires_grad_(True)
            y = self.f(x.reshape(self.raw) if x.shape[0] == 1 else x)
            return torch.autograd.grad(y.sum(), x)[0].to(self.x.dtype)

    def one(self, index: int) -> ActivationStack:
        """The stack of a single site."""
        return ActivationStack(
            (self.sites[index],), self.x[index : index + 1], self.a[index : index + 1], self.f, self.raw, self.dtype
        )

    def some(self, indices: Sequence[int]) -> ActivationStack:
        """The stack of some of the sites, in that order."""
        if list(indices) == list(range(len(self.sites))):
            return self
        chosen = torch.tensor(list(indices), device=self.x.device)
        return ActivationStack(
            tuple(self.sites[i] for i in indices), self.x[chosen], self.a[chosen], self.f, self.raw, self.dtype
        )


class GatheredStack(ActivationStack):
    """A stack whose tensors are put together when somebody asks for them: of a ReLU, many look at the input alone."""

    def __init__(
        self,
        sites: tuple[Site, ...],
        x: list[Tensor],
        a: list[Tensor],
        f: Callable[[Tensor], Tensor],
        raw: tuple[int, ...],
        dtype: torch.dtype,
        memory: Scratch,
        number: int | None,
    ) -> None:
        self.sites, self.f, self.raw, self.dtype, self.memory = sites, f, raw, dtype, memory
        self._x, self._a, self._number = x, a, number

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return len(self._a), *self._a[0].shape

    @cached_property
    def x(self) -> Tensor:  # type: ignore[override]
        return self._together("x", self._x)

    @cached_property
    def a(self) -> Tensor:  # type: ignore[override]
        return self._together("a", self._a)

    def _together(self, name: str, tensors: list[Tensor]) -> Tensor:
        if self.memory is None or self._number is None:
            return torch.stack(tensors)
        return torch.stack(tensors, out=self.memory.empty(f"{name} of stack {self._number}", self.shape, tensors[0]))


RELU = frozenset({"relu", "relu_", "ReLU"})
