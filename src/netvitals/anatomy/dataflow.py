"""The dataflow of one traced pass: who reads a value, what depends on the data, and which channels a value holds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from netvitals.anatomy.ir import Operation, Slot, Value, replaced, tensors_in

IDENTITY = frozenset({"detach", "alias", "clone", "_to_copy", "lift_fresh"})  # bookkeeping that changes no value
_MAKERS = frozenset(
    [
        "zeros_like",
        "ones_like",
        "empty_like",
        "full_like",
        "new_zeros",
        "new_ones",
        "new_full",
        "new_empty",
        "new_empty_strided",
    ]
)
_MOVERS = frozenset(
    [
        "cat",
        "stack",
        "repeat",
        "roll",
        "flip",
        "index_select",
        "index",
        "clone",
        "repeat_interleave",
        "constant_pad_nd",
        "expand_copy",
    ]
)
_FLOATING = ("float", "bfloat", "complex")
_SHIFT = 24  # bits of a channel's number in a code
_DEPTH = 80  # operations looked back over for channels


class Dataflow:
    """A trace with its questions answered once: readers, what is live, what is noise, channels."""

    def __init__(
        self,
        values: Sequence[Value],
        operations: Sequence[Operation],
        tensors: Sequence[Tensor],
        outputs: Sequence[int],
    ) -> None:
        self.values, self.operations, self.outputs = values, operations, tuple(outputs)
        self.tensors = list(tensors)
        self._sources: dict[int, Tensor] = {}
        self._codes: dict[int, Tensor | None] = {}

    @cached_property
    def readers(self) -> list[list[Operation]]:
        """The operations that read each value, in order."""
        out: list[list[Operation]] = [[] for _ in self.values]
        for op in self.operations:
            for value in dict.fromkeys(op.inputs):
                out[value].append(op)
        return out

    def producer(self, value: int) -> Operation | None:
        """The operation that made a value; None for inputs, parameters, buffers and constants."""
        made = self.values[value].producer
        return None if made < 0 else self.operations[made]

    @cached_property
    def live(self) -> list[bool]:
        """Whether a value depends on the model's input; noise does not."""
        out = [v.source == "input" for v in self.values]
        for op in self.operations:
            if op.name not in _MAKERS and any(out[i] for i in op.inputs):
                for value in op.outputs:
                    out[value] = True
        return out

    @cached_property
    def signal(self) -> list[bool]:
        """Whether a value depends on a floating-point input or on a product of the data with a parameter.

        Integers never do: positions, masks made of ids, the choice of experts.
        """
        out = [v.source == "input" and v.dtype.startswith(_FLOATING) for v in self.values]
        for op in self.operations:
            product = op.kind == "layer" and any(self.live[i] for i in op.inputs)
            product = product or (op.kind == "norm" and bool(self.parametric[op.inputs[0]]))  # learned latents
            if product or (op.name not in _MAKERS and any(out[i] for i in op.inputs)):
                for value in op.outputs:
                    out[value] = self.values[value].dtype.startswith((*_FLOATING, "bool"))
        return out

    @cached_property
    def noise(self) -> set[int]:
        """Values made of random numbers alone, such as the mask of a dropout."""
        out: set[int] = set()
        for op in self.operations:
            if op.kind == "random" and not any(self.signal[i] for i in op.inputs):
                out.update(op.outputs)
            elif op.kind in ("pointwise", "view", "random") and op.inputs:
                drawn = [i in out for i in op.inputs]
                if any(drawn) and not any(self.signal[i] for i, d in zip(op.inputs, drawn) if not d):
                    out.update(op.outputs)
        return out - {v for v in out if self.signal[v]}

    @cached_property
    def parametric(self) -> list[frozenset[str]]:
        """The parameters that a value without data is made of; empty for what depends on data, or on none."""
        out = [frozenset({v.name}) if v.source == "parameter" else frozenset() for v in self.values]
        for op in self.operations:
            if not any(self.live[i] for i in op.inputs):
                found = frozenset().union(*(out[i] for i in op.inputs))
                for value in op.outputs:
                    out[value] = out[value] | found
        return out

    def release(self, value: int) -> None:
        """Forget what a value held."""
        self.tensors[value] = torch.empty(0)
        self._codes.clear()

    def stripped(self, value: int) -> int:
        """The value behind views, copies and casts."""
        while (op := self.producer(value)) is not None and op.inputs:
            if op.kind != "view" and op.name not in IDENTITY:
                break
            value = op.inputs[0]
        return value

    def live_inputs(self, op: Operation) -> list[int]:
        """The different values with signal that an operation reads."""
        return [i for i in dict.fromkeys(op.inputs) if self.signal[i]]

    @cached_property
    def roots(self) -> list[int | None]:
        """The nearest value above each that is not made of a single one element by element; None without signal.

        To be asked when the outputs of layers are marked: they are roots too.
        """
        out: list[int | None] = [v.index if self.signal[v.index] else None for v in self.values]
        for op in self.operations:
            above = {out[i] for i in op.inputs if out[i] is not None}
            for value in op.outputs:
                shape = self.values[value].shape
                if op.kind == "random" or value in self.noise:
                    out[value] = value if self.signal[value] else None
                elif not self.signal[value]:
                    out[value] = None
                elif value in self._sources:
                    out[value] = value  # what a layer gives, with its bias, is where a region begins
                elif (
                    op.kind == "pointwise"
                    and len(above) == 1
                    and all(self.values[i].shape == shape for i in op.inputs if out[i] is not None)
                    and not self.noise.intersection(op.inputs)
                ):
                    out[value] = next(iter(above))
                else:
                    out[value] = value
        return out

    def made_by_source(self, value: int) -> bool:
        """Whether a value is a marked one, elementwise and through views, without another branch."""
        while value not in self._sources:
            plain = self.stripped(value)
            above = self.roots[plain]
            if above is None or above == value:
                return False
            value = above
        return True

    # -- channels -----------------------------------------------------------------------------------------------

    def mark(self, value: int, source: int, dim: int) -> None:
        """Let the channels of ``value`` along ``dim`` carry the codes of a source."""
        shape = self.values[value].shape
        dim %= max(len(shape), 1)
        code = torch.arange(shape[dim]) + (source << _SHIFT)
        self._sources[value] = code.view([-1 if d == dim else 1 for d in range(len(shape))]).expand(shape)
        self._codes.clear()

    def mark_heads(self, value: int, source: int, heads: int, dim: int) -> None:
        """Let the elements of an attention output (…, heads, positions, channels) carry head · channels + channel."""
        shape = self.values[value].shape
        size = shape[dim]
        inner = torch.arange(size).view([-1, 1] if dim == -2 else [1, -1])
        batch = math.prod(shape[:-2])
        head = (torch.arange(batch) % heads).view(*shape[:-2], 1, 1)
        self._sources[value] = ((source << _SHIFT) + head * size + inner).expand(shape)
        self._codes.clear()

    def codes(self, value: int, depth: int = 0) -> Tensor | None:
        """For every element, the source and channel it comes from (see :func:`decoded`); −1 where there is none."""
        if value in self._sources:
            return self._sources[value]
        if value not in self._codes:
            self._codes[value] = None  # a cycle is no source
            op = self.producer(value)
            if op is not None and depth < _DEPTH and value in op.outputs and op.kind != "layer":
                self._codes[value] = self._moved(op, value, depth + 1)
        return self._codes[value]

    def _moved(self, op: Operation, value: int, depth: int) -> Tensor | None:
        shape = self.values[value].shape
        if op.name in ("view_as_complex", "view_as_real"):
            inner = self.codes(op.inputs[0], depth)
            return (
                inner if inner is None else inner[..., 0] if op.name.endswith("x") else inner[..., None].expand(shape)
            )
        if op.kind == "view" or op.name in _MOVERS:
            found = {i: self.codes(i, depth) for i in op.inputs if self.signal[i]}
            if not any(c is not None for c in found.values()):
                return None
            return replayed(op, value, lambda i: self._stand_in(i, found))
        if op.name == "copy_" and value != op.outputs[0]:
            return self._pasted(op, value, depth)
        for i in op.inputs[1:2] if op.name == "copy_" else self.live_inputs(op):
            if len(self.values[i].shape) > len(shape):
                continue
            code = self.codes(i, depth)
            if code is not None and _broadcasts(tuple(code.shape), shape):
                return code.expand(shape)
        return None

    def _pasted(self, op: Operation, value: int, depth: int) -> Tensor | None:
        """Codes of a tensor after something was written into a part of it."""
        window = self.producer(op.inputs[0])
        if window is None or window.kind != "view" or self.values[window.inputs[0]].shape != self.values[value].shape:
            return None
        before, put = self.codes(window.inputs[0], depth), self.codes(op.inputs[1], depth)
        shape = self.values[value].shape
        made = torch.full(shape, -1) if before is None else before.clone()
        part = replayed(window, op.inputs[0], lambda i: made)
        if put is None or part is None or not _broadcasts(tuple(put.shape), tuple(part.shape)):
            return before
        part.copy_(put)
        return made

    def _stand_in(self, value: int, found: dict[int, Tensor | None]) -> Tensor:
        code = found.get(value)
        if code is not None:
            return code
        if value in found or self.tensors[value].is_floating_point():  # signal without a known channel, or a constant
            return torch.full((), -1).expand(self.values[value].shape)
        return self.tensors[value].cpu()  # codes are made there


def decoded(code: int) -> tuple[int, int]:
    """The source and the channel of a code.

    >>> decoded((3 << 24) + 7)
    (3, 7)
    """
    return code >> _SHIFT, code & ((1 << _SHIFT) - 1)


def replayed(op: Operation, value: int, operand: Any) -> Tensor | None:
    """What a recorded operation makes of other tensors; None where it refuses them."""
    args, kwargs = replaced((op.args, op.kwargs or {}), Slot, lambda s: operand(s.value))
    kwargs.pop("memory_format", None)
    try:
        if op.name in ("view", "_unsafe_view"):  # other tensors may lie in memory otherwise
            return args[0].reshape(args[1])
        made = list(tensors_in(op.func(*args, **kwargs)))
    except Exception:  # an operator that has no kernel for integers
        return None
    at = op.outputs.index(value)
    return made[at] if at < len(made) else None


def _broadcasts(small: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    return all(a in (1, b) for a, b in zip(reversed(small), reversed(shape)))
