"""The graph between nodes: who feeds whom, read from the autograd graph, so functional merges are seen too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor, nn

from netvitals.curvature.engine.nodes import CurvatureNode

OUT = "out"  # the model's output, the sink every node must reach


@dataclass(frozen=True)
class NodeGraph:
    """Nodes, the parents of each (the model's output is the node ``out``), merging operations, shared parameters.

    Attributes:
        names: nodes in the order they run.
        parents: for each node and for ``out``, the nodes it reads without another node between.
        merges: for nodes with several parents, the operations between that combine them (add, cat, mul, matmul, ...).
        shared: module or parameter name -> the nodes that use it more than once.
    """

    names: tuple[str, ...]
    parents: Mapping[str, tuple[str, ...]]
    merges: Mapping[str, tuple[str, ...]]
    shared: Mapping[str, tuple[str, ...]]

    @cached_property
    def topology(self) -> Any:
        from netvitals.anatomy import Topology

        return Topology({n: self.parents.get(n, ()) for n in (*self.names, OUT)})

    def without(self, idle: Sequence[str]) -> NodeGraph:
        keep = tuple(n for n in self.names if n not in idle)
        parents = {n: tuple(p for p in ps if p not in idle) for n, ps in self.parents.items() if n not in idle}
        return NodeGraph(keep, parents, {n: m for n, m in self.merges.items() if n not in idle}, self.shared)

    def __str__(self) -> str:
        lines = []
        for name in (*self.names, OUT):
            parents = self.parents.get(name, ())
            merge = f"  [{', '.join(self.merges[name])}]" if name in self.merges else ""
            lines.append(f"{name} ← {', '.join(parents) if parents else 'input'}{merge}")
        lines += [f"shared: {k} in {', '.join(v)}" for k, v in self.shared.items()]
        return "\n".join(lines)


def node_graph(
    nodes: Sequence[CurvatureNode],
    seams: Sequence[Sequence[tuple[Tensor, Tensor]]],
    outputs: Sequence[Tensor],
    model: nn.Module,
) -> NodeGraph:
    """Walk the autograd graph back from each node until the next nodes upstream."""
    names = [n.name for n in nodes]
    stops = {after.grad_fn: name for name, pairs in zip(names, seams) for _, after in pairs}
    parents: dict[str, tuple[str, ...]] = {}
    merges: dict[str, tuple[str, ...]] = {}
    targets = [(name, [before.grad_fn for before, _ in pairs]) for name, pairs in zip(names, seams)]
    targets.append((OUT, [o.grad_fn for o in outputs]))
    for name, starts in targets:
        found, ops = _upstream([s for s in starts if s is not None], stops)
        parents[name] = tuple(n for n in names if n in found)
        if len(found) > 1 and ops:
            merges[name] = tuple(sorted(ops))
    return NodeGraph(tuple(names), parents, merges, _shared(nodes, model))


def ends(start: Any, candidates: Sequence[Tensor], leaves: Sequence[Tensor]) -> list[Tensor]:
    """The tensors that cut ``start`` off from the leaves: every path back to a leaf passes exactly one of them.

    Empty where there is no such cut: a path passes none of the candidates, or two.
    """
    by_fn = {t.grad_fn: t for t in candidates}
    met, leaked = _met([start], set(by_fn), leaves)
    beyond = [f for fn in met for f, _ in fn.next_functions]
    return [] if leaked or _met(beyond, met, leaves)[0] else [t for fn, t in by_fn.items() if fn in met]


def _met(starts: Sequence[Any], stops: set[Any], leaves: Sequence[Tensor]) -> tuple[set[Any], bool]:
    """Which stops are met first on the way back, and whether a leaf is reached around them."""
    wanted, met, leaked = {id(leaf) for leaf in leaves}, set(), False
    visited: set[Any] = set()
    stack = list(starts)
    while stack:
        fn = stack.pop()
        if fn is None or fn in visited:
            continue
        visited.add(fn)
        if fn in stops:
            met.add(fn)
            continue
        leaked = leaked or id(getattr(fn, "variable", None)) in wanted
        stack += [f for f, _ in fn.next_functions]
    return met, leaked


def _upstream(starts: Sequence[Any], stops: Mapping[Any, str]) -> tuple[set[str], set[str]]:
    found: set[str] = set()
    visited: set[Any] = set()
    ops: set[str] = set()
    reach: dict[Any, frozenset[str]] = {}

    stack: list[tuple[Any, bool]] = [(s, False) for s in starts]
    while stack:
        fn, ready = stack.pop()
        if fn in stops:
            reach[fn] = frozenset([stops[fn]])
            found.add(stops[fn])
            continue
        nexts = [f for f, _ in fn.next_functions if f is not None]
        if ready:
            sets = [reach.get(f, frozenset()) for f in nexts]
            reach[fn] = frozenset().union(*sets) if sets else frozenset()
            live = [s for s in sets if s]
            if len(live) > 1 and len(reach[fn]) > 1:
                ops.add(fn.name().replace("Backward0", "").replace("Backward1", "").lower())
            continue
        if fn in visited:
            continue
        visited.add(fn)
        stack.append((fn, True))
        stack += [(f, False) for f in nexts]
    return found, ops


def _shared(nodes: Sequence[CurvatureNode], model: nn.Module) -> dict[str, tuple[str, ...]]:
    out: dict[str, tuple[str, ...]] = {}
    by_module: dict[str, list[str]] = {}
    for n in nodes:
        by_module.setdefault(n.module, []).append(n.name)
    out.update({m: tuple(ns) for m, ns in by_module.items() if len(ns) > 1})
    owners: dict[int, list[str]] = {}
    names: dict[int, str] = {}
    inner = {n.module for n in nodes for k in nodes if n.module != k.module and n.module.startswith(k.module + ".")}
    for n in {n.module: n for n in nodes if n.module not in inner}.values():
        for key, p in model.get_submodule(n.module).named_parameters():
            owners.setdefault(id(p), []).append(n.name)
            names.setdefault(id(p), f"{n.module}.{key}")
    out.update({names[i]: tuple(ns) for i, ns in owners.items() if len(ns) > 1})
    return out
