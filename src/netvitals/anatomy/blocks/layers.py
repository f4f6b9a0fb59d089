"""Layers of a charted model: every product of an activation with a parameter, whatever module or function made it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from netvitals.anatomy.dataflow import IDENTITY, Dataflow, replayed
from netvitals.anatomy.ir import Operation, ParameterPart, Role

_MATRIX = frozenset({"mm", "addmm", "bmm", "baddbmm", "matmul", "_addmm_activation", "_grouped_mm", "mv", "addmv"})


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A layer: the product of an activation tensor with a parameter, computed by any module or function.

    Part of :class:`Anatomy`.

    Attributes:
        name: name of the module, or of the parameter if a function was called.
        weight: of a layer whose weight is computed: "module.weight", see reparametrised.
        bias: name of the parameter; empty if there is none.
        operation: the product.
        input: value that is multiplied.
        output: value, with the bias.
        transposed: the weight is stored (in, out), as in Hugging Face's Conv1D.
        calls: products with this weight in the pass; a recurrent or tied layer has several.
        call: number of this call, from 1.
        part: the part of the weight that is multiplied: an expert of a stack, rows of a fused matrix.
        channel_dim: dimension of channels in the output.
        out_dim: the dimension of the stored weight that holds the output channels.
        module: name of the module that ran.
        role: its role in the model, such as ``hidden activation``.
        frozen: its weight does not require a gradient.
        reparametrised: parameters that the weight is computed of (weight_norm, spectral_norm, …).
    """

    name: str
    weight: str
    bias: str
    operation: int
    input: int
    output: int
    transposed: bool
    calls: int = 1
    call: int = 1
    part: ParameterPart
    channel_dim: int = -1
    out_dim: int = 0
    module: str = ""
    role: Role = "hidden layer"
    frozen: bool = False
    reparametrised: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Origin:
    """A view of a parameter: along each dimension of the parameter, the index of every element."""

    name: str
    shape: tuple[int, ...]  # of the parameter
    dims: tuple[Tensor, ...]


def find_layers(
    flow: Dataflow, frozen: frozenset[str] = frozenset(), ties: Mapping[str, Sequence[str]] | None = None
) -> tuple[Layer, ...]:
    """Every product with a parameter, in the order of the pass."""
    origins = _origins(flow)
    found = []
    for op in flow.operations:
        if op.kind != "layer":
            continue
        stored = [i for i in op.inputs if flow.parametric[i] and len(flow.values[i].shape) > 1]
        weights = [i for i in stored if not flow.signal[i] or "conv" in op.name]  # latents through a norm are data
        data = [i for i in op.inputs if (flow.live[i] or flow.signal[i]) and i not in weights] or [
            i for i in op.inputs if not flow.parametric[i] and op.name == "embedding"
        ]
        if weights and data:
            found.append(_layer(op, flow, origins, weights, data[0], frozen, ties or {}))
    counts: dict[str, int] = {}
    out = []
    for layer in found:
        key = str(layer.part)
        counts[key] = counts.get(key, 0) + 1
        out.append(replace(layer, call=counts[key]))
    return tuple(replace(layer, calls=counts[str(layer.part)]) for layer in out)


def _layer(
    op: Operation,
    flow: Dataflow,
    origins: dict[int, _Origin],
    weights: list[int],
    data: int,
    frozen: frozenset[str],
    ties: Mapping[str, Sequence[str]],
) -> Layer:
    weight = weights[0] if op.name in ("mkldnn_rnn_layer", "embedding") else weights[-1]
    origin = origins.get(weight)
    made_of = tuple(sorted(flow.parametric[weight])) if origin is None else ()
    if origin is None:
        name, part = f"{op.module}.weight" if op.module else "weight", ParameterPart(parameter=made_of[0])
    else:
        name, part = origin.name, ParameterPart(parameter=origin.name, index=_index(origin))
    named = next((n for n in ties.get(name, ()) if n.rpartition(".")[0] == op.module), name)
    first = op.inputs.index(weight) < op.inputs.index(data)  # W @ x instead of x @ W
    matrix = op.name in _MATRIX
    stored = 2 if origin is None else len(origin.dims)
    transposed = matrix and origin is not None and not _rows_out(origin, flow.values[weight].shape, first)
    if matrix:
        out_dim = stored - 1 if transposed else stored - 2
    else:
        out_dim = 1 if op.name == "embedding" or ("conv" in op.name and op.args[6:7] == (True,)) else 0
    biases = [i for i in op.inputs if flow.parametric[i] and len(flow.values[i].shape) == 1]
    output, bias = op.outputs[0], _name(biases[0], flow, op) if biases else ""
    if not bias:
        output, bias = _added(output, flow, op)
    return Layer(
        name=op.module if made_of and op.module else named.removesuffix(".weight") if "." in named else named,
        weight=name,
        bias=bias,
        operation=op.index,
        input=data,
        output=output,
        transposed=transposed,
        out_dim=out_dim,
        part=part,
        channel_dim=1 if "conv" in op.name else -2 if matrix and first and op.name != "addmm" else -1,
        module=op.module,
        frozen=frozen.issuperset(made_of or {origin.name if origin else ""}),
        reparametrised=made_of,
    )


