"""Each statistic against a value known from elsewhere: textbooks, R's manual pages, or exact arithmetic."""

import numpy as np
import pytest
import torch

from netvitals_lab import stats

PLANT_GROWTH = (
    [4.17, 5.58, 5.18, 6.11, 4.50, 4.61, 5.17, 4.53, 5.33, 5.14],
    [4.81, 4.17, 4.41, 3.59, 5.87, 3.83, 6.03, 4.89, 4.32, 4.69],
    [6.31, 5.12, 5.54, 5.50, 5.37, 5.29, 4.92, 6.15, 5.80, 5.26],
)
SLEEP = ([0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0], [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4])
ANSCOMBE = ([10, 8, 13, 9, 11, 14, 6, 4, 12, 7, 5], [8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68])


@pytest.mark.parametrize(
    ("runs", "one_sided", "two_sided"),
    [(18, 3.8e-6, 7.6e-6), (12, 2.44e-4, 4.88e-4), (48, 3.55e-15, 7.1e-15), (6, 0.015625, 0.03125)],
)
def test_sign_test_gives_the_papers_p_values_with_their_side_named(runs, one_sided, two_sided):
    result = stats.sign_test(np.linspace(0.1, 1, runs))
    assert result.p_above == pytest.approx(one_sided, rel=5e-3)
    assert result.p_two_sided == pytest.approx(two_sided, rel=5e-3)
    assert result.p_below == 1


def test_sign_test_drops_ties_and_counts_them():
    result = stats.sign_test([1, 2, -1, 0, 0])
    assert (result.above, result.below, result.ties, result.n) == (2, 1, 2, 3)
    assert result.p_above == pytest.approx(0.5)


def test_pearson_on_anscombes_first_set():
    result = stats.pearson(*ANSCOMBE)
    assert result.value == pytest.approx(0.81642, abs=1e-5)
    assert result.p == pytest.approx(0.00217, abs=1e-5)


def test_spearman_on_the_textbook_example_of_ten_people():
    result = stats.spearman([106, 100, 86, 101, 99, 103, 97, 113, 112, 110], [7, 27, 2, 50, 28, 29, 20, 12, 6, 17])
    assert result.value == pytest.approx(-29 / 165)
    assert result.p == pytest.approx(0.627188, abs=1e-6)


def test_anova_on_plant_growth():
    result = stats.anova(*PLANT_GROWTH)
    assert result.df == (2, 27)
    assert (result.f, result.p) == (pytest.approx(4.846, abs=5e-4), pytest.approx(0.01591, abs=5e-6))
    assert result.within_std == pytest.approx(0.6234, abs=1e-4)


def test_paired_t_on_sleep():
    result = stats.paired_t(*SLEEP)
    assert (result.t, result.p, result.df) == (pytest.approx(-4.0621, abs=5e-5), pytest.approx(0.002833, abs=5e-7), 9)
    assert result.difference == pytest.approx(-1.58)


def test_wilcoxon_minimum_for_eight_pairs_and_zero_differences():
    assert stats.wilcoxon(np.arange(1, 9)).p_two_sided == 2 / 256
    result = stats.wilcoxon([1, 0, 2, -3])
    assert (result.n, result.zeros, result.w_plus, result.w_minus) == (3, 1, 3, 3)


def test_wilcoxon_equals_scipy_without_ties_and_enumeration_with_ties():
    from itertools import product

    from scipy.stats import wilcoxon

    d = np.array([0.3, -1.2, 2.5, 0.9, -0.4, 3.3, 1.1])
    assert stats.wilcoxon(d).p_two_sided == pytest.approx(wilcoxon(d, method="exact").pvalue)
    tied = np.array([1.0, 1.0, -1.0, 2.0, 2.0])  # ranks 2, 2, 2, 4.5, 4.5
    ranks = np.array([2, 2, 2, 4.5, 4.5])
    sums = np.array([np.dot(bits, ranks) for bits in product((0, 1), repeat=5)])
    assert stats.wilcoxon(tied).p_greater == pytest.approx(np.mean(sums >= 13), rel=1e-12)


def test_cohens_d_pooled_and_paired():
    assert stats.cohens_d(*SLEEP) == pytest.approx(-0.8322, abs=1e-4)
    assert stats.cohens_d(*SLEEP, paired=True) == pytest.approx(-4.0621 / np.sqrt(10), abs=1e-4)


def test_logistic_on_hours_of_study():
    hours = [0.5, 0.75, 1, 1.25, 1.5, 1.75, 1.75, 2, 2.25, 2.5, 2.75, 3, 3.25, 3.5, 4, 4.25, 4.5, 4.75, 5, 5.5]
    passed = [0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 1, 1, 1, 1, 1]
    fit = stats.logistic(hours, passed)
    assert fit.coefficients == pytest.approx((-4.0777, 1.5046), abs=1e-4)
    assert fit.stderrs == pytest.approx((1.7610, 0.6287), abs=1e-4)
    assert fit.p == pytest.approx((0.0206, 0.0167), abs=1e-4)


def test_slope_on_anscombes_first_set():
    fit = stats.slope(*ANSCOMBE)
    assert (fit.value, fit.stderr, fit.intercept) == (
        pytest.approx(0.5001, abs=5e-5),
        pytest.approx(0.1179, abs=5e-5),
        pytest.approx(3.0001, abs=5e-5),
    )
    assert fit.r2 == pytest.approx(0.6665, abs=5e-5)
    assert fit.interval() == pytest.approx((0.2333701, 0.7668117), abs=1e-6)


