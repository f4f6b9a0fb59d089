"""Mean, variance and positive share by channel, of all small activations of a pass at once.

On a small tensor a reduction takes as long as its call. So the inputs of small activations are copied into one stack as
they pass, and the stack is reduced when the look ends; a large one is reduced where it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from netvitals.capture.recorder import Recorder

SMALL = 1 << 15  # elements of an input that is copied
HEIGHT = 16  # inputs in a stack; a full one is reduced at once


class ByChannel(NamedTuple):
    """Numbers of an input by channel. They are filled in when the look ends: hand them on, do not compute with them."""

    mean: Tensor
    variance: Tensor  # of the population
    positive: Tensor  # share above zero


class Stacks:
    """The stacks of one model, by shape; their memory is kept from look to look.

    >>> from netvitals.capture import Recorder
    >>> stacks, recorder = Stacks(), Recorder(step=0)
    >>> found = stacks.add(recorder, torch.tensor([[1.0, -2.0], [3.0, -2.0]]))
    >>> recorder.leave_device()
    >>> [numbers.tolist() for numbers in found]
    [[2.0, -2.0], [1.0, 0.0], [1.0, 0.0]]
    """

    def __init__(self) -> None:
        self._by_shape: dict[tuple[object, ...], Stack] = {}
        self.layouts: dict[tuple[str, torch.Size], Any] = {}  # of sites, as they were last

    def add(self, recorder: Recorder, x: Tensor) -> ByChannel | None:
        """The numbers of ``x`` (rows × channels), which ``recorder`` will have; None where it is no small matrix."""
        if x.ndim != 2 or x.numel() > SMALL or type(x) is not Tensor or x.is_inference():
            return None
        key = (*x.shape, x.dtype, x.device)
        stack = self._by_shape.get(key)
        if stack is None:
            stack = self._by_shape[key] = Stack(x)
        return stack.add(recorder, x)


class Stack:
    """Inputs of one shape."""

    def __init__(self, like: Tensor) -> None:
        self._slots = [torch.empty_like(like, memory_format=torch.contiguous_format)]
        self._memory = self._slots[0][None]
        self._scratch: Tensor | None = None
        self._count = 0
        self._recorder: Recorder | None = None
        self._out = self._memory
        self._free: list[ByChannel] = []

    def add(self, recorder: Recorder, x: Tensor) -> ByChannel:
        if self._count and (self._recorder is not recorder or self._count == len(self._slots)):
            self.reduce()
            if self._recorder is recorder and len(self._slots) < HEIGHT:
                self._grow(x)
        if not self._count:
            self._recorder = recorder
            self._out = x.new_full((3, len(self._slots), x.shape[1]), torch.nan)
            self._free = [ByChannel(*numbers) for numbers in zip(*(part.unbind() for part in self._out.unbind()))]
            recorder.later(self.reduce)
        self._slots[self._count].copy_(x)
        self._count += 1
        return self._free[self._count - 1]

    def reduce(self) -> None:
        """Fill in the numbers of what has been added."""
        n, self._count = self._count, 0
        if not n:
            return
        x, scratch = self._memory[:n], self._scratch
        if scratch is None:
            scratch = self._scratch = torch.empty_like(self._memory)
        mean = torch.mean(x, 1, out=self._out[0, :n])
        torch.mean(torch.gt(x, 0, out=scratch[:n]), 1, out=self._out[2, :n])
        x.sub_(mean[:, None])
        torch.mean(x.mul_(x), 1, out=self._out[1, :n])

    def _grow(self, like: Tensor) -> None:
        self._memory = like.new_empty((min(HEIGHT, 2 * len(self._slots)), *like.shape))
        self._slots, self._scratch = list(self._memory.unbind()), None


def channel_view(t: Tensor, dim: int) -> Tensor:
    """``t`` as (samples, channels) or (samples, channels, positions), at least float32, without a copy if it can be."""
    if t.ndim == 2 and dim in (1, -1) and t.dtype == torch.float32:
        return t  # the usual case, at no cost
    t = widened(t.detach())
    if t.ndim <= 1:
        return t.reshape(-1, 1)
    dim %= t.ndim
    if dim == t.ndim - 1:
        return t.reshape(-1, t.shape[-1])
    return t.reshape(t.shape[:dim].numel(), t.shape[dim], -1)


def widened(t: Tensor) -> Tensor:
    """Half precision is reduced in float32: its sums overflow and its means lose all digits."""
    return t.float() if t.dtype in (torch.float16, torch.bfloat16) else t


def by_channel_rows(t: Tensor, dim: int) -> Tensor:
    """``t`` as rows × channels, in its own precision."""
    if t.ndim <= 1:
        return t.reshape(-1, 1)
    return t.movedim(dim, -1).reshape(-1, t.shape[dim])
