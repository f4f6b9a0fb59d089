"""Degenerate input gets a sentence, never a NaN."""

import numpy as np
import pytest

from netvitals_lab import stats


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: stats.sign_test([0.0, 0.0]), "all 2 values equal the reference"),
        (lambda: stats.sign_test([]), "at least 1 value, got 0"),
        (lambda: stats.sign_test([1.0, float("nan")]), "1 of 2 values are NaN"),
        (lambda: stats.pearson([1, 2, 3], [5, 5, 5]), "y: all 3 values are 5"),
        (lambda: stats.spearman([1, 2], [1, 2]), "at least 3 pairs, got 2"),
        (lambda: stats.spearman([1, 2, 3], [1, 2]), "x has 3 values and y has 2"),
        (lambda: stats.anova([1, 2]), "at least two groups"),
        (lambda: stats.anova([1, 1], [2, 2]), "no group varies"),
        (lambda: stats.paired_t([1, 2], [0, 1]), "all 2 values are 1"),
        (lambda: stats.wilcoxon([0, 0]), "all 2 differences are zero"),
        (lambda: stats.cohens_d([1, 1], [2, 2]), "neither sample varies"),
        (lambda: stats.logistic([1, 2, 3, 4], [0, 0, 1, 1]), "separates the two outcomes"),
        (lambda: stats.logistic([1, 2, 3, 4], [0, 0, 0, 0]), "zeros and ones, and both"),
        (lambda: stats.logistic(np.ones((4, 1)), [0, 1, 0, 1]), "not independent"),
        (lambda: stats.slope([1, 1, 1], [1, 2, 3]), "x: all 3 values are 1"),
        (lambda: stats.slope([1, 2], [1, 2]), "at least 3 pairs"),
        (lambda: stats.loglog_slope([0.1, 0.0, 1], [1, 2, 3]), "x must be positive"),
        (lambda: stats.local_slopes([1, 1], [1, 2]), "repeated values"),
        (lambda: stats.bootstrap([1.0]), "at least two values to resample, got 1"),
        (lambda: stats.bootstrap([1.0, 2.0], method="magic"), "'bca' or 'percentile', got 'magic'"),
        (lambda: stats.bootstrap([1.0, 1.0, 1.0]), "use method='percentile'"),
        (lambda: stats.bootstrap([1.0, 2.0], groups=["a", "a"]), "at least two groups"),
        (lambda: stats.two_segments([1, 2, 3, 3, 3], [1, 2, 3, 4, 5]), "at least 5 different values of x, got 3"),
        (lambda: stats.silhouette([1.0, 2.0]), "too few for 2 clusters"),
        (lambda: stats.cross_validated_auc([1, 2, 3], [0, 1, 1]), "two outcomes with at least 5"),
    ],
)
def test_degenerate_input_is_refused_in_words(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_a_constant_sample_still_has_a_percentile_interval():
    interval = stats.bootstrap([1.0, 1.0, 1.0], method="percentile")
    assert (interval.low, interval.high) == (1.0, 1.0)


def test_importing_the_room_does_not_load_scipy_stats():
    import subprocess
    import sys

    code = "import sys, netvitals_lab.stats; sys.exit('scipy.stats' in sys.modules or 'sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_results_read_as_sentences():
    assert str(stats.spearman([1, 2, 3, 4], [1, 2, 4, 3])).startswith("Spearman +0.800")
    assert "break at" in str(stats.two_segments(np.arange(8), [0, 0, 0, 0, 1, 2, 3, 4], resamples=10))
