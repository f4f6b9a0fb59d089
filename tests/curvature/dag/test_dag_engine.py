"""The analytic engine: closed form, recursion, parameters and products against automatic differentiation on any DAG."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.func import jacrev

from netvitals.curvature import dag
from netvitals.curvature.dag import library as lib

pytestmark = pytest.mark.slow

ACTS = [torch.tanh, F.silu, F.gelu, F.relu, F.softplus, torch.sigmoid]


def cross_entropy(f, y):
    return torch.logsumexp(f, 0) - (f * y).sum()


def random_graph(seed, n, extra=0.4, width=3):
    """A random DAG of dense nodes, element products, sums and norms; every node reaches the output."""
    g = torch.Generator().manual_seed(seed)
    draw = lambda k: int(torch.randint(0, k, (1,), generator=g))
    nodes, params, used = [], {}, set()
    for i in range(n):
        name = f"n{i}" if i < n - 1 else "out"
        before = [f"n{j}" for j in range(i)]
        parents = [before[-1]] if before else ["x"]
        parents += [p for p in before[:-1] if torch.rand(1, generator=g).item() < extra]
        if i == n - 1:
            parents += [p for p in before if p not in used and p not in parents]
        kind = draw(4) if i < n - 1 else 0
        if kind == 1 and len(parents) == 2:
            nodes.append(lib.hadamard(name, *parents))
        elif kind == 2 and before:
            nodes.append(lib.add(name, parents))
        elif kind == 3 and before and len(parents) == 1:
            nodes.append(lib.norm(name, parents[0], "layer" if draw(2) else "rms"))
        else:
            fan = sum(4 if p == "x" else width for p in parents)
            nodes.append(lib.dense(name, parents, width, None if name == "out" else ACTS[draw(len(ACTS))]))
            params[name] = lib.dense_parameters(width, fan, seed * 100 + i)
        used.update(parents)
    return dag.Graph(nodes, cross_entropy, params)


def evaluation(graph, samples=2, seed=0, width=3):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 4, generator=g, dtype=torch.float64)
    y = torch.softmax(torch.randn(samples, width, generator=g, dtype=torch.float64), 1)
    return dag.DagEvaluation(graph, x, y)


def relative(a, b):
    return float((a - b).norm() / b.norm().clamp_min(1e-300))


random_dags = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


@random_dags
@given(seed=st.integers(0, 10_000), n=st.integers(2, 6))
def test_closed_form_and_recursion_equal_the_hessian_of_the_perturbed_loss(seed, n):
    e = evaluation(random_graph(seed, n), seed=seed)
    reference = dag.assembled(dag.blocks(e, method="autograd"))
    for method in ("closed", "onesided"):
        error = relative(dag.assembled(dag.blocks(e, method=method)), reference)
        assert error <= 1e-10, f"{method}: relative error {error:.1e}"


@random_dags
@given(seed=st.integers(0, 10_000), n=st.integers(2, 5))
def test_parameter_blocks_recover_the_whole_hessian(seed, n):
    graph = random_graph(seed, n)
    e = evaluation(graph, seed=seed)
    found, _ = dag.parameter_hessian(e)
    keys = list(graph.parameters)
    sizes = [graph.parameters[k].numel() for k in keys]

    def loss(flat):
        parameters = dict(zip(keys, flat.split(sizes)))
        return dag.DagEvaluation(dag.Graph(graph.nodes, graph.loss, parameters), e.inputs, e.y).loss.mean()

    flat = torch.cat([graph.parameters[k] for k in keys])
    error = relative(found, jacrev(jacrev(loss))(flat))
    assert error <= 1e-10, f"relative error {error:.1e}"


@random_dags
@given(seed=st.integers(0, 10_000), n=st.integers(2, 6))
def test_products_with_split_equal_dense_products(seed, n):
    e = evaluation(random_graph(seed, n), seed=seed)
    names = e.graph.topology.order
    g = torch.Generator().manual_seed(seed)
    inject = {v: torch.randn(e.size(v), generator=g, dtype=torch.float64) for v in names}
    table = dag.blocks(e)
    got = dag.product(e, injections=inject)
    for part, rows in (("H", got.nodes), ("GN", got.nodes_gn)):
        want = dag.assembled(table, part) @ torch.cat([inject[v] for v in names])
        assert relative(torch.cat([rows[v] for v in names]), want) <= 1e-10
    r = {
        v: torch.randn(e.parameter_edge(v).shape[2], generator=g, dtype=torch.float64)
        for v in names
        if e.graph.by_name[v].theta
    }
    rows = dag.product(e, r)
    for v in r:
        blocks = {w: dag.parameter_block(e, v, w) for w in r}
        assert relative(rows.parameters[v], sum(blocks[w].H @ r[w] for w in r)) <= 1e-10
        assert relative(rows.parameters_gn[v], sum(blocks[w].ggn @ r[w] for w in r)) <= 1e-10


@random_dags
@given(seed=st.integers(0, 10_000), n=st.integers(2, 6))
def test_gauss_newton_is_psd_and_has_root_factors(seed, n):
    e = evaluation(random_graph(seed, n), seed=seed)
    table = dag.blocks(e, reduction="per_sample")
    gn = dag.assembled(table, "GN")
    assert float(torch.linalg.eigvalsh(gn).min()) > -1e-10 * float(gn.abs().max())
    s = dag.root_factors(e)
    stacked = torch.cat([s[v] for v in e.graph.topology.order], 1)
    assert relative(stacked @ stacked.mT, gn) <= 1e-10
    h = dag.assembled(table)
    assert relative(h, h.mT) <= 1e-10


@random_dags
@given(seed=st.integers(0, 10_000), n=st.integers(2, 6))
def test_paths_add_up(seed, n):
    e = evaluation(random_graph(seed, n), seed=seed)
    v, w = e.graph.topology.order[0], e.graph.topology.order[-2] if n > 2 else e.graph.topology.order[0]
    total = sum(dag.path_jacobian(e, p) for p in e.graph.topology.paths(v, "out"))
    assert relative(total, e.total("out", v)) <= 1e-12
    terms, missed = dag.path_terms(e, v, w)
    h = dag.block(e, v, w)
    assert missed <= 1e-10 * float(h.H.norm())
    assert relative(sum(t.term for t in terms if t.kind == "GN"), h.GN) <= 1e-10
    # corollary 67: the block is at most the sum of its path resonances
    assert float(h.H.norm()) <= sum(t.resonance for t in terms) * (1 + 1e-12)
    first = next(t for t in terms if t.kind == "GN")
    assert dag.path_resonance(e, first.from_v, first.from_w) == pytest.approx(first.resonance)


def named(*nodes, loss=cross_entropy, seed=0, width=3, inputs=4, **more):
    params = {}
    sizes = {"x": inputs, "noise": width}
    for n in nodes:
        if n.theta and n.theta not in params:
            fan = sum(sizes.get(p, width) for p in n.parents)
            params[n.theta] = lib.dense_parameters(width, fan, seed + len(params))
    return dag.Graph(nodes, loss, params, **more)


def unequal_diamond(act=F.silu):
    d = lambda n, *ps, f=act: lib.dense(n, ps, 3, f)
    return named(d("v1", "x"), d("v2", "v1"), d("v3", "v1"), d("v4", "v3"), d("v5", "v2", "v4"), d("out", "v5", f=None))


def error_of(e, method):
    return relative(dag.assembled(dag.blocks(e, method=method)), dag.assembled(dag.blocks(e, method="autograd")))


def test_the_printed_recursion_is_right_on_chains_and_equal_diamonds_and_wrong_on_unequal_merges():
    d = lambda n, *ps, f=torch.tanh: lib.dense(n, ps, 3, f)
    chain = evaluation(named(d("v1", "x"), d("v2", "v1"), d("v3", "v2"), d("out", "v3", f=None)))
    equal = evaluation(named(d("v1", "x"), d("v2", "v1"), d("v3", "v1"), d("v4", "v2", "v3"), d("out", "v4", f=None)))
    unequal = evaluation(unequal_diamond())
    linear = evaluation(
        named(
            d("v1", "x"),
            d("v2", "v1"),
            d("v3", "v1"),
            d("v4", "v3"),
            lib.add("v5", ["v2", "v4"]),
            d("v6", "v5"),
            d("out", "v6", f=None),
        )
    )
    for good in (chain, equal, linear):
        assert error_of(good, "paper") <= 1e-12
    assert error_of(unequal, "paper") > 0.01
    assert error_of(chain, "paper_eq2") > 0.01  # Remark 76 is needed, not a special case


def test_examples_of_the_paper():
    d = lambda n, *ps, f=torch.tanh: lib.dense(n, ps, 3, f)
    # Example 6, the diamond: H_{v2,v3} has a mixed term unless the merge is linear
    e = evaluation(named(d("v1", "x"), d("v2", "v1"), d("v3", "v1"), d("v4", "v2", "v3"), d("out", "v4", f=None)))
    h44 = dag.block(e, "v4", "v4", reduction="per_sample").H
    want = e.edge("v4", "v2").mT @ h44 @ e.edge("v4", "v3") + e.contracted("v4", "v2", "v3")
    assert relative(dag.block(e, "v2", "v3", reduction="per_sample").H, want) <= 1e-12
    assert float(e.contracted("v4", "v2", "v3").norm()) > 1e-6
    # Figure 1 with E2 corrected: the skip adds on the right of D3
    s = evaluation(
        named(
            d("v0", "x"),
            d("v1", "v0"),
            lib.dense("m", ["v1"], 3, torch.tanh),
            lib.add("v2", ["m", "v0"]),
            d("out", "v2", f=None),
        )
    )
    eye = torch.eye(3, dtype=torch.float64)
    assert relative(s.total("out", "v0"), s.edge("out", "v2") @ (eye + s.edge("m", "v1") @ s.edge("v1", "v0"))) <= 1e-12
    # Example 5: a skip v1 -> out adds its own pairs of children
    b = evaluation(named(d("v1", "x"), d("v2", "v1"), d("out", "v2", "v1", f=None)))
    terms, missed = dag.path_terms(b, "v1", "v1")
    assert len([t for t in terms if t.kind == "GN"]) == 4 and missed < 1e-12


def test_a_chain_block_is_the_jacobian_product_times_the_diagonal_block():
    d = lambda n, p, f=torch.tanh: lib.dense(n, [p], 3, f)
    e = evaluation(named(d("a", "x"), d("b", "a"), d("c", "b"), d("out", "c", None)))
    for part in ("H", "T"):
        got = getattr(dag.block(e, "a", "c", reduction="per_sample"), part)
        want = e.total("c", "a").mT @ getattr(dag.block(e, "c", "c", reduction="per_sample"), part)
        assert float((got - want).norm()) <= 1e-13


def test_weight_sharing_is_the_sum_over_copies_and_one_node_is_the_plain_hessian():
    nodes = [lib.dense("h", ["x"], 3, torch.tanh), *lib.unrolled("s", 3, 3, "h"), lib.dense("out", ["s2"], 3)]
    graph = named(*nodes)
    assert graph.copies("cell") == ("s0", "s1", "s2")
    e = evaluation(graph)

    def loss(cell):
        moved = dag.Graph(nodes, cross_entropy, {**graph.parameters, "cell": cell})
        return dag.DagEvaluation(moved, e.inputs, e.y).loss.mean()

    assert relative(dag.shared_block(e, "cell", "cell"), jacrev(jacrev(loss))(graph.parameters["cell"])) <= 1e-10
    one = named(lib.dense("out", ["x"], 3, torch.tanh))
    f = evaluation(one)
    plain = jacrev(
        jacrev(lambda t: dag.DagEvaluation(dag.Graph(one.nodes, cross_entropy, {"out": t}), f.inputs, f.y).loss.mean())
    )(one.parameters["out"])
    assert relative(dag.parameter_block(f, "out", "out").H, plain) <= 1e-12


def test_a_loss_that_looks_at_two_nodes_is_a_node():
    d = lambda n, *ps, f=torch.tanh: lib.dense(n, ps, 3, f)
    loss = lambda a, o, y: cross_entropy(o, y) + 0.3 * (a * o).sum() ** 2 + a.pow(4).sum()
    nodes = [d("aux", "x"), d("mid", "aux"), d("out", "mid", f=None)]
    e = evaluation(named(*nodes, loss=loss, loss_parents=("aux", "out")))
    assert error_of(e, "closed") <= 1e-12
    assert error_of(e, "onesided") <= 1e-12
    with pytest.raises(ValueError, match="not convex"):
        dag.root_factors(evaluation(named(d("out", "x"), loss=lambda f, y: -f.square().sum())))


def test_relu_parameter_blocks_are_gauss_newton_on_the_diagonal_only():
    d = lambda n, p, f=F.relu: lib.dense(n, [p], 4, f)
    graph = named(d("a", "x"), d("b", "a"), d("out", "b", None), width=4)
    e = evaluation(graph, samples=4, width=4)
    assert float(dag.assembled(dag.blocks(e), "T").abs().max()) == 0
    for v in ("a", "b", "out"):
        assert float(dag.parameter_block(e, v, v).residual.norm()) <= 1e-15
    off = dag.parameter_block(e, "a", "b")
    assert float(off.residual.norm()) > 1e-3
    assert off.norms()["mixed_right"] > 0 and off.norms()["mixed_left"] == 0 and off.norms()["tensor_through"] == 0
    whole, _ = dag.parameter_hessian(e)
    assert float(torch.linalg.eigvalsh(whole)[0]) < -1e-3  # negative curvature although T = 0 (erratum E25)


def test_norm_bridge_of_corollary_17():
    graph = random_graph(5, 5)
    e = evaluation(graph)
    for v in e.graph.topology.order:
        for w in e.graph.topology.order:
            if graph.by_name[v].theta and graph.by_name[w].theta:
                p = dag.parameter_block(e, v, w)
                rest = sum(x for k, x in p.norms().items() if k in ("pure", "mixed_left", "mixed_right"))
                top = lambda name: torch.linalg.matrix_norm(e.parameter_edge(name), 2)
                h = dag.block(e, v, w, reduction="per_sample").H
                bound = float((top(v) * top(w) * torch.linalg.matrix_norm(h)).mean()) + rest
                assert float(p.H.norm()) <= bound * (1 + 1e-12)


def test_routing_adds_up_to_the_blocks():
    e = evaluation(unequal_diamond())
    steps = dag.routing(e, "v2")
    assert {(r.v, r.via) for r in steps} >= {("out", "loss"), ("v1", "v2"), ("v1", "v3"), ("v5", "out")}
    only = [r for r in steps if r.v == "v5"]
    assert len(only) == 1 and only[0].gauss_newton == pytest.approx(float(dag.block(e, "v5", "v2").GN.norm()))
    assert any(r.tensor_added > 1e-8 for r in steps)


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
        ([lib.activation("out", "nobody", torch.tanh)], "names the parent 'nobody'"),
        ([lib.activation("a", "x", torch.tanh), lib.activation("out", "x", torch.tanh)], "'a' does not reach the loss"),
        ([lib.activation("out", "b", torch.tanh), lib.activation("b", "out", torch.tanh)], "lies on a cycle"),
        ([lib.activation("out", "x", torch.tanh), lib.activation("out", "x", torch.tanh)], "given 2 times"),
        ([lib.dense("out", ["x"], 3)], "names the parameters 'out'"),
        ([lib.activation("a", "x", torch.tanh)], "the loss looks at 'out'"),
    ],
)
def test_wrong_graphs_name_the_node(nodes, sentence):
    with pytest.raises(ValueError, match=sentence):
        dag.Graph(nodes, cross_entropy)


def test_a_node_must_return_a_vector_and_the_hessian_must_fit():
    bad = dag.Graph([dag.GraphNode("out", ("x",), lambda x, t: x.reshape(2, 2))], lambda f, y: f.sum())
    with pytest.raises(ValueError, match="node 'out' returned shape"):
        _ = dag.DagEvaluation(bad, torch.zeros(1, 4), torch.zeros(1)).values
    with pytest.raises(MemoryError, match="products instead"):
        dag.parameter_hessian(evaluation(random_graph(0, 3)), budget=10)


def test_segments_make_a_chain():
    g = dag.chain(
        [lambda f, t: torch.tanh(f), lambda f, t: f * t, lambda f, t: f],
        lambda f, y: f.square().sum(),
        [None, torch.ones(4, dtype=torch.float64), None],
    )
    e = dag.DagEvaluation(g, torch.randn(2, 4, dtype=torch.float64), torch.zeros(2))
    assert g.topology.order == ("0", "1", "out") and error_of(e, "onesided") <= 1e-12
