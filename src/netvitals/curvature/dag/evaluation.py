r"""A graph at one batch: values, gradients, local Jacobians, contracted second derivatives, total Jacobians.

Everything is per sample with a leading batch dimension; $\delta_u\cdot T$ is never built from three-tensors but as the
Hessian of the scalar $\langle\delta_u, g_u(f_{Pa}, \theta)\rangle$, from which all contractions of a node come at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.func import jacrev, vmap

from netvitals.curvature.dag.graph import LOSS, Graph, GraphNode


class DagEvaluation:
    """The graph at inputs (a tensor for the single input ``x``, or a dict) and targets ``y``.

    Args:
        graph: nodes and loss.
        x: its inputs, examples first.
        y: the targets.

    >>> from netvitals.curvature.dag.graph import chain
    >>> g = chain([lambda f, t: f.tanh(), lambda f, t: 2 * f], loss=lambda f, y: (f - y).square().sum())
    >>> e = DagEvaluation(g, torch.zeros(1, 3), torch.ones(1, 3))
    >>> e.delta["out"][0].tolist(), e.edge("out", "0")[0].diag().tolist()
    ([-2.0, -2.0, -2.0], [2.0, 2.0, 2.0])
    """

    def __init__(self, graph: Graph, x: Tensor | Mapping[str, Tensor], y: Tensor) -> None:
        self.graph, self.y = graph, y
        self.inputs: Mapping[str, Tensor] = x if isinstance(x, Mapping) else {graph.inputs[0]: x}
        missing = [i for i in graph.inputs if i not in self.inputs]
        if missing:
            raise ValueError(
                f"the graph needs an input named {missing[0]!r}; the inputs given are {', '.join(self.inputs)}"
            )
        self.examples = len(y)
        self._cache: dict[Any, Any] = {}

    def _once(self, key: Any, make: Callable[[], Any]) -> Any:
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]

    @cached_property
    def values(self) -> dict[str, Tensor]:
        """f_v for every node, (B, d_v)."""
        out: dict[str, Tensor] = {}
        for name in self.graph.topology.order:
            node = self.graph.by_name[name]
            parents = [out[p] if p in out else self.inputs[p] for p in node.parents]
            value = vmap(lambda *ps, n=node: n.fn(*ps, self._theta(n)))(*parents)
            if value.ndim != 2:
                raise ValueError(
                    f"node {name!r} returned shape {tuple(value.shape[1:])} for each example, expected a vector: "
                    "flatten it"
                )
            out[name] = value
        return out

    def _theta(self, node: GraphNode) -> Tensor | None:
        return None if node.theta is None else self.graph.parameters[node.theta]

    def size(self, v: str) -> int:
        """Dimension of the node ``v``."""
        return 1 if v == LOSS else self.values[v].shape[1]

    def parents_of(self, u: str) -> list[Tensor]:
        """Values of the parents and inputs of node ``u``, in the order of its arguments."""
        if u == LOSS:
            return [self.values[p] for p in self.graph.loss_parents]
        return [self.values[p] if p in self.values else self.inputs[p] for p in self.graph.by_name[u].parents]

    @cached_property
    def loss(self) -> Tensor:
        """Loss by sample, (B,)."""
        return vmap(self.graph.loss)(*self.parents_of(LOSS), self.y)

    @cached_property
    def delta(self) -> dict[str, Tensor]:
        r"""$\delta_v=\nabla_{f_v}\ell=\sum_{u\in Ch(v)}D_{u\leftarrow v}^\top\delta_u$ by sample, (B, d_v)."""
        out = {LOSS: torch.ones_like(self.loss)[:, None]}
        for v in reversed(self.graph.topology.order):
            terms = [torch.einsum("buv,bu->bv", self.edge(u, v), out[u]) for u in self.graph.with_loss.children[v]]
            out[v] = torch.stack(terms).sum(0)
        return out

    # ------------------------------------------------------------------ local derivatives

    def edge(self, u: str, p: str) -> Tensor:
        r"""$D_{u\leftarrow p}$ from node ``p`` to its child ``u``, (B, d_u, d_p), summed over repeated arguments."""
        return self._once(("D", u, p), lambda: sum(self._jacobians(u)[i] for i in self._slots(u, p)))

    def parameter_edge(self, u: str) -> Tensor:
        r"""$D_u=\partial g_u/\partial\theta_u$ of node ``u``, (B, d_u, p_u)."""
        if self.graph.by_name[u].theta is None:
            raise KeyError(f"node {u!r} has no parameters")
        return self._jacobians(u)[len(self.graph.by_name[u].parents)]

    def contracted(self, u: str, p: str, q: str) -> Tensor:
        r"""$\delta_u\cdot T_{u;p,q}$ of node ``u`` and its parents ``p`` and ``q``, (B, d_p, d_q)."""
        table = self._contractions(u)
        return self._once(
            ("M", u, p, q), lambda: sum(table[i, j] for i in self._slots(u, p) for j in self._slots(u, q))
        )

    def contracted_parameter(self, u: str, p: str) -> Tensor:
        r"""$B_{u,p}=\delta_u\cdot T_{u;\theta,p}$ of node ``u`` and its parent ``p``, (B, p_u, d_p)."""
        table = self._contractions(u)
        last = len(self.graph.by_name[u].parents)
        return sum((table[last, i] for i in self._slots(u, p)), torch.zeros(()))

    def contracted_pure(self, u: str) -> Tensor:
        r"""$\delta_u\cdot T^\theta_u$ of node ``u``, (B, p_u, p_u)."""
        last = len(self.graph.by_name[u].parents)
        return self._contractions(u)[last, last]

    def tensor(self, u: str, p: str, q: str) -> Tensor:
        r"""The whole three-tensor $T_{u;p,q}$ of node ``u`` and its parents ``p`` and ``q``, (B, d_u, d_p, d_q); for
        tests.
        """
        node = self.graph.by_name[u]
        out: Any = 0
        for i in self._slots(u, p):
            for j in self._slots(u, q):
                fn = lambda *ps: node.fn(*ps, self._theta(node))
                out = out + vmap(jacrev(jacrev(fn, argnums=i), argnums=j))(*self.parents_of(u))
        return out

    def _slots(self, u: str, p: str) -> list[int]:
        names = self.graph.loss_parents if u == LOSS else self.graph.by_name[u].parents
        found = [i for i, n in enumerate(names) if n == p]
        if not found:
            raise KeyError(f"{p!r} is not a parent of {u!r}; its parents are {', '.join(names)}")
        return found

    def _moving(self, u: str) -> tuple[int, ...]:
        """Positions of the arguments that are nodes or parameters; inputs of the graph are not differentiated by."""
        node = self.graph.by_name[u]
        last = (len(node.parents),) if node.theta is not None else ()
        return tuple(i for i, p in enumerate(node.parents) if p in self.values) + last

    def _jacobians(self, u: str) -> dict[int, Tensor]:
        """(B, d_u, d_p) per argument that is a node; the parameters' under the position after the last parent."""
        return self._once(("J", u), lambda: self._local_jacobians(u))

    def _local_jacobians(self, u: str) -> dict[int, Tensor]:
        parents = self.parents_of(u)
        if u == LOSS:
            grads = vmap(jacrev(self.graph.loss, argnums=tuple(range(len(parents)))))(*parents, self.y)
            return {i: g[:, None] for i, g in enumerate(grads)}
        node = self.graph.by_name[u]
        theta = self._theta(node)
        if node.rule is not None:
            rule = node.rule
            return dict(enumerate(vmap(lambda *ps: tuple(rule.jacobians(list(ps), theta)))(*parents)))
        argnums = self._moving(u)
        if not argnums:
            return {}
        fn = (lambda *a: node.fn(*a)) if theta is not None else (lambda *a: node.fn(*a, None))
        extra = () if theta is None else (theta,)
        got = vmap(lambda *ps: jacrev(fn, argnums=argnums)(*ps, *extra))(*parents)
        return {i: g.reshape(g.shape[0], g.shape[1], -1) for i, g in zip(argnums, got)}

    def _contractions(self, u: str) -> dict[tuple[int, int], Tensor]:
        return self._once(("C", u), lambda: self._local_contractions(u))

    def _local_contractions(self, u: str) -> dict[tuple[int, int], Tensor]:
        parents = self.parents_of(u)
        delta = self.delta[u]
        if u == LOSS:
            n = tuple(range(len(parents)))
            got = vmap(jacrev(jacrev(self.graph.loss, argnums=n), argnums=n))(*parents, self.y)
            return {(i, j): got[i][j] for i in n for j in n}
        node = self.graph.by_name[u]
        theta = self._theta(node)
        if node.rule is not None:
            rule = node.rule
            k = len(parents) + (theta is not None)
            flat = vmap(lambda d, *ps: _listed(rule.contractions(d, list(ps), theta), k))(delta, *parents)
            return {(i, j): flat[i * k + j] for i in range(k) for j in range(k)}
        args = (*parents, *(() if theta is None else (theta,)))
        n = self._moving(u)
        if not n:
            return {}

        def scalar(d: Tensor, *a: Tensor) -> Tensor:
            return (d * node.fn(*a, *(() if theta is not None else (None,)))).sum()

        where = tuple(0 for _ in parents) + (() if theta is None else (None,))
        second = jacrev(jacrev(scalar, argnums=tuple(i + 1 for i in n)), argnums=tuple(i + 1 for i in n))
        got = vmap(second, in_dims=(0, *where))(delta, *args)
        shape = [p[0].numel() for p in parents] + ([] if theta is None else [theta.numel()])
        return {
            (i, j): got[a][b].reshape(self.examples, shape[i], shape[j])
            for a, i in enumerate(n)
            for b, j in enumerate(n)
        }

    # ------------------------------------------------------------------ total Jacobians

    def total(self, p: str, v: str) -> Tensor:
        r"""$J_{p\leftarrow v}=df_p/df_v$ (path sum) from node ``v`` to node ``p``, (B, d_p, d_v): I if p = v, zero if p
        does not follow v.
        """
        return self._once(("total", p, v), lambda: self._total(p, v))

    def _total(self, p: str, v: str) -> Tensor:
        if p == v:
            eye = torch.eye(self.size(v), dtype=self.loss.dtype, device=self.loss.device)
            return eye.expand(self.examples, -1, -1)
        top = self.graph.with_loss
        if p not in top.descendants[v]:
            return self.loss.new_zeros(self.examples, self.size(p), self.size(v))
        feeds = [q for q in top.parents[p] if q == v or q in top.descendants[v]]
        return torch.stack([self.edge(p, q) @ self.total(q, v) for q in feeds]).sum(0)


def _listed(table: Mapping[tuple[int, int], Tensor], k: int) -> tuple[Tensor, ...]:
    return tuple(table[i, j] if (i, j) in table else table[j, i].mT for i in range(k) for j in range(k))
