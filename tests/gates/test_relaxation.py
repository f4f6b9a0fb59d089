"""Channels that relax with the decay that is left, and densities of their own samples."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from netvitals.gates import forecast, predict
from netvitals.gates.relaxation import empirical, relax, turning_point

LEVELS = (np.arange(17) + 0.5) / 17


def test_a_weight_that_nothing_holds_up_shrinks_with_the_integrated_decay():
    then, past, rest, decay = 2.0, 3.0, 5.0, 0.2
    now = then * math.exp(-decay * past)
    assert relax([now], [then], past, rest, decay)[0] == pytest.approx(now * math.exp(-decay * rest))


def test_a_weight_that_is_held_goes_to_its_share_of_the_target():
    """γ then and now on the way to γ* = 1.5: with q = 1 the way goes on, with q the target is q γ*."""
    decay, past, rest = 0.3, 2.0, 4.0
    then = 0.5
    now = 1.5 + (then - 1.5) * math.exp(-decay * past)
    whole = relax([now], [then], past, rest, decay, held=1.0)[0]
    assert whole == pytest.approx(1.5 + (now - 1.5) * math.exp(-decay * rest))
    half = relax([now], [then], past, rest, decay, held=0.5)[0]
    assert half == pytest.approx(now * math.exp(-decay * rest) + 0.75 * (1 - math.exp(-decay * rest)))


def test_without_decay_a_part_of_the_slope_goes_on():
    assert relax([2.0], [1.0], 4.0, 2.0, 0.0, held=0.5)[0] == pytest.approx(2.25)
    assert relax([2.0], [1.0], 0.0, 2.0, 0.1)[0] == 2.0


def test_small_decay_and_none_agree():
    assert relax([2.0], [1.9], 1.0, 1.0, 1e-5, held=1.0)[0] == pytest.approx(
        relax([2.0], [1.9], 1.0, 1.0, 0.0, held=1.0)[0], abs=1e-4
    )


@pytest.mark.parametrize("f", ["relu", "gelu", "tanh"])
def test_the_empirical_law_of_a_gaussian_is_the_gaussian_law(f):
    levels = (np.arange(201) + 0.5) / 201
    mu, sigma = np.linspace(-1, 1, 9), np.linspace(0.3, 1.2, 9)
    shape = np.tile(norm.ppf(levels), (9, 1))
    assert empirical(mu, sigma, shape, f, 0.1) == pytest.approx(predict(mu, sigma, f, 0.1), abs=0.006)


def test_the_empirical_law_sees_a_shape_that_the_gaussian_does_not():
    """Two thin peaks at ±1: half of them is open at once, and a mean of 0.5 opens no more."""
    shape = np.tile(np.where(LEVELS < 0.5, -1.0, 1.0) + 1e-3 * LEVELS, (1, 1))
    exact = empirical([0.5], [1.0], shape, "relu")[0]
    assert exact == pytest.approx(0.5, abs=0.06) and predict(0.5, 1.0, "relu") > 0.68


def test_tails_beyond_the_quantiles_fall_off_and_channels_must_match():
    shape = np.tile(norm.ppf(LEVELS), (1, 1))
    far, further = (empirical([m], [1.0], shape, "relu")[0] for m in (-2.5, -4.0))
    assert 0 < further < far < 0.03
    with pytest.raises(ValueError, match="one row a channel"):
        empirical([0.0, 0.0], [1.0, 1.0], shape, "relu")


@pytest.mark.parametrize("side", [1, -1])
def test_a_tail_falls_off_by_e_squared_per_standard_deviation(side):
    shape = np.array([[-1.0, 0.0, 1.0]])
    share = empirical([-side * 2.0], [1.0], shape, "relu")[0]
    tail = (0.5 / 3) * math.exp(-2.0)
    assert share == pytest.approx(tail if side > 0 else 1 - tail)


def test_turning_points():
    assert turning_point([0, 1, 2, 3], [0.5, 0.45, 0.44, 0.6]) == 2.0
    assert turning_point([0, 1, 2], [0.5, 0.6, 0.52]) == 1.0
    assert math.isnan(turning_point([0, 1, 2], [0.5, 0.498, 0.51]))  # not worth a word
    assert math.isnan(turning_point([0, 1, 2], [0.5, 0.4, 0.3]))


def test_a_shift_of_the_mean_moves_the_density_its_own_way():
    up, down = (forecast([0.0], [1.0], "relu", shrink=1.0, shift=s) for s in (0.5, -0.5))
    assert up.later == pytest.approx(norm.cdf(0.5)) and down.later == pytest.approx(norm.cdf(-0.5))
    assert (up.way, down.way) == ("rise", "fall")
