"""The paper's inequalities: the corrected ones hold on random nets, the printed ones fail where the errata say."""

import pytest
import torch
import torch.nn.functional as F

from netvitals.curvature import dag
from netvitals.curvature.dag import bounds
from netvitals.curvature.dag import library as lib
from netvitals.curvature.measure import metrics
from netvitals.curvature.measure.exact import ExactBlock


def cross_entropy(f, y):
    return torch.logsumexp(f, 0) - (f * y).sum()


def evaluate(nodes, widths=4, gain=1.0, seed=0, samples=3):
    params, sizes = {}, {"x": 4, **{n.name: widths for n in nodes}}
    for i, n in enumerate(nodes):
        if n.theta:
            params[n.theta] = gain * lib.dense_parameters(n.rule.width, sum(sizes[p] for p in n.parents), seed + i)
            sizes[n.name] = n.rule.width
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 4, generator=g, dtype=torch.float64)
    y = torch.softmax(torch.randn(samples, sizes["out"], generator=g, dtype=torch.float64), 1)
    return dag.DagEvaluation(dag.Graph(nodes, cross_entropy, params), x, y)


def chain(n, f=torch.tanh, **options):
    names = [f"v{i}" for i in range(n)]
    nodes = [lib.dense(v, [p], 4, f) for v, p in zip(names, ["x", *names])]
    return evaluate([*nodes, lib.dense("out", [names[-1]], 4)], **options)


def random_dag(seed, f=F.relu, gain=1.0, n=7):
    g = torch.Generator().manual_seed(seed)
    nodes = [lib.dense("v0", ["x"], 4, f)]
    for i in range(1, n):
        name = "out" if i == n - 1 else f"v{i}"
        parents = [f"v{i - 1}"] + [f"v{j}" for j in range(i - 1) if float(torch.rand(1, generator=g)) < 0.35]
        nodes.append(lib.dense(name, parents, 4, None if name == "out" else f))
    return evaluate(nodes, gain=gain, seed=seed)


def test_theorem_25_on_random_chains():
    for seed in range(10):
        e = chain(5, seed=seed)
        for i in range(5):
            for j in range(i, 5):
                check = bounds.theorem_25(e, f"v{i}", f"v{j}")
                assert check.holds, str(check)
    assert check.slack >= 1


def test_corollary_26_and_its_stronger_exponent_on_contracting_dags():
    violations, pairs = 0, 0
    for seed in range(12):
        e = random_dag(seed, gain=0.12)
        assert bounds.contraction_of(e) < 1
        for v in e.graph.topology.order:
            for w in e.graph.topology.order:
                weak, strong = bounds.corollary_26(e, v, w), bounds.corollary_26(e, v, w, strong=True)
                assert strong.rhs <= weak.rhs * (1 + 1e-12)
                violations += (not weak.holds) + (not strong.holds)
                pairs += 1
        assert bounds.corollary_28(e, 1e-3).holds
    assert violations == 0 and pairs > 500
    with pytest.raises(ValueError, match="only for sρ < 1"):
        bounds.corollary_26(random_dag(0, gain=3.0), "v0", "v1")


def test_proposition_31_rank_bottleneck_holds_per_sample_but_not_for_the_average():
    nodes = [
        lib.dense("h", ["x"], 6, torch.tanh),
        lib.dense("a", ["h"], 6, torch.tanh),
        lib.dense("u", ["a"], 2, torch.tanh),
        lib.dense("b", ["u"], 6, torch.tanh),
        lib.dense("out", ["b"], 5),
    ]
    e = evaluate(nodes, samples=16)
    check = bounds.proposition_31(e, "a", "b")
    assert check.holds and check.lhs == 2 == check.rhs
    assert bounds.proposition_31(e, "h", "h").lhs == 2
    assert int(metrics.numerical_rank(dag.block(e, "h", "h").GN, rtol=1e-10)) > 2  # batch average (E11)
    bypass = [*nodes[:3], lib.dense("b", ["u", "a"], 6, torch.tanh), nodes[4]]
    assert bounds.proposition_31(evaluate(bypass, samples=4), "a", "b").lhs > 2  # a skip restores rank


def test_theorem_33_printed_counts_twice():
    d = lambda name, *parents, f=torch.tanh: lib.dense(name, parents, 4, f)
    nodes = [d("a", "x"), d("b", "a"), d("out", "b", "a", f=None)]
    e = evaluate(nodes)
    assert bounds.theorem_33(e, "a", "a").holds
    printed = bounds.theorem_33(e, "a", "a", "printed")
    assert not printed.holds and printed.lhs > 0.1


