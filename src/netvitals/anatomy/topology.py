"""Questions about a directed acyclic graph: order, ancestors, distances, paths, dominators."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from functools import cached_property


class Topology:
    """A DAG given by the parents of each node; the last node in topological order without children is the sink.

    >>> t = Topology({"a": (), "b": ("a",), "c": ("a",), "out": ("b", "c")})
    >>> t.distance("b", "c"), t.count_paths("a", "out"), t.dominators("a", "out"), t.fan_out
    (2, 2, (), 2)
    """

    def __init__(self, parents: Mapping[str, tuple[str, ...]]) -> None:
        for v, ps in parents.items():
            for p in ps:
                if p not in parents:
                    raise ValueError(f"node {v!r} names the parent {p!r}, which is not a node of the graph")
        self.parents = {v: tuple(dict.fromkeys(ps)) for v, ps in parents.items()}
        self.order = self._sorted()

    def _sorted(self) -> tuple[str, ...]:
        waiting = {v: len(ps) for v, ps in self.parents.items()}
        ready = deque(v for v, k in waiting.items() if k == 0)
        out = []
        while ready:
            v = ready.popleft()
            out.append(v)
            for u in self.children[v]:
                waiting[u] -= 1
                if waiting[u] == 0:
                    ready.append(u)
        if len(out) < len(waiting):
            stuck = next(v for v, k in waiting.items() if k > 0)
            raise ValueError(f"node {stuck!r} lies on a cycle: a network's graph must be acyclic (unroll recurrences)")
        return tuple(out)

    @cached_property
    def children(self) -> dict[str, tuple[str, ...]]:
        out: dict[str, list[str]] = {v: [] for v in self.parents}
        for u, ps in self.parents.items():
            for p in ps:
                out[p].append(u)
        return {v: tuple(us) for v, us in out.items()}

    @cached_property
    def descendants(self) -> dict[str, frozenset[str]]:
        out: dict[str, frozenset[str]] = {}
        for v in reversed(self.order):
            out[v] = frozenset(self.children[v]).union(*(out[u] for u in self.children[v]))
        return out

    @cached_property
    def ancestors(self) -> dict[str, frozenset[str]]:
        out: dict[str, frozenset[str]] = {}
        for v in self.order:
            out[v] = frozenset(self.parents[v]).union(*(out[p] for p in self.parents[v]))
        return out

    @property
    def sink(self) -> str:
        sinks = [v for v in self.order if not self.children[v]]
        return sinks[-1]

    @cached_property
    def fan_out(self) -> int:
        """s of Corollary 26: the largest number of children (not the s of Prop. 89; erratum E8)."""
        return max((len(us) for us in self.children.values()), default=0)

    def comparable(self, v: str, w: str) -> bool:
        """One is an ancestor of the other, or they are the same."""
        return v == w or w in self.descendants[v] or v in self.descendants[w]

    def distance(self, v: str, w: str) -> int | None:
        """Edges on the shortest undirected path; None if there is none."""
        return self._shortest(v, directed=False).get(w)

    def depth(self, v: str, longest: bool = False) -> int | None:
        """Edges on the shortest (or longest) directed path to the sink."""
        if not longest:
            return self._shortest(v, directed=True).get(self.sink)
        return self._longest.get(v)

    @cached_property
    def _longest(self) -> dict[str, int]:
        out = {self.sink: 0}
        for v in reversed(self.order):
            below = [out[u] for u in self.children[v] if u in out]
            if below:
                out[v] = 1 + max(below)
        return out

    def _shortest(self, v: str, directed: bool) -> dict[str, int]:
        found, queue = {v: 0}, deque([v])
        while queue:
            a = queue.popleft()
            for b in self.children[a] + (() if directed else self.parents[a]):
                if b not in found:
                    found[b] = found[a] + 1
                    queue.append(b)
        return found

    def count_paths(self, v: str, w: str) -> int:
        """Directed paths from v to w."""
        ways = {v: 1}
        for u in self.order:
            if u != v:
                ways[u] = sum(ways.get(p, 0) for p in self.parents[u])
        return ways.get(w, 0)

    def paths(self, v: str, w: str, limit: int = 10_000) -> Iterator[tuple[str, ...]]:
        """Directed paths from v to w, at most ``limit`` of them, shortest prefixes first."""
        live = self.ancestors[w] | {w}
        stack: list[tuple[str, ...]] = [(v,)]
        while stack and limit > 0:
            path = stack.pop()
            if path[-1] == w:
                limit -= 1
                yield path
                continue
            stack += [(*path, u) for u in reversed(self.children[path[-1]]) if u in live]

    def dominators(self, v: str, w: str) -> tuple[str, ...]:
        """Nodes strictly between v and w that every path from v to w passes: the bottlenecks of that pair."""
        total = self.count_paths(v, w)
        between = [u for u in self.order if u in self.descendants[v] and u in self.ancestors[w]]
        return tuple(u for u in between if total and self.count_paths(v, u) * self.count_paths(u, w) == total)
