"""The parts of a graph: closed rules of node types, certificates of kinks, and what a wrong graph is told."""

import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch.func import jacrev

from netvitals.curvature import dag
from netvitals.curvature.dag import library as lib

sys.path.insert(0, str(Path(__file__).parent))
from dag_graphs import cross_entropy, error_of, evaluation, named, random_graph, relative


@pytest.mark.parametrize(
    ("node", "shape"),
    [
        (lib.dense("u", ["p"], 3, torch.tanh), (4,)),
        (lib.dense("u", ["p"], 3), (4,)),
        (lib.activation("u", "p", F.gelu), (4,)),
        (lib.norm("u", "p"), (5,)),
        (lib.norm("u", "p", "rms"), (5,)),
        (lib.softmax("u", "p"), (5,)),
        (lib.add("u", ["p", "q"]), (4,)),
        (lib.concat("u", ["p", "q"]), (4,)),
        (lib.hadamard("u", "p", "q"), (4,)),
        (lib.matmul("u", "p", "q", 2, 2, 2), (4,)),
        (lib.dense("u", ["p", "q"], 3, F.silu), (4,)),
        (lib.scale("u", "p", 2.0), (4,)),
        (lib.average_pool("u", "p", (1, 4, 4), 2), (16,)),
        (lib.max_pool("u", "p", (1, 4, 4), 2), (16,)),
        (lib.convolution("u", "p", torch.ones(2, 1, 2, 2, dtype=torch.float64), (1, 4, 4)), (16,)),
    ],
    ids=lambda v: getattr(getattr(v, "rule", None), "__class__", type(v)).__name__,
)
def test_closed_rules_equal_automatic_differentiation(node, shape):
    """Every rule of the library against the same function without its rule."""
    g = torch.Generator().manual_seed(1)
    n = shape[0]

    def build(rule):
        two = len(node.parents) == 2
        first = [
            dag.GraphNode(p, ("x",), lambda x, t, i=i: x[i * n : (i + 1) * n].sin()) for i, p in enumerate(node.parents)
        ]
        u = dag.GraphNode("u", node.parents, node.fn, node.theta, rule=rule)
        out = dag.GraphNode("out", ("u",), lambda f, t: f.pow(3))
        params = (
            {
                "u": torch.randn(
                    3 * n * len(node.parents) + 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64
                )
            }
            if node.theta
            else {}
        )
        graph = dag.Graph([*first, u, out], lambda f, y: f.sum() * y.sum(), params)
        return dag.DagEvaluation(graph, x, torch.ones(2, 1, dtype=torch.float64)), two

    x = torch.randn(2, 2 * n, generator=g, dtype=torch.float64)
    (a, two), (b, _) = build(node.rule), build(None)
    pairs = [("p", "p")] + ([("p", "q"), ("q", "q")] if two else [])
    for p, q in pairs:
        torch.testing.assert_close(a.edge("u", p), b.edge("u", p), atol=1e-12, rtol=0)
        torch.testing.assert_close(a.contracted("u", p, q), b.contracted("u", p, q), atol=1e-12, rtol=0)
        whole = torch.einsum("bi,bijk->bjk", b.delta["u"], b.tensor("u", p, q))
        torch.testing.assert_close(a.contracted("u", p, q), whole, atol=1e-12, rtol=0)
    if node.theta:
        torch.testing.assert_close(a.parameter_edge("u"), b.parameter_edge("u"), atol=1e-12, rtol=0)
        for p in node.parents:
            torch.testing.assert_close(
                a.contracted_parameter("u", p), b.contracted_parameter("u", p), atol=1e-12, rtol=0
            )
        torch.testing.assert_close(a.contracted_pure("u"), b.contracted_pure("u"), atol=1e-12, rtol=0)


