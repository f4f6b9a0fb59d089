"""Mixtures of experts: the router, the experts as modules or as one stacked tensor, and who got tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import nn

from netvitals.anatomy.blocks.layers import Layer
from netvitals.anatomy.blocks.projections import Projection, projection
from netvitals.anatomy.dataflow import Dataflow
from netvitals.anatomy.ir import Operation, ParameterPart

_CHOICES = frozenset({"topk", "argmax", "max", "sort"})


@dataclass(frozen=True, kw_only=True)
class Expert:
    """One expert of a mixture, with its parameters and the number of tokens it received in the traced pass.

    Part of :class:`Mixture`.

    Attributes:
        name: name of its module, or of the stacked tensor.
        index: index of the expert in the router's outputs.
        parameters: the parameters of this expert, or its part of a stacked tensor.
        tokens: number of tokens that it received.
    """

    name: str
    index: int
    parameters: tuple[ParameterPart, ...]
    tokens: int


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """A mixture of experts: a router that sends each token to ``top_k`` of its experts.

    Part of :class:`Anatomy`.

    Attributes:
        name: name of the module that contains the experts.
        router: the layer that scores the experts.
        experts: the experts, with their parameters and tokens.
        top_k: experts that a token gets.
        stacked: all experts in one tensor with the expert first.
        operation: the operation that selects experts.
        scores: the values from which experts are selected.
        chosen: the selected experts.
        call: number of this call of the module, from 1.
    """

    name: str
    router: Projection
    experts: tuple[Expert, ...]
    top_k: int
    stacked: bool
    operation: int
    scores: int
    chosen: int
    call: int = 1

    @property
    def tokens(self) -> tuple[int, ...]:
        """Tokens per expert."""
        return tuple(e.tokens for e in self.experts)


def find_experts(flow: Dataflow, layers: Sequence[Layer], model: nn.Module) -> tuple[Mixture, ...]:
    """Every mixture of experts: a choice among the outputs of a layer that are as many as there are experts."""
    lists = {name: len(m) for name, m in model.named_modules() if isinstance(m, nn.ModuleList) and len(m) > 1}
    stacks = {n: p.shape[0] for n, p in model.named_parameters() if p.ndim >= 3}
    found: dict[int, Mixture] = {}
    for op in flow.operations:
        if op.name not in _CHOICES or not op.inputs or not flow.signal[op.inputs[0]]:
            continue
        codes = flow.codes(op.inputs[0])
        if codes is None:
            continue
        router = projection(flow, layers, [codes.reshape(-1).unique().tolist()])
        if router is None or router.also:
            continue
        mixture = _mixture(op, router, flow, layers, lists, stacks)
        if mixture is not None:
            found[router.operation] = mixture  # of several choices by one router the last counts
    return tuple(found.values())


def _mixture(
    op: Operation,
    router: Projection,
    flow: Dataflow,
    layers: Sequence[Layer],
    lists: Mapping[str, int],
    stacks: Mapping[str, int],
) -> Mixture | None:
    number, near = router.channels, router.layer.split(".")[:-1]
    while True:
        home = ".".join(near)
        inside = lambda name, home=home: not home or name.startswith(f"{home}.")
        modules = [name for name, n in lists.items() if n == number and inside(name)]
        stacked = [name for name, n in stacks.items() if n == number and inside(name)]
        if modules or stacked or not near:
            break
        near.pop()
    if not modules and not stacked:
        return None
    experts = tuple(
        _of_module(f"{modules[0]}.{e}", e, flow, layers) if modules else _of_stack(home, e, stacked, flow, layers)
        for e in range(number)
    )
    count = op.args[1] if op.name == "topk" and len(op.args) > 1 else 1
    return Mixture(
        name=modules[0] if modules else stacked[0].rpartition(".")[0] or "the model",
        router=router,
        experts=experts,
        top_k=int(count),
        stacked=not modules,
        operation=op.index,
        scores=op.inputs[0],
        chosen=op.outputs[-1],
        call=op.call,
    )


def _of_module(name: str, index: int, flow: Dataflow, layers: Sequence[Layer]) -> Expert:
    own = [v.name for v in flow.values if v.source == "parameter" and v.name.startswith(f"{name}.")]
    first = next((layer for layer in layers if layer.part.parameter in own), None)
    calls = [layer for layer in layers if first is not None and str(layer.part) == str(first.part)]
    return Expert(
        name=name,
        index=index,
        parameters=tuple(ParameterPart(parameter=n) for n in own),
        tokens=sum(_rows(flow.values[layer.input].shape, layer.channel_dim) for layer in calls),
    )


def _of_stack(home: str, index: int, stacked: list[str], flow: Dataflow, layers: Sequence[Layer]) -> Expert:
    tokens = 0
    for layer in layers:
        if layer.part.parameter != stacked[0]:
            continue
        op, own = flow.operations[layer.operation], layer.part.index[:1]
        if op.name == "_grouped_mm":
            ends = flow.tensors[op.inputs[2]].tolist()
            tokens += int(ends[index] - (ends[index - 1] if index else 0))
        elif own == (index,):
            tokens += _rows(flow.values[layer.input].shape, layer.channel_dim)
        elif not own:
            tokens += math.prod(flow.values[layer.input].shape[1:-1])  # (expert, tokens, channels)
    return Expert(
        name=f"{home}.{index}" if home else str(index),
        index=index,
        parameters=tuple(ParameterPart(parameter=n, index=(index,)) for n in stacked),
        tokens=tokens,
    )


def _rows(shape: tuple[int, ...], channel_dim: int) -> int:
    return math.prod(shape) // max(shape[channel_dim], 1) if math.prod(shape) else 0
