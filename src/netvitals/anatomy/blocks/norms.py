"""Norms of a charted model: torch's own, and those that are written out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from netvitals.anatomy.dataflow import IDENTITY, Dataflow
from netvitals.anatomy.ir import Line, Operation, Role

NormKind = Literal["layer", "batch", "group", "rms", "softmax", "written out"]
_ROOTS = frozenset({"rsqrt", "sqrt", "linalg_vector_norm", "norm", "reciprocal", "pow"})


@dataclass(frozen=True, kw_only=True)
class Norm:
    """A normalisation in the traced pass: a tensor shifted or scaled by its own statistics, then scaled by parameters.

    Part of :class:`Anatomy`.

    Attributes:
        name: name of the module, or the place in the code.
        kind: ``layer``, ``batch``, ``group``, ``rms``, ``softmax`` or ``written out``.
        operation: the operation that makes the output.
        operations: all that belong to it.
        input: value that is normalised.
        output: value.
        weight: name of the scale; empty if there is none.
        bias: name of the shift; empty if there is none.
        module: name of the module that ran.
        call: number of this call of the module, from 1.
        line: the line of user code.
        role: its role in the model, such as ``hidden activation``.
    """

    name: str
    kind: NormKind
    operation: int
    operations: tuple[int, ...]
    input: int
    output: int
    weight: str
    bias: str
    module: str
    call: int
    line: Line | None
    role: Role = "normaliser"


def find_norms(flow: Dataflow) -> tuple[Norm, ...]:
    """Every norm in the order of the pass."""
    found: dict[int, Norm] = {}  # by output
    owners = {op.module for op in flow.operations if op.kind == "layer"}
    for op in flow.operations:
        if op.kind == "norm" and flow.live_inputs(op):
            norm = _of_torch(op, flow)
        elif op.kind == "pointwise" and op.outputs and (parts := _statistic(op, flow)) is not None:
            norm = _written(op, flow, *parts)
        else:
            continue
        start = norm.input if norm.input in found else flow.roots[norm.input]
        before = None if start is None else found.get(start)
        if before is not None and norm.kind in ("rms", "written out", "softmax") and before.kind == "written out":
            del found[before.output]
            kind: NormKind = "layer" if norm.kind == "rms" else norm.kind
            norm = replace(norm, input=before.input, operations=before.operations + norm.operations, kind=kind)
        if not norm.module or norm.module in owners:
            norm = replace(norm, name=f"{norm.module}.{norm.kind} norm" if norm.module else f"{norm.kind} norm")
        elif norm.call > 1:
            norm = replace(norm, name=f"{norm.module}#{norm.call}")
        found[norm.output] = norm
    return tuple(found.values())


def _of_torch(op: Operation, flow: Dataflow) -> Norm:
    scales = [v for v in dict.fromkeys(op.inputs) if flow.parametric[v]]
    names = ["+".join(sorted(flow.parametric[v])) for v in scales] + ["", ""]
    kinds: dict[str, NormKind] = {"batch": "batch", "group": "group", "rms": "rms"}
    kind: NormKind = next((k for word, k in kinds.items() if word in op.name), "layer")
    return Norm(
        name=op.module,
        kind=kind,
        operation=op.index,
        operations=(op.index,),
        input=op.inputs[0],
        output=op.outputs[0],
        weight=names[0],
        bias=names[1],
        module=op.module,
        call=op.call,
        line=op.line,
    )


def _statistic(op: Operation, flow: Dataflow) -> tuple[int, set[int]] | None:
    """The tensor that an operation shifts or scales by a statistic of itself, and what makes the statistic."""
    shape, root = flow.values[op.outputs[0]].shape, flow.roots
    if op.name.rstrip("_") not in ("mul", "div", "sub", "add"):
        return None
    live = [i for i in dict.fromkeys(op.inputs) if root[i] is not None]
    small = [i for i in live if _unexpanded(i, flow) is not None or flow.values[i].shape != shape]
    whole = {root[i]: i for i in live if i not in small}
    for value in small:
        walk, todo, met, reduced = set[int](), [value], False, False
        while todo:
            v = todo.pop()
            if root[v] in whole and flow.values[v].shape == shape:
                met = True
                if v == root[v]:
                    continue
            made = flow.producer(v)
            if made is None or made.index in walk or made.kind in ("layer", "norm"):
                continue
            walk.add(made.index)
            reduced = reduced or made.kind == "other"
            todo += [i for i in made.inputs if root[i] is not None]
        if met and reduced and whole:
            return _uncast(next(iter(whole.values())), flow), walk
    return None


def _uncast(value: int, flow: Dataflow) -> int:
    while (op := flow.producer(value)) is not None and op.name in IDENTITY:
        value = op.inputs[0]
    return value


def _unexpanded(value: int, flow: Dataflow) -> int | None:
    """The smaller value that was expanded to this one."""
    op = flow.producer(value)
    return op.inputs[0] if op is not None and op.name == "expand" else None


def _written(op: Operation, flow: Dataflow, whole: int, walk: set[int]) -> Norm:
    names = {flow.operations[i].name.rstrip("_") for i in walk}
    kind: NormKind = "softmax" if "exp" in names else "rms" if names & _ROOTS else "written out"
    output, weight, bias, inside = op.outputs[0], "", "", [*sorted(walk), op.index]
    while len(readers := [r for r in flow.readers[output] if r.name not in ("detach", "alias")]) == 1:
        (after,) = readers
        others = [i for i in after.inputs if i != output]
        scaled = len(others) == 1 and bool(flow.parametric[others[0]]) and not flow.signal[others[0]]
        name = after.name.rstrip("_")
        if after.module != op.module or not (after.name in IDENTITY or (scaled and name in ("mul", "add"))):
            break
        if scaled:
            named = "+".join(sorted(flow.parametric[others[0]]))
            weight, bias = (named, bias) if name == "mul" else (weight, named)
        output = after.outputs[0]
        inside.append(after.index)
    return Norm(
        name=op.module,
        kind=kind,
        operation=inside[-1],
        operations=tuple(inside),
        input=whole,
        output=output,
        weight=weight,
        bias=bias,
        module=op.module,
        call=op.call,
        line=op.line,
    )
