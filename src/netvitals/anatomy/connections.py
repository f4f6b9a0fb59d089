"""Layers of a charted model, and which layer feeds which: by dataflow, not by the order of registration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from netvitals.anatomy.parts import Operation, Value


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A product of an activation with a parameter, whatever module or function made it."""

    name: str  # of the module, or of the parameter where a function was called
    weight: str
    bias: str  # "" if there is none
    operation: int
    input: int  # values
    output: int
    transposed: bool  # the weight is stored (in, out), as in Hugging Face's Conv1D
    calls: int = 1  # products with this weight in the pass; a recurrent or tied layer has several


@dataclass(frozen=True, kw_only=True)
class Connection:
    """What becomes of a layer's output before other layers read it.

    ``blocked`` says why a law for the pair does not apply: the output joins another branch, leaves the model, or meets
    another activation. Empty means: the readers see a function of this output and of nothing else.
    """

    writer: str
    readers: tuple[str, ...]
    between: tuple[str, ...]  # aten names on the way, in order
    blocked: str = ""

    @property
    def clean(self) -> bool:
        return not self.blocked and bool(self.readers)


def find_layers(values: Sequence[Value], operations: Sequence[Operation]) -> tuple[Layer, ...]:
    """Every product with a parameter, in the order of the pass.

    Args:
        values: of a trace.
        operations: of the same trace.

    Returns:
        The layers; one whose weight is used several times appears once per use, with ``calls`` set.
    """
    origin = {v.index: (v.name, False) for v in values if v.source == "parameter"}
    for op in operations:
        if (op.kind == "view" or op.name in ("_to_copy", "detach")) and op.inputs and op.inputs[0] in origin:
            name, turned = origin[op.inputs[0]]
            swaps = op.name in ("t", "transpose", "numpy_T", "permute") and len(values[op.inputs[0]].shape) == 2
            origin.update(dict.fromkeys(op.outputs, (name, turned ^ swaps)))
    found = []
    for op in operations:
        if op.kind != "layer":
            continue
        weights = [(i, v) for i, v in enumerate(op.inputs) if v in origin and len(values[v].shape) > 1]
        data = [v for v in op.inputs if v not in origin and values[v].source != "constant"]
        if not weights or not data:
            continue
        name, turned = origin[weights[-1][1]]
        biases = [origin[v][0] for v in op.inputs if v in origin and len(values[v].shape) == 1]
        matrix = op.name in ("mm", "addmm", "bmm", "baddbmm", "matmul", "_addmm_activation")
        found.append(
            Layer(
                name=name.removesuffix(".weight") if name.endswith(".weight") else name,
                weight=name,
                bias=biases[0] if biases else "",
                operation=op.index,
                input=data[0],
                output=op.outputs[0],
                transposed=matrix and not turned,
            )
        )
    counts: dict[str, int] = {}
    for layer in found:
        counts[layer.weight] = counts.get(layer.weight, 0) + 1
    return tuple(Layer(**{**vars(layer), "calls": counts[layer.weight]}) for layer in found)


def find_connections(
    values: Sequence[Value], operations: Sequence[Operation], layers: Sequence[Layer], outputs: Sequence[int]
) -> tuple[Connection, ...]:
    """For every layer: who reads its output, through what, and what is in the way.

    Args:
        values: of a trace.
        operations: of the same trace.
        layers: from :func:`find_layers`.
        outputs: values that leave the model.

    Returns:
        One connection per layer, in the order of the pass.
    """
    sources, mixes = _sources(values, operations, layers)
    after = [_reach(layer.output, operations) for layer in layers]
    out = []
    for i, layer in enumerate(layers):
        readers = [other for other in layers if i in sources[other.input]]
        why = [f"{mix} in {op.module or 'the model'}" for op, mix, of in mixes if i in of]
        if any(i in sources[v] for v in outputs):
            why.append("its output leaves the model")
        for other in readers:
            beside = [_named(j, layers) for j in sorted(sources[other.input] - {i})]
            if beside:
                why.append(f"{other.name} sees {', '.join(beside)} as well")
        needed = {op for other in readers for op in _before(other.input, values, operations)}
        out.append(
            Connection(
                writer=layer.name,
                readers=tuple(dict.fromkeys(other.name for other in readers)),
                between=tuple(operations[k].name for k in sorted(after[i] & needed) if operations[k].name != "detach"),
                blocked="; ".join(dict.fromkeys(why)),
            )
        )
    return tuple(out)


def _sources(
    values: Sequence[Value], operations: Sequence[Operation], layers: Sequence[Layer]
) -> tuple[list[frozenset[int]], list[tuple[Operation, str, frozenset[int]]]]:
    """Which layers (by number; −1 − k is input k) each value depends on without another layer between.

    Also the products of two activations, such as attention scores, with the layers that meet there.
    """
    nothing: frozenset[int] = frozenset()
    out = [nothing] * len(values)
    for v in values:
        if v.source == "input":
            out[v.index] = frozenset({-1 - v.index})
    number = {layer.operation: i for i, layer in enumerate(layers)}
    mixes = []
    for op in operations:
        together = nothing.union(*(out[i] for i in op.inputs))
        if op.index in number:
            together = frozenset({number[op.index]})
        elif op.kind == "layer":
            live = [out[i] for i in op.inputs if out[i]]
            if len(live) > 1:
                mixes.append((op, f"it meets another activation in {op.name}", together))
        elif op.kind == "random" and not op.inputs:
            together = nothing
        for value in op.outputs:
            out[value] = together
    return out, mixes


def _reach(value: int, operations: Sequence[Operation]) -> set[int]:
    """Operations that a value reaches."""
    reached, ops = {value}, set()
    for op in operations:
        if reached.intersection(op.inputs):
            ops.add(op.index)
            reached.update(op.outputs)
    return ops


def _before(value: int, values: Sequence[Value], operations: Sequence[Operation]) -> set[int]:
    """Operations behind a value, back to the products with weights."""
    seen: set[int] = set()
    todo = [value]
    while todo:
        made = values[todo.pop()].producer
        if made >= 0 and made not in seen and operations[made].kind != "layer":
            seen.add(made)
            todo += operations[made].inputs
    return seen


def _named(source: int, layers: Sequence[Layer]) -> str:
    return layers[source].name if source >= 0 else "the model's input"
