"""The cliff of accuracy over sparsity is found where it was planted, and nowhere else."""

import math
import re

import numpy as np
import pytest

from netvitals import drift


def planted(place, slope, seed=0, noise=0.004, n=24):
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(0, 0.95, n))
    return x, 0.97 - slope * np.maximum(0, x - place) + noise * rng.standard_normal(n)


@pytest.mark.parametrize("place", [0.4, 0.6, 0.75])
def test_a_planted_cliff_lies_in_its_interval(place):
    inside = 0
    for seed in range(10):
        found = drift.cliff(*planted(place, 2.0, seed), resamples=100)
        assert found.exists and found.place == pytest.approx(place, abs=0.03)
        inside += found.interval[0] <= place <= found.interval[1]
    assert inside >= 8


def test_the_fit_is_least_squares():
    x, y = planted(0.6, 1.5, 3)
    found = drift.cliff(x, y, reference=1.0, resamples=50)

    def rss(k):
        design = np.stack([np.ones_like(x), x, np.maximum(0, x - k)], 1)
        return np.linalg.lstsq(design, y, rcond=None)[1][0]

    assert found.fit.rss == pytest.approx(min(rss(k) for k in np.linspace(0.3, 0.9, 6001)), rel=1e-3)
    assert found.place == pytest.approx(min(np.linspace(0.3, 0.9, 6001), key=rss), abs=2e-4)
    assert len(found.to_frame()) == 24 and found.plot().svg() and "Cliff at sparsity 0.6" in str(found)


@pytest.mark.parametrize(
    ("x", "y", "why"),
    [
        (planted(0.5, 0.0)[0], planted(0.5, 0.0)[1], "lost less than 5%"),
        (np.linspace(0, 0.9, 20), 0.9 - 0.5 * np.linspace(0, 0.9, 20), "straight line"),
        (np.linspace(0, 0.9, 20), 0.5 + 0.5 * np.exp(-8 * np.linspace(0, 0.9, 20)), "less behind"),
    ],
)
def test_no_cliff_is_said_with_a_reason(x, y, why):
    found = drift.cliff(x, y, resamples=50)
    assert not found.exists and math.isnan(found.place) and all(map(math.isnan, found.interval))
    assert "No cliff" in str(found) and re.search(why, str(found)) and found.plot().svg()


def test_noisy_straight_lines_have_no_cliff():
    found = [drift.cliff(x, 0.95 - 0.3 * x + 0.01 * np.random.default_rng(99 + s).standard_normal(24), resamples=2)
             for s, x in ((s, planted(0.5, 0.0, s)[0]) for s in range(60))]  # fmt: skip
    assert sum(f.exists for f in found) <= 6


@pytest.mark.parametrize(
    ("x", "y", "options", "sentence"),
    [
        ([0, 0.5, 0.9], [1, 1, 0.5], {}, "at least 5|needs"),
        ([0, 0.1, 0.2, 0.3, 50], [1] * 5, {}, "a fraction from 0 to 1"),
        ([0, 0.1, 0.2, 0.3, math.nan], [1] * 5, {}, "must be finite"),
        ([0, 0.1], [1] * 5, {}, "the same length"),
        ([0, 0.1, 0.2, 0.3, 0.4], [1] * 5, {"reference": 0.0}, "must be positive"),
    ],
)
def test_bad_input_gets_a_sentence(x, y, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        drift.cliff(x, y, **options)
