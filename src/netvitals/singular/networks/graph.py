r"""A user's network in the words of the rate calculus: weights, activations, norms, sums, products and attention.

What is joined element by element (an activation, a norm, a residual sum, a view) shares one axis of channels; a weight
leads from one axis to another. A dead direction is one channel of every axis: a row of the weights that write it (of a
part of a fused weight), and every column that reads it (several behind a flattened image or shared values). What the
calculus has no law for is refused with the operation's name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from netvitals.anatomy import (
    IDENTITY,
    Anatomy,
    Heads,
    Layer,
    Norm,
    Operation,
    Region,
    Slot,
    call_with,
    chart,
    plain_kernels,
)
from netvitals.capture import inputs_of, output_tensor

StepKind = Literal["layer", "activation", "norm", "sum", "product", "attention"]
_NEAR = 1e-6  # where slopes at zero are read off
_POOLS = ("mean", "max_pool", "avg_pool", "adaptive")
_REASONS = {
    "softmax": "a softmax mixes channels or positions, and is none of attention",
    "cat": "channels of two branches side by side have no common dead axis",
}


@dataclass(frozen=True)
class Step:
    """One step of the pass: what it reads and makes, as numbers of values.

    Attributes:
        kind: ``layer``, ``activation``, ``norm``, ``sum``, ``product`` or ``attention``.
        name: of the layer, the norm, the activation or the attention block.
        inputs: values, one but for a sum, a product, and attention: queries, keys, values.
        output: value.
        norm: ``layer``, ``rms`` or ``channel``, which takes every channel by itself.
        slopes: of an activation, left and right of zero.
        at_zero: of an activation, f(0).
        homogeneous: f(2x) = 2 f(x), and a layer without bias.
        rows: of a layer: the outputs that make each channel of the axis.
        columns: of a layer: the output of its writer that each input is, before the axis numbers them.
        part: of a fused layer, which.
        mixed: of attention: channels of queries and keys are turned into one another (rotary positions).
        bias: of a norm: names of what shifts a channel.
        heads: of attention: how many keys have, each with a dead channel of its own.
    """

    kind: StepKind
    name: str
    inputs: tuple[int, ...]
    output: int
    norm: str = ""
    slopes: tuple[float, float] = (1.0, 1.0)
    at_zero: float = 0.0
    homogeneous: bool = True
    rows: tuple[tuple[int, ...], ...] = ()
    columns: tuple[int, ...] = ()
    part: str = ""
    mixed: bool = False
    bias: tuple[str, ...] = ()
    heads: int = 1

    @property
    def label(self) -> str:
        """Its name, and which part of it."""
        return f"{self.name} ({self.part})" if self.part else self.name


@dataclass(frozen=True)
class RateGraph:
    """Steps in the order of the pass, and which axis of channels each value lies on.

    Returned by :func:`rate_graph`.

    Attributes:
        steps: from input to output.
        axes: number of the axis by value.
        inputs: values that enter, and the order of their dead channel: 1 where a tied weight makes it.
        output: the value that leaves.
        layers: the layers by name, as the anatomy has them.
    """

    steps: tuple[Step, ...]
    axes: dict[int, int]
    inputs: dict[int, int]
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
        return (not writers and not self._tied(axis)) or (writers == 1 and not readers)

    def _tied(self, axis: int) -> bool:
        return any(order and self.axes.get(v) == axis for v, order in self.inputs.items())

    def heads(self, axis: int) -> int:
        """Attention heads that share out the channels of an axis; 1 where there are none."""
        return max((s.heads for s in self.steps if axis in (self.axes[s.output], self.axes[s.inputs[0]])), default=1)

    def channels(self, axis: int) -> int:
        """How many channels an axis has."""
        writers = [len(s.rows) for s in self.weights if self.axes[s.output] == axis]
        return (
            writers[0] if writers else max(max(s.columns) + 1 for s in self.weights if self.axes[s.inputs[0]] == axis)
        )

    def reads(self, step: Step) -> list[int]:
        """The channel of the axis that each input of a layer is."""
        writer = next((s for s in self.weights if s.output == self._writer(step.inputs[0])), None)
        if writer is None:
            return list(step.columns)
        number = {row: k for k, rows in enumerate(writer.rows) for row in rows}
        return [number.get(c, -1) for c in step.columns]

    def _writer(self, value: int) -> int:
        """The output of a layer that a value's channels are numbered by: back through what keeps them."""
        made = {s.output: s for s in self.steps}
        while value in made and made[value].kind != "layer":
            value = made[value].inputs[2 if made[value].kind == "attention" else 0]
        return value


