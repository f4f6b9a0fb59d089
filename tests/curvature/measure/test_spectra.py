"""Eigenvalues, densities and operators against dense matrices."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from netvitals.anatomy.lanczos import Lanczos
from netvitals.curvature import operators, spectral_density, top_eigenvalues
from netvitals.curvature.measure.density import _negative_swing


def problem(act=nn.Tanh, d=6):
    net = nn.Sequential(nn.Linear(4, d), act(), nn.Linear(d, d), act(), nn.Linear(d, 3)).double()
    return net, F.cross_entropy, (torch.randn(10, 4).double(), torch.randint(0, 3, (10,)))


@pytest.mark.parametrize("which", ["LA", "SA", "LM"])
def test_top_eigenvalues_of_every_case(case, bench, which):
    model, loss, batch, _ = case
    reference, _ = bench.parameter_hessian(model, loss, batch)
    found = top_eigenvalues(model, loss, batch, k=3, which=which, tol=1e-8)
    exact = torch.linalg.eigvalsh(reference)
    order = {"LA": -exact, "SA": exact, "LM": -exact.abs()}[which].argsort()[:3]
    assert found.converged
    np.testing.assert_allclose(found.values, exact[order], atol=1e-7)
    residual = (reference @ found.vectors.mT - found.vectors.mT * torch.tensor(found.values)).norm(dim=0)
    assert float(residual.max()) <= 1e-6


def test_no_copies_of_converged_eigenvalues_in_float32():
    e = torch.cat([torch.tensor([100.0, 50.0]), torch.linspace(0, 1, 198)])
    q, _ = torch.linalg.qr(torch.randn(200, 200))
    h = (q * e) @ q.mT
    run = Lanczos(lambda z: z @ h, torch.randn(2, 200), 120)
    run.advance(120)
    t = run.tridiagonal()
    assert float((t.basis @ t.basis.mT - torch.eye(120)).abs().max()) < 1e-5
    assert int((t.ritz()[0][0] > 49).sum()) == 2


def test_too_few_steps_say_so():
    net, loss, batch = problem(d=20)
    found = top_eigenvalues(net, loss, batch, k=5, most=10, tol=1e-10)
    assert not found.converged and "NOT converged" in str(found)


@pytest.mark.parametrize("part", ["H", "GN", "T"])
def test_density_moments_and_negative_mass(bench, part):
    net, loss, batch = problem()
    n = sum(p.numel() for p in net.parameters())
    found = spectral_density(net, loss, batch, part=part, steps=n, runs=40)
    with operators(net, loss, batch) as of:
        dense = of.whole(part).dense()
    eigenvalues = torch.linalg.eigvalsh((dense + dense.mT) / 2)
    assert np.trapezoid(found.density, found.grid) == pytest.approx(1, abs=0.01)
    assert abs(found.trace - float(eigenvalues.sum())) <= 4 * found.trace_stderr + 1e-10
    mass = float(-eigenvalues.clamp(max=0).sum())
    assert abs(found.negative_mass - mass) <= 4 * found.negative_mass_stderr + 1e-10
    assert found.nodes.min() >= eigenvalues[0] - 1e-9 and found.nodes.max() <= eigenvalues[-1] + 1e-9
    if part == "GN":
        assert mass < 1e-10
    if part == "H":
        reference, _ = bench.parameter_hessian(net, loss, batch)
        assert bench.relative(dense, reference) <= 1e-10


def _of(h, steps, runs, seed):
    """The density of a given matrix without negative eigenvalues, as that of least squares."""
    values, vectors = torch.linalg.eigh(h)
    x = (vectors * (0.5 * len(h) * values.clamp_min(0)).sqrt()).mT
    net = nn.Linear(len(h), 1, bias=False, dtype=h.dtype)
    return spectral_density(net, F.mse_loss, (x, x.new_zeros(len(h), 1)), steps=steps, runs=runs, seed=seed)


def test_eigenvectors_that_all_runs_find_weigh_what_they_weigh(monkeypatch):
    d, outliers = 300, 6
    q, _ = torch.linalg.qr(torch.randn(d, d, dtype=torch.float64))
    values = torch.cat([torch.linspace(0.0, 1.0, d - outliers), torch.linspace(20.0, 30.0, outliers)]).double()
    h = (q * values) @ q.mT
    known = [_of(h, 25, 4, seed) for seed in range(8)]
    assert all(one.known == outliers for one in known)
    assert all(np.allclose(np.sort(one.weights, 1).sum(1), 1) for one in known)
    monkeypatch.setattr("netvitals.curvature.measure.density.SAME", 2.0)  # nothing is ever the same
    plain = [_of(h, 25, 4, seed) for seed in range(8)]
    assert all(one.known == 0 for one in plain)
    miss = lambda found: np.sqrt(np.mean([(one.trace - float(values.sum())) ** 2 for one in found]))
    assert miss(known) < 0.3 * miss(plain)
    assert np.mean([one.trace_stderr for one in known]) < 0.3 * np.mean([one.trace_stderr for one in plain])


def test_an_eigenvalue_of_several_eigenvectors_keeps_its_shares():
    q, _ = torch.linalg.qr(torch.randn(60, 60, dtype=torch.float64))
    values = torch.cat([torch.linspace(0.0, 1.0, 50), torch.full((8,), 20.0), torch.tensor([30.0, 40.0])]).double()
    found = _of((q * values) @ q.mT, 20, 10, 0)
    assert found.known == 2  # eight eigenvectors of one value are another in each run
    near = np.abs(found.nodes - 20) < 0.1
    assert (found.weights * near).sum(1).mean() == pytest.approx(8 / 60, rel=0.4)
    alone = [found.weights[np.abs(found.nodes - value) < 0.1] for value in (30, 40)]
    np.testing.assert_allclose(np.concatenate(alone), 1 / 60)


def test_what_the_steps_leave_open_is_in_the_error_of_the_negative_mass():
    net, loss, batch = problem(d=24)
    with operators(net, loss, batch) as of:
        dense = of.whole("H").dense()
    exact = float(-torch.linalg.eigvalsh((dense + dense.mT) / 2).clamp(max=0).sum())
    for steps in (20, 35):
        found = spectral_density(net, loss, batch, steps=steps, runs=10)
        assert abs(found.negative_mass - exact) <= 4 * found.negative_mass_stderr
        assert found.negative_mass_stderr < 0.5 * exact


def test_the_negative_part_is_that_of_many_steps_and_not_of_the_last():
    values = torch.cat([torch.linspace(-1.0, 0.0, 200), torch.linspace(0.0, 1.0, 200)]).double()
    exact, misses = float(-values.clamp(max=0).mean()), []
    for steps in range(10, 20):
        run = Lanczos(lambda z: z * values, torch.ones(1, 400, dtype=torch.float64), steps)  # no chance in the start
        run.advance(steps)
        nodes, vectors = run.tridiagonal().ritz()
        last = float((vectors[:, 0].square() * nodes.clamp(max=0).neg()).sum())
        swing, unresolved = _negative_swing(run.tridiagonal(), 400)
        misses.append((last - exact, last + swing[0] - exact, unresolved))
        parts = []
        for k in range(-(-2 * steps // 3), steps + 1):
            shorter = Lanczos(lambda z: z * values, torch.ones(1, 400, dtype=torch.float64), k)
            shorter.advance(k)
            nodes, vectors = shorter.tridiagonal().ritz()
            parts.append(float((vectors[:, 0].square() * nodes.clamp(max=0).neg()).sum()))
        assert (swing[0], unresolved) == pytest.approx((np.mean(parts) - last, np.std(parts)), rel=1e-6, abs=1e-12)
    plain, moved, unresolved = np.sqrt(np.mean(np.square(misses), axis=0))
    assert moved < 0.5 * plain and moved < unresolved < 2 * plain


def test_density_of_one_block_and_of_activation_space():
    net, loss, batch = problem()
    block = spectral_density(net, loss, batch, node="2", steps=20, runs=3)
    assert block.size == 42
    activation = spectral_density(net, loss, batch, node="1", space="activation", part="T", steps=6, runs=3)
    assert activation.size == 6 and activation.negative_mass > 0
    whole = spectral_density(net, loss, batch, nodes=["1", "3"], space="activation", steps=12, runs=3)
    assert whole.size == 12


def test_operators_are_the_blocks(case):
    from netvitals.curvature import between_layers

    model, loss, batch, nodes = case
    exact = between_layers(model, loss, batch, nodes=nodes, method="exact")
    v, w = exact.nodes[0], exact.nodes[-1]
    with operators(model, loss, batch, nodes=nodes, space="activation") as of:
        for part, matrix in zip(("H", "GN", "T"), exact.block(v, w)):
            op = of.block(v, w, part)
            assert op.shape == tuple(matrix.shape)
            z, u = torch.randn(op.shape[1]).double(), torch.randn(op.shape[0]).double()
            torch.testing.assert_close(op @ z, matrix @ z)
            torch.testing.assert_close(op.rmatvec(u), matrix.mT @ u)
            torch.testing.assert_close(op.T @ u, matrix.mT @ u)
            torch.testing.assert_close(op.dense(), matrix)
            np.testing.assert_allclose(op.to_scipy() @ z.numpy(), matrix @ z, atol=1e-10)
            column = of.column(w, z, part)
            torch.testing.assert_close(column[v], matrix @ z)
        torch.testing.assert_close(of.whole("T").dense(), exact.blocks.tensor)


def test_bad_requests():
    net, loss, batch = problem()
    with pytest.raises(ValueError, match=r"which= must be .* got 'biggest'"):
        top_eigenvalues(net, loss, batch, which="biggest")
    with pytest.raises(ValueError, match="k= must be at least 1, got 0"):
        top_eigenvalues(net, loss, batch, k=0)
    with pytest.raises(ValueError, match=r"part= must be .* got 'X'"):
        spectral_density(net, loss, batch, part="X")
    with pytest.raises(MemoryError, match=r"Lanczos vectors .* use \d+ steps"):
        spectral_density(net, loss, batch, steps=40, memory=60_000)
    with operators(net, loss, batch) as of, pytest.raises(KeyError, match="no node 'x'"):
        of.block("x", "x")
