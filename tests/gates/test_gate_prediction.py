"""The Gaussian interval-union law and the four simpler predictors."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import nn

from netvitals import gates
from netvitals.gates import PREDICTORS, margins, predict
from netvitals.gates.forecasting import forecast

WIDE, NARROW = (0.0, 1.0), (-0.05, 0.33)

# exact density and Φ(margin) at θ = .01 / .10, for N(0, 1) and N(−.05, .33²): the specification's table
TABLE = {
    "relu": (((0.5000, 0.5000), (0.5000, 0.5000)), ((0.4398, 0.4398), (0.4398, 0.4398))),
    "gelu": (((0.9850, 0.8195), (0.7670, 0.7103)), ((0.9942, 0.9377), (0.9802, 0.9368))),
    "silu": (((0.9838, 0.8192), (0.8914, 0.8192)), ((0.9999, 0.9955), (0.9998, 0.9955))),
    "mish": (((0.9853, 0.8446), (0.8761, 0.8135)), ((0.9998, 0.9946), (0.9996, 0.9946))),
}


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("which", [0, 1])
def test_the_table_of_predicted_densities(name, which):
    (exact, half_line), (mu, sigma) = TABLE[name][which], (WIDE, NARROW)[which]
    for theta, d, phi in zip((0.01, 0.10), exact, half_line):
        assert predict(mu, sigma, name, theta) == pytest.approx(d, abs=5.1e-5)
        # one unit of the last printed digit: for Mish at .01 the law gives .87616, the table .8761
        assert margins(mu, sigma, name, theta).phi[0] == pytest.approx(phi, abs=1e-4)


def test_inactive_mass_of_gelu_is_not_monotone_in_sigma():
    sigma = np.array([1.5, 1.2, 1, 0.75, 0.6, 0.5, 0.4, 0.33])
    expected = [0.0313, 0.0180, 0.0150, 0.0149, 0.0141, 0.0119, 0.0079, 0.0042]
    assert 1 - predict(np.zeros(8), sigma, "gelu", 0.01) == pytest.approx(expected, abs=5.1e-5)


@pytest.mark.parametrize("name", ["relu", "gelu", "silu", "mish", "tanh", "softplus:20", "leaky_relu:0.01"])
def test_the_law_is_the_density_of_gaussian_inputs(name):
    from netvitals import activations

    z = torch.tensor(norm.ppf((np.arange(200_000) + 0.5) / 200_000))  # no sampling error
    f = activations.get(name).double()
    for mu, sigma in ((0.2, 0.7), (-1.0, 1.5)):
        x = (mu + sigma * z).requires_grad_(True)
        gate = torch.autograd.grad(f(x).sum(), x)[0].abs()
        for theta in (0.01, 0.1):
            assert predict(mu, sigma, name, theta) == pytest.approx(float((gate > theta).double().mean()), abs=2e-5)


def test_the_kind_of_the_answer_is_the_kind_of_the_question():
    assert isinstance(predict(0.0, 1.0, "relu"), float)
    array = predict(np.zeros((3, 2)), 1.0, "relu")
    assert isinstance(array, np.ndarray) and array.shape == (3, 2) and (array == 0.5).all()
    tensor = predict(torch.zeros(4), torch.ones(4), nn.ReLU())
    assert isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float32


def test_a_constant_input_is_inside_an_interval_or_not():
    assert predict(np.array([-1.0, 0.0, 1.0]), 0.0, "relu").tolist() == [0, 0, 1]  # at 0 a ReLU is closed
    slit = predict(np.array([-0.75, -1.0, 0.0]), 0.0, "gelu", 0.01)  # the slit of GELU
    assert slit.tolist() == [0, 1, 1]


def test_margins_with_sigma_zero_are_infinite_by_sign_and_counted():
    m = margins(np.array([0.5, -0.5, 0.0, 1.0]), np.array([0.0, 0.0, 0.0, 2.0]), "relu")
    assert m.normalized[:2].tolist() == [math.inf, -math.inf] and math.isnan(m.normalized[2])
    assert m.normalized[3] == 0.5
    assert m.not_finite == 3


def test_all_five_predictors_by_name():
    mu, sigma = np.array([0.3, -0.4]), np.array([0.5, 0.8])
    m = margins(mu, sigma, "silu", 0.1)
    assert m.z_low == pytest.approx(-0.9123, abs=1e-4)
    assert set(PREDICTORS) == {"population", "raw", "normalized", "phi", "interval_union"}
    assert m["population"] == pytest.approx(mu.mean() - m.z_low)
    assert m["raw"] == pytest.approx(mu - m.z_low)
    assert m["normalized"] == pytest.approx((mu - m.z_low) / sigma)
    assert m["phi"] == pytest.approx(norm.cdf((mu - m.z_low) / sigma))
    assert m["interval_union"] == pytest.approx(predict(mu, sigma, "silu", 0.1))
    assert (m.direction, m.confidence) == (1, pytest.approx(abs(mu.mean() - m.z_low)))
    assert "rises" in str(m)


@pytest.mark.parametrize("name", ["relu", "gelu", "mish"])
def test_sensitivity_is_the_derivative_in_log_sigma(name):
    mu, sigma, step = np.array([-0.6, 0.1, 0.8]), np.array([0.3, 0.7, 1.1]), 1e-5
    up, down = (predict(mu, sigma * math.exp(s), name, 0.1) for s in (step, -step))
    assert margins(mu, sigma, name, 0.1).sensitivity == pytest.approx((up - down) / (2 * step), abs=1e-8)


def test_a_tiny_density_keeps_its_digits():
    assert predict(-10.0, 1.0, "relu") == pytest.approx(norm.sf(10.0), rel=1e-9)


def test_wrong_input_gets_a_sentence():
    with pytest.raises(ValueError, match="must not be negative, got -1"):
        predict(0.0, -1.0, "relu")
    with pytest.raises(ValueError, match="compared with"):
        predict(0.0, 1.0, "relu", -0.1)
    with pytest.raises(ValueError, match="population"):
        margins(0.0, 1.0, "relu")["best"]
    with pytest.raises(ValueError, match=r"each have one entry per channel, got shapes \(3,\) and \(4,\)"):
        predict(torch.zeros(3), torch.ones(4), "relu")


@pytest.mark.parametrize("noise", [1e-9, -1e-9, 0.0, 3e-6])
def test_a_margin_of_the_size_of_rounding_has_no_direction(noise):
    m = margins(np.full(8, noise), np.full(8, 1.0), "relu")
    assert m.direction == 0 and "neither" in str(m)
    assert margins(np.full(8, 1e3 * noise), np.full(8, 1e3), "relu").direction == 0  # in any unit
    assert forecast(np.full(8, noise), np.full(8, 1.0), "relu").direction == 0


def test_a_margin_beyond_rounding_has_one():
    for sign in (1, -1):
        for unit in (1e-6, 1.0, 1e6):
            mu, sigma = np.full(8, sign * 1e-2 * unit), np.full(8, unit)
            assert margins(mu, sigma, "relu").direction == sign
            assert forecast(mu, sigma, "relu").direction == sign
    assert margins(np.array([0.5]), np.array([0.0]), "relu").direction == 1  # a constant
    assert margins(np.array([math.nan]), np.array([1.0]), "relu").direction == 0


def test_a_network_of_batch_norms_and_relus_has_no_direction_at_its_start():
    torch.manual_seed(0)
    blocks = [nn.Linear(12, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 24), nn.BatchNorm1d(24), nn.ReLU()]
    net = nn.Sequential(*blocks, nn.Linear(24, 3))
    batch = torch.randn(64, 12), torch.randint(0, 3, (64,))
    found = gates.measure(net, "ce", batch, mode="train").margins(0.01)
    assert [m.direction for m in found.values()] == [0, 0]
    with torch.no_grad():
        net[1].bias.add_(0.1)
        net[4].bias.sub_(0.1)
    found = gates.measure(net, "ce", batch, mode="train").margins(0.01)
    assert [m.direction for m in found.values()] == [1, -1]


class Leaky(nn.Module):
    """An activation of the user's, with a slope that is trained."""

    elementwise = True

    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.tensor(0.05))

    def forward(self, x):
        return torch.where(x > 0, x, self.slope * x)


@pytest.mark.parametrize("act", [lambda: nn.PReLU(init=0.05), Leaky])
def test_margins_of_a_report_do_not_change_when_the_activation_is_trained(act):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), act(), nn.Linear(8, 2))
    batch = torch.randn(32, 4), torch.randn(32, 2)
    before = gates.measure(net, "mse", batch).margins(0.1)
    report = gates.measure(net, "mse", batch)
    with torch.no_grad():
        next(net[1].parameters()).fill_(0.5)
    assert before and {n: m.density for n, m in report.margins(0.1).items()} == {
        n: m.density for n, m in before.items()
    }
