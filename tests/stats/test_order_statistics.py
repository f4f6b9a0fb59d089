"""Order statistics without sorting agree with sorting."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from netvitals.stats import order as _order
from netvitals.stats.histogram import MagnitudeHistogram


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5000), st.integers(1, 4), st.integers(0, 10_000))
def test_the_upper_quantile_is_that_of_numpy(n, rows, seed):
    values = torch.randn(rows, n, generator=torch.Generator().manual_seed(seed)).abs()
    expected = np.quantile(values.double().numpy(), 0.999, axis=1)
    np.testing.assert_allclose(_order.upper_quantile(values).numpy(), expected, rtol=1e-6)


def test_the_upper_quantile_of_few_lies_between_the_two_largest_and_infinity_stays_one():
    assert float(_order.upper_quantile(torch.tensor([[1.5, 0.5, 0.5]]).double())) == pytest.approx(1.498, rel=1e-12)
    assert float(_order.upper_quantile(torch.tensor([[2.0]]))) == 2.0
    assert _order.upper_quantile(torch.tensor([[math.inf, 1.0, 2.0], [math.inf] * 3])).tolist() == [math.inf] * 2


@pytest.mark.parametrize("k", [1, 7, 60, 900])
def test_the_largest_few_with_many_ties(k):
    values = torch.randint(0, 5, (3, 4001), generator=torch.Generator().manual_seed(k)).float()
    assert torch.equal(_order.largest(values, k), values.sort(descending=True).values[:, :k])


def test_a_strided_sample_sees_every_channel():
    rows = torch.arange(128).repeat(128).float()  # the channel number of a (128, 128) activation
    sample = _order.sampled(rows)
    assert sample.numel() <= 1024
    assert len(sample.unique()) == 128


def test_median_of_the_nonzero_only():
    rows = torch.tensor([[0.0, 0, 5, 1, 3], [0, 0, 0, 0, 0]])
    median = _order.host_nonzero_median(rows.numpy())
    assert median[0] == 3 and math.isnan(median[1])


def test_histogram_counts_below_an_edge_are_exact():
    torch.manual_seed(0)
    parts = [torch.randn(5000).relu() * scale for scale in (1e-6, 1.0, 1e4)]
    histogram = MagnitudeHistogram()
    for part in parts:
        histogram.add(part)
    everything = torch.cat(parts)
    for threshold in (1e-7, 1e-3, 0.5, 3.0, 2e4):
        share, edge = histogram.share_at_most(threshold)
        assert abs(edge / threshold - 1) <= 1 / 128 + 1e-9
        assert share == float((everything <= edge).double().mean())
    assert histogram.share_at_most(0.0) == (float((everything == 0).double().mean()), 0.0)


@pytest.mark.parametrize("nonzero", [False, True])
def test_histogram_quantiles_are_good_to_a_bin(nonzero):
    torch.manual_seed(1)
    values = torch.randn(20_000).relu()
    histogram = MagnitudeHistogram()
    for part in values.chunk(7):
        histogram.add(part)
    kept = values[values > 0] if nonzero else values
    for q in (0.1, 0.5, 0.9, 0.999):
        exact = float(np.quantile(kept.numpy(), q))
        assert histogram.quantile(q, nonzero=nonzero) == pytest.approx(exact, rel=1 / 120, abs=0)


def test_histogram_leaves_out_nan_and_takes_infinity():
    histogram = MagnitudeHistogram()
    histogram.add(torch.tensor([float("nan"), float("inf"), -1.0]))
    assert histogram.total == 2
    assert histogram.share_at_most(1.0) == (0.5, 1.0)
