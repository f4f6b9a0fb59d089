"""λ, m, ν and what follows, against the closed forms and tables of the dead-directions paper (corrected)."""

import itertools
import math

import numpy as np
import pytest
import torch

from netvitals.singular.laws import fluctuation, geometry, rlct, volume
from netvitals.singular.sampling import evidence

NU = {
    1: 0.5,
    2: 0.172973,
    3: 0.278366,
    4: 0.137856,
    5: 0.206135,
    6: 0.116661,
    7: 0.167386,
    8: 0.102108,
    9: 0.142516,
    10: 0.091344,
}
DATA_FREE = {
    1: 0.181690,
    2: 0.135763,
    3: 0.107486,
    4: 0.088745,
    5: 0.075497,
    6: 0.065661,
    7: 0.058078,
    8: 0.052058,
    9: 0.047165,
    10: 0.043110,
}
TEMPERED = {
    0.1: (0.5, 0.14038, 0.17811, 0.09382),
    0.5: (0.5, 0.15706, 0.22630, 0.11486),
    2.0: (0.5, 0.19311, 0.34576, 0.16879),
    10.0: (0.5, 0.23139, 0.46023, 0.22636),
}


@pytest.mark.parametrize("k", NU)
def test_nu_table(k):
    assert fluctuation.nu(k) == pytest.approx(NU[k], abs=2e-6)
    assert fluctuation.nu_data_free(k) == pytest.approx(DATA_FREE[k], abs=1e-6)


@pytest.mark.parametrize("beta", TEMPERED)
def test_nu_depends_on_temperature(beta):
    assert [fluctuation.nu(k, beta=beta) for k in (1, 2, 3, 4)] == pytest.approx(TEMPERED[beta], abs=1e-5)


def test_prior_shift_at_order_two():
    assert [fluctuation.nu(2, h) for h in (0, 1, 2, 3)] == pytest.approx([0.17297, 0.20218, 0.21529, 0.22277], abs=1e-5)
    assert [fluctuation.nu_data_free(2, h) for h in (0, 1, 2, 3)] == pytest.approx(
        [0.13576, 0.18169, 0.20289, 0.21460], abs=1e-5
    )


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_gaussian_integration_by_parts(k):
    assert fluctuation.mean_square(k) == pytest.approx(1 / (2 * k), abs=1e-9)


def test_frozen_fluctuation_depends_on_parity():
    assert fluctuation.nu(2, beta=1e-4) == pytest.approx(fluctuation.nu_frozen(2), abs=1e-3)
    assert fluctuation.nu(3, beta=1e-4) == pytest.approx(fluctuation.nu_frozen(3), abs=1e-3)
    assert fluctuation.nu_frozen(3) == pytest.approx(1 / 6)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_functional_variance_is_universal_in_the_coefficient(k, scale):
    mc = fluctuation.functional_variance_mc(k, n=4000, data_sets=1500, scale=scale, seed=k)
    assert abs(mc.nu - NU[k]) < 4 * mc.nu_stderr + 0.004


@pytest.mark.parametrize("k", [1, 2, 3])
def test_expected_losses(k):
    mc = fluctuation.functional_variance_mc(k, n=2000, data_sets=4000, seed=7)
    triple = evidence.WatanabeTriple(1 / (2 * k), 1, NU[k])
    assert abs(mc.generalisation - 2000 * triple.generalisation(2000)) < 4 * mc.generalisation_stderr + 0.01
    assert abs(mc.training - 2000 * triple.training(2000)) < 4 * mc.training_stderr + 0.01


def _smooth_pieces(n, h, m, r):
    """λ by summing squares: the regular part r(N+M−r)/2 plus the rank-zero problem of the reduced sizes."""
    lam, mult = rlct.rlct_reduced_rank(n - r, h - r, m - r, 0) if min(n, h, m) > r else (0.0, 1)
    return r * (n + m - r) / 2 + lam, mult


def test_reduced_rank_closed_form():
    assert rlct.rlct_reduced_rank(4, 3, 4, 2) == (7.0, 2)
    assert rlct.rlct_reduced_rank(1, 1, 1, 0) == rlct.rlct_crossing([1, 1])
    shapes = [
        (n, h, m, r) for n in range(1, 7) for h in range(1, 6) for m in range(1, 7) for r in range(min(n, h, m) + 1)
    ]
    assert len(shapes) > 40
    for n, h, m, r in shapes:
        lam, mult = rlct.rlct_reduced_rank(n, h, m, r)
        assert rlct.rlct_reduced_rank(m, h, n, r) == (lam, mult)  # transposing the problem changes nothing
        assert lam <= h * (n + m) / 2  # never above half the parameters
        assert (lam, mult) == pytest.approx(_smooth_pieces(n, h, m, r))  # the true rank separates exactly


def test_crossings_and_additive_forms():
    assert rlct.rlct_crossing([2, 2, 2]) == (0.25, 3)
    assert rlct.rlct_crossing([1, 2], [0, 3]) == (0.5, 1)
    assert rlct.rlct_crossing([1, 2], [0, 1]) == (0.5, 2)
    assert rlct.rlct_single(3, m_perp=2, h=1) == (pytest.approx(1 / 3 + 1), 1)


