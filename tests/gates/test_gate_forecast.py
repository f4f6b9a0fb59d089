"""Per-channel tests of a margin against gate density, and the forecast from moments alone."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm, pearsonr, spearmanr
from torch import nn

import netvitals as nv
from netvitals.gates import forecasting as gate_forecast
from netvitals.gates import predict, trends
from netvitals.vitals import Gates
from netvitals_lab.theory import gate_trends


@pytest.fixture
def log():
    """Five moments of forty channels; one density that never changes, one channel without variance."""
    g = np.random.default_rng(3)
    mu, sigma = g.normal(0, 0.3, (5, 40)), g.uniform(0.2, 1.5, (5, 40))
    density = norm.cdf(mu / sigma)
    density[:, 0] = 0.5
    sigma[2, 1], mu[2, 1] = 0.0, 0.4
    return mu, sigma, density


@pytest.mark.parametrize("kind", ["pearson", "spearman"])
def test_channel_correlations_are_those_of_scipy_and_undefined_ones_are_counted(log, kind):
    mu, sigma, density = log
    margin = trends.channel_margins(mu, sigma, "relu")["normalized"]
    noisy = density + np.random.default_rng(0).normal(0, 0.2, density.shape)
    noisy[:, 0] = 0.5
    noisy[1:3, 5] = 0.4  # a tie
    found = trends.correlate(margin, noisy, kind)
    assert (found.constant, found.not_finite, found.defined) == (1, 1, 38)
    expected = [
        (pearsonr if kind == "pearson" else spearmanr)(margin[:, c], noisy[:, c]).statistic for c in range(2, 40)
    ]
    assert found.values[2:] == pytest.approx(expected, abs=1e-12)
    assert found.positive == pytest.approx(np.mean(np.array(expected) > 0))
    assert math.isnan(found.values[0]) and math.isnan(found.values[1])
    assert "38 channels" in str(found)


def test_the_normalised_margin_of_a_relu_orders_its_density_and_the_raw_one_need_not(log):
    mu, sigma, density = (a[:, 2:] for a in log)
    margins = trends.channel_margins(mu, sigma, "relu")
    assert trends.correlate(margins["normalized"], density, "spearman").positive == 1.0
    assert trends.agreement(margins["normalized"], density).share == 1.0
    shrinking = np.linspace(1.0, 0.2, 5)[:, None] * np.ones((5, 8))
    smooth = predict(np.full((5, 8), -0.1) - 0.01 * np.arange(5)[:, None], shrinking, "gelu", 0.1)
    margins = trends.channel_margins(np.full((5, 8), -0.1) - 0.01 * np.arange(5)[:, None], shrinking, "gelu", 0.1)
    assert trends.correlate(margins["raw"], smooth).positive == 0.0  # μ falls while density rises
    assert trends.correlate(margins["normalized"], smooth).positive == 1.0


def test_agreement_counts_what_did_not_move():
    margin = np.array([[0.0, 1.0, 2.0, np.inf], [1.0, 0.0, 2.0, 0.0]])
    density = np.array([[0.5, 0.5, 0.5, 0.5], [0.6, 0.7, 0.9, 0.4]])
    found = trends.agreement(margin, density)
    assert (found.agree, found.disagree, found.still) == (1, 1, 2)


def test_cells_of_the_paper_and_its_p_values():
    all_twelve = gate_trends.cells([0.93] * 12)
    assert all_twelve.p_one_sided == pytest.approx(2.44e-4, rel=1e-3)  # the paper's, one-sided
    assert all_twelve.p_two_sided == pytest.approx(4.88e-4, rel=1e-3)
    mixed = gate_trends.cells([0.9, 0.2, 0.5])
    assert (mixed.successes, mixed.failures, mixed.ties) == (1, 1, 1)


def test_trend_of_a_trajectory():
    values = [0.5, 0.51, 0.47, 0.45, 0.46, 0.30]
    found = gate_trends.trend(values)
    assert found.spearman == pytest.approx(spearmanr(range(6), values).statistic)
    assert found.displacement == pytest.approx(-0.2)
    assert math.isnan(gate_trends.trend([0.5, 0.5, 0.5]).spearman)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: trends.correlate(np.zeros((2, 4)), np.zeros((2, 4))), "at least 3 times, got"),
        (lambda: trends.correlate(np.zeros((5, 4)), np.zeros((5, 3))), "got \\(5, 4\\) and \\(5, 3\\)"),
        (lambda: trends.correlate(np.zeros((5, 4)), np.zeros((5, 4)), "kendall"), "'kendall'"),
        (lambda: gate_trends.trend([0.1, 0.2], [0]), "2 values need as many times"),
        (lambda: gate_forecast.forecast(0.0, 1.0, "relu", shrink=-1), "shrink=-1"),
    ],
)
def test_wrong_input_gets_a_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


@pytest.mark.parametrize(
    ("name", "theta", "mu", "way"),
    [
        ("relu", 0.01, -0.3, -1),
        ("relu", 0.01, 0.3, 1),
        ("gelu", 0.1, -0.1, 1),
        ("softplus:50", 0.1, -0.06, -1),
        ("softplus:20", 0.1, -0.06, 1),
        ("gelu", 0.1, -0.9, -1),
    ],
)
def test_the_side_of_the_threshold_decides_the_direction(name, theta, mu, way):
    seen = gate_forecast.forecast(np.full(8, mu), np.full(8, 0.3), name, theta, shrink=0.3)
    assert seen.direction == way and seen.confidence == 1.0
    assert seen.later == pytest.approx(predict(mu, 0.09, name, theta))
    assert ("rise" if way > 0 else "fall") in str(seen)


def test_channels_that_pull_apart_lower_the_confidence():
    seen = gate_forecast.forecast([-0.3, 0.3, 0.3], [0.3] * 3, "relu")
    assert seen.confidence == pytest.approx(1 / 3) and seen.direction == 1
    assert gate_forecast.forecast([-0.3, 0.3], [0.3] * 2, "relu").confidence == pytest.approx(0, abs=1e-12)
    assert gate_forecast.forecast([0.1], [0.0], "relu").confidence == 0.0


def test_a_watched_net_whose_norm_shrinks_is_forecast_and_the_forecast_comes_true():
    """The norm's scale is shrunk by hand, so that what must happen is known."""
    torch.manual_seed(0)
    norm1 = nn.BatchNorm1d(64)
    nn.init.constant_(norm1.bias, -0.2)
    net = nn.Sequential(nn.Linear(16, 64), norm1, nn.ReLU(), nn.Linear(64, 2))
    x, y = torch.randn(256, 16), torch.zeros(256, dtype=torch.long)
    opt = torch.optim.SGD(net.parameters(), lr=0.0)
    text = None
    with nv.watch(net, optimizer=opt, every=1, probe=(x, y), vitals=[Gates((0.01,)), "preactivations"]) as vitals:
        for step in range(24):
            nn.functional.cross_entropy(net(x), y).backward()
            opt.step()
            opt.zero_grad()
            vitals.step(0.0)
            with torch.no_grad():
                norm1.weight.mul_(0.9)
            if step == 11:
                text = [f for f in vitals.findings().all if f.rule == "gate forecast"]
    assert text and text[0].what.startswith("Fewer units will be active in layer 2")
    density = [r.value for r in vitals.measurements if (r.vital, r.site, r.metric) == ("gates", "2", "density@0.01")]
    assert density[-1] < density[11] - 0.05
    assert text[0].evidence[0].value == pytest.approx(norm.cdf(-0.2 / (0.9**11 / 2)), abs=0.03)


