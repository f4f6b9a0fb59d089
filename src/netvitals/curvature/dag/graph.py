"""A network as nodes with parents, a function each, and a loss at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from netvitals.anatomy import Topology
from netvitals.curvature.dag.rules import DerivativeRule

LOSS = "loss"  # the scalar node that follows the nodes the loss looks at


@dataclass(frozen=True)
class GraphNode:
    """$f_v = g_v(f_{Pa(v)}, \\theta_v)$ for one sample: ``fn(*parents, theta)`` returns a vector.

    Args:
        name: of the node.
        parents: nodes or inputs, in the order of the function's arguments.
        fn: takes one tensor per parent (vectors for nodes, anything for inputs) and the flat parameters or None.
        theta: key of its parameters in ``Graph.parameters``; nodes with the same key share them.
        rule: analytic derivatives; None differentiates ``fn`` automatically.

    >>> node = GraphNode("a", ("x",), lambda x, theta: 2 * x)
    >>> node.fn(torch.ones(2), None).tolist()
    [2.0, 2.0]
    """

    name: str
    parents: tuple[str, ...]
    fn: Callable[..., Tensor]
    theta: str | None = None
    rule: DerivativeRule | None = None


@dataclass(frozen=True)
class Graph:
    """Nodes, parameters by key, and ``loss(*values, y)`` for one sample over ``loss_parents``.

    The loss of a batch is the mean over samples. A loss that looks at several nodes (auxiliary heads, penalties) is a
    scalar node with those parents, as the corrected theory wants it.

    Attributes:
        nodes: in any order.
        loss: of the values of ``loss_parents`` and one target.
        parameters: flat vectors by key.
        loss_parents: nodes that the loss looks at.
        inputs: names of what is not a node.

    >>> double = GraphNode("a", ("x",), lambda x, theta: 2 * x)
    >>> square = GraphNode("out", ("a",), lambda a, theta: a**2)
    >>> Graph([double, square], loss=lambda f, y: (f - y).square().sum()).topology.order
    ('a', 'out')
    """

    nodes: Sequence[GraphNode]
    loss: Callable[..., Tensor]
    parameters: Mapping[str, Tensor] = field(default_factory=dict)
    loss_parents: tuple[str, ...] = ("out",)
    inputs: tuple[str, ...] = ("x",)

    def __post_init__(self) -> None:
        names = [n.name for n in self.nodes]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(
                    f"node name {name!r} is used {names.count(name)} times: give every node a different name"
                )
            if name in self.inputs or name == LOSS:
                raise ValueError(f"node {name!r} has the same name as an input or the loss: choose another name")
        for n in self.nodes:
            if not n.parents:
                raise ValueError(
                    f"node {n.name!r} has no parent: name an input ({', '.join(self.inputs)}) or another node as its "
                    "parent"
                )
            if n.theta is not None and n.theta not in self.parameters:
                raise ValueError(f"node {n.name!r} uses the parameters {n.theta!r}, which are missing from parameters=")
        for p in self.loss_parents:
            if p not in names:
                raise ValueError(f"the loss depends on {p!r}, which is not a node; the nodes are {', '.join(names)}")
        top = self.topology
        for name in names:
            if name not in self.loss_parents and not top.descendants[name] & set(self.loss_parents):
                raise ValueError(f"node {name!r} does not influence the loss: leave it out of the graph")

    @cached_property
    def topology(self) -> Topology:
        """Of the nodes alone, in the order they can run."""
        return Topology({n.name: tuple(p for p in n.parents if p not in self.inputs) for n in self.nodes})

    @cached_property
    def with_loss(self) -> Topology:
        """The same with the scalar node ``loss`` at the end."""
        return Topology({**self.topology.parents, LOSS: self.loss_parents})

    @cached_property
    def by_name(self) -> dict[str, GraphNode]:
        return {n.name: n for n in self.nodes}

    def copies(self, theta: str) -> tuple[str, ...]:
        """Names of the nodes that use the parameter vector ``theta``."""
        return tuple(n.name for n in self.nodes if n.theta == theta)


def chain(
    segments: Sequence[Callable[..., Tensor]],
    loss: Callable[..., Tensor],
    parameters: Sequence[Tensor | None] | None = None,
) -> Graph:
    """A chain x → 0 → 1 → … → out of functions ``segment(f, theta)``; the last segment is ``out``.

    Args:
        segments: the functions in order, each from a vector and its parameters (or None) to a vector.
        loss: ``loss(out, y)`` for one sample.
        parameters: one flat tensor a segment, None for a segment without; left out, none has any.

    Returns:
        The graph; its parameters are stored under the names of their nodes.

    >>> g = chain([lambda f, t: f.tanh(), lambda f, t: 3 * f], loss=lambda f, y: f.sum())
    >>> g.topology.parents
    {'0': (), 'out': ('0',)}
    """
    if not segments:
        raise ValueError("segments= must contain at least one function, one for each node of the chain; got none")
    names = [str(i) for i in range(len(segments) - 1)] + ["out"]
    thetas = list(parameters or [None] * len(segments))
    nodes = [
        GraphNode(n, (p,), f, n if t is not None else None)
        for n, p, f, t in zip(names, ["x", *names], segments, thetas)
    ]
    return Graph(nodes, loss, {n: t for n, t in zip(names, thetas) if t is not None})


def vector(sizes: Sequence[tuple[int, ...]], theta: Tensor) -> list[Tensor]:
    """Split flat parameters into tensors of the given shapes."""
    pieces = theta.split([int(torch.tensor(s).prod()) for s in sizes])
    return [p.reshape(s) for p, s in zip(pieces, sizes)]
