"""Projections: which rows of which layer make the channels of a value, also when one matrix makes several things."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from netvitals.anatomy.blocks.layers import Layer, indexed, shortened
from netvitals.anatomy.dataflow import IDENTITY, Dataflow, decoded
from netvitals.anatomy.ir import Operation, ParameterPart

_FAR = 60  # operations walked from a product to the layer that reads it


@dataclass(frozen=True, kw_only=True)
class Projection:
    """A projection of an attention block: a layer, or the rows of a fused matrix that make the queries, keys or values.

    Part of :class:`Heads`.

    Attributes:
        layer: name of the layer.
        weight: the rows or columns of its weight.
        bias: the entries of its bias; None if there is none.
        operation: the operation of the layer.
        channels: how many of the layer's outputs (of an O projection: inputs).
        heads: parts of the weight, one per attention head.
        also: other layers that make part of the same projection, as in latent attention.
    """

    layer: str
    weight: ParameterPart
    bias: ParameterPart | None
    operation: int
    channels: int
    heads: tuple[ParameterPart, ...] = ()
    also: tuple[Projection, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether the projection is all of its layer."""
        return not self.weight.index

    def __str__(self) -> str:
        return " + ".join([str(self.weight), *(str(p.weight) for p in self.also)])


def projection(flow: Dataflow, layers: Sequence[Layer], rows: Sequence[Sequence[int]]) -> Projection | None:
    """The layers behind channel codes, one row of codes per head."""
    per_head: list[dict[int, list[int]]] = []
    for row in rows:
        mine: dict[int, list[int]] = {}
        for code in row:
            source, channel = decoded(code)
            if code >= 0 and source < len(layers):
                mine.setdefault(source, []).append(channel)
        per_head.append(mine)
    found = []
    for source in dict.fromkeys(s for mine in per_head for s in mine):
        every = sorted({c for mine in per_head for c in mine.get(source, ())})
        layer = layers[source]
        found.append(
            Projection(
                layer=layer.name,
                weight=part_of(layer, every, flow),
                bias=_bias_part(layer, every, flow) if layer.bias else None,
                operation=layer.operation,
                channels=len(every),
                heads=tuple(part_of(layer, sorted(set(m[source])), flow) for m in per_head if source in m),
            )
        )
    if not found:
        return None
    first = max(found, key=lambda p: p.channels)
    return Projection(**{**vars(first), "also": tuple(p for p in found if p is not first)})


def part_of(layer: Layer, channels: list[int], flow: Dataflow, dim: int | None = None) -> ParameterPart:
    """The part of a layer's weight that makes some of its output channels."""
    if layer.reparametrised:
        return layer.part
    shape = next(v.shape for v in flow.values if v.source == "parameter" and v.name == layer.part.parameter)
    index = [*layer.part.index, *[slice(None)] * (len(shape) - len(layer.part.index))]
    at = layer.out_dim if dim is None else dim
    if channels and max(channels) >= shape[at]:  # several dimensions of the parameter make the channels together
        return layer.part
    index[at] = indexed(_shifted(index[at], channels), shape[at], drop=False)
    return ParameterPart(parameter=layer.part.parameter, index=shortened(index))


def _shifted(base: int | slice | tuple[int, ...], channels: list[int]) -> list[int]:
    if isinstance(base, tuple):
        return [base[c] for c in channels]
    return [c + (base.start or 0 if isinstance(base, slice) else 0) for c in channels]


def _bias_part(layer: Layer, channels: list[int], flow: Dataflow) -> ParameterPart:
    shape = next((v.shape for v in flow.values if v.source == "parameter" and v.name == layer.bias), ())
    if len(shape) != 1 or layer.reparametrised:
        return ParameterPart(parameter=layer.bias)
    index = layer.part.index
    base = index[layer.out_dim] if layer.out_dim < len(index) else slice(None)
    rows = _shifted(base, channels)
    if not rows or rows[-1] >= shape[0]:
        return ParameterPart(parameter=layer.bias)
    return ParameterPart(parameter=layer.bias, index=shortened([indexed(rows, shape[0], drop=False)]))


def next_layers(flow: Dataflow, value: int, layers: Sequence[Layer], through: Iterable[str] = ()) -> list[Layer]:
    """Layers that read a value through views, dropout and elementwise steps, but not after it joined another branch."""
    by_op = {layer.operation: layer for layer in layers}
    found, seen, todo = [], {value}, [(value, 0)]
    while todo:
        v, far = todo.pop(0)
        for op in flow.readers[v]:
            if op.index in by_op:
                found.append(by_op[op.index])
            elif far < _FAR and op.outputs and _passes(flow, op, frozenset(through)):
                new = [o for o in op.outputs if o not in seen and flow.signal[o]]
                seen.update(new)
                todo += [(o, far + 1) for o in new]
    return sorted(dict.fromkeys(found), key=lambda layer: layer.operation)


def _passes(flow: Dataflow, op: Operation, through: frozenset[str]) -> bool:
    if op.kind in ("view", "random", "norm") or op.name in IDENTITY or op.name in through:
        return True
    if op.kind == "layer":
        return False
    joins = op.name.rstrip("_") in ("add", "sub") and len(flow.live_inputs(op)) > 1
    return not joins and (op.kind == "pointwise" or op.name in ("cat", "index", "index_select", "mean", "sum"))
