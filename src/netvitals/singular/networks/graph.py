r"""A user's network in the words of the rate calculus: weights, activations, norms, sums, and the axes they share.

What is joined element by element (an activation, a norm, a residual sum, a view) shares one axis of channels; a weight
leads from one axis to another. A dead direction is one channel of every axis. What the calculus has no law for is
refused with the operation's name: softmax, products of two branches, batch and group norm, recurrence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from netvitals.anatomy import IDENTITY, Anatomy, Layer, Norm, Region, call_with, chart, why_not_alone
from netvitals.capture import inputs_of, output_tensor

StepKind = Literal["layer", "activation", "norm", "sum"]
_NEAR = 1e-6  # where slopes at zero are read off
_POOLS = ("mean", "max_pool", "avg_pool", "adaptive")
_REASONS = {
    "softmax": "a softmax mixes channels or positions; attention has a law as a whole chain only (AttentionChain)",
    "attention": "attention has a law as a whole chain only (AttentionChain)",
    "mul": "a product of two branches is no power of t times its input; gated blocks have a law as a SwiGLUStack",
    "cat": "channels of two branches side by side have no common dead axis",
}


@dataclass(frozen=True)
class Step:
    """One step of the pass: what it reads and makes, as numbers of values.

    Attributes:
        kind: ``layer``, ``activation``, ``norm`` or ``sum``.
        name: of the layer, the norm or the activation.
        inputs: values, one but for a sum.
        output: value.
        norm: ``layer`` or ``rms``.
        slopes: of an activation, left and right of zero.
        at_zero: of an activation, f(0).
        homogeneous: f(2x) = 2 f(x), and a layer without bias.
    """

    kind: StepKind
    name: str
    inputs: tuple[int, ...]
    output: int
    norm: str = ""
    slopes: tuple[float, float] = (1.0, 1.0)
    at_zero: float = 0.0
    homogeneous: bool = True


@dataclass(frozen=True)
class RateGraph:
    """Steps in the order of the pass, and which axis of channels each value lies on.

    Returned by :func:`rate_graph`.

    Attributes:
        steps: from input to output.
        axes: number of the axis by value.
        inputs: values that enter.
        output: the value that leaves.
        layers: the layers by name, as the anatomy has them.
    """

    steps: tuple[Step, ...]
    axes: dict[int, int]
    inputs: tuple[int, ...]
    output: int
    layers: dict[str, Layer]

    @property
    def weights(self) -> tuple[Step, ...]:
        """The layers among the steps."""
        return tuple(s for s in self.steps if s.kind == "layer")

    def free(self, axis: int) -> bool:
        """Whether no axis-aligned channel is needed: an end of the network that only weights lead to or from."""
        writers = sum(self.axes[s.output] == axis for s in self.weights)
        readers = sum(self.axes[s.inputs[0]] == axis for s in self.weights)
        return not writers or (writers == 1 and not readers)


def rate_graph(model: nn.Module, batch: Any) -> RateGraph:
    """Read a network, or say what in it has no law; the model is left as it was.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    >>> [step.kind for step in rate_graph(net, torch.ones(5, 3)).steps]
    ['layer', 'activation', 'layer']
    """
    task = inputs_of(model, batch)
    if not task.examples:
        raise ValueError("the batch is empty: a network is read from a pass")
    forward = lambda net, data: output_tensor(call_with(net, data), net)  # logits alone, where there is more
    return _Reader(chart(model, task.inputs, forward=forward)).graph()


class _Reader:
    """One walk back from the output."""

    def __init__(self, anatomy: Anatomy) -> None:
        self.anatomy = anatomy
        self.layers: dict[int, Layer] = {layer.output: layer for layer in anatomy.layers}
        self.norms: dict[int, Norm] = {norm.output: norm for norm in anatomy.norms}
        self.regions: dict[int, Region] = {r.end: r for r in anatomy.regions}
        self.live = {v.index for v in anatomy.values if v.source == "input"}
        for op in anatomy.operations:
            if self.live.intersection(op.inputs):
                self.live.update(op.outputs)
        self.steps: dict[int, Step] = {}  # by output
        self.ends: dict[int, None] = {}

    def graph(self) -> RateGraph:
        if len(self.anatomy.outputs) != 1:
            raise ValueError(f"rates are predicted for a network with one output, got {len(self.anatomy.outputs)}")
        output = self.walk(self.anatomy.outputs[0])
        if not any(s.kind == "layer" for s in self.steps.values()):
            raise ValueError(f"{self.anatomy.model} has no weight matrix between its input and its output")
        steps = tuple(self.steps[v] for v in sorted(self.steps))
        found = {s.name: self.layers[s.output] for s in steps if s.kind == "layer"}
        graph = RateGraph(steps, self._axes(steps, output), tuple(self.ends), output, found)
        self._check_widths(graph)
        return graph

    def walk(self, value: int) -> int:
        """The value behind views and copies, with everything that leads to it read."""
        value, made = self._behind(value)
        todo = [(value, made)]
        while todo:
            at, step = todo.pop()
            if step is None or at in self.steps:
                continue
            resolved = [self._behind(v) for v in step.inputs]
            inputs = tuple(v for v, _ in resolved)
            self.steps[at] = Step(**{**vars(step), "inputs": inputs})
            todo += resolved
        return value

    def _behind(self, value: int) -> tuple[int, Step | None]:
        """The nearest value that a step made or that enters, and the step."""
        while True:
            if (step := self._made(value)) is not None:
                return value, step
            op = self.anatomy.producers(value)
            if op is None or op.name == "embedding":
                self.ends[value] = None
                return value, None
            live = [i for i in dict.fromkeys(op.inputs) if i in self.live]
            name = op.name.rstrip("_")
            if op.kind == "view" or name in IDENTITY or name.startswith(_POOLS):
                value = op.inputs[0]
            elif name in ("add", "sub") and len(live) == 2:
                return value, Step("sum", str(op), tuple(live), value)
            elif name in ("add", "sub", "mul", "div") and len(live) == 1:
                value = live[0]
            else:
                raise ValueError(_no_law(name, str(op)))

    def _made(self, value: int) -> Step | None:
        if value in self.layers and self.layers[value].role != "embedding":
            return self._layer(self.layers[value])
        if value in self.norms:
            return self._norm(self.norms[value])
        region = self.regions.get(value)
        # what a written-out norm squares first belongs to the norm in the anatomy, and is an activation here
        return self._activation(region) if region is not None and region.kind != "unclear" else None

    def _layer(self, layer: Layer) -> Step:
        if why := why_not_alone(layer, self.anatomy):
            raise ValueError(f"there is no rate law for {layer.name}: {why}")
        op = self.anatomy.operations[layer.operation]
        if "convolution" in op.name and op.args[8] != 1:
            raise ValueError(f"there is no rate law for {layer.name}: a grouped convolution has no single dead channel")
        return Step("layer", layer.name, (layer.input,), layer.output, homogeneous=not layer.bias)

    def _norm(self, norm: Norm) -> Step:
        if norm.kind not in ("layer", "rms"):
            raise ValueError(
                f"there is no rate law for {norm.name}: LayerNorm and RMSNorm have one, {norm.kind} norm has not"
            )
        return Step("norm", norm.name, (norm.input,), norm.output, norm=norm.kind, homogeneous=False)

    def _activation(self, region: Region) -> Step:
        shape = self.anatomy.values[region.root].shape
        at = lambda x: region.f(torch.full(shape, x, dtype=torch.float64)).flatten()
        zero = at(0.0)
        left, right = (_largest(rise) / _NEAR for rise in (zero - at(-_NEAR), at(_NEAR) - zero))
        if region.kind != "affine" and max(abs(left), abs(right)) < 10 * _NEAR:
            raise ValueError(
                f"there is no rate law for {region.name}: its slope at zero is 0: a dead channel has no first order"
            )
        offset = _largest(zero)
        scales = offset == 0 and all(bool(torch.allclose(at(2 * x), 2 * at(x))) for x in (-0.7, 0.4))
        return Step(
            "activation",
            region.name,
            (region.root,),
            region.end,
            slopes=(left, right),
            at_zero=offset,
            homogeneous=scales,
        )

    def _axes(self, steps: tuple[Step, ...], output: int) -> dict[int, int]:
        parent: dict[int, int] = {}

        def top(v: int) -> int:
            parent.setdefault(v, v)
            while parent[v] != v:
                v = parent[v]
            return v

        top(output)
        for step in steps:
            values = (*step.inputs, step.output)
            for v in values:
                top(v)
            if step.kind != "layer":
                for v in values[1:]:
                    parent[top(v)] = top(values[0])
        return {v: top(v) for v in list(parent)}

    def _check_widths(self, graph: RateGraph) -> None:
        """A weight must read as many channels as the axis has: a flattened image spreads a channel over several."""
        sizes: dict[int, int] = {}
        for step in graph.weights:
            layer = graph.layers[step.name]
            shape = next(p.shape for p in self.anatomy.parameters if layer.weight in (p.name, *p.ties))
            out, into = shape[layer.out_dim], shape[1 - layer.out_dim]
            for axis, size in ((graph.axes[step.output], out), (graph.axes[step.inputs[0]], into)):
                if sizes.setdefault(axis, size) != size:
                    raise ValueError(
                        f"there is no rate law for {step.name}: {sizes[axis]} channels come to it as {size}, so that "
                        "a dead channel is no single one of them (flattened, reshaped or broadcast)"
                    )


def _largest(values: Tensor) -> float:
    """The entry of the largest size, with its sign."""
    return float(values[values.abs().argmax()])


def _no_law(name: str, where: str) -> str:
    reason = next((why for word, why in _REASONS.items() if word in name), "the calculus does not know this operation")
    return f"there is no rate law for {where}: {reason}"