def _origins(flow: Dataflow) -> dict[int, _Origin]:
    """Parameters and their views, by value."""
    out = {}
    for v in flow.values:
        if v.source == "parameter":
            ranges = (
                torch.arange(n).view([-1 if k == d else 1 for k in range(len(v.shape))]) for d, n in enumerate(v.shape)
            )
            out[v.index] = _Origin(v.name, tuple(v.shape), tuple(r.expand(v.shape) for r in ranges))
    for op in flow.operations:
        if not op.inputs or op.inputs[0] not in out:
            continue
        origin = out[op.inputs[0]]
        if op.name in IDENTITY:
            out.update(dict.fromkeys(op.outputs, origin))
        elif op.kind == "view":
            for value in op.outputs:
                dims = [replayed(op, value, lambda _, d=d: d) for d in origin.dims]
                if all(d is not None for d in dims):
                    out[value] = replace(origin, dims=tuple(d for d in dims if d is not None))
    return out


def _index(origin: _Origin) -> tuple[int | slice | tuple[int, ...], ...]:
    """Where in its parameter a view lies; empty for all of it."""
    places = [np.unique(_along(d).numpy()).tolist() for d in origin.dims]
    return shortened([indexed(at, n) for at, n in zip(places, origin.shape)])


def _along(index: Tensor) -> Tensor:
    """An index without the dimensions that it does not vary along."""
    for d, stride in enumerate(index.stride()):
        if stride == 0 and index.shape[d] > 1:
            index = index.narrow(d, 0, 1)
    return index


def indexed(at: list[int], size: int, drop: bool = True) -> int | slice | tuple[int, ...]:
    """Sorted positions along a dimension, as short as they can be written.

    >>> indexed([2, 3, 4], 9), indexed([1], 9), indexed([0, 1], 2), indexed([0, 4], 9)
    (slice(2, 5, None), 1, slice(None, None, None), (0, 4))
    """
    if at == list(range(size)):
        return slice(None)
    if len(at) == 1 and drop:
        return at[0]
    if at and at == list(range(at[0], at[-1] + 1)):
        return slice(at[0], at[-1] + 1)
    return tuple(at)


def shortened(index: list[int | slice | tuple[int, ...]]) -> tuple[int | slice | tuple[int, ...], ...]:
    """An index without the full ranges at its end."""
    while index and index[-1] == slice(None):
        index.pop()
    return tuple(index)


def _rows_out(origin: _Origin, shape: tuple[int, ...], first: bool) -> bool:
    """Whether the stored rows (the last but one dimension) are the outputs of the product."""
    if len(origin.dims) < 2 or len(shape) < 2:
        return True
    rows, columns = origin.dims[-2:]
    out_axis, in_axis = (-2, -1) if first else (-1, -2)
    if shape[in_axis] > 1:  # a layer may have one output only
        return _varies(columns, in_axis)
    return shape[out_axis] == 1 or _varies(rows, out_axis)


def _varies(index: Tensor, axis: int) -> bool:
    return not torch.equal(index.select(axis, 0), index.select(axis, -1))


def _added(output: int, flow: Dataflow, op: Operation) -> tuple[int, str]:
    """A bias that is added right after the product, in the same module."""
    value = output
    while len(readers := [r for r in flow.readers[value] if r.name != "detach"]) == 1:
        (reader,) = readers
        if reader.kind == "view" and reader.module == op.module and len(reader.outputs) == 1:
            value = reader.outputs[0]
            continue
        others = [i for i in reader.inputs if i != value]
        if reader.name in ("add", "add_") and len(others) == 1 and reader.module == op.module:
            other, shape = flow.values[others[0]], flow.values[reader.outputs[0]].shape
            if flow.parametric[others[0]] and other.shape == shape[-1:]:
                return reader.outputs[0], _name(others[0], flow, op)
        break
    return output, ""


def _name(value: int, flow: Dataflow, op: Operation) -> str:
    names = sorted(flow.parametric[value])
    return names[0] if len(names) == 1 else f"{op.module}.bias"
