r"""Pointwise regions: all that happens to one tensor, element by element, until something mixes elements again.

The *root* of a value is the nearest value above it that is not made element by element from a single one. Operations
that share a root r, with every other operand a parameter, a constant or a number, form one region, so
$h\,\sigma(h)$, ``where(h > 0, h, 0.1 * h)`` and an erf written out are one activation each, not three pieces.
A product of two values with different roots is a gate (a GLU): both factors are regions of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map

from netvitals.anatomy.parts import Line, Operation, Slot, Value

RegionKind = Literal["activation", "affine", "normaliser", "unclear"]
_IDENTITY = frozenset({"detach", "alias", "clone", "_to_copy", "lift_fresh"})  # bookkeeping that changes no value
_MAKERS = frozenset({"zeros_like", "ones_like", "empty_like", "full_like"})  # read a shape, not a value


@dataclass(frozen=True, kw_only=True)
class Region:
    """One activation: f from the value ``root`` to the value ``end``.

    ``f`` replays the recorded operations on any tensor of the root's shape, in any dtype; it is differentiable.
    """

    name: str
    kind: RegionKind
    root: int
    end: int
    operations: tuple[int, ...]
    module: str
    line: Line | None
    f: Callable[[Tensor], Tensor] = field(repr=False, compare=False)
    text: str = ""  # the operations, for a reader: "mul(sigmoid)"

    def derivative(self, x: Tensor) -> Tensor:
        """f'(x) element by element, by replaying f and going back once."""
        with torch.enable_grad():
            leaf = x.detach().clone().requires_grad_()
            y = self.f(leaf)
            (slope,) = torch.autograd.grad(y.sum(), leaf, allow_unused=True)
        return torch.zeros_like(leaf) if slope is None else slope


@dataclass(frozen=True, kw_only=True)
class Gate:
    """A product of two branches: values ``left`` and ``right`` with roots of their own."""

    name: str
    operation: int
    left: int
    right: int
    module: str
    line: Line | None


def roots(values: Sequence[Value], operations: Sequence[Operation], fixed: Callable[[int], bool]) -> list[int | None]:
    """The root of every value; None for what does not depend on the input (parameters, constants).

    Args:
        values: of a trace.
        operations: of the same trace, in order.
        fixed: says of a value whether it is a parameter, a buffer or a constant.

    Returns:
        One root per value.
    """
    out: list[int | None] = [None if fixed(v.index) else v.index for v in values]
    for op in operations:
        live = {out[i] for i in op.inputs if out[i] is not None}
        for value in op.outputs:
            if op.kind == "random":
                out[value] = value  # noise is neither fixed nor a function of the input
            elif not live or op.name in _MAKERS:
                out[value] = None
            elif op.kind == "pointwise" and len(live) == 1 and _keeps_shape(values, op, value, out):
                out[value] = next(iter(live))
            else:
                out[value] = value
    return out


def _keeps_shape(values: Sequence[Value], op: Operation, value: int, out: list[int | None]) -> bool:
    """Element by element means: the live operands have the shape of what is made (no broadcasting of them)."""
    return all(values[i].shape == values[value].shape for i in op.inputs if out[i] is not None)


def find_regions(
    values: Sequence[Value], operations: Sequence[Operation], tensors: Sequence[Tensor], outputs: Sequence[int]
) -> tuple[tuple[Region, ...], tuple[Gate, ...], dict[str, str]]:
    """Regions and gates of a trace, and the pointwise places that are neither, with the reason.

    Args:
        values: of a trace.
        operations: of the same trace, in order.
        tensors: what each value held.
        outputs: values that leave the model.

    Returns:
        Regions, gates, and place → reason.
    """
    fixed = {v.index for v in values if v.source in ("parameter", "buffer", "constant")}
    root = roots(values, operations, fixed.__contains__)
    readers: dict[int, list[Operation]] = {}
    for op in operations:
        for value in set(op.inputs):
            readers.setdefault(value, []).append(op)
    members: dict[int, list[Operation]] = {}
    noise = _noise(operations)
    gates, skipped = [], {}
    for op in operations:
        live = [i for i in dict.fromkeys(op.inputs) if root[i] is not None]
        made = op.outputs[0] if op.outputs else None
        if op.kind != "pointwise" or made is None or not live:
            continue
        above = root[made]
        if above is not None and above != made:
            members.setdefault(above, []).append(op)
        elif len(live) < 2 or noise.intersection(live) or any(values[i].shape != values[made].shape for i in live):
            continue  # a broadcast (a mean taken away, a row of scales) or dropout: a new root
        elif op.name.rstrip("_") == "mul":
            gates.append(
                Gate(name=_place(op), operation=op.index, left=live[0], right=live[1], module=op.module, line=op.line)
            )
        elif op.name.rstrip("_") not in ("add", "sub", "copy"):
            skipped[_place(op)] = f"{op.name} of {len(live)} tensors is elementwise, but not a function of one of them"
    found: list[Region] = []
    for start, ops in members.items():
        found += _regions_of(start, ops, readers, values, tensors, set(outputs))
    scales = _normalisers(values, operations, root)
    marked = (replace(r, kind="normaliser") if scales.issuperset(r.operations) else r for r in found)
    return tuple(marked), tuple(gates), skipped


