"""Questions about a graph, against brute force."""

import itertools

import pytest
import torch

from netvitals.anatomy.topology import Topology


def diamond():
    return Topology({"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c"), "e": ("d", "a"), "out": ("e",)})


def test_topology_answers():
    t = diamond()
    assert t.order.index("d") > t.order.index("b")
    assert t.children["a"] == ("b", "c", "e") and t.fan_out == 3
    assert t.descendants["b"] == {"d", "e", "out"} and t.ancestors["d"] == {"a", "b", "c"}
    assert t.comparable("a", "d") and not t.comparable("b", "c") and t.comparable("b", "b")
    assert t.distance("b", "c") == 2 and t.distance("a", "out") == 2
    assert t.depth("a") == 2 and t.depth("a", longest=True) == 4 and t.depth("out") == 0
    assert t.count_paths("a", "out") == 3
    assert set(t.paths("a", "out")) == {("a", "e", "out"), ("a", "b", "d", "e", "out"), ("a", "c", "d", "e", "out")}
    assert len(list(t.paths("a", "out", limit=2))) == 2
    assert t.dominators("a", "out") == ("e",) and t.dominators("b", "out") == ("d", "e")
    assert t.sink == "out"


def test_random_graphs_against_brute_force():
    g = torch.Generator().manual_seed(0)
    for _ in range(5):
        n = 6
        edge = lambda: float(torch.rand(1, generator=g)) < 0.4
        parents = {f"v{i}": tuple(f"v{j}" for j in range(i) if edge()) for i in range(n)}
        t = Topology(parents)
        for a, b in itertools.product(parents, parents):
            paths = [
                p
                for k in range(1, n + 1)
                for p in itertools.permutations(parents, k)
                if p[0] == a and p[-1] == b and all(x in parents[y] for x, y in itertools.pairwise(p))
            ]
            if int(a[1]) > 3 or int(b[1]) > 5:
                continue
            assert t.count_paths(a, b) == len(paths)
            assert set(t.paths(a, b)) == set(paths)
            inner = set.intersection(*(set(p[1:-1]) for p in paths)) if paths else set()
            assert set(t.dominators(a, b)) == inner


def test_wrong_graphs():
    with pytest.raises(ValueError, match="not a node"):
        Topology({"a": ("b",)})
    with pytest.raises(ValueError, match="cycle"):
        Topology({"a": ("b",), "b": ("a",)})
    assert Topology({"a": (), "b": ()}).distance("a", "b") is None