def test_theorem_34_skips():
    g = torch.Generator().manual_seed(0)

    def branches(n, rho):
        out = [torch.randn(6, 6, generator=g, dtype=torch.float64) for _ in range(n)]
        return [rho * m / torch.linalg.matrix_norm(m, 2) for m in out]

    curvature = torch.diag(torch.rand(6, generator=g, dtype=torch.float64))
    for seed in range(20):
        k, rho = 1 + seed % 3, 0.3 + 0.03 * seed
        plain = bounds.theorem_34(branches(6, rho), curvature, rho, 1, skips=False)
        deep = branches(4, rho**k)
        upper, lower = (bounds.theorem_34(deep, curvature, rho, k, skips=True, side=s) for s in ("upper", "lower"))
        assert plain.holds and upper.holds and lower.holds
    printed = bounds.theorem_34(branches(4, 0.5**2), curvature, 0.5, 2, skips=True, form="printed")
    assert not printed.holds


def test_corollary_17_and_67_and_proposition_55_on_random_dags():
    for seed in range(4):
        e = random_dag(seed, f=torch.tanh, n=5)
        names = e.graph.topology.order
        for v in names:
            for w in names:
                assert bounds.corollary_17(e, v, w).holds
                assert bounds.corollary_67(e, v, w).holds
        path = next(iter(e.graph.topology.paths("v0", "out")))
        assert bounds.proposition_55(e, path, path).holds


def test_theorem_43_error_grows_with_depth_not_with_distance():
    e = chain(6)
    g = torch.Generator().manual_seed(1)
    eps = 1e-6
    products = {}
    for noisy in (False, True):
        j = torch.eye(4, dtype=torch.float64)
        for i in range(6):
            d = e.edge("out" if i == 5 else f"v{i + 1}", f"v{i}")[0]
            noise = torch.randn(d.shape, generator=g, dtype=torch.float64)
            j = (d + noisy * eps * noise * d.norm() / noise.norm()) @ j
        products[noisy] = j.mT @ e.contracted("loss", "out", "out")[0] @ j
    error = float((products[True] - products[False]).norm() / products[False].norm())
    assert bounds.theorem_43(error, depth=6, distance=0, eps_d=10 * eps, eps_t=0.0).holds
    assert not bounds.theorem_43(error, depth=6, distance=0, eps_d=eps, eps_t=0.0, form="printed").holds
    assert error > eps


@pytest.mark.parametrize(("f", "same"), [(F.relu, True), (torch.tanh, False), (F.silu, False)])
def test_theorem_44_coupling_is_invariant_for_homogeneous_activations_only(f, same):
    alpha = 3.0
    nodes = [lib.dense("v", ["x"], 4, f), lib.dense("w", ["v"], 4, f), lib.dense("out", ["w"], 4)]
    e = evaluate(nodes, seed=3)
    params = dict(e.graph.parameters)
    params["v"] = alpha * params["v"]
    params["w"] = torch.cat([params["w"][:16] / alpha, params["w"][16:]])
    moved = dag.DagEvaluation(dag.Graph(nodes, cross_entropy, params), e.inputs, e.y)
    r = lambda x, *pair: dag.block(x, *pair).H.norm()
    c = [float(r(x, "v", "w") / (r(x, "v", "v") * r(x, "w", "w")).sqrt()) for x in (e, moved)]
    assert bounds.theorem_44(torch.tensor(c[0]), torch.tensor(c[1])).holds == same
    if same:
        torch.testing.assert_close(dag.block(moved, "v", "v").H, dag.block(e, "v", "v").H / alpha**2)
        torch.testing.assert_close(dag.block(moved, "v", "w").H, dag.block(e, "v", "w").H / alpha)


def test_propositions_58_and_62_on_random_matrices():
    g = torch.Generator().manual_seed(0)
    for d in (1, 3, 8):
        for _ in range(10):
            m = torch.randn(d, 5, generator=g, dtype=torch.float64)
            assert all(c.holds for c in bounds.proposition_58(m))
    one = torch.outer(torch.arange(1.0, 4.0), torch.ones(3)).double()
    assert float(metrics.stable_rank(one)) == pytest.approx(1)
    assert float(metrics.effective_dimension(one)) == pytest.approx(1)
    assert float(metrics.stable_rank(torch.eye(4))) == pytest.approx(4)