def rate_graph(model: nn.Module, batch: Any) -> RateGraph:
    """Read a network, or say what in it has no law; the model is left as it was.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    >>> [step.kind for step in rate_graph(net, torch.ones(5, 3)).steps]
    ['layer', 'activation', 'layer']
    """
    task = inputs_of(model, batch)
    if not task.examples:
        raise ValueError("the batch is empty: give at least one example")
    forward = lambda net, data: output_tensor(call_with(net, data), net)  # logits alone, where there is more
    with plain_kernels():
        anatomy = chart(model, task.inputs, forward=forward)
    return _Reader(anatomy, dict(model.named_modules())).graph()


class _Reader:
    """One walk back from the output."""

    def __init__(self, anatomy: Anatomy, modules: dict[str, nn.Module]) -> None:
        self.anatomy, self.modules = anatomy, modules
        self.layers: dict[int, Layer] = {layer.output: layer for layer in anatomy.layers}
        self.norms: dict[int, Norm] = {norm.output: norm for norm in anatomy.norms if norm.kind != "softmax"}
        self.heads: dict[int, Heads] = {block.output: block for block in anatomy.heads}
        self.regions: dict[int, Region] = {r.end: r for r in anatomy.regions}
        self.live = {v.index for v in anatomy.values if v.source == "input"}
        for op in anatomy.operations:
            if self.live.intersection(op.inputs):
                self.live.update(op.outputs)
        self.steps: dict[int, Step] = {}  # by output
        self.ends: dict[int, int] = {}
        self.ids: dict[int, Tensor] = {}
        self.virtual = len(anatomy.values)

    def graph(self) -> RateGraph:
        if len(self.anatomy.outputs) != 1:
            raise ValueError(
                f"rates can only be predicted for a network with one output tensor, got {len(self.anatomy.outputs)}"
            )
        output = self.walk(self.anatomy.outputs[0])
        if not any(s.kind == "layer" for s in self.steps.values()):
            raise ValueError(
                f"{self.anatomy.model} has no weight matrix between its input and its output; a rate needs one"
            )
        steps = tuple(sorted(self.steps.values(), key=self._place))
        found = {s.name: next(x for x in self.layers.values() if x.name == s.name) for s in steps if s.kind == "layer"}
        graph = RateGraph(steps, self._axes(steps, output), dict(self.ends), output, found)
        self._check_widths(graph)
        return graph

    def _place(self, step: Step) -> tuple[float, int]:
        """In the order of the pass; a part that is not a value of its own comes with its layer."""
        if step.output < len(self.anatomy.values):
            return float(step.output), 0
        return next(x.output for x in self.layers.values() if x.name == step.name) + 0.5, step.output

    def walk(self, value: int) -> int:
        """The value behind views and copies, with everything that leads to it read."""
        value, made = self._behind(value)
        todo = [(value, made)]
        while todo:
            at, step = todo.pop()
            if step is None or at in self.steps:
                continue
            resolved = self._attended(step) if step.kind == "attention" else [self._behind(v) for v in step.inputs]
            inputs = tuple(v for v, _ in resolved)
            mixed = step.kind == "attention" and any(v >= len(self.anatomy.values) for v in inputs[:2])
            self.steps[at] = replace(step, inputs=inputs, mixed=mixed)
            todo += resolved
        return value

    def _behind(self, value: int) -> tuple[int, Step | None]:
        """The nearest value that a step made or that enters, and the step."""
        first = value
        while True:
            if (step := self._made(value)) is not None:
                return self._part(first, step) if step.kind == "layer" and first != value else (value, step)
            op = self.anatomy.producers(value)
            if op is None or op.name == "embedding":
                self.ends[value] = self._tied(op)
                return value, None
            live = [i for i in dict.fromkeys(op.inputs) if i in self.live]
            name = op.name.rstrip("_")
            if name == "cat" and not self._beside(op):
                constant = len(live) < len(set(op.inputs))
                return value, Step("sum", str(op), tuple(live), value, at_zero=float(constant))
            if (op.kind == "view" and name != "cat") or name in IDENTITY or name.startswith(_POOLS):
                value = op.inputs[0]
            elif name in ("add", "sub") and len(live) == 2:
                return value, Step("sum", str(op), tuple(live), value)
            elif name == "mul" and len(live) == 2:
                return value, Step("product", str(op), tuple(live), value, homogeneous=False)
            elif name in ("add", "sub", "mul", "div") and len(live) == 1:
                value = live[0]
            else:
                raise ValueError(_no_law(name, str(op)))

    def _beside(self, op: Operation) -> bool:
        """Whether a concatenation puts channels side by side, not positions."""
        sizes = {self.anatomy.values[i].shape[-1] for i in (*op.inputs, *op.outputs)}
        return len(sizes) > 1

    def _tied(self, op: Operation | None) -> int:
        """1 where the embedding is a layer's weight as well, whose dead column makes it dead too."""
        if op is None:
            return 0
        table = self.anatomy.values[op.inputs[0]].name
        info = self.anatomy.parameter(table)
        names = (info.name, *info.ties) if info else ()
        return int(any(x.weight in names and x.role != "embedding" and x.out_dim == 0 for x in self.layers.values()))

    def _part(self, value: int, step: Step) -> tuple[int, Step]:
        """A layer, or the part of it that a view takes."""
        kept = sorted(set(self.id(value).flatten().tolist()))
        if len(kept) == len(step.rows):
            return step.output, step
        part = f"{kept[0]}:{kept[-1] + 1}"
        return value, replace(step, output=value, rows=tuple((k,) for k in kept), part=part)

    def _attended(self, step: Step) -> list[tuple[int, Step | None]]:
        """Queries, keys and values of a block, as parts of their layers with the channels of the keys' heads."""
        block = self.heads[step.output]
        shared, made = block.heads // block.kv_heads, {x.operation: x for x in self.layers.values()}
        out: list[tuple[int, Step | None]] = []
        for name, value, projection in zip("qkv", (block.query, block.key, block.value), (block.q, block.k, block.v)):
            if projection is None or projection.also or (block.qk_norm and name != "v"):
                why = "there is a norm on" if block.qk_norm and name != "v" else "no single layer makes"
                raise ValueError(
                    "the decay rate of the smallest eigenvalue cannot be predicted for the attention of "
                    f"{block.name}: {why} its {name}"
                )
            layer = made[projection.operation]
            base = self._layer(layer)
            grid = self._grid(value, block)
            turned = grid is None
            if grid is None:  # rotary positions: the rows are those of the projection
                count = block.heads if name == "q" else block.kv_heads
                every = torch.arange(len(base.rows))
                index = projection.weight.index
                at = index[layer.out_dim] if layer.out_dim < len(index) else slice(None)
                rows = every[at] if isinstance(at, slice) else torch.tensor(at)
                if rows.numel() != count * block.head_dim or name == "v":
                    raise ValueError(
                        "the decay rate of the smallest eigenvalue cannot be predicted for the attention of "
                        f"{block.name}: netvitals could not match the rows of its {name} weights to heads"
                    )
                grid = rows.reshape(count, -1)
            heads = grid.reshape(block.kv_heads, -1, grid.shape[-1]) if len(grid) > block.kv_heads else grid[:, None]
            if name != "q":
                heads = heads[:, :1]
            elif heads.shape[1] != shared:
                raise ValueError(
                    "the decay rate of the smallest eigenvalue cannot be predicted for the attention of "
                    f"{block.name}: its channels cannot be divided evenly among its heads"
                )
            rows_of = tuple(tuple(h[:, c].tolist()) for h in heads for c in range(h.shape[1]))
            whole = len({r for rows in rows_of for r in rows}) == len(base.rows)
            self.virtual += 1
            at_value = self.virtual if turned else value
            out.append((at_value, replace(base, output=at_value, rows=rows_of, part="" if whole else name)))
        return out

    def _grid(self, value: int, block: Heads) -> Tensor | None:
        """Rows of the layer that make each channel of each head, (heads, channels); None where they are mixed."""
        at = value
        while at not in self.layers:
            op = self.anatomy.producers(at)
            if op is None or not (op.kind == "view" or op.name.rstrip("_") in IDENTITY) or op.name == "cat":
                return None
            at = op.inputs[0]
        ids = self.id(value)
        return ids.select(-2, 0).reshape(-1, ids.shape[-1])[: block.heads]

    def id(self, value: int) -> Tensor:
        """Which output of the layer before it every entry of a value is."""
        todo = [value]
        while todo:
            at = todo[-1]
            needs = self._sources(at)
            if missing := [v for v in needs if v not in self.ids]:
                todo += missing
                continue
            if at not in self.ids:
                self.ids[at] = self._id(at, needs)
            todo.pop()
        return self.ids[value]

    def _sources(self, value: int) -> list[int]:
        if value in self.layers and self.layers[value].role != "embedding":
            return []
        if value in self.norms:
            return [self.norms[value].input]
        if value in self.heads:
            return [self.heads[value].value]
        region = self.regions.get(value)
        if region is not None and region.kind != "unclear":
            return [region.root]
        op = self.anatomy.producers(value)
        if op is None or op.name == "embedding":
            return []
        return [i for i in dict.fromkeys(op.inputs) if i in self.live][:1] or list(op.inputs[:1])

    def _id(self, value: int, needs: list[int]) -> Tensor:
        shape = self.anatomy.values[value].shape
        numbered = lambda dim: torch.arange(shape[dim]).reshape(
            [-1 if d == dim % len(shape) else 1 for d in range(len(shape))]
        )
        if not needs:
            layer = self.layers.get(value)
            dim = layer.channel_dim if layer is not None else 1 if len(shape) == 4 else -1
            return numbered(dim).expand(shape) if shape else torch.zeros(())
        ids = self.ids[needs[0]]
        if value in self.heads:
            one = ids.select(-2, 0).unsqueeze(-2)
            if one.ndim > 3 and one.shape[-3] < shape[-3]:
                one = one.repeat_interleave(shape[-3] // one.shape[-3], -3)
            return one.expand(shape)
        op = self.anatomy.producers(value)
        if value in self.norms or value in self.regions or op is None or not _moves(op):
            return ids.expand(shape) if _expands(ids.shape, shape) else numbered(-1).expand(shape)
        known: Callable[[Slot], Any] = lambda slot: (
            ids.double() if slot.value == needs[0] else self.anatomy.tensors[slot.value]
        )
        if op.name in ("view", "_unsafe_view", "reshape"):
            return ids.reshape(shape)
        if op.name == "cat":
            dim = op.args[1] if len(op.args) > 1 else 0
            return ids.narrow(dim, 0, 1).expand(shape)
        found = op.func(*_filled(op.args, known), **_filled(op.kwargs or {}, known))
        if not isinstance(found, Tensor):
            found = found[op.outputs.index(value)]
        return found.round().long()

    def _made(self, value: int) -> Step | None:
        if value in self.layers and self.layers[value].role != "embedding":
            return self._layer(self.layers[value])
        if value in self.norms:
            return self._norm(self.norms[value])
        if value in self.heads:
            block = self.heads[value]
            inputs = (block.query, block.key, block.value)
            return Step("attention", block.name, inputs, value, homogeneous=False, heads=block.kv_heads)
        region = self.regions.get(value)
        # what a written-out norm squares first belongs to the norm in the anatomy, and is an activation here
        return self._activation(region) if region is not None and region.kind != "unclear" else None

    def _layer(self, layer: Layer) -> Step:
        if layer.reparametrised:
            raise ValueError(
                f"the decay rate of the smallest eigenvalue cannot be predicted for {layer.name}: its weight is "
                f"computed from other parameters ({', '.join(layer.reparametrised)})"
            )
        if layer.part.index:
            raise ValueError(
                f"the decay rate of the smallest eigenvalue cannot be predicted for {layer.name}: its weight is only "
                f"a part of the parameter {layer.part.parameter}; use a separate nn.Linear for each projection"
            )
        op = self.anatomy.operations[layer.operation]
        if "convolution" in op.name and op.args[8] != 1:
            raise ValueError(
                f"the decay rate of the smallest eigenvalue cannot be predicted for {layer.name}: a grouped "
                "convolution has no single dead channel"
            )
        info = self.anatomy.parameter(layer.weight)
        if info is None:
            raise ValueError(
                f"the decay rate of the smallest eigenvalue cannot be predicted for {layer.name}: its weight is not "
                "a parameter of the model"
            )
        width, into = info.shape[layer.out_dim], info.shape[1 - layer.out_dim]
        ids = self.id(layer.input)
        conv = "convolution" in op.name
        ids = ids.movedim(1, -1) if conv and ids.ndim > 2 else ids
        columns = ids.reshape(-1, ids.shape[-1])[0] if ids.ndim else ids[None]
        if len(columns) != into:
            columns = torch.arange(into)
        return Step(
            "layer",
            layer.name,
            (layer.input,),
            layer.output,
            homogeneous=not layer.bias,
            rows=tuple((k,) for k in range(width)),
            columns=tuple(columns.tolist()),
        )

    def _norm(self, norm: Norm) -> Step:
        kind = {"layer": "layer", "rms": "rms", "batch": "channel", "group": "layer"}.get(norm.kind)
        if norm.kind == "group":
            module = self.modules.get(norm.module)
            groups = getattr(module, "num_groups", 1)
            kind = "channel" if groups == getattr(module, "num_channels", 0) else kind
        if kind is None:
            raise ValueError(
                f"the decay rate of the smallest eigenvalue cannot be predicted for {norm.name}: norms of type "
                f"{norm.kind} are not covered"
            )
        shifts = (norm.bias, f"{norm.module}.running_mean") if kind == "channel" else ()
        return Step(
            "norm", norm.name, (norm.input,), norm.output, norm=kind, homogeneous=kind == "channel", bias=shifts
        )

    def _activation(self, region: Region) -> Step:
        shape = self.anatomy.values[region.root].shape
        at = lambda x: region.f(torch.full(shape, x, dtype=torch.float64)).flatten()
        zero = at(0.0)
        left, right = (_largest(rise) / _NEAR for rise in (zero - at(-_NEAR), at(_NEAR) - zero))
        if region.kind != "affine" and max(abs(left), abs(right)) < 10 * _NEAR:
            raise ValueError(
                f"the decay rate of the smallest eigenvalue cannot be predicted for {region.name}: the slope of this "
                "activation at zero is 0, so a dead channel has no first-order term"
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
        used: dict[str, Step] = {}
        for step in steps:
            values = (*step.inputs, step.output)
            for v in values:
                top(v)
            joined = [(v, values[0]) for v in values[1:]] if step.kind not in ("layer", "attention") else []
            if step.kind == "attention":
                joined = [(values[1], values[0]), (values[3], values[2])]
            elif step.kind == "layer" and not step.part:  # a weight that is used twice has one dead row and column
                other = used.setdefault(self._weight(step), step)
                joined = [(step.output, other.output), (step.inputs[0], other.inputs[0])]
            for v, to in joined:
                parent[top(v)] = top(to)
        return {v: top(v) for v in list(parent)}

    def _weight(self, step: Step) -> str:
        weight = next(x.weight for x in self.layers.values() if x.name == step.name)
        return next(p.name for p in self.anatomy.parameters if weight in (p.name, *p.ties))

    def _check_widths(self, graph: RateGraph) -> None:
        """The weights that lead to an axis must make the same number of channels, and what reads it must know them."""
        sizes: dict[int, int] = {}
        for step in graph.weights:
            axis = graph.axes[step.output]
            if sizes.setdefault(axis, len(step.rows)) != len(step.rows):
                raise ValueError(
                    f"the decay rate of the smallest eigenvalue cannot be predicted for {step.name}: it mixes "
                    f"channels ({sizes[axis]} inside, {len(step.rows)} at the output), so one dead channel spreads "
                    "over several"
                )
        for step in graph.weights:
            axis = graph.axes[step.inputs[0]]
            if not graph.free(axis) and set(graph.reads(step)) != set(range(graph.channels(axis))):
                raise ValueError(
                    f"the decay rate of the smallest eigenvalue cannot be predicted for {step.name}: its "
                    f"{len(step.columns)} input channels are made from {graph.channels(axis)} other channels (mixed "
                    "or reshaped), so one dead channel spreads over several"
                )


def _moves(op: Operation) -> bool:
    """Whether an operation takes entries elsewhere; the others are element by element."""
    name = op.name.rstrip("_")
    return op.kind == "view" or name in ("cat", "slice", "select") or name.startswith(_POOLS)


def _expands(shape: torch.Size, to: tuple[int, ...]) -> bool:
    """Whether a shape can be expanded to another."""
    return len(shape) <= len(to) and all(a in (1, b) for a, b in zip(shape[::-1], to[::-1]))


def _filled(args: Any, known: Callable[[Slot], Any]) -> Any:
    """Arguments with the values in their slots."""
    if isinstance(args, Slot):
        return known(args)
    if isinstance(args, dict):
        return {k: _filled(v, known) for k, v in args.items()}
    return type(args)(_filled(v, known) for v in args) if isinstance(args, list | tuple) else args


def _largest(values: Tensor) -> float:
    """The entry of the largest size, with its sign."""
    return float(values[values.abs().argmax()])


def _no_law(name: str, where: str) -> str:
    reason = next((why for word, why in _REASONS.items() if word in name), "the calculus does not know this operation")
    return f"the decay rate of the smallest eigenvalue cannot be predicted for {where}: {reason}"