def test_other_node_types_fit_the_formalism():
    """Attention, noise, eval and train batch norm, embedding: closed form equals autograd."""
    s, d = 3, 2
    lin = lambda n: dag.GraphNode(n, ("x",), lambda x, t: (x.reshape(s, 2) @ t.reshape(2, d)).reshape(-1), n)
    g = torch.Generator().manual_seed(0)
    w = {n: torch.randn(2 * d, generator=g, dtype=torch.float64) for n in "qkv"}
    x = torch.randn(2, s * 2, generator=g, dtype=torch.float64)
    y = torch.randn(2, s * d, generator=g, dtype=torch.float64)
    square = lambda f, y: (f - y).square().sum()
    for softmaxed in (True, False):
        mix = lib.attention("out", "q", "k", "v", s, d, softmaxed=softmaxed)
        graph = dag.Graph([lin("q"), lin("k"), lin("v"), mix], square, w)
        e = dag.DagEvaluation(graph, x, y)
        assert error_of(e, "closed") <= 1e-10
        norms = {p: float(dag.block(e, *p).T.norm()) for p in ["qq", "qk", "qv", "kk", "kv", "vv"]}
        assert norms["vv"] <= 1e-12 and min(norms[p] for p in ("qk", "qv", "kv")) > 1e-4
        assert (norms["qq"] > 1e-4) == softmaxed and (norms["kk"] > 1e-4) == softmaxed
    noisy = dag.Graph(
        [lib.dense("h", ["x"], 3, torch.tanh), lib.noisy("z", "h", "noise", torch.exp), lib.dense("out", ["z"], 3)],
        lambda f, y: f.pow(4).sum(),
        {"h": lib.dense_parameters(3, 6, 0), "out": lib.dense_parameters(3, 3, 1)},
        inputs=("x", "noise"),
    )
    e = dag.DagEvaluation(noisy, {"x": x, "noise": torch.randn(2, 3, generator=g, dtype=torch.float64)}, y)
    assert error_of(e, "closed") <= 1e-10 and error_of(e, "onesided") <= 1e-10
    train = dag.Graph(
        [lib.dense("h", ["x"], 6, torch.tanh), lib.batch_norm_train("n", "h", 3), lib.activation("out", "n", F.relu)],
        square,
        {"h": lib.dense_parameters(6, 6, 0)},
    )
    e = dag.DagEvaluation(train, x[:1], y[:1])
    assert error_of(e, "closed") <= 1e-10 and float(dag.block(e, "h", "h").T.norm()) > 1e-4
    evaled = dag.Graph(
        [
            lib.dense("h", ["x"], 6, F.relu),
            lib.batch_norm("n", "h", torch.zeros(6), torch.ones(6)),
            lib.activation("out", "n", F.relu),
        ],
        square,
        {"h": lib.dense_parameters(6, 6, 0)},
    )
    assert float(dag.block(dag.DagEvaluation(evaled, x, y), "h", "h").T.norm()) == 0
    tokens = dag.Graph(
        [lib.embedding("t", "x", 2), lib.activation("out", "t", torch.tanh)],
        square,
        {"t": torch.randn(10, generator=g, dtype=torch.float64)},
    )
    e = dag.DagEvaluation(tokens, torch.tensor([[0, 3, 1], [4, 4, 2]]), y)
    table = dag.parameter_block(e, "t", "t").H

    def loss(t):
        return dag.DagEvaluation(dag.Graph(tokens.nodes, square, {"t": t}), e.inputs, y).loss.mean()

    assert relative(table, jacrev(jacrev(loss))(tokens.parameters["t"])) <= 1e-10


