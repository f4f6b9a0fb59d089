"""Bottleneck analyser, exponent fits and the collapse of rescaled times."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from netvitals import saddle
from netvitals.saddle.measure.exponent import collapse


@pytest.mark.parametrize(
    ("scales", "r", "layers"),
    [
        ([0.01, 0.01, 1.0, 0.012, 0.8], 3, (0, 1, 3)),
        ([0.1] * 4, 4, (0, 1, 2, 3)),
        ([1.0, 0.9, 1.2], 0, ()),
        ([0.05, 1.0, 2.0], 1, (0,)),
        ([0.01, 0.02, 0.6, 3.0], 2, (0, 1)),
    ],
)
def test_small_layers_are_found(scales, r, layers):
    neck = saddle.bottleneck(scales)
    assert (neck.r, neck.layers) == (r, layers)


@pytest.mark.parametrize("small", [[0, 1, 2], [1, 3], [4]])
@pytest.mark.parametrize("measure", ["he", "operator"])
def test_small_layers_of_a_real_network(small, measure):
    torch.manual_seed(0)
    sizes = [16, 64, 64, 64, 64, 1]
    net = nn.Sequential(*[m for a, b in pairwise(sizes) for m in (nn.Linear(a, b, bias=False), nn.Tanh())][:-1])
    with torch.no_grad():
        for i, m in enumerate(m for m in net if isinstance(m, nn.Linear)):
            nn.init.kaiming_normal_(m.weight)
            m.weight.mul_(0.02 if i in small else 1.0)
    neck = saddle.bottleneck(net, "tanh", measure=measure)
    assert list(neck.layers) == small
    assert neck.epsilon == pytest.approx(0.02, rel=0.35)
    assert neck.exponent == -max(len(small) - 2, 0)
    if len(small) >= 2:
        assert neck.prefactor > 0 and math.isfinite(neck.prefactor)
    assert f"r = {len(small)}" in str(neck)


def test_shells_and_prefactor():
    neck = saddle.bottleneck([1e-3, 1e-3, 1e-3, 0.5], "tanh", width=4)
    assert [j for *_, j in neck.shells] == [3, 4]
    k = saddle.drive("tanh", 4, 4).k
    assert neck.prefactor == pytest.approx(1 / (0.5 * k))
    with pytest.raises(ValueError, match="positive finite scale"):
        saddle.bottleneck([0.0, 1.0])
    with pytest.raises(ValueError, match="no Linear or convolution"):
        saddle.bottleneck(nn.Tanh())
    with pytest.raises(ValueError, match="at least two"):
        saddle.bottleneck([0.1])


def test_fit_with_seeds_missing_runs_and_logarithms():
    eps = np.array([0.01, 0.02, 0.04, 0.08])
    rng = np.random.default_rng(0)
    times = 3 * eps[:, None] ** -2.0 * np.exp(0.02 * rng.standard_normal((4, 5)))
    times[0, 0] = np.nan
    fit = saddle.fit_exponent(eps, times, r=4)
    assert fit.agrees(0.05) and fit.missing == 1 and fit.seeds == 5
    assert "without escape" in str(fit)
    log = saddle.fit_exponent(eps, 7 * np.log(1 / eps) + 1, r=2)
    assert log.log_rate == pytest.approx(7) and "logarithmic" in log.verdict
    with pytest.raises(ValueError, match="three or more values of eps"):
        saddle.fit_exponent([0.1, 0.2], [1.0, 2.0])
    with pytest.raises(ValueError, match="one row per eps"):
        saddle.fit_exponent([0.1, 0.2, 0.3], [1.0, 2.0])
    with pytest.raises(ValueError, match="needs r, the number of small layers"):
        saddle.fit_exponent(eps, times).agrees()


def test_universality_collapse():
    """Claim C20 and the sizes of the deviations in E3."""
    eps = np.array([0.01, 0.02, 0.03])
    names = ("tanh", "erf", "sin", "gelu", "silu")
    times = {n: saddle.escape_time(np.repeat(eps[:, None], 4, 1), n, 64, threshold=0.5).t for n in names}
    drives = {n: saddle.drive(n, 4, 64).k for n in names}
    got = collapse(eps, times, drives, depth=4)
    assert got.spread(("tanh", "erf", "sin"), eps_max=0.03) <= 0.02
    raw = np.array([times[n][0] for n in names])
    assert raw.max() / raw.min() > 10  # what the rescaling removes
    assert got.deviation[3, 0] == pytest.approx(-0.027, abs=0.001)
    assert got.deviation[4, 0] == pytest.approx(-0.014, abs=0.001)
    assert got.residual_order("gelu") == pytest.approx(1, abs=0.1)
    assert "master" in str(got)


def chain_of(r, depth=4, width=24, eps=0.05):
    torch.manual_seed(0)
    sizes = [8, *[width] * (depth - 1), 1]
    layers = [nn.Linear(a, b, bias=False) for a, b in pairwise(sizes)]
    for i, layer in enumerate(layers):
        nn.init.kaiming_normal_(layer.weight)
        with torch.no_grad():
            layer.weight.mul_(eps if i < r else 1.0)
    return nn.Sequential(*[m for layer in layers for m in (layer, nn.Tanh())][:-1])


@pytest.mark.parametrize("r", [2, 3])
def test_a_network_that_has_escaped_gets_no_law(r):
    """Rank-one weights of operator norm one have small entries in a wide layer: their Frobenius norm looks small."""
    net = chain_of(r)
    x = torch.randn(128, 8)
    y = torch.tanh(x @ torch.ones(8, 1) / 3)
    resting = float((y - y.mean()).square().mean())
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    seen = []
    for step in range(1201):
        loss = (net(x) - y).square().mean()
        if step in (0, 1200):
            seen.append((float(loss.detach()), saddle.bottleneck(net), saddle.bottleneck([m.weight for m in net[::2]])))
        opt.zero_grad()
        loss.backward()
        opt.step()
    (_, before, of_weights), (loss, after, escaped) = seen
    assert before.r == of_weights.r == r and not before.escaped
    assert loss < 0.1 * resting, "the network must have escaped for this test to say anything"
    assert after.r == 0 == escaped.r and after.escaped and escaped.escaped
    assert "left its plateau" in str(after) and math.isnan(after.prefactor)


def test_a_learned_direction_that_is_still_small_is_on_the_plateau():
    net = chain_of(3)
    with torch.no_grad():
        for layer in net[:5:2]:
            u, _, v = torch.linalg.svd(layer.weight, full_matrices=False)
            layer.weight.copy_(0.1 * torch.outer(u[:, 0], v[0]))
    assert saddle.bottleneck(net).r == 3 and not saddle.bottleneck(net).escaped
