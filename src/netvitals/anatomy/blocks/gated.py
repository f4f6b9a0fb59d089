"""Gated MLPs: out(f(gate(x)) · value(x)), with the two factors in one matrix, in two, or in ``nn.GLU``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from netvitals.anatomy.blocks.layers import Layer
from netvitals.anatomy.blocks.projections import Projection, next_layers, projection
from netvitals.anatomy.dataflow import Dataflow
from netvitals.anatomy.ir import Line, ParameterPart
from netvitals.anatomy.regions import Gate, Region


@dataclass(frozen=True, kw_only=True)
class GatedMLP:
    """A gated MLP such as SwiGLU: the product of two projections, one of them through an activation.

    Part of :class:`Anatomy`.

    Attributes:
        name: name of the module.
        gate: the projection that is followed by the activation.
        value: the other one.
        out: the layers that read the product.
        activation: name of the region; "sigmoid" of an nn.GLU, "" of a bilinear one.
        text: what the activation does: "silu".
        operation: the product.
        output: value of the product.
        module: name of the module that ran.
        call: number of this call of the module, from 1.
        line: the line of user code.
    """

    name: str
    gate: Projection
    value: Projection
    out: tuple[Projection, ...]
    activation: str
    text: str
    operation: int
    output: int
    module: str
    call: int
    line: Line | None


def find_gated(
    flow: Dataflow, layers: Sequence[Layer], gates: Sequence[Gate], regions: Sequence[Region]
) -> tuple[GatedMLP, ...]:
    """The gated MLPs among the products of two branches."""
    bent = {r.end: r for r in regions if r.kind == "activation"}
    made = {layer.operation: layer for layer in layers}
    found = []
    for gate in gates:
        sides = _halves(flow, layers, gate) if gate.left == gate.right else _factors(flow, layers, gate)
        out = next_layers(flow, gate.output, layers)
        if sides is None or not out:
            continue
        left, right = sides
        inputs = {flow.stripped(made[p.operation].input) for p in (left, right)}
        if len(inputs) > 1:
            continue
        region = bent.get(gate.left) or bent.get(gate.right)
        if gate.left != gate.right and region is not None and gate.left != region.end:
            left, right = right, left
        last = {layer.name: layer for layer in out}
        found.append(
            GatedMLP(
                name=gate.module or "the model",
                gate=left,
                value=right,
                out=tuple(_whole(layer, flow) for layer in last.values()),
                activation="sigmoid" if gate.left == gate.right else region.name if region else "",
                text="sigmoid" if gate.left == gate.right else region.text if region else "",
                operation=gate.operation,
                output=gate.output,
                module=gate.module,
                call=gate.call,
                line=gate.line,
            )
        )
    return tuple(found)


def _factors(flow: Dataflow, layers: Sequence[Layer], gate: Gate) -> tuple[Projection, Projection] | None:
    sides = [_made(flow, layers, value) for value in (gate.left, gate.right)]
    same = flow.values[gate.left].shape == flow.values[gate.right].shape
    return (sides[0], sides[1]) if same and sides[0] is not None and sides[1] is not None else None


def _made(flow: Dataflow, layers: Sequence[Layer], value: int) -> Projection | None:
    codes = flow.codes(value) if flow.made_by_source(value) else None
    if codes is None:
        return None
    found = projection(flow, layers, [codes.flatten().unique().tolist()] if codes.numel() < 1 << 20 else [_few(codes)])
    return found if found is not None and not found.also else None


def _few(codes: Tensor) -> list[int]:
    """Codes repeat over examples: those of the first are all."""
    return codes[:1].flatten().unique().tolist()


def _halves(flow: Dataflow, layers: Sequence[Layer], gate: Gate) -> tuple[Projection, Projection] | None:
    """nn.GLU: the second half of the channels gates the first."""
    op = flow.operations[gate.operation]
    codes = flow.codes(gate.left)
    if codes is None:
        return None
    dim = op.args[1] if len(op.args) > 1 else -1
    value, gating = (projection(flow, layers, [half.flatten().unique().tolist()]) for half in codes.chunk(2, dim))
    return None if value is None or gating is None else (gating, value)


def _whole(layer: Layer, flow: Dataflow) -> Projection:
    return Projection(
        layer=layer.name,
        weight=layer.part,
        bias=ParameterPart(parameter=layer.bias) if layer.bias else None,
        operation=layer.operation,
        channels=flow.values[layer.output].shape[layer.channel_dim],
    )