def _normalisers(values: Sequence[Value], operations: Sequence[Operation], root: Sequence[int | None]) -> set[int]:
    """Operations that make a statistic of a tensor with which the same tensor is then shifted or scaled.

    Such as the square, mean and rsqrt of an RMS norm that is written out.
    """
    out: set[int] = set()
    for op in operations:
        if op.kind != "pointwise" or not op.outputs:
            continue
        shape = values[op.outputs[0]].shape
        live = [i for i in op.inputs if root[i] is not None]
        whole = {root[i] for i in live if values[i].shape == shape}
        for small in (i for i in live if values[i].shape != shape):
            walk, todo, met = set[int](), [small], False
            while todo:
                value = todo.pop()
                met = met or (root[value] in whole and values[value].shape == shape)
                made = values[value].producer
                if value in whole or made < 0 or made in walk or operations[made].kind in ("layer", "norm"):
                    continue
                walk.add(made)
                todo += operations[made].inputs
            out |= walk if met else set()
    return out


def _noise(operations: Sequence[Operation]) -> set[int]:
    """Values made of random numbers alone, such as the mask of a dropout."""
    out: set[int] = set()
    for op in operations:
        if op.kind == "random" or (op.kind == "pointwise" and op.inputs and out.issuperset(op.inputs)):
            out.update(op.outputs)
    return out


def _regions_of(
    start: int,
    ops: list[Operation],
    readers: dict[int, list[Operation]],
    values: Sequence[Value],
    tensors: Sequence[Tensor],
    outputs: set[int],
) -> list[Region]:
    """One region for every value that leaves the pointwise part over one root, unless it is the root unchanged."""
    inside = {op.index for op in ops}
    ends = [
        value
        for op in ops
        for value in op.outputs[:1]
        if values[value].dtype != "bool"
        and (value in outputs or any(r.index not in inside for r in readers.get(value, ())))
    ]
    by_value = {v: op for op in ops for v in op.outputs}
    out = []
    for end in dict.fromkeys(ends):
        path = _path(end, start, by_value)
        if not path or all(op.name in _IDENTITY for op in path):
            continue
        f = _replay(path, start, end, tensors)
        last = next(op for op in reversed(path) if op.name not in _IDENTITY)
        kind = _kind(f, tensors[start])
        out.append(
            Region(
                name=_place(last),
                kind=kind,
                root=start,
                end=end,
                operations=tuple(op.index for op in path),
                module=last.module,
                line=last.line,
                f=f,
                text=" → ".join(op.name for op in path if op.name not in _IDENTITY),
            )
        )
    return out


def _path(end: int, start: int, by_value: dict[int, Operation]) -> list[Operation]:
    """The operations between two values, in order."""
    seen: dict[int, Operation] = {}
    todo = [end]
    while todo:
        value = todo.pop()
        op = by_value.get(value)
        if value == start or op is None or op.index in seen:
            continue
        seen[op.index] = op
        todo += op.inputs
    return [seen[i] for i in sorted(seen)]


def _replay(path: list[Operation], start: int, end: int, tensors: Sequence[Tensor]) -> Callable[[Tensor], Tensor]:
    """The recorded operations as a function of the root, with the other operands as they were."""

    def f(x: Tensor) -> Tensor:
        held: dict[int, Any] = {start: x}

        def get(slot: Any) -> Any:
            if not isinstance(slot, Slot):
                return slot
            if slot.value in held:
                return held[slot.value]
            other = tensors[slot.value].detach()
            return other.to(x.dtype) if other.is_floating_point() and x.is_floating_point() else other

        for op in path:
            if op.name in _IDENTITY:
                held[op.outputs[0]] = held[op.inputs[0]]
                continue
            args, kwargs = (tree_map(get, part, is_leaf=lambda s: isinstance(s, Slot)) for part in (op.args, op.kwargs))
            made = _out_of_place(op)(*args, **kwargs)
            for value, tensor in zip(op.outputs, tree_flatten(made)[0]):
                held[value] = tensor
        return held[end]

    return f


def _out_of_place(op: Operation) -> Callable[..., Any]:
    """The functional twin of an in-place operator, so that a replay writes to nobody's memory."""
    if not op.func._schema.is_mutable:
        return op.func
    twin = getattr(torch.ops.aten, op.name.rstrip("_"), None)
    overload = getattr(twin, op.func._overloadname, None) if twin is not None else None
    return overload if overload is not None else (lambda first, *a, **k: op.func(first.clone(), *a, **k))


def _kind(f: Callable[[Tensor], Tensor], x: Tensor) -> RegionKind:
    """Affine if f(x + d) − f(x) is proportional to d everywhere, per element; looked at around the values seen."""
    try:
        with torch.no_grad():
            wide = x.detach().double() if x.is_floating_point() else x.detach()
            if not wide.is_floating_point() or wide.numel() == 0:
                return "unclear"
            spread = float(wide.abs().amax().nan_to_num()) + 1.0
            points = [wide + spread * c for c in (-2.0, -1.0, -0.25, 0.0, 0.25, 1.0, 2.0)]
            y = [f(p).double().nan_to_num(0.0, 0.0, 0.0) for p in points]  # an additive mask of −∞ is a constant
            slope = (y[-1] - y[0]) / (4 * spread)
            gaps = [(v - y[3] - slope * (p - points[3])).abs().amax() for p, v in zip(points, y)]
            size = max(float(max(v.abs().amax() for v in y)), 1e-30)
            return "affine" if float(max(gaps)) <= 1e-9 * size else "activation"
    except Exception:  # an operation that refuses the wider type or the shifted values
        return "unclear"


def _place(op: Operation) -> str:
    """Where an operation is called, as a site is named: the module, or the module and the operation."""
    where = op.module if op.call == 1 else f"{op.module}#{op.call}"
    return f"{where}.{op.name.rstrip('_')}()" if where else f"{op.name.rstrip('_')}()"
