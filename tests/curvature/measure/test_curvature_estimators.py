"""Random probes on one operator: bias, variance, bounds, and what sharing and deflating buy."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from netvitals.curvature import InterlayerCurvature, between_layers, operators
from netvitals.curvature.engine.operator import Operator
from netvitals.curvature.engine.probes import draw, generator
from netvitals.curvature.measure import estimators


def matrix_operator(h):
    return Operator(tuple(h.shape), h.dtype, lambda z: z @ h.mT, lambda u: u @ h)


def with_spectrum(values, d_out=None, seed=0):
    g = torch.Generator().manual_seed(seed)
    n = len(values)
    u = torch.linalg.qr(torch.randn(d_out or n, n, generator=g, dtype=torch.float64))[0]
    v = torch.linalg.qr(torch.randn(n, n, generator=g, dtype=torch.float64))[0]
    return (u * torch.tensor(values, dtype=torch.float64)) @ v.mT


def test_frobenius_is_unbiased_and_its_variance_is_the_formula():
    h = with_spectrum([3.0, 1.0, 0.5, 0.2], 6)
    found = estimators.frobenius(matrix_operator(h), probes=200_000)
    assert abs(found.draws.mean() - float(h.square().sum())) <= 4 * found.draws.std() / 200_000**0.5
    formula = estimators.probe_variance(h)
    assert found.draws.var() == pytest.approx(formula, rel=0.02)
    low, high = found.interval()
    assert low < found.value < high


def test_relative_error_falls_with_effective_rank():
    """The paper's rule m ∝ rank has the wrong direction (E28)."""
    spread = []
    for rank in (1, 4, 16, 64):
        h = with_spectrum([1.0] * rank + [0.0] * (64 - rank))
        spread.append(estimators.frobenius(matrix_operator(h), 4000).draws.std() / rank)
    assert spread == sorted(spread, reverse=True)
    assert spread[0] == pytest.approx(1.37, abs=0.1)
    assert spread[1] == pytest.approx(0.70, abs=0.05)


def test_power_iteration_converges_from_below():
    h = with_spectrum([2.0, 1.5, 1.0, 0.5, 0.1])
    op = matrix_operator(h)
    values = [estimators.spectral_norm(op, steps=t, tol=0.0).value for t in (1, 3, 10, 60)]
    assert (np.diff(values) > -1e-12).all() and values[-1] <= 2.0 + 1e-12
    assert values[-1] == pytest.approx(2.0, rel=1e-9)
    assert estimators.spectral_norm(op, steps=5, method="lanczos").value == pytest.approx(2.0, rel=1e-9)
    zero = estimators.spectral_norm(matrix_operator(torch.zeros(3, 3)))
    assert zero.value == 0 and zero.converged
    assert not estimators.spectral_norm(op, steps=2, tol=1e-12).converged


def test_plain_stable_rank_falls_below_one_and_deflated_never_does():
    h = with_spectrum([1.0] + [0.01] * 60)
    true = float(h.square().sum())
    plain = np.array([estimators.stable_rank(matrix_operator(h), deflated=False, seed=s).value for s in range(200)])
    deflated = np.array([estimators.stable_rank(matrix_operator(h), seed=s).value for s in range(200)])
    assert 0.3 < (plain < 1).mean() < 0.7
    assert deflated.min() >= 1 and abs(deflated - true).max() < 1e-3
    assert plain.std() > 0.1 > 100 * deflated.std()
    geometric = with_spectrum([0.8**k for k in range(40)])
    exact = float(geometric.square().sum())
    both = [
        np.std([estimators.stable_rank(matrix_operator(geometric), deflated=d, seed=s).value for s in range(100)])
        for d in (False, True)
    ]
    assert exact == pytest.approx(2.778, abs=1e-3) and both[1] < 0.75 * both[0]
    assert np.isnan(estimators.stable_rank(matrix_operator(torch.zeros(3, 3))).value)


