"""The gates that the watch reads, against the definition in float64."""

import numpy as np
import pytest
import torch
from torch import nn

from netvitals.vitals import Gates

SHAPES = {"rows": ((64, 32), 1), "tokens": ((4, 10, 32), -1), "images": ((4, 8, 5, 6), 1)}
FUNCTIONS = {
    "ReLU": nn.ReLU(),
    "GELU": nn.GELU(),
    "SiLU": nn.SiLU(),
    "Mish": nn.Mish(),
    "Tanh": nn.Tanh(),
    "LeakyReLU": nn.LeakyReLU(0.05),
    "PReLU": nn.PReLU(),
}


def slope_of(f, x):
    x = x.double().requires_grad_(True)
    twin = type(f)(f.negative_slope) if isinstance(f, nn.LeakyReLU) else type(f)()
    return torch.autograd.grad(twin.double()(x).sum(), x)[0]


@pytest.mark.parametrize("op", FUNCTIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_metric_equals_its_definition(made, op, shape):
    torch.manual_seed(0)
    size, dim = SHAPES[shape]
    x = torch.randn(size) - 0.2
    out = made.shown(Gates(), made.activation(x, FUNCTIONS[op], op=op, channel_dim=dim))
    slope = slope_of(FUNCTIONS[op], x)
    gate = slope.abs()
    for theta in (0.01, 0.1):
        open_ = (gate > theta).double()
        assert out["act", f"density@{theta:g}"] == pytest.approx(float(open_.mean()), abs=1e-6)
        by_channel = open_.movedim(dim, -1).flatten(0, -2).mean(0)
        assert np.allclose(out["act", f"density@{theta:g}", "array"], by_channel, atol=1e-6)
    assert out["act", "mean"] == pytest.approx(float(gate.mean()), abs=1e-6)
    assert out["act", "variance"] == pytest.approx(float(slope.var(correction=0)), abs=1e-6)
    assert out["act", "valid"] == 1


@pytest.mark.parametrize("op", ["ReLU", "GELU"])
def test_quantiles_are_elements_near_the_exact_ones(made, op):
    torch.manual_seed(1)
    x = torch.randn(200, 50) - 0.3
    out = made.shown(Gates(), made.activation(x, FUNCTIONS[op], op=op))
    gate = slope_of(FUNCTIONS[op], x).abs().flatten().sort().values
    for q, metric in ((0.05, "q05"), (0.5, "q50"), (0.95, "q95")):
        # 1024 of 10,000: five standard errors of the share
        near = 5 * (q * (1 - q) / 1024) ** 0.5
        low, high = (float(gate[int(min(max(q + s * near, 0), 1) * (len(gate) - 1))]) for s in (-1, 1))
        assert low - 1e-6 <= out["act", metric] <= high + 1e-6


@pytest.mark.parametrize("op", ["ReLU", "GELU"])
def test_several_sites_read_what_each_reads_alone(made, op):
    torch.manual_seed(2)
    views = [made.activation(torch.randn(16, 8) + i, FUNCTIONS[op], op=op, name=f"a{i}") for i in range(3)]
    alone = [made.shown(Gates(), s) for s in views]
    together = made.shown(Gates(), *views)
    for one in alone:
        for key, value in one.items():
            if key[0].startswith("a"):
                assert np.allclose(together[key], value, atol=1e-6), key


def test_relu_at_exactly_zero_is_closed(made):
    out = made.shown(Gates(), made.activation(torch.zeros(4, 3), torch.relu, op="relu"))
    assert out["act", "density@0.01"] == 0


@pytest.mark.parametrize("slope", [0.01, 0.1])
def test_a_leaky_slope_of_exactly_theta_is_closed(made, slope):
    x = torch.tensor([[-1.0, 2.0], [-3.0, -0.5]])
    out = made.shown(Gates((slope,)), made.activation(x, nn.LeakyReLU(slope), op="LeakyReLU"))
    assert out["act", f"density@{slope:g}"] == 0.25


def test_relu_gates_are_closed_from_theta_one_on(made):
    view = made.activation(torch.ones(4, 3), torch.relu, op="relu")
    out = made.shown(Gates((0.5, 1.0)), view)
    assert (out["act", "density@0.5"], out["act", "density@1"]) == (1, 0)


def test_three_poolings_and_two_kinds_of_site(made):
    torch.manual_seed(3)
    views = [
        made.activation(torch.randn(32, 4) + 1, torch.relu, op="relu", name="wide", follows="bn_direct"),
        made.activation(torch.randn(8, 20, 3, 3) - 1, torch.relu, op="relu", name="deep", follows="post_add"),
    ]
    out = made.shown(Gates(), *views)
    d = [float((s.x > 0).double().mean()) for s in views]
    n, c = [128, 1440], [4, 20]
    expected = {"": np.average(d, weights=n), ":site": np.mean(d), ":channel": np.average(d, weights=c)}
    for suffix, value in expected.items():
        assert out["model", "density@0.01" + suffix] == pytest.approx(value, abs=1e-6)
        assert out["model/bn_direct", "density@0.1" + suffix] == pytest.approx(d[0], abs=1e-6)
        assert out["model/post_add", "density@0.1" + suffix] == pytest.approx(d[1], abs=1e-6)


def test_nan_in_one_channel_shows_in_the_valid_share(made):
    x = torch.randn(8, 4)
    x[0, 1] = float("nan")
    assert made.shown(Gates(), made.activation(x, torch.relu, op="relu"))["act", "valid"] == 0.75


def test_half_precision_is_reduced_in_single(made):
    x = (torch.randn(512, 300) + 3).half()
    out = made.shown(Gates(), made.activation(x, torch.relu, op="relu"))
    assert out["act", "density@0.01"] == pytest.approx(float((x > 0).double().mean()), abs=1e-6)


@pytest.mark.parametrize("thetas", [(), (-0.1,), (0.1, float("nan"))])
def test_wrong_thetas_get_a_sentence(thetas):
    with pytest.raises(ValueError, match="non-negative thresholds"):
        Gates(thetas)
