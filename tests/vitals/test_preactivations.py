"""Moments of pre-activations against numpy in float64."""

import numpy as np
import pytest
import torch
from torch import nn

from netvitals.capture import Site, TensorView
from netvitals.vitals import Preactivations


@pytest.mark.parametrize(("shape", "dim"), [((50, 12), 1), ((5, 7, 12), -1), ((6, 12, 4, 3), 1)])
@pytest.mark.parametrize("op", ["ReLU", "GELU"])
def test_channel_and_pooled_moments(made, shape, dim, op):
    torch.manual_seed(0)
    x = torch.randn(shape) * 2 - 0.7
    out = made.shown(Preactivations(), made.activation(x, getattr(nn, op)(), op=op, channel_dim=dim))
    rows = np.moveaxis(x.double().numpy(), dim, -1).reshape(-1, 12)
    mu, sigma = rows.mean(0), rows.std(0)
    assert out["act", "mu", "array"] == pytest.approx(mu, abs=1e-5)
    assert out["act", "sigma", "array"] == pytest.approx(sigma, abs=1e-5)
    expected = {
        "mean": rows.mean(),
        "std": rows.std(),
        "sigma": sigma.mean(),
        "mean_spread": mu.std(),
        "sigma_spread": sigma.std(),
        "preact_drift": rows.mean() / rows.std(),
        "neg_preact": (rows <= 0).mean(),
    }
    for metric, value in expected.items():
        assert out["act", metric] == pytest.approx(value, abs=1e-5), metric


def test_preact_drift_is_the_mean_weight_times_the_mean_input(made):
    torch.manual_seed(1)
    layer = nn.Linear(30, 20).double()
    x = torch.rand(100, 30, dtype=torch.float64)
    p = layer(x).detach()
    numerator = float((layer.weight @ x.mean(0) + layer.bias).mean().detach())
    out = made.shown(Preactivations(), made.activation(p, torch.relu, op="relu"))
    assert out["act", "preact_drift"] * out["act", "std"] == pytest.approx(numerator, abs=1e-6)


def test_a_large_mean_does_not_swallow_the_variance(made):
    x = torch.randn(256, 4) * 1e-2 + 100
    out = made.shown(Preactivations(), made.activation(x, torch.relu, op="relu"))
    assert out["act", "sigma", "array"] == pytest.approx(x.double().numpy().std(0), rel=1e-3)


def test_scale_and_shift_of_a_norm(made):
    norm = nn.BatchNorm1d(3)
    norm.weight.data = torch.tensor([1.0, -2.0, 3.0])
    norm.bias.data = torch.tensor([0.5, 0.5, -0.1])
    view = TensorView(Site("bn", "norm", "BatchNorm1d"), torch.randn(4, 3), norm)
    out = made.shown(Preactivations(), view)
    assert out == {("bn", "scale"): 2.0, ("bn", "shift"): pytest.approx(0.3)}


def test_a_norm_without_parameters_and_other_tensors_write_nothing(made):
    bare = TensorView(Site("bn", "norm", "BatchNorm1d"), torch.randn(4, 3), nn.BatchNorm1d(3, affine=False))
    stream = TensorView(Site("block", "stream", "Block"), torch.randn(4, 3), nn.LayerNorm(3))
    assert made.shown(Preactivations(), bare, stream) == {}


def test_kinds_of_site_are_pooled_apart(made):
    low = made.activation(torch.full((4, 2), -1.0), torch.relu, op="relu", name="a", follows="bn_direct")
    high = made.activation(torch.full((4, 2), 3.0), torch.relu, op="relu", name="b", follows="post_add")
    out = made.shown(Preactivations(), low, high)
    assert (out["model/bn_direct", "mean"], out["model/post_add", "mean"], out["model", "mean"]) == (-1, 3, 1)
