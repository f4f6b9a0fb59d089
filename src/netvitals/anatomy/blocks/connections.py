"""Which layer feeds which, and which layers read a norm: by dataflow, not by the order of registration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from netvitals.anatomy.dataflow import Dataflow
from netvitals.anatomy.ir import Operation

_MANY = 4  # names in a reason


class Node(Protocol):
    """What a connection leads from or to: a layer or a norm."""

    @property
    def name(self) -> str: ...
    @property
    def operation(self) -> int: ...
    @property
    def input(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class Connection:
    """A connection from a layer's output to the layers that read it, with the operations in between.

    ``blocked`` says why formulas about pairs of layers do not hold here: the output joins another branch, leaves the
    model, or passes another activation. If ``blocked`` is empty, the readers depend on this output and on nothing else.

    Part of :class:`Anatomy`.

    Attributes:
        writer: name of the layer.
        readers: names of the layers that read it.
        between: aten names on the way, in order; left out where it is blocked and has many readers.
        blocked: why formulas for pairs of layers do not apply; empty where they do.
    """

    writer: str
    readers: tuple[str, ...]
    between: tuple[str, ...]
    blocked: str = ""

    @property
    def clean(self) -> bool:
        return not self.blocked and bool(self.readers)


def find_connections(flow: Dataflow, nodes: Sequence[Node], first: int = 0) -> tuple[Connection, ...]:
    """For every node from ``first`` on: who reads its output, through what, and what is in the way."""
    sources, mixes = _sources(flow, nodes)
    readers: list[list[int]] = [[] for _ in nodes]
    for k, node in enumerate(nodes):
        for i in sources[node.input]:
            if i >= 0:
                readers[i].append(k)
    why: list[list[str]] = [[] for _ in nodes]
    for op, mix, of in mixes:
        for i in of:
            if i >= 0:
                why[i].append(f"{mix} in {op.module or 'the model'}")
    for value in dict.fromkeys(flow.outputs):
        for i in sources[value]:
            if i >= 0:
                why[i].append("its output leaves the model")
    ordered = [sorted(sources[node.input]) for node in nodes]
    ends = {node.operation for node in nodes}
    out = []
    for i, node in enumerate(nodes):
        if i < first:
            continue
        mixed = [k for k in readers[i] if len(ordered[k]) > 1]
        for k in mixed[:_MANY]:
            beside = [j for j in ordered[k][: _MANY + 1] if j != i][:_MANY]
            names = ", ".join(dict.fromkeys(_named(j, nodes) for j in beside))
            more = f" and {len(ordered[k]) - 1 - _MANY} more" if len(ordered[k]) - 1 > _MANY else ""
            why[i].append(f"{nodes[k].name} sees {names}{more} as well")
        if len(mixed) > _MANY:
            why[i].append(f"so do {len(mixed) - _MANY} more layers")
        crowded = why[i] and len(readers[i]) > _MANY  # in a residual stream everything reads everything
        needed: set[int] = set().union(*(_before(nodes[k].input, flow, ends) for k in readers[i] if not crowded))
        between = (flow.operations[k] for k in sorted(needed))
        passed = (op for op in between if any(i in sources[v] for v in op.inputs) and op.name != "detach")
        out.append(
            Connection(
                writer=node.name,
                readers=tuple(dict.fromkeys(nodes[k].name for k in readers[i])),
                between=tuple(op.name for op in passed),
                blocked="; ".join(dict.fromkeys(why[i])),
            )
        )
    return tuple(out)


def _sources(
    flow: Dataflow, nodes: Sequence[Node]
) -> tuple[list[frozenset[int]], list[tuple[Operation, str, frozenset[int]]]]:
    """Which nodes (by number; −1 − k is input k) each value depends on without another node between.

    Also the products of two activations, such as attention scores, with the nodes that meet there.
    """
    nothing: frozenset[int] = frozenset()
    out = [nothing] * len(flow.values)
    for v in flow.values:
        if v.source == "input":
            out[v.index] = frozenset({-1 - v.index})
    number = {node.operation: i for i, node in enumerate(nodes)}
    mixes = []
    for op in flow.operations:
        live = list(dict.fromkeys(out[i] for i in op.inputs if out[i]))
        together = live[0] if len(live) == 1 else nothing.union(*live)
        if op.index in number:
            together = frozenset({number[op.index]})
        elif op.kind == "layer" and sum(bool(out[i]) for i in op.inputs) > 1:
            mixes.append((op, f"it meets another activation in {op.name}", together))
        for value in op.outputs:
            out[value] = together
    return out, mixes


def _before(value: int, flow: Dataflow, ends: set[int]) -> set[int]:
    """Operations behind a value, back to the products with weights and to ``ends``."""
    seen: set[int] = set()
    todo = [value]
    while todo:
        op = flow.producer(todo.pop())
        if op is not None and op.index not in seen and op.kind != "layer" and op.index not in ends:
            seen.add(op.index)
            todo += op.inputs
    return seen


def _named(source: int, nodes: Sequence[Node]) -> str:
    return nodes[source].name if source >= 0 else "the model's input"
