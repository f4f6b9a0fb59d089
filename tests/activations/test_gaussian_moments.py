"""The Gauss–Hermite rule: exact where it must be, and honest where it is not."""

import math

import pytest
import torch

from netvitals import activations as A

H_TANH = 0.6057055096021588


@pytest.mark.parametrize(("n", "error"), [(16, 7e-5), (32, 4e-7), (64, 3e-10), (128, 1e-14)])
def test_error_of_the_tanh_moment_shrinks_as_stated(n, error):
    x, w = A.gauss_hermite(n)
    measured = abs((w * x * torch.tanh(x)).sum().item() - H_TANH)
    assert measured <= 1.15 * error + 1e-14, measured


def test_polynomials_are_exact_and_weights_are_a_probability():
    x, w = A.gauss_hermite(10)
    assert w.sum().item() == pytest.approx(1, abs=1e-12)
    for k, double_factorial in ((2, 1), (4, 3), (6, 15), (8, 105), (18, 34459425)):
        assert (w * x**k).sum().item() == pytest.approx(double_factorial, rel=1e-12)


def test_two_dimensions_and_float32():
    x, w = A.gauss_hermite(20, dim=2)
    assert x.shape == (400, 2) and w.shape == (400,)
    assert (w * x[:, 0] ** 2 * x[:, 1] ** 4).sum().item() == pytest.approx(3, rel=1e-12)
    assert A.gauss_hermite(8, torch.float32)[0].dtype == torch.float32
    with pytest.raises(ValueError, match="points"):
        A.gauss_hermite(128, dim=5)


def test_kinks_and_steps_are_integrated_by_panels():
    assert A.expect(torch.relu) == pytest.approx(1 / math.sqrt(2 * math.pi), abs=1e-12)
    assert abs(A.expect(torch.relu, method="hermite") - 1 / math.sqrt(2 * math.pi)) > 1e-5
    stiff = lambda z: torch.sigmoid(200 * z)
    assert A.expect(stiff) == pytest.approx(0.5, abs=1e-12)
    # E[h'] of a stiff step at 0 is the normal density there, up to (π/α)²/6 times its curvature
    slope = lambda z: 200 * torch.sigmoid(200 * z) * torch.sigmoid(-200 * z)
    assert A.expect(slope) == pytest.approx((1 - (math.pi / 200) ** 2 / 6) / math.sqrt(2 * math.pi), abs=1e-7)


def test_mean_gate_of_the_reference_table():
    # gate-density §2.3, last column: E|f'| under N(0,1) and N(−.05,.33²)
    for name, wide, narrow in (
        ("relu", 0.5000, 0.4398),
        ("gelu", 0.5393, 0.4654),
        ("silu", 0.5116, 0.4763),
        ("mish", 0.5797, 0.5653),
    ):
        slope = A.derivative(name)
        gate = lambda z, slope=slope: slope(z).abs()
        assert A.expect(gate) == pytest.approx(wide, abs=6e-5), name
        assert A.expect(gate, mu=-0.05, sigma=0.33) == pytest.approx(narrow, abs=6e-5), name


def test_third_moment_splits_into_hermite_coefficients():
    # E[σ(g)g³] = 6 s_3 + 3 h_σ
    for name in ("tanh", "gelu", "sin"):
        f = A.get(name)
        s = A.hermite_coefficients(f, 4)
        assert A.moment(f, 3) == pytest.approx(6 * s[3].item() + 3 * A.moment(f, 1), abs=1e-12)
        assert A.moment(f, 1) == pytest.approx(A.expect(A.derivative(name)), abs=1e-12)  # Stein