def test_certificates_of_piecewise_linearity():
    from torch import nn

    relu = named(lib.dense("a", ["x"], 3, F.relu), lib.dense("out", ["a"], 3))
    assert dag.certificate(relu).piecewise_linear and dag.certificate(evaluation(relu)).piecewise_linear
    silu = named(lib.dense("a", ["x"], 3, F.relu), lib.dense("b", ["a"], 3, F.silu), lib.dense("out", ["b"], 3))
    assert set(dag.certificate(silu).bending) == {"b"} and set(dag.certificate(evaluation(silu)).bending) == {"b"}
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.ReLU(), nn.LayerNorm(2))
    assert set(dag.certificate(net).bending) == {"1", "3"}
    assert set(dag.certificate(net.eval()).bending) == {"3"}
    assert "LayerNorm" in str(dag.certificate(net))


def test_hessians_around_a_kink_fall_into_clusters():
    graph = named(lib.dense("a", ["x"], 3, F.relu), lib.dense("out", ["a"], 3))
    x = torch.randn(1, 4, dtype=torch.float64)
    y = torch.softmax(torch.randn(1, 3, dtype=torch.float64), 1)
    w = graph.parameters["a"][:12].reshape(3, 4)
    b = graph.parameters["a"][12:]
    on = x - ((w[0] @ x[0] + b[0]) / w[0].square().sum()) * w[0]  # unit 0 exactly at its kink
    z = on @ w.mT + b
    assert dag.near_kinks(z, 1e-9).tolist() == [[0, 0]]
    first = dag.GraphNode("i", ("x",), lambda x, t: 1.0 * x)
    nodes = [first, lib.dense("a", ["i"], 3, F.relu), lib.dense("out", ["a"], 3)]
    moved = dag.Graph(nodes, cross_entropy, graph.parameters)
    samples = dag.clarke_samples(moved, on, y, "i", "i", radius=1e-6)
    spread = (samples - samples[0]).flatten(1).norm(dim=1)
    far = spread > 1e-3
    assert 0 < int(far.sum()) < len(spread)  # two clusters
    assert float(spread[~far].max()) < 1e-4
    smooth = dag.clarke_samples(moved, on + 0.5, y, "i", "i", radius=1e-6)
    assert float((smooth - smooth[0]).norm()) < 1e-3


@pytest.mark.parametrize(
    ("nodes", "sentence"),
    [
        ([lib.activation("out", "nobody", torch.tanh)], "has the parent 'nobody'"),
        (
            [lib.activation("a", "x", torch.tanh), lib.activation("out", "x", torch.tanh)],
            "'a' does not influence the loss",
        ),
        ([lib.activation("out", "b", torch.tanh), lib.activation("b", "out", torch.tanh)], "is part of a cycle"),
        ([lib.activation("out", "x", torch.tanh), lib.activation("out", "x", torch.tanh)], "used 2 times"),
        ([lib.dense("out", ["x"], 3)], "uses the parameters 'out'"),
        ([lib.activation("a", "x", torch.tanh)], "the loss depends on 'out'"),
    ],
)
def test_wrong_graphs_name_the_node(nodes, sentence):
    with pytest.raises(ValueError, match=sentence):
        dag.Graph(nodes, cross_entropy)


def test_a_node_must_return_a_vector_and_the_hessian_must_fit():
    bad = dag.Graph([dag.GraphNode("out", ("x",), lambda x, t: x.reshape(2, 2))], lambda f, y: f.sum())
    with pytest.raises(ValueError, match="node 'out' returned shape"):
        _ = dag.DagEvaluation(bad, torch.zeros(1, 4), torch.zeros(1)).values
    with pytest.raises(MemoryError, match="matrix-vector products"):
        dag.parameter_hessian(evaluation(random_graph(0, 3)), budget=10)


def test_segments_make_a_chain():
    g = dag.chain(
        [lambda f, t: torch.tanh(f), lambda f, t: f * t, lambda f, t: f],
        lambda f, y: f.square().sum(),
        [None, torch.ones(4, dtype=torch.float64), None],
    )
    e = dag.DagEvaluation(g, torch.randn(2, 4, dtype=torch.float64), torch.zeros(2))
    assert g.topology.order == ("0", "1", "out") and error_of(e, "onesided") <= 1e-12
