"""Numbers without a unit do not depend on the unit of the loss; numbers with one are proportional to it."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from netvitals import curvature
from netvitals.curvature.engine.operator import Operator
from netvitals.curvature.measure import estimators, metrics

SCALES = (1e-12, 1e-25, 1e12)
UNITLESS = ("coupling", "stable_rank", "gn_gap", "coupling_stderr", "gn_gap_stderr")


def problem():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 3)).double()
    return net, (torch.randn(7, 5).double(), torch.randint(0, 3, (7,)))


def scaled(c):
    return lambda output, target: c * F.cross_entropy(output, target)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("options", [{"method": "exact"}, {"probes": 12}, {"probes": 8, "reduction": "mean_of_norms"}])
def test_between_layers(scale, options):
    net, batch = problem()
    one, other = (curvature.between_layers(net, scaled(c), batch, **options) for c in (1.0, scale))
    for name in UNITLESS:
        np.testing.assert_allclose(getattr(other, name), getattr(one, name), rtol=1e-6, atol=1e-9, err_msg=name)
    np.testing.assert_allclose(other.resonance / scale, one.resonance, rtol=1e-8)
    assert other.global_gap == pytest.approx(one.global_gap, rel=1e-8)
    np.testing.assert_allclose(curvature.decay(other).gap, curvature.decay(one).gap, rtol=1e-8)


@pytest.mark.parametrize("scale", SCALES)
def test_single_blocks(scale):
    source = torch.Generator().manual_seed(1)
    h, gn = (torch.randn(8, 8, generator=source, dtype=torch.float64) for _ in range(2))
    of = lambda m: Operator((8, 8), m.dtype, lambda z: z @ m.mT, lambda u: u @ m)
    for name, value in {
        "stable_rank": lambda c: float(metrics.stable_rank(c * h)),
        "effective_dimension": lambda c: float(metrics.effective_dimension(c * h)),
        "estimated stable_rank": lambda c: estimators.stable_rank(of(c * h)).value,
        "estimated gap": lambda c: estimators.gap(of(c * h), of(c * gn)).value,
        "power": lambda c: estimators.spectral_norm(of(c * h), 400, tol=1e-12).value / c,
        "lanczos": lambda c: estimators.spectral_norm(of(c * h), method="lanczos").value / c,
    }.items():
        assert value(scale) == pytest.approx(value(1.0), rel=1e-5), name
    exact = float(torch.linalg.matrix_norm(h) ** 2 / torch.linalg.matrix_norm(h, 2) ** 2)
    assert float(metrics.stable_rank(scale * h)) == pytest.approx(exact)


def test_a_block_is_zero_beside_the_largest():
    # the last two are not above 1e-12 of the first
    r = np.array([[1e-20, 2e-26, 0.0], [2e-26, 1e-32, 0.0], [0.0, 0.0, 1e-33]])
    with np.errstate(all="raise"):
        c = metrics.coupling_matrix(r)
    assert c[0, :2] == pytest.approx([1.0, 2.0]) and np.isnan(c[1:, 1:]).all()
    assert metrics.gn_gap(np.array([[2e-20, 1e-40]]), np.array([[1e-20, 0.0]]))[0] == pytest.approx(
        [2.0, 0.0], abs=1e-6
    )
    assert (
        np.isnan(metrics.coupling_matrix(np.zeros((2, 2)))).all() and (metrics.gn_gap(*np.zeros((2, 2, 2))) == 0).all()
    )
    assert np.isnan(float(metrics.stable_rank(torch.zeros(2, 2))))


@pytest.mark.parametrize("scale", SCALES)
def test_spectral_density(scale):
    net, batch = problem()
    one, other = (curvature.spectral_density(net, scaled(c), batch, steps=8, runs=2) for c in (1.0, scale))
    np.testing.assert_allclose(other.density * scale, one.density, rtol=1e-3, atol=1e-6 * one.density.max())


def test_a_sum_over_examples_is_refused_in_any_unit():
    net, batch = problem()
    for scale in (1.0, *SCALES):
        loss = lambda o, y, c=scale: c * F.cross_entropy(o, y, reduction="sum")
        with pytest.raises(ValueError, match="not a mean over examples"):
            curvature.between_layers(net, loss, batch, reduction="per_sample", probes=4)
