"""Residual streams: the additions in order, who writes to them and who reads."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from netvitals.anatomy.blocks.layers import Layer
from netvitals.anatomy.blocks.norms import Norm
from netvitals.anatomy.dataflow import Dataflow
from netvitals.anatomy.ir import Line, Operation


@dataclass(frozen=True, kw_only=True)
class Addition:
    """One addition to a residual stream: after = before + branch.

    Part of :class:`Stream`.

    Attributes:
        operation: the addition.
        before: value of the stream before.
        branch: value that is added.
        after: value of the sum.
        writers: layers whose output is the branch.
        module: name of the module that contains it.
        line: the line of user code.
    """

    operation: int
    before: int
    branch: int
    after: int
    writers: tuple[str, ...]
    module: str
    line: Line | None


@dataclass(frozen=True, kw_only=True)
class Stream:
    """A residual stream: its first value, the branches added to it, and the layers that read it.

    Part of :class:`Anatomy`.

    Attributes:
        origin: value at which it begins.
        origin_writers: layers that make the origin: embeddings, the first convolution.
        additions: the additions, in order.
        states: values of the stream: the origin and what each addition makes.
        readers: layers and norms that read a state.
        width: channels.
        post_norm: a norm on the stream itself, between the additions.
    """

    origin: int
    origin_writers: tuple[str, ...]
    additions: tuple[Addition, ...]
    states: tuple[int, ...]
    readers: tuple[str, ...]
    width: int
    post_norm: bool

    @property
    def writers(self) -> tuple[str, ...]:
        """Layers that add to the stream, in order; without those of the origin."""
        return tuple(dict.fromkeys(w for a in self.additions for w in a.writers))


def find_streams(
    flow: Dataflow, layers: Sequence[Layer], norms: Sequence[Norm], inner: Collection[str] = ()
) -> tuple[Stream, ...]:
    """Every chain of additions x + F(x), where F has a layer in it."""
    adds = [op for op in flow.operations if _sums(op, flow) and op.module not in inner]
    ends = {flow.stripped(i) for op in adds for i in _operands(op, flow)} | {op.outputs[0] for op in adds}
    bit = {value: 1 << k for k, value in enumerate(sorted(ends))}
    through = _reached(flow, bit)
    normed = {norm.output: norm.input for norm in norms}
    owner: dict[int, int] = {}  # state → stream
    states: list[list[int]] = []
    carried: list[int] = []  # bits of the states of each stream
    entries: list[list[tuple[Operation, int, int]]] = []
    post: list[bool] = []
    for op in adds:
        pair = _operands(op, flow)
        best = None
        for trunk, branch in (pair, pair[::-1]):
            base, passed = _carrier(trunk, owner, flow, normed)
            mine = bit[flow.stripped(trunk)]
            if base is not None:
                mine |= carried[owner[base]]
            if through[branch] & mine and (best is None or base is not None):
                best = (trunk, branch, base, passed)
        if best is None:
            continue
        trunk, branch, base, passed = best
        if base is None:
            number = len(states)
            states.append([trunk])
            carried.append(bit.get(flow.stripped(trunk), 0))
            entries.append([])
            post.append(False)
            owner[trunk] = number
        else:
            number = owner[base]
            post[number] = post[number] or passed
        entries[number].append((op, trunk, branch))
        states[number].append(op.outputs[0])
        carried[number] |= bit.get(flow.stripped(op.outputs[0]), 0)
        owner[op.outputs[0]] = number
    return tuple(_stream(s, e, p, flow, layers, norms) for s, e, p in zip(states, entries, post))


def _sums(op: Operation, flow: Dataflow) -> bool:
    if op.name not in ("add", "add_") or not op.outputs:
        return False
    live, shape = flow.live_inputs(op), flow.values[op.outputs[0]].shape
    return len(live) == 2 and all(flow.values[i].shape == shape and i not in flow.noise for i in live)


def _operands(op: Operation, flow: Dataflow) -> tuple[int, int]:
    a, b = flow.live_inputs(op)
    return a, b


def _reached(flow: Dataflow, bit: dict[int, int]) -> list[int]:
    """Bits of the marked values that each value depends on through at least one layer."""
    plain, through = [0] * len(flow.values), [0] * len(flow.values)
    for value, mark in bit.items():
        plain[value] |= mark
    for op in flow.operations:
        here, far = 0, 0
        for i in op.inputs:
            here |= plain[i]
            far |= through[i]
        for value in op.outputs:
            plain[value] |= here
            through[value] |= far | (here if op.kind == "layer" else 0)
    return through


def _carrier(value: int, owner: dict[int, int], flow: Dataflow, normed: dict[int, int]) -> tuple[int | None, bool]:
    """The state of a stream that a value carries on, elementwise or through a norm; and whether a norm was passed."""
    passed = False
    for _ in range(30):
        if value in owner:
            return value, passed
        if value in normed:
            value, passed = normed[value], True
            continue
        op = flow.producer(value)
        if op is None or op.kind not in ("view", "pointwise", "random"):
            return None, False
        live = flow.live_inputs(op)
        if len(live) != 1:
            return None, False
        value = live[0]
    return None, False


def _stream(
    states: list[int],
    entries: list[tuple[Operation, int, int]],
    post: bool,
    flow: Dataflow,
    layers: Sequence[Layer],
    norms: Sequence[Norm],
) -> Stream:
    made = {layer.operation: layer for layer in layers}
    on_stream = set(states)
    additions = tuple(
        Addition(
            operation=op.index,
            before=trunk,
            branch=branch,
            after=op.outputs[0],
            writers=_writers(branch, flow, made, on_stream),
            module=op.module,
            line=op.line,
        )
        for op, trunk, branch in entries
    )
    shape = flow.values[states[0]].shape
    wrote = {name for addition in additions for name in addition.writers}
    convolved = len(shape) > 3 or (len(shape) == 3 and any(x.channel_dim == 1 for x in layers if x.name in wrote))
    return Stream(
        origin=states[0],
        origin_writers=_writers(states[0], flow, made, set()),
        additions=additions,
        states=tuple(states),
        readers=_readers(on_stream, flow, layers, norms),
        width=(shape[1] if convolved else shape[-1]) if shape else 1,
        post_norm=post,
    )


def _writers(value: int, flow: Dataflow, made: dict[int, Layer], stop: set[int]) -> tuple[str, ...]:
    """Layers behind a value, without another layer or a state of the stream between."""
    found, seen, todo = [], set[int](), [value]
    while todo:
        v = todo.pop()
        op = flow.producer(v)
        if op is None or op.index in seen or (v in stop and v != value):
            continue
        seen.add(op.index)
        if op.index in made:
            found.append(made[op.index])
        else:
            todo += op.inputs
    return tuple(dict.fromkeys(layer.name for layer in sorted(found, key=lambda layer: layer.operation)))


def _readers(states: set[int], flow: Dataflow, layers: Sequence[Layer], norms: Sequence[Norm]) -> tuple[str, ...]:
    """Layers and norms that read a state directly, or through views, dropout and elementwise steps."""
    heads = {layer.operation: (layer.operation, layer.name) for layer in layers}
    for norm in norms:
        heads.update(dict.fromkeys(norm.operations, (norm.operations[0], norm.name)))
    found, seen, todo = [], set(states), list(states)
    while todo:
        for op in flow.readers[todo.pop()]:
            if op.index in heads:
                found.append(heads[op.index])
            elif op.kind in ("view", "pointwise", "random") and len(flow.live_inputs(op)) == 1:
                new = [v for v in op.outputs if v not in seen]
                seen.update(new)
                todo += new
    return tuple(dict.fromkeys(name for _, name in sorted(found)))
