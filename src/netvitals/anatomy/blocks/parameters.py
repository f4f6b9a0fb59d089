"""Parameters of a charted model: ties, freezing, who reads them, and what they are for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import nn

from netvitals.anatomy.blocks.layers import Layer
from netvitals.anatomy.blocks.norms import Norm
from netvitals.anatomy.dataflow import IDENTITY, Dataflow
from netvitals.anatomy.ir import ParameterInfo, Role
from netvitals.anatomy.regions import Region

_READ = frozenset({"index", "index_select", "embedding"})  # a table that is looked up stays what it is


def describe_parameters(
    model: nn.Module, flow: Dataflow, layers: Sequence[Layer], norms: Sequence[Norm], regions: Sequence[Region]
) -> Iterator[ParameterInfo]:
    """Every parameter under its first name."""
    others = {names[0]: names[1:] for names in tied(model)}
    readers = _readers(flow)
    roles = _roles(flow, layers, norms, regions)
    for name, p in model.named_parameters():
        yield ParameterInfo(
            name=name,
            shape=tuple(p.shape),
            frozen=not p.requires_grad,
            ties=tuple(others[name]),
            readers=tuple(readers.get(name, ())),
            role=roles.get(name) or _by_reader(name, p.ndim, flow),
        )


def tied(model: nn.Module) -> list[list[str]]:
    """All names of each parameter, the first one first."""
    names: dict[int, list[str]] = {}
    for name, p in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(p), []).append(name)
    return list(names.values())


def _readers(flow: Dataflow) -> dict[str, list[int]]:
    """Operations that read each parameter, through views and casts."""
    holds = {v.index: v.name for v in flow.values if v.source == "parameter"}
    out: dict[str, list[int]] = {}
    for op in flow.operations:
        for name in dict.fromkeys(holds[i] for i in op.inputs if i in holds):
            if op.kind == "view" or op.name in ("detach", "_to_copy"):
                holds.update(dict.fromkeys(op.outputs, name))
            else:
                out.setdefault(name, []).append(op.index)
    return out


def _roles(
    flow: Dataflow, layers: Sequence[Layer], norms: Sequence[Norm], regions: Sequence[Region]
) -> dict[str, Role]:
    out: dict[str, Role] = {}
    for region in regions:
        if region.kind == "activation":
            out.update(dict.fromkeys(region.reads, region.role))
    for norm in norms:
        for name in (*norm.weight.split("+"), *norm.bias.split("+")):
            out[name] = "normaliser"
    for layer in layers:
        for name in (layer.part.parameter, *layer.reparametrised, layer.bias):
            if out.get(name) != "embedding":  # a tied table stays an embedding
                out[name] = layer.role
        if layer.role == "recurrent":
            op = flow.operations[layer.operation]
            out.update((name, layer.role) for i in op.inputs for name in flow.parametric[i])
    return out


def _by_reader(name: str, ndim: int, flow: Dataflow) -> Role:
    """What a parameter that no layer multiplies is: added to the data it is a position, joined to it a token."""
    value = next((v.index for v in flow.values if v.source == "parameter" and v.name == name), None)
    todo, seen = [] if value is None else [value], set[int]()
    while todo:
        for op in flow.readers[todo.pop()]:
            met = any(flow.signal[i] for i in op.inputs)
            if met and op.kind == "pointwise":
                added = op.name.rstrip("_") in ("add", "sub")
                return ("positional" if ndim > 1 else "other") if added else "scale"
            if met and op.name == "cat":
                return "embedding"
            if not met and (op.kind in ("view", "pointwise") or op.name in IDENTITY | _READ) and op.index not in seen:
                seen.add(op.index)
                todo += op.outputs
    return "other"