def test_theorem_69_needs_the_corrected_constant():
    eta = 0.4
    gn = torch.eye(3, dtype=torch.float64)
    up, down = ExactBlock((1 + eta) * gn, gn, eta * gn), ExactBlock((1 - eta) * gn, gn, -eta * gn)
    assert bounds.theorem_69(up, down).holds
    assert not bounds.theorem_69(up, down, "printed").holds


def test_theorem_83_in_activation_space_and_its_failure_in_parameters():
    e = random_dag(1, f=torch.tanh)
    table = dag.blocks(e)
    assert bounds.theorem_83(dag.assembled(table, "GN")).holds
    assert metrics.negative_mass(dag.assembled(table)) > 0.01
    relu = random_dag(1, f=F.relu)
    assert metrics.negative_mass(dag.assembled(dag.blocks(relu))) < 1e-12
    assert metrics.negative_mass(dag.parameter_hessian(relu)[0]) > 0.01


def test_theorem_93():
    m = torch.randn(6, 9, dtype=torch.float64)
    for rank in range(7):
        assert bounds.theorem_93(m, rank).holds


def test_corollary_29_reads_as_stated():
    assert bounds.corollary_29(0.01, 1.0, 0.05).holds and not bounds.corollary_29(0.2, 1.0, 0.05).holds
    assert "FAILS" in str(bounds.corollary_29(0.2, 1.0, 0.05))


def test_coupling_is_at_most_one_where_h_is_psd_and_exceeds_it_only_through_t():
    most = 0.0
    for seed in range(12):
        e = random_dag(seed, f=torch.tanh, gain=2.0)
        table = dag.blocks(e)
        norms = {p: {pair: float(getattr(b, p).norm()) for pair, b in table.blocks.items()} for p in ("H", "GN")}
        for v, w in table.blocks:
            c = {p: n[v, w] / (n[v, v] * n[w, w]) ** 0.5 for p, n in norms.items()}
            assert c["GN"] <= 1 + 1e-9
            most = max(most, c["H"])
    assert most > 1.001


def test_metrics_are_invariant_under_rotations_of_the_node_basis():
    h = torch.randn(5, 7, dtype=torch.float64)
    q = torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64))[0]
    p = torch.linalg.qr(torch.randn(7, 7, dtype=torch.float64))[0]
    for metric in (metrics.resonance, metrics.stable_rank, metrics.effective_dimension):
        torch.testing.assert_close(metric(q @ h @ p), metric(h))


def test_symmetry_defect_and_symmetrised():
    h = torch.randn(3, 3, dtype=torch.float64)
    assert metrics.symmetry_defect(h, h.mT) == 0 and metrics.symmetry_defect(h, h) > 0
    s = metrics.symmetrised(h, h)
    torch.testing.assert_close(s, s.mT)


def test_coupling_rules():
    import numpy as np

    r = np.array([[1.0, 1.2], [1.2, 1.0]])
    assert metrics.coupling_matrix(r)[0, 1] == 1.2
    assert metrics.coupling_matrix(r, clip="always")[0, 1] == 1
    assert metrics.coupling_matrix(r, clip="psd_only", psd=True)[0, 1] == 1
    assert metrics.coupling_matrix(r, clip="psd_only")[0, 1] == 1.2
    assert np.isnan(metrics.coupling_matrix(np.diag([0.0, 1.0]))[0]).all()
    with pytest.raises(ValueError, match=r"clip= must be .* got 'maybe'"):
        metrics.coupling_matrix(r, clip="maybe")
    assert np.isnan(float(metrics.stable_rank(torch.zeros(2, 2))))


@pytest.mark.parametrize(
    ("f", "slope"),
    [
        (F.relu, 0),
        (lambda z: F.leaky_relu(z, 0.1), 0.1),
        (lambda z: F.prelu(z, torch.tensor(0.25)), 0.25),
        (torch.abs, 0),
        (F.hardtanh, 1),
        (F.relu6, 0),
        (lambda z: z.clamp(min=0), 1),
        (lambda z: torch.maximum(z, torch.zeros(())), 0.5),
    ],
)
def test_derivatives_at_the_kink(f, slope):
    """What autograd returns at exactly zero; relu written as clamp or maximum differs from relu."""
    z = torch.zeros(1, requires_grad=True)
    (first,) = torch.autograd.grad(f(z).sum(), z, create_graph=True)
    assert first.item() == pytest.approx(slope)
    second = torch.autograd.grad(first.sum(), z, allow_unused=True)[0] if first.requires_grad else None
    assert second is None or second.item() == 0
