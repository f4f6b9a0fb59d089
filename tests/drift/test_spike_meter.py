"""Spikes on a batch, over a data set in one pass, and between runs."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import kurtosis
from torch import nn

from exact_spikes import spikes
from netvitals.capture import Site, TensorView
from netvitals.drift import amplification, intermediate_peak, sparsity
from netvitals.drift import spikes as measure
from netvitals.vitals import Spikes


def spiky(shape, seed=0):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    x.view(-1)[1234] = 180.0
    x.view(-1)[77] = -150.0
    return x


def numbers(a, k=20.0):
    a = a.double().numpy().ravel()
    size = np.abs(a)
    on = np.sort(size[size > 0])
    return {
        "max_abs": size.max(),
        "p999": np.quantile(size.astype(np.float64), 0.999),
        "max_over_mean": size.max() / size.mean(),
        "kurtosis": kurtosis(a, fisher=False),
        "max_over_median": size.max() / on[(on.size - 1) // 2],
        "spike_count": (size > k * np.sqrt((a**2).mean())).sum(),
    }


@pytest.mark.parametrize("op", ["ReLU", "Identity"])
def test_every_number_equals_its_definition(made, op):
    x = spiky((100, 60))
    f = getattr(nn, op)()
    out = made.shown(Spikes(), made.activation(x, f, op=op))
    exact = spikes(f(x), channel_dim=1)
    for metric, value in numbers(f(x)).items():
        assert getattr(exact, metric) == pytest.approx(value, rel=1e-9), metric
        # the median of the watch comes from a sample of 512
        assert out["act", metric] == pytest.approx(value, rel=0.15 if metric == "max_over_median" else 1e-4), metric
    assert out["act", "channel"] == 1234 % 60 and (exact.sample, exact.token, exact.channel) == (20, 0, 34)
    assert out["act", "massive"] == float(exact.massive)


def test_the_median_is_exact_where_the_sample_is_everything(made):
    x = spiky((40, 40))[:12]
    out = made.shown(Spikes(), made.activation(x, torch.relu, op="relu"))
    assert out["act", "max_over_median"] == pytest.approx(numbers(x.relu())["max_over_median"], rel=1e-5)


@pytest.mark.parametrize(("shape", "dim", "where"), [((5, 7, 40), -1, (3, 4, 11)), ((4, 6, 9, 10), 1, (2, 5, 8, 3))])
def test_the_place_of_the_largest_entry(made, shape, dim, where):
    x = torch.randn(shape)
    x[where] = -50.0
    out = made.shown(Spikes(), made.activation(x, torch.nn.functional.hardshrink, channel_dim=dim))
    token = where[1] if len(shape) == 3 else where[2] * 10 + where[3]
    channel = where[2] if len(shape) == 3 else where[1]
    assert (out["act", "token"], out["act", "channel"]) == (token, channel)
    exact = spikes(x, channel_dim=dim)
    assert (exact.sample, exact.token, exact.channel) == (where[0], token, channel)


@pytest.mark.parametrize("k", [2.0, 20.0])
def test_spikes_are_counted_above_k_root_mean_squares(made, k):
    x = spiky((300, 200))
    out = made.shown(Spikes(k), made.activation(x, nn.Identity()))
    assert out["act", "spike_count"] == numbers(x, k)["spike_count"]


def test_massive_activations_are_flagged(made):
    x = torch.full((50, 50), 0.05)
    x[3, 4] = 120.0
    assert made.shown(Spikes(), made.activation(x, nn.Identity()))["act", "massive"] == 1
    assert made.shown(Spikes(), made.activation(x / 2, nn.Identity()))["act", "massive"] == 0
    assert spikes(x).massive and not spikes(x / 2).massive


def test_the_residual_stream_is_looked_at_too(made):
    x = spiky((4, 10, 50))
    view = TensorView(Site("block", "stream", "Block", channel_dim=-1), x)
    other = TensorView(Site("norm", "norm", "LayerNorm", channel_dim=-1), x)
    out = made.shown(Spikes(), view, other)
    assert out["block", "max_abs"] == 180 and ("norm", "max_abs") not in out
    assert (out["block", "token"], out["block", "channel"]) == (1234 % 500 // 50, 1234 % 50)


def test_the_layer_with_the_peak(made):
    maxima = [1.0, 9.0, 3.0]
    views = [made.activation(torch.full((4, 2), m), torch.relu, op="relu", name=f"a{i}") for i, m in enumerate(maxima)]
    vital = Spikes()
    out = made.shown(vital, *views)
    assert (out["model", "peak_layer"], out["model", "intermediate_peak"], out["model", "max_abs"]) == (1, 1, 9)
    later = made.shown(vital, views[2], *views[:2])  # the order of the first look counts
    assert later["model", "peak_layer"] == 1
    last = made.shown(Spikes(), *views[:2])
    assert (last["model", "peak_layer"], last["model", "intermediate_peak"]) == (1, 0)


def test_profiles_and_amplification():
    assert intermediate_peak([1, 5, 2]) and not intermediate_peak([5, 1, 2]) and not intermediate_peak([1, 2, 5])
    assert amplification({"a": 50.0, "b": 100.0}, [2.0, 4.0]) == 25
    assert math.isnan(amplification([1.0], [0.0]))
    with pytest.raises(ValueError, match="run B has no layers"):
        amplification([1.0], [])
    with pytest.raises(ValueError, match="at least one layer"):
        intermediate_peak([])


class Squared(nn.Module):
    elementwise = True

    def forward(self, x):
        return x.relu().square()


class Residual(nn.Module):
    def __init__(self, width, activation):
        super().__init__()
        self.up, self.act, self.down = nn.Linear(width, 2 * width), activation, nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(self.act(self.up(x)))


def residual_net(activation):
    torch.manual_seed(0)
    return nn.Sequential(*(Residual(12, activation()) for _ in range(3)))


def test_streaming_is_the_whole_at_once():
    net, x = residual_net(nn.ReLU), spiky((64, 9, 12))
    parts, whole = measure(net, iter(x.split(10))), measure(net, [x])
    assert list(parts.sites) == list(whole.sites)
    for name, one in whole.sites.items():
        two = parts.sites[name]
        assert (two.max_abs, two.p999, two.channel, two.token, two.spike_count, two.elements) == (
            one.max_abs,
            one.p999,
            one.channel,
            one.token,
            one.spike_count,
            one.elements,
        )
        assert (two.kurtosis, two.max_over_mean, two.max_over_median) == pytest.approx(
            (one.kurtosis, one.max_over_mean, one.max_over_median), rel=1e-9
        )


def test_the_meter_equals_the_definition_to_a_bin():
    net, x = residual_net(nn.ReLU), spiky((64, 9, 12))
    report = measure(net, iter(x.split(10)))
    with torch.no_grad():
        a = net[0].act(net[0].up(x))
        stream = net[0](x)
    for found, exact in ((report.sites["0.act"], spikes(a)), (report.sites["0"], spikes(stream))):
        assert found.max_abs == pytest.approx(exact.max_abs, rel=1e-6)
        assert (found.kurtosis, found.max_over_mean) == pytest.approx((exact.kurtosis, exact.max_over_mean), rel=1e-5)
        assert (found.p999, found.max_over_median) == pytest.approx((exact.p999, exact.max_over_median), rel=0.012)
        assert found.spike_threshold == pytest.approx(exact.spike_threshold, rel=0.008)
        assert (found.token, found.channel) == (exact.token, exact.channel)
    assert len(report.profile()) == 3 and len(report.profile("stream")) == 3


def test_squaring_amplifies():
    x = 3 * torch.randn(64, 12, generator=torch.Generator().manual_seed(1))
    plain, squared = measure(residual_net(nn.ReLU), [x]), measure(residual_net(Squared), [x])
    ratio = amplification(squared, plain)
    assert ratio > 3
    assert ratio == pytest.approx(np.mean(squared.profile()) / np.mean(plain.profile()))
    assert "spikes over 64 examples" in str(squared)


def test_wrong_input_gets_a_sentence():
    with pytest.raises(ValueError, match="must be positive, got 0"):
        Spikes(k=0)
    with pytest.raises(ValueError, match="with elements"):
        spikes(torch.empty(0, 2))
    with pytest.raises(ValueError, match="yields no batches"):
        measure(residual_net(nn.ReLU), [])
    with pytest.raises(ValueError, match="no activation or residual block"):
        measure(nn.Linear(2, 2), [torch.zeros(3, 2)])


def test_the_example_is_counted_over_all_batches():
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
    x = torch.randn(60, 6)
    x[45] *= 1000
    found = measure(net, [(part,) for part in x.split(8)])
    assert found.sites["1"].sample == 45 and found.examples == 60
    assert measure(net, x).sites["1"].sample == 45


@pytest.mark.parametrize("batch_first", [True, False])
def test_position_and_example_of_a_sequence_are_not_swapped(batch_first):
    torch.manual_seed(0)
    net = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=batch_first)
    x = torch.randn(12, 5, 8)  # examples, positions, channels
    x[9, 3] *= 1000
    with torch.no_grad():
        net.norm1.weight.mul_(1), net.linear1.bias.zero_()
    # attention mixes positions of one example only; the norm is switched off so that the spike stays
    net.norm1 = net.norm2 = nn.Identity()
    parts = x.split(4) if batch_first else [p.transpose(0, 1).contiguous() for p in x.split(4)]
    found = measure(net, [(p,) for p in parts])
    (site,) = [s for s in found.sites.values() if s.kind == "activation"]
    assert (site.sample, site.token) == (9, 3), site


class Routed(nn.Module):
    """Every token goes to the first of two experts."""

    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 4)) for _ in range(2))

    def forward(self, x):
        first = torch.ones(len(x), dtype=torch.bool)
        out = torch.zeros_like(x)
        for expert, mine in zip(self.experts, (first, ~first)):
            out[mine] = expert(x[mine])
        return out


def test_an_expert_without_tokens_is_looked_at_and_has_no_numbers():
    x = torch.randn(5, 4)
    sparse, spiky_ = sparsity(Routed(), x), measure(Routed(), x)
    for found in (sparse, spiky_):
        assert list(found.sites) == ["experts.0.1"] and "without tokens" in found.skipped["experts.1.1"]
    assert sparse.sites["experts.0.1"].elements == 30 and math.isfinite(sparse.mean)


def test_streamed_kurtosis_of_a_skewed_sample_far_from_zero():
    """Every term of the fourth central moment counts: mean 3, skewness 2, in three uneven batches."""
    from netvitals.drift.spike_sums import SpikeSums

    drawn = np.random.default_rng(0).exponential(1.0, 6000) + 3.0
    sums = SpikeSums(site=Site("a", "activation", "ReLU"))
    for part in np.split(drawn, [500, 2500]):
        sums.add(torch.from_numpy(part), None, 0)
    assert sums.result(20.0).kurtosis == pytest.approx(kurtosis(drawn, fisher=False), rel=1e-9)
