"""The analytic engine: closed form, recursion, parameters and products against automatic differentiation on any DAG."""

import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.func import jacrev

from netvitals.curvature import dag
from netvitals.curvature.dag import library as lib

sys.path.insert(0, str(Path(__file__).parent))
from dag_graphs import cross_entropy, error_of, evaluation, named, random_graph, relative

random_dags = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))


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


def unequal_diamond(act=F.silu):
    d = lambda n, *ps, f=act: lib.dense(n, ps, 3, f)
    return named(d("v1", "x"), d("v2", "v1"), d("v3", "v1"), d("v4", "v3"), d("v5", "v2", "v4"), d("out", "v5", f=None))


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
