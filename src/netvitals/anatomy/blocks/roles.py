"""Roles: what each part of a charted model is for, by where its values come from and where they go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from netvitals.anatomy.blocks.experts import Mixture
from netvitals.anatomy.blocks.heads import Heads
from netvitals.anatomy.blocks.layers import Layer
from netvitals.anatomy.blocks.recurrence import Recurrence, inner_modules
from netvitals.anatomy.blocks.stream import Stream
from netvitals.anatomy.dataflow import Dataflow
from netvitals.anatomy.ir import Line, Operation, Role
from netvitals.anatomy.regions import Gate, Region, place_of

_SOFTMAX = ("_softmax", "_safe_softmax", "_log_softmax")


@dataclass(frozen=True, kw_only=True)
class Softmax:
    """A softmax or log-softmax in the traced pass.

    Part of :class:`Anatomy`.

    Attributes:
        name: name of the site.
        operation: the softmax.
        input: value that it is taken of.
        output: value.
        module: name of the module that ran.
        call: number of this call of the module, from 1.
        line: the line of user code.
        role: its role in the model, such as ``hidden activation``.
    """

    name: str
    operation: int
    input: int
    output: int
    module: str
    call: int
    line: Line | None
    role: Role = "hidden activation"


class Roles:
    """Says of layers, regions, gates and softmaxes what they are for."""

    def __init__(
        self,
        flow: Dataflow,
        *,
        layers: Sequence[Layer],
        gates: Sequence[Gate],
        heads: Sequence[Heads],
        experts: Sequence[Mixture],
        streams: Sequence[Stream],
        recurrent: Sequence[Recurrence],
    ) -> None:
        self.flow = flow
        products = {layer.operation for layer in layers} | {h.operation for h in heads}
        branches = {(a.operation, a.branch) for s in streams for a in s.additions}
        self.read_again = self._ahead(lambda op, v: op.index in products)
        multiplied = {g.operation for g in gates}
        self.gated = self._ahead(lambda op, v: op.index in multiplied)
        self.plain = self._to_output(lambda op, v: op.index in products or (op.index, v) in branches)
        self.routers = {m.router.operation for m in experts}
        self.routed = self._forward({layer.output for layer in layers if layer.operation in self.routers}, products)
        self.scores = {h.softmax for h in heads if h.softmax is not None}
        self.logits = {h.logits: h for h in heads if h.logits is not None}
        self.inner = inner_modules(recurrent)

    def of_layer(self, layer: Layer) -> Role:
        """embedding, positional, router, readout, or hidden layer."""
        op = self.flow.operations[layer.operation]
        if op.name == "embedding":
            return self._looked_up(layer.input)
        if layer.operation in self.routers:
            return "router"
        if op.name == "mkldnn_rnn_layer" or layer.module in self.inner:
            return "recurrent"
        if self.plain[layer.output] and not self.read_again[layer.output]:
            return "readout"
        return "hidden layer"

    def of_region(self, region: Region) -> Role:
        """hidden activation, output link, soft-cap, router, attention weight, normaliser, or scale."""
        if region.module in self.inner:
            return "recurrent"
        if region.kind != "activation":
            return region.role
        if region.root in self.routed:
            return "router"
        last = self.plain[region.end] and not self.read_again[region.end] and not self.gated[region.end]
        if region.end in self.logits or last:
            if "tanh" in region.text and region.text != "tanh" and soft_cap(region, self.flow) is not None:
                return "soft-cap"
            return "output link" if last else "attention weight"
        return "hidden activation"

    def of_softmax(self, softmax: Softmax) -> Role:
        """attention weight, router, output link, or hidden activation."""
        if softmax.operation in self.scores:
            return "attention weight"
        if softmax.input in self.routed:
            return "router"
        return "hidden activation" if self.read_again[softmax.output] else "output link"

    def of_gate(self, gate: Gate) -> Role:
        """router where a factor is the router's weight of an expert; else gate."""
        if gate.module in self.inner:
            return "recurrent"
        return "router" if {gate.left, gate.right} & self.routed else "gate"

    def softmaxes(self) -> tuple[Softmax, ...]:
        """Every softmax over data, with its role."""
        found = []
        for op in self.flow.operations:
            if op.name in _SOFTMAX and self.flow.live_inputs(op):
                one = Softmax(
                    name=place_of(op),
                    operation=op.index,
                    input=op.inputs[0],
                    output=op.outputs[0],
                    module=op.module,
                    call=op.call,
                    line=op.line,
                )
                found.append(replace(one, role=self.of_softmax(one)))
        return tuple(found)

    def _looked_up(self, ids: int) -> Role:
        """Ids of the input are an embedding; places counted by the model are positions."""
        flow, seen, todo, counted = self.flow, set[int](), [ids], False
        source = flow.values[flow.stripped(ids)]
        if source.source == "input":
            return "positional" if "position" in source.name else "embedding"
        while todo:
            op = flow.producer(todo.pop())
            if op is not None and op.index not in seen:
                seen.add(op.index)
                counted = counted or op.name in ("arange", "cumsum")
                todo += op.inputs
        held = flow.tensors[ids]
        if not flow.live[ids] and not counted and held.numel() > 1:
            counted = bool((held != held.reshape(-1)[0]).any())  # a buffer of positions; all the same: a token type
        return "positional" if counted else "embedding"

    def _ahead(self, stops: Callable[[Operation, int], bool]) -> list[bool]:
        """Whether a path from each value meets an operation."""
        out = [False] * len(self.flow.values)
        for op in reversed(self.flow.operations):
            after = any(out[o] for o in op.outputs)
            for v in op.inputs:
                out[v] = out[v] or after or stops(op, v)
        return out

    def _to_output(self, stops: Callable[[Operation, int], bool]) -> list[bool]:
        """Whether a path from each value leaves the model without meeting an operation."""
        out = [False] * len(self.flow.values)
        for v in self.flow.outputs:
            out[v] = True
        for op in reversed(self.flow.operations):
            after = any(out[o] for o in op.outputs)
            for v in op.inputs:
                out[v] = out[v] or (after and not stops(op, v))
        return out

    def _forward(self, start: set[int], products: set[int]) -> set[int]:
        """Values reached without a layer, a product of branches or a sum with another branch."""
        out, todo = set(start), list(start)
        while todo:
            for op in self.flow.readers[todo.pop()]:
                wide = [i for i in self.flow.live_inputs(op) if i not in out]
                if op.index in products or (wide and op.kind == "pointwise"):
                    continue
                new = [v for v in op.outputs if v not in out]
                out.update(new)
                todo += new
        return out


def soft_cap(region: Region, flow: Dataflow) -> float | None:
    """The bound c of a region c·tanh(s·x/c); None if it is something else."""
    seen = flow.tensors[region.root]
    at = lambda x: region.f(torch.full_like(seen, x, dtype=torch.float64)).double()
    try:
        with torch.no_grad():
            tiny = (at(1e-6) - at(-1e-6)) / 2e-6
            high, low = at(1e12), at(-1e12)
            where = int(tiny.nan_to_num(0.0, 0.0, 0.0).abs().argmax())
            slope, bound, mid = (float(t.reshape(-1)[where]) for t in (tiny, (high - low) / 2, (high + low) / 2))
            if not slope > 0 or not bound > 0:
                return None
            for x in (-1.5, -0.3, 0.5, 2.0):
                y = float(at(x * bound / slope).reshape(-1)[where]) - mid
                if abs(y - bound * float(torch.tanh(torch.tensor(x, dtype=torch.float64)))) > 1e-6 * bound:
                    return None
    except Exception:  # a step that refuses float64
        return None
    return bound
