"""Weights that are used more than once in a pass: recurrent operations, unrolled cells, shared and tied layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torch import nn

from netvitals.anatomy.blocks.layers import Layer
from netvitals.anatomy.dataflow import Dataflow


@dataclass(frozen=True, kw_only=True)
class Recurrence:
    """A module or layer that is used several times in one forward pass.

    ``kind`` is "unrolled", "shared" or "tied", or the class name of a recurrent torch module ("LSTM", "GRU", "RNN").
    ``kind`` is "unrolled" if a later call depends on an earlier one, and "shared" if the calls are independent.
    ``kind`` is "tied" if several modules use one tensor.

    Part of :class:`Anatomy`.

    Attributes:
        name: name of the module or layer.
        kind: how it is used several times.
        calls: number of calls in one pass.
        weights: names of the parameters.
    """

    name: str
    kind: Literal["LSTM", "GRU", "RNN", "unrolled", "shared", "tied"]
    calls: int
    weights: tuple[str, ...]


def find_recurrences(flow: Dataflow, layers: Sequence[Layer], model: nn.Module) -> tuple[Recurrence, ...]:
    """What is used several times."""
    out: list[Recurrence] = []
    kinds = {"LSTM": "LSTM", "GRU": "GRU", "RNN": "RNN"}
    inside = []
    for name, module in model.named_modules():
        if isinstance(module, nn.RNNBase):
            calls = {op.call for op in flow.operations if op.module == name}
            inside.append(name)
            weights = tuple(f"{name}.{n}" if name else n for n, _ in module.named_parameters())
            kind = next((k for word, k in kinds.items() if word in type(module).__name__), "RNN")
            out.append(Recurrence(name=name or "the model", kind=kind, calls=len(calls), weights=weights))  # type: ignore[arg-type]
    several: dict[str, list[Layer]] = {}
    for layer in layers:
        if layer.calls > 1 and layer.module not in inside:
            several.setdefault(str(layer.part), []).append(layer)
    again = _again(flow, several)
    for key, uses in several.items():
        modules = {layer.module for layer in uses}
        word: Literal["unrolled", "tied", "shared"] = (
            "tied" if len(modules) > 1 else "unrolled" if key in again else "shared"
        )
        out.append(Recurrence(name=uses[0].name, kind=word, calls=len(uses), weights=(key,)))
    return tuple(out)


def inner_modules(recurrent: Sequence[Recurrence]) -> set[str]:
    """The modules of torch whose steps are inside one recurrent operation."""
    inside = {r.name for r in recurrent if r.kind in ("LSTM", "GRU", "RNN")}
    return {"" if name == "the model" else name for name in inside}


def _again(flow: Dataflow, several: dict[str, list[Layer]]) -> set[str]:
    """Weights whose product depends on an earlier product with the same weight."""
    bit = {key: 1 << k for k, key in enumerate(several)}
    at = {layer.operation: key for key, uses in several.items() for layer in uses}
    mask, out = [0] * len(flow.values), set()
    for op in flow.operations:
        here = 0
        for i in op.inputs:
            here |= mask[i]
        if op.index in at:
            key = at[op.index]
            if here & bit[key]:
                out.add(key)
            here |= bit[key]
        for value in op.outputs:
            mask[value] |= here
    return out
