"""A vital sign and a meter over a data set end in the same formulas: on one batch they give the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from exact_spikes import spikes
from netvitals import drift, saddle
from netvitals.capture import observe
from netvitals.drift.reductions import heights, unit_shares
from netvitals.saddle.measure.accounting import measure_steps
from netvitals.vitals import Imbalance, Sparsity, Spikes


def network():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 24), nn.GELU(), nn.Linear(24, 16), nn.ReLU())
    with torch.no_grad():
        net[0].bias[:4] = -50.0  # never on
        net[0].bias[4] = 50.0  # always on
    return net, torch.randn(64, 6)


def measurements(vital, net, x):
    return {(r.site, r.metric): r.value for r in observe(net, None, x, vitals=[vital]).measurements}


def test_sparsity_on_one_batch():
    net, x = network()
    read, report = measurements(Sparsity(), net, x), drift.sparsity(net, x)
    for name, site in report.sites.items():
        assert read[name, "hard"] == pytest.approx(site.hard, rel=1e-6)
        assert read[name, "neg_preact"] == pytest.approx(site.neg_preact, rel=1e-6)
        assert read[name, "dead_units"] * site.units == pytest.approx(site.dead)
        assert read[name, "always_on"] * site.units == pytest.approx(site.always_on)
    assert report.sites["1"].dead >= 4 and report.sites["1"].always_on >= 1


def test_spikes_on_one_batch():
    net, x = network()
    x = x.clone()
    x[7] *= 40
    read, report = measurements(Spikes(), net, x), drift.spikes(net, x)
    for name, site in report.sites.items():
        exact = spikes(dict(activations(net, x))[name])
        for metric in ("max_abs", "max_over_mean", "kurtosis"):
            assert read[name, metric] == pytest.approx(getattr(site, metric), rel=1e-4)
            assert getattr(site, metric) == pytest.approx(getattr(exact, metric), rel=1e-6)
        assert read[name, "channel"] == site.channel
        assert bool(read[name, "massive"]) == site.massive


def activations(net, x):
    with torch.no_grad():
        for name, module in net.named_children():
            x = module(x)
            yield name, x


def test_shares_of_counts_and_counts_of_shares_are_the_same():
    counts = np.array([0, 0, 3, 7, 8])
    by_count = unit_shares(counts, total=np.sum, units=5, full=8)
    by_share = unit_shares(counts / 8, total=np.sum, units=5)
    assert by_count == by_share == (1 - 18 / 40, 2 / 5, 1 / 5)


@pytest.mark.parametrize(("largest", "massive"), [(101.0, True), (99.0, False)])
def test_heights_of_one_and_of_many(largest, massive):
    one = heights(largest, mean=1.0, median=0.01, variance=2.0, fourth=12.0, elements=9)
    assert one.massive is massive and one.kurtosis == 4.0
    many = heights(
        np.array([largest, 0.0]),
        mean=np.array([1.0, 0.0]),
        median=np.array([0.01, np.nan]),
        variance=np.array([2.0, 0.0]),
        fourth=np.array([12.0, 0.0]),
        elements=9,
    )
    assert many.massive.tolist() == [massive, False] and many.over_mean[0] == one.over_mean
    assert np.isnan([many.over_mean[1], many.over_median[1], many.kurtosis[1]]).all()  # nothing to compare with


def test_the_watcher_the_identity_and_the_accounts_have_one_imbalance():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8, bias=False), nn.Tanh(), nn.Linear(8, 2)).double()
    x, y = torch.randn(16, 4).double(), torch.randn(16, 2).double()
    identity = {(p.first, p.second): p.delta for p in saddle.imbalance(net, "mse", (x, y)).pairs}
    watched = {site: v for (site, metric), v in measurements(Imbalance(), net, x).items() if metric == "imbalance"}
    values = {n: p.detach() for n, p in net.named_parameters()}
    still = measure_steps(values, values, {n: torch.ones_like(v) for n, v in values.items()}, list(identity))
    for (first, second), account in zip(identity, still):
        bias = net[int(first)].bias
        by_hand = net[int(second)].weight.square().sum() - net[int(first)].weight.square().sum()
        by_hand = float((by_hand - (bias.square().sum() if bias is not None else 0)).detach())
        assert identity[first, second] == pytest.approx(by_hand, rel=1e-12)
        assert account.delta == pytest.approx(by_hand, rel=1e-12)
        assert watched[f"{first}→{second}"] == pytest.approx(by_hand, rel=1e-12)