@pytest.mark.parametrize("on_disk", [False, True])
def test_the_numbers_of_an_activation_are_known_to_the_forecast(tmp_path, on_disk):
    """A stiff softplus is open above −ln 9/20 = −0.11; an ordinary one, of the same class name, above −2.2."""
    torch.manual_seed(0)
    norm1 = nn.BatchNorm1d(64)
    nn.init.constant_(norm1.bias, -0.25)
    net = nn.Sequential(nn.Linear(16, 64), norm1, nn.Softplus(beta=20), nn.Linear(64, 2))
    x, y = torch.randn(256, 16), torch.zeros(256, dtype=torch.long)
    run = tmp_path / "run" if on_disk else None
    with nv.watch(net, run=run, every=1, probe=(x, y), vitals=[Gates((0.1,)), "preactivations"]) as vitals:
        for _ in range(12):
            vitals.step(0.0)
            with torch.no_grad():
                norm1.weight.mul_(0.9)
        assert vitals.activations == {"2": "softplus:20"}
        (found,) = [f for f in vitals.findings() if f.rule == "gate forecast"]
    assert found.what.startswith("Fewer units will be active in layer 2")


def test_a_shift_of_the_mean_moves_the_density_its_own_way():
    up, down = (gate_forecast.forecast([0.0], [1.0], "relu", shrink=1.0, shift=s) for s in (0.5, -0.5))
    assert up.later == pytest.approx(norm.cdf(0.5)) and down.later == pytest.approx(norm.cdf(-0.5))
    assert (up.way, down.way) == ("rise", "fall")
