"""One order, six rates: each exponent of the chain against the same quantity measured on the mean map of order k."""

import math

import numpy as np
import pytest
import torch

from netvitals.singular import rate_fit
from netvitals.singular.laws.geometry import (
    high_curvature_volume,
    mean_map_metric,
    order_from_fisher,
    rate_chain,
    sectional_curvature,
)
from netvitals.singular.laws.volume import eps_scan_volume
from netvitals.singular.orders.order import directional_fisher, kl_along

f64 = {"dtype": torch.float64}
TS = np.geomspace(1e-3, 1e-2, 5)


def mean(k):
    return lambda th: torch.stack([th[0] ** k + th[1] ** 2, th[1], th[0] * th[1]])


@pytest.mark.parametrize("k", [2, 3, 4])
def test_every_exponent_is_the_measured_one(k):
    chain, v = rate_chain(k), torch.tensor([1.0, 0.0], **f64)
    outputs = lambda th: mean(k)(th)[None]
    fisher = [float(directional_fisher(outputs, t * v, v)) for t in TS]
    assert rate_fit(TS, fisher).slope == pytest.approx(chain.fisher, abs=1e-6)
    assert order_from_fisher(chain.fisher) == k
    assert rate_fit(TS, kl_along(outputs, 0 * v, v, TS.tolist())).slope == pytest.approx(chain.kl, abs=1e-6)
    curvature = [abs(sectional_curvature(mean_map_metric(mean(k)), t * v)) for t in TS]
    assert rate_fit(TS, curvature, floor=0.0).slope == pytest.approx(chain.curvature, abs=1e-3)
    assert eps_scan_volume(lambda u: u[:, 0] ** (2 * k), 1, draws=200_000).lam == pytest.approx(chain.rlct, abs=0.02)


@pytest.mark.parametrize("k", [2, 3])
def test_volumes_of_high_curvature_scale_as_the_chain_says(k):
    chain, metric = rate_chain(k), mean_map_metric(mean(k))
    levels = np.geomspace(1e4, 1e6, 4)
    reach = 2 * (1 / levels[0]) ** (1 / (2 * (k - 1)))
    fisher, lebesgue = zip(*(high_curvature_volume(metric, m, reach=reach, points=20_000) for m in levels))
    assert rate_fit(levels, fisher).slope == pytest.approx(chain.fisher_volume, abs=0.02)
    assert rate_fit(levels, lebesgue).slope == pytest.approx(chain.lebesgue_volume, abs=0.02)


def test_a_regular_direction_has_no_volume_law_and_zero_is_no_order():
    assert (rate_chain(1).fisher, rate_chain(1).rlct) == (0.0, 0.5) and math.isnan(rate_chain(1).fisher_volume)
    with pytest.raises(ValueError, match="at least 1"):
        rate_chain(0)