def test_shared_probes_make_coupling_quiet():
    torch.manual_seed(0)
    a = torch.randn(30, 4, dtype=torch.float64)
    b = a + 0.02 * torch.randn(30, 4, dtype=torch.float64)
    op = lambda x, y: matrix_operator(x @ y.mT)
    vw, vv, ww = op(a, b), op(a, a), op(b, b)
    exact = float((a @ b.mT).norm() / ((a @ a.mT).norm() * (b @ b.mT).norm()).sqrt())
    shared, apart = (
        [estimators.coupling(vw, vv, ww, 30, shared=s, seed=1000 * i) for i in range(200)] for s in (True, False)
    )
    error = lambda es: np.sqrt(np.mean([(e.value - exact) ** 2 for e in es]))
    assert error(shared) < 0.1 * error(apart)
    assert np.mean([abs(e.value - exact) <= 3 * e.stderr for e in shared]) > 0.95
    # with independent series Ĉ exceeds 1 about half the time when C is near 1, whatever the number of probes
    many = [estimators.coupling(vw, vv, ww, 200, shared=False, seed=7919 * i).value for i in range(200)]
    assert 0.3 < np.mean(np.array(many) > 1) < 0.7


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    model = nn.Sequential(*[m for _ in range(4) for m in (nn.Linear(48, 48), nn.SiLU())], nn.Linear(48, 10)).double()
    return model, F.cross_entropy, (torch.randn(16, 48).double(), torch.randint(0, 10, (16,)))


def test_estimators_on_a_net_agree_with_exact(net):
    exact: InterlayerCurvature = between_layers(*net, method="exact")
    with operators(*net, nodes=list(exact.nodes), space="activation") as of:
        v, w = exact.nodes[0], exact.nodes[2]
        at = exact.at(v, w)
        h, gn = of.block(v, w), of.block(v, w, "GN")
        r = estimators.frobenius(h, 100)
        assert abs(r.value - at["resonance"]) <= 4 * r.stderr
        g = estimators.gap(h, gn, 100)
        assert abs(g.value - at["gn_gap"]) <= 4 * g.stderr + 0.02 * at["gn_gap"]
        c = estimators.coupling(h, of.block(v, v), of.block(w, w), 100)
        assert abs(c.value - at["coupling"]) <= 4 * c.stderr
        d = estimators.stable_rank(h, 100, steps=50)
        assert d.value == pytest.approx(at["stable_rank"], rel=0.15)
        adaptive = estimators.adaptive_frobenius(h, 0.05)
        assert adaptive.stderr <= 0.05 * adaptive.value and adaptive.probes < 1000


@pytest.mark.slow
def test_gap_per_pair_at_thirty_probes_is_good_to_seven_percent(net):
    exact = between_layers(*net, method="exact")
    runs = [between_layers(*net, probes=30, seed=s) for s in range(20)]
    live = exact.gn_gap > 1e-9
    spread = np.std([r.gn_gap[live] / exact.gn_gap[live] for r in runs], axis=0)
    assert spread.mean() <= 0.07, spread.mean()


def test_independent_probes_by_sample_estimate_the_joint_norm(net):
    mean, joint = (between_layers(*net, method="exact", reduction=r) for r in ("mean_block", "joint"))
    swept = between_layers(*net, probes=40, reduction="joint")
    np.testing.assert_allclose(swept.resonance, joint.resonance, rtol=0.15)
    assert (np.abs(joint.resonance / mean.resonance - 1) > 0.05).any()


def test_probes_are_signs_or_gaussians_with_unit_covariance():
    z = draw(20_000, [torch.zeros(2, 2)], generator(0))[0]
    assert sorted(z.unique().tolist()) == [-1, 1]
    assert torch.allclose(z.flatten(1).T @ z.flatten(1) / 20_000, torch.eye(4), atol=0.03)
    n = draw(20_000, [torch.zeros(3, dtype=torch.float64)], generator(0), "gaussian")[0]
    assert n.dtype == torch.float64 and torch.allclose(n.T @ n / 20_000, torch.eye(3).double(), atol=0.03)
    with pytest.raises(ValueError, match=r"distribution= must be .* got 'uniform'"):
        draw(1, [torch.zeros(1)], generator(0), "uniform")


def test_refusals():
    op = matrix_operator(torch.eye(2))
    with pytest.raises(ValueError, match="at least 2"):
        estimators.frobenius(op, 1)
    with pytest.raises(ValueError, match=r"method= must be .* got 'qr'"):
        estimators.spectral_norm(op, method="qr")
    with pytest.raises(ValueError, match="positive relative error"):
        estimators.adaptive_frobenius(op, 0)