@pytest.mark.parametrize(
    ("ks", "expected"),
    [((1,), (0.5, 1)), ((1, 1), (0.5, 2)), ((2, 2), (0.25, 2)), ((1, 2), (0.25, 1)), ((1, 1, 1), (0.5, 3))],
)
def test_volume_scan_reads_lambda_and_multiplicity(ks, expected):
    scan = volume.eps_scan_volume(lambda x: (x ** (2 * torch.tensor(ks))).prod(1), len(ks), draws=400_000)
    assert scan.m == expected[1]
    assert scan.lam == pytest.approx(expected[0], abs=0.02)


def test_volume_scan_matches_the_exact_tied_law():
    scan = volume.eps_scan_volume(lambda x: x.square().prod(1), 2, draws=400_000, eps=(1e-8, 1e-3))
    exact = [volume.tied_crossing_volume(e, k=1, r=2) for e in scan.eps]
    assert np.allclose(scan.volume, exact, rtol=0.03)


def mean_map(k):
    return lambda p: torch.stack([p[0] ** k + p[1] ** 2, p[1], p[0] * p[1]])


@pytest.mark.parametrize("k", [2, 3, 4])
def test_sectional_curvature_of_mean_maps(k):
    for t in (0.3, 0.7):
        value = geometry.sectional_curvature(geometry.mean_map_metric(mean_map(k)), torch.tensor([t, 0.0]).double())
        assert value == pytest.approx(-1 / (k**2 * t ** (2 * (k - 1)) * (1 + t**2) ** 2), rel=1e-6)


def test_flat_counterexample_to_the_printed_curvature_rate():
    flat = geometry.mean_map_metric(lambda p: torch.stack([p[0] ** 2, p[1] * (1 + p[0])]))
    assert abs(geometry.sectional_curvature(flat, torch.tensor([0.1, 0.2]).double())) < 1e-8


def test_high_curvature_volume_constant():
    metric = geometry.mean_map_metric(mean_map(2))
    fisher, lebesgue = geometry.high_curvature_volume(metric, 1e4, reach=0.01, points=400)
    # the paper's constant 1/8 belongs to the form t^(k-1) dt; the Fisher density carries the factor k as well
    assert fisher * 1e4 / 2 == pytest.approx(1 / 8, rel=0.01)
    assert lebesgue * math.sqrt(1e4) == pytest.approx(1 / 2, rel=0.01)


def test_waic_of_a_regular_gaussian():
    rng = np.random.default_rng(0)
    x = rng.normal(size=400)
    draws = x.mean() + rng.normal(size=4000) / math.sqrt(400)
    result = evidence.waic(-0.5 * (x[None] - draws[:, None]) ** 2 - 0.5 * math.log(2 * math.pi))
    assert result.nu == pytest.approx(0.5 * np.mean((x - x.mean()) ** 2), rel=0.1)


def test_wbic_of_a_regular_gaussian_is_the_loss_plus_half_log_n():
    rng = np.random.default_rng(1)
    n = 500
    x = rng.normal(size=n)
    draws = x.mean() + rng.normal(size=20_000) * math.sqrt(math.log(n) / n)  # the posterior at beta = 1/log n
    least = 0.5 * x.var()
    found = evidence.wbic(least + 0.5 * (draws - x.mean()) ** 2, n)
    assert found == pytest.approx(n * least + 0.5 * math.log(n), rel=1e-3)
    with pytest.raises(ValueError, match="all must be finite"):
        evidence.wbic([math.nan], n)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: fluctuation.nu(0), "at least 1"),
        (lambda: fluctuation.nu(2, h=-1), "above −1"),
        (lambda: fluctuation.nu(2, beta=0), "positive"),
        (lambda: rlct.rlct_crossing([]), "at least one"),
        (lambda: rlct.rlct_reduced_rank(2, 2, 2, 3), "rank"),
        (lambda: evidence.waic(np.full((3, 2), np.nan)), "NaN or infinite"),
    ],
)
def test_wrong_input_gets_a_sentence(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_deep_linear_networks_of_one_hidden_layer_are_reduced_rank_regression():
    for n, h, m in itertools.product(range(1, 7), repeat=3):
        for r in range(min(n, h, m) + 1):
            assert rlct.rlct_deep_linear((n, h, m), r) == rlct.rlct_reduced_rank(n, h, m, r), (n, h, m, r)


def test_deep_linear_networks_whose_answer_is_known_otherwise():
    for depth in range(1, 7):  # a product of numbers, at zero: a crossing of as many sheets
        assert rlct.rlct_deep_linear((1,) * (depth + 1), 0) == rlct.rlct_crossing([1] * depth)
    for widths in ((3, 5, 4), (2, 6, 6, 3), (4, 4), (3, 3, 3, 3)):  # of full rank: regular, as many as W has entries
        rank = min(widths)
        lam, m = rlct.rlct_deep_linear(widths, rank)
        assert m == 1 and lam == rank * (widths[0] + widths[-1] - rank) / 2
    # one narrow layer at rank 0: λ of |a|²|b|² is half the smaller number of entries, whatever stands between
    assert rlct.rlct_deep_linear((4, 1, 3), 0) == (1.5, 1) and rlct.rlct_deep_linear((3, 1, 3), 0) == (1.5, 2)


@pytest.mark.parametrize(("widths", "rank"), [((3,), 0), ((3, 0, 2), 0), ((3, 2, 2), 3), ((3, 2), -1)])
def test_widths_and_ranks_that_no_linear_network_has(widths, rank):
    with pytest.raises(ValueError, match="rank must lie between 0 and"):
        rlct.rlct_deep_linear(widths, rank)
