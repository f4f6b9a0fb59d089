"""Questions about a directed acyclic graph: order, ancestors, distances, paths, dominators; answered by networkx."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import islice

import networkx as nx


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
                    raise ValueError(
                        f"node {v!r} has the parent {p!r}, which is not a node of the graph: give only names of nodes"
                    )
        self.parents = {v: tuple(dict.fromkeys(ps)) for v, ps in parents.items()}
        self.graph: nx.DiGraph = nx.DiGraph()
        self.graph.add_nodes_from(self.parents)
        self.graph.add_edges_from((p, v) for v, ps in self.parents.items() for p in ps)
        if not nx.is_directed_acyclic_graph(self.graph):
            stuck = nx.find_cycle(self.graph)[0][0]
            raise ValueError(
                f"node {stuck!r} is part of a cycle, but a network's graph must be acyclic: unroll recurrences"
            )
        self.order: tuple[str, ...] = tuple(nx.topological_sort(self.graph))

    @cached_property
    def children(self) -> dict[str, tuple[str, ...]]:
        return {v: tuple(self.graph.successors(v)) for v in self.parents}

    @cached_property
    def descendants(self) -> dict[str, frozenset[str]]:
        return {v: frozenset(nx.descendants(self.graph, v)) for v in self.parents}

    @cached_property
    def ancestors(self) -> dict[str, frozenset[str]]:
        return {v: frozenset(nx.ancestors(self.graph, v)) for v in self.parents}

    @property
    def sink(self) -> str:
        return [v for v in self.order if not self.children[v]][-1]

    @cached_property
    def fan_out(self) -> int:
        """s of Corollary 26: the largest number of children (not the s of Prop. 89; erratum E8)."""
        return max((len(us) for us in self.children.values()), default=0)

    def comparable(self, v: str, w: str) -> bool:
        """One is an ancestor of the other, or they are the same."""
        return v == w or w in self.descendants[v] or v in self.descendants[w]

    def distance(self, v: str, w: str) -> int | None:
        """Edges on the shortest undirected path; None if there is none."""
        return self._distances[v].get(w)

    @cached_property
    def _distances(self) -> dict[str, dict[str, int]]:
        return dict(nx.all_pairs_shortest_path_length(self.graph.to_undirected(as_view=True)))

    def depth(self, v: str, longest: bool = False) -> int | None:
        """Edges on the shortest (or longest) directed path to the sink."""
        if v != self.sink and self.sink not in self.descendants[v]:
            return None
        if not longest:
            return nx.shortest_path_length(self.graph, v, self.sink)
        return nx.dag_longest_path_length(self._between(v, self.sink))

    def _between(self, v: str, w: str) -> nx.DiGraph:
        """The part of the graph that lies on directed paths from v to w, both included."""
        return self.graph.subgraph((self.descendants[v] | {v}) & (self.ancestors[w] | {w}))

    def count_paths(self, v: str, w: str) -> int:
        """Directed paths from v to w, counted without walking them: there may be exponentially many."""
        ways = {v: 1}
        for u in self.order:
            if u != v:
                ways[u] = sum(ways.get(p, 0) for p in self.parents[u])
        return ways.get(w, 0)

    def paths(self, v: str, w: str, limit: int = 10_000) -> Iterator[tuple[str, ...]]:
        """Directed paths from v to w, at most ``limit`` of them, in the order of the children."""
        found = [(v,)] if v == w else nx.all_simple_paths(self._between(v, w), v, w) if w in self.descendants[v] else ()
        yield from map(tuple, islice(found, limit))

    def dominators(self, v: str, w: str) -> tuple[str, ...]:
        """Nodes strictly between v and w that every path from v to w passes: the bottlenecks of that pair."""
        if w not in self.descendants[v]:
            return ()
        above = nx.immediate_dominators(self.graph, v)
        found: list[str] = []
        u = above[w]
        while u != v:
            found.append(u)
            u = above[u]
        return tuple(reversed(found))
