"""Recorded operations as a function, replayed on any tensor of the root's shape with today's operands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from netvitals.anatomy.dataflow import IDENTITY, Dataflow
from netvitals.anatomy.ir import Operation, Slot, replaced, tensors_in

_NOTHING: Mapping[str | int, Tensor] = {}
_LINEAR = frozenset(["mul", "div", "add", "sub", "rsub", "neg", "masked_fill", "copy"]) | IDENTITY
_BENT = frozenset(
    [
        "relu",
        "leaky_relu",
        "elu",
        "selu",
        "celu",
        "gelu",
        "silu",
        "mish",
        "tanh",
        "sigmoid",
        "softplus",
        "hardswish",
        "hardsigmoid",
        "hardtanh",
        "relu6",
        "erf",
        "exp",
        "log_sigmoid_forward",
        "softshrink",
        "hardshrink",
        "threshold",
        "_prelu_kernel",
        "rrelu_with_noise",
        "abs",
        "sqrt",
        "rsqrt",
        "log",
        "sin",
        "cos",
    ]
)
_LARGE = 1 << 16  # elements on which a function is measured, at most


class Replay:
    """The operations between two values as a function of the first.

    Other operands are as they were, or as ``today`` gives them: by name for parameters and buffers, by value for what
    was made of the data (a mask, say). What was computed of parameters and buffers alone is computed again.
    """

    def __init__(self, path: Sequence[Operation], start: int, end: int, flow: Dataflow) -> None:
        self.path, self.start, self.end, self.flow = tuple(path), start, end, flow
        inside = {v for op in path for v in op.outputs} | {start}
        self.operands = tuple(dict.fromkeys(i for op in path for i in op.inputs if i not in inside))

    @property
    def named(self) -> tuple[str, ...]:
        """The parameters and buffers that the function reads."""
        values = self.flow.values
        found = [v for i in self.operands for v in self._behind(i)]
        return tuple(dict.fromkeys(values[v].name for v in found if values[v].name))

    def __call__(self, x: Tensor, today: Mapping[str | int, Tensor] = _NOTHING) -> Tensor:
        held: dict[int, Any] = {self.start: x}
        for op in self.path:
            if op.name in IDENTITY:
                held[op.outputs[0]] = held[op.inputs[0]]
            else:
                self._run(op, held, x, today)
        return held[self.end]

    def _run(self, op: Operation, held: dict[int, Any], x: Tensor, today: Mapping[str | int, Tensor]) -> None:
        get = lambda s: self._operand(s.value, held, x, today)
        args, kwargs = replaced((op.args, op.kwargs or {}), Slot, get)
        for value, tensor in zip(op.outputs, tensors_in(out_of_place(op)(*args, **kwargs))):
            held[value] = tensor

    def _operand(self, value: int, held: dict[int, Any], x: Tensor, today: Mapping[str | int, Tensor]) -> Tensor:
        if value in held:
            return held[value]
        seen, made = self.flow.values[value], self.flow.producer(value)
        if value in today or (seen.name and seen.name in today):
            other = today[value if value in today else seen.name].detach()
        elif made is not None and any(self.flow.values[v].name for v in self._behind(value)):
            if made.name in IDENTITY:
                return self._operand(made.inputs[0], held, x, today)
            self._run(made, held, x, today)
            return held[value]
        else:
            other = self.flow.tensors[value].detach()
        return other.to(x.dtype) if other.is_floating_point() and x.is_floating_point() else other

    def _behind(self, value: int) -> Iterable[int]:
        """The parameters and buffers that a value is made of; nothing if data or noise is in it as well."""
        found, todo = set(), [value]
        while todo:
            v = todo.pop()
            made = self.flow.producer(v)
            if self.flow.live[v] or v in self.flow.noise or (made is not None and made.kind == "random"):
                return ()
            if made is None:
                found.add(v)
            else:
                todo += made.inputs
        return found


def out_of_place(op: Operation) -> Callable[..., Any]:
    """The functional twin of an in-place operator, so that a replay writes to nobody's memory."""
    if not op.func._schema.is_mutable:
        return op.func
    twin = getattr(torch.ops.aten, op.name.rstrip("_"), None)
    overload = getattr(twin, op.func._overloadname, None) if twin is not None else None
    return overload if overload is not None else (lambda first, *a, **k: op.func(first.clone(), *a, **k))


def shape_of(f: Replay, x: Tensor) -> Literal["activation", "affine", "unclear"]:
    """Whether a function is affine element by element: by its operations, or by looking around the values seen."""
    names = {op.name.rstrip("_") for op in f.path}
    inside = {v for op in f.path for v in op.outputs} | {f.start}
    if names <= _LINEAR and all(_one_factor(op, inside) for op in f.path):
        return "affine"
    try:
        with torch.no_grad():
            wide = x.detach().double() if x.is_floating_point() else x.detach()
            if not wide.is_floating_point():
                return "unclear"
            if (
                names & _BENT and not 0 < wide.numel() <= _LARGE
            ):  # too much to try, or nothing: an expert without tokens
                return "activation"
            if wide.numel() == 0:
                return "unclear"
            spread = float(wide.abs().amax().nan_to_num()) + 1.0
            points = [wide + spread * c for c in (-2.0, -1.0, -0.25, 0.0, 0.25, 1.0, 2.0)]
            y = [f(p).double().nan_to_num(0.0, 0.0, 0.0) for p in points]  # an additive mask of −∞ is a constant
            slope = (y[-1] - y[0]) / (4 * spread)
            size = torch.stack(y).abs().amax(0) + 1e-30  # of each element: a mask adds huge numbers to some
            gaps = ((v - y[3] - slope * (p - points[3])).abs() / size for p, v in zip(points, y))
            return "affine" if max(float(g.amax()) for g in gaps) <= 1e-9 else "activation"
    except Exception:  # an operation or a device that refuses the wider type or the shifted values
        return "activation" if names & _BENT and x.is_floating_point() else "unclear"


def _one_factor(op: Operation, inside: set[int]) -> bool:
    """A product is linear in one factor, a quotient in what is above."""
    varying = [i for i in op.inputs if i in inside]
    name = op.name.rstrip("_")
    return name not in ("mul", "div") or (len(varying) == 1 and (name == "mul" or op.inputs[0] == varying[0]))