def test_loglog_slope_and_local_slopes_of_a_power_law_with_a_correction():
    eps = np.logspace(-3, -1, 9)
    times = eps**-2 * (1 + eps)
    fit = stats.loglog_slope(eps, times)
    assert len(fit.local) == 8
    assert fit.local[0] == pytest.approx(-2, abs=2e-3)
    assert np.all(np.diff(fit.local) > 0)
    np.testing.assert_allclose(stats.local_slopes(eps[::-1], times[::-1]), fit.local)


@pytest.mark.parametrize("method", ["percentile", "bca"])
def test_bootstrap_of_a_mean_has_the_normal_width(method):
    x = np.random.default_rng(3).normal(2.0, 1.5, 400)
    interval = stats.bootstrap(x, method=method)
    half = 1.96 * x.std(ddof=1) / 20
    assert interval.estimate == pytest.approx(x.mean())
    assert interval.low == pytest.approx(x.mean() - half, abs=0.02)
    assert interval.high == pytest.approx(x.mean() + half, abs=0.02)
    assert interval.stderr == pytest.approx(x.std(ddof=1) / 20, rel=0.06)


def test_bca_corrects_the_bias_of_a_skewed_statistic():
    """Interval of a variance: the BCa bounds lie above the percentile ones, near the exact chi-squared interval."""
    from scipy.stats import chi2

    x = np.random.default_rng(0).normal(size=60)
    variance = lambda v: np.var(v, ddof=1)
    bca, plain = (stats.bootstrap(x, variance, method=m, resamples=4000) for m in ("bca", "percentile"))
    exact = 59 * x.var(ddof=1) / chi2.ppf([0.975, 0.025], 59)
    assert bca.low > plain.low and bca.high > plain.high
    assert abs(bca.high - exact[1]) < abs(plain.high - exact[1])


def test_bootstrap_over_groups_is_wider_than_over_epochs():
    rng = np.random.default_rng(1)
    runs = np.repeat(np.arange(12), 25)
    values = rng.normal(size=12)[runs] + 0.1 * rng.normal(size=runs.size)
    pooled, grouped = stats.bootstrap(values, resamples=500), stats.bootstrap(values, groups=runs, resamples=500)
    assert grouped.n == 12
    assert grouped.high - grouped.low > 3 * (pooled.high - pooled.low)


def planted(seed):
    x = np.linspace(0, 1, 79)
    return x, 1 - 0.05 * x - 2.5 * np.maximum(0, x - 0.72) + 0.01 * np.random.default_rng(seed).normal(size=79)


def test_two_segments_finds_a_planted_break():
    x, y = planted(0)
    fit = stats.two_segments(x, y, resamples=400)
    assert fit.breakpoint == pytest.approx(0.72, abs=0.01)
    assert 0 < fit.high - fit.low < 0.03
    assert (fit.left, fit.right) == (pytest.approx(-0.05, abs=0.02), pytest.approx(-2.55, abs=0.1))
    assert fit.rss < 0.05 * fit.rss_line
    np.testing.assert_allclose(((fit.predict(x) - y) ** 2).sum(), fit.rss, rtol=1e-6)


@pytest.mark.slow
def test_the_interval_of_the_break_covers_it_about_as_often_as_it_says():
    fits = [stats.two_segments(*planted(seed), resamples=150) for seed in range(40)]
    covered = np.mean([fit.low <= 0.72 <= fit.high for fit in fits])
    assert 0.8 <= covered <= 1  # 0.93 over 300 draws for a nominal 0.95
    widths = np.mean([fit.high - fit.low for fit in fits]) / 3.92
    assert widths == pytest.approx(np.std([fit.breakpoint for fit in fits]), rel=0.4)


def test_two_segments_agrees_with_a_general_optimiser():
    from scipy.optimize import curve_fit

    rng = np.random.default_rng(2)
    x = np.sort(rng.uniform(3, 9, 40))
    y = 2 + 0.3 * x + 1.1 * np.maximum(0, x - 6.2) + 0.05 * rng.normal(size=40)
    line = lambda v, a, b, c, k: a + b * v + c * np.maximum(0, v - k)
    best, _ = curve_fit(line, x, y, p0=(2, 0.3, 1, 6))
    fit = stats.two_segments(x, y, resamples=20)
    assert (fit.intercept, fit.left, fit.right - fit.left, fit.breakpoint) == pytest.approx(tuple(best), abs=1e-4)


def test_mean_and_its_z():
    result = stats.mean(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    assert (result.value, result.n) == (2.5, 4)
    assert result.stderr == pytest.approx(np.sqrt(5 / 3) / 2)
    assert result.z(2.5) == 0


def test_silhouette_and_auc():
    points = np.concatenate([np.random.default_rng(0).normal(c, 0.1, (20, 2)) for c in (0, 3)])
    assert stats.silhouette(points) > 0.9
    assert stats.cross_validated_auc(points, [0] * 20 + [1] * 20).value == 1
    noise = stats.cross_validated_auc(np.random.default_rng(1).normal(size=200), [0, 1] * 100)
    assert abs(noise.value - 0.5) < 0.15
