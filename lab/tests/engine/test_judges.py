"""The one row filter and the seven ways in which numbers decide a claim, each of them able to fail."""

from __future__ import annotations

import doctest
import json
from dataclasses import dataclass

import pytest

from netvitals_lab import Claim, Expected, Study, Verdict, decide, stats
from netvitals_lab.engine import claim, verdict
from netvitals_lab.engine.judges import (
    agree,
    all_near,
    at_most,
    column,
    combinators,
    compared,
    comparing,
    corrected,
    difference,
    frame,
    groups,
    largest_gap,
    matches,
    means,
    near,
    one,
    paired,
    rows,
    sign_of,
    slope_of,
    some,
)
from netvitals_lab.engine.judging import fair

ROWS = [
    {"act": "relu", "seed": 0, "loss": 1.0, "by": [1.0, 2.0]},
    {"act": "relu", "seed": 1, "loss": 2.0, "by": [1.0, 3.0]},
    {"act": "gelu", "seed": 0, "loss": 0.5},
]


@pytest.mark.parametrize("module", [claim, verdict, rows, combinators, comparing])
def test_examples(module):
    assert doctest.testmod(module).failed == 0


def test_rows_are_chosen_by_what_they_hold():
    assert some(ROWS, act="relu", seed=1) == [ROWS[1]]
    assert some(ROWS, act=("relu", "gelu"), seed=0) == [ROWS[0], ROWS[2]]
    assert some(ROWS, by=[1.0, 2.0]) == [ROWS[0]]
    assert some(ROWS, by=None) == [ROWS[2]]
    assert one(ROWS, act="gelu") is ROWS[2]
    assert not matches(act="tanh")(ROWS[0])
    with pytest.raises(LookupError, match=r"no row holds {'act': 'tanh'}"):
        some(ROWS, act="tanh")
    with pytest.raises(LookupError, match=r"2 rows hold {'act': 'relu'} and one was expected"):
        one(ROWS, act="relu")


def test_frames_and_means():
    table = frame(ROWS, "act", "loss", seed=0)
    assert table.rows() == [("relu", 1.0), ("gelu", 0.5)]
    assert means(ROWS, "loss", "act") == {"relu": 1.5, "gelu": 0.5}
    assert means(ROWS, "loss", "act", seed=1) == {"relu": 2.0}


def test_columns_and_groups():
    assert column(ROWS, "loss", seed=0) == [1.0, 0.5]
    assert groups(ROWS, "act") == {"relu": ROWS[:2], "gelu": ROWS[2:]}
    assert groups(ROWS, "act", "seed", act="relu") == {("relu", 0): [ROWS[0]], ("relu", 1): [ROWS[1]]}
    for ask in (lambda: column(ROWS, "loss", act="tanh"), lambda: groups(ROWS, "seed", act="tanh")):
        with pytest.raises(LookupError, match="no row holds"):
            ask()


def test_the_largest_gap_and_where_it_is():
    found = [{"predicted": 2.0, "measured": 2.5}, {"predicted": 8.0, "measured": 7.0}, {"measured": 9.0}]
    assert largest_gap(found) == (1.0, found[1])
    assert largest_gap(found, relative=True) == (0.25, found[0])
    with pytest.raises(LookupError, match=r"1 of 1 rows with predicted lack measured"):
        largest_gap([{"predicted": 2.0, "measured": None}])
    with pytest.raises(LookupError, match=r"0 of 0 rows"):
        largest_gap([{"measured": 2.0}])


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (at_most(0.1, 0.1), at_most(0.1001, 0.1)),
        (near(1.04, 1.0, 0.05), near(1.06, 1.0, 0.05)),
        (
            all_near({"a": [1.0, 1.04], "b": [2.0]}, {"a": (1.0, 0.05), "b": (2.0, 0.01)}),
            all_near({"a": [1.0, 1.06], "b": [2.0]}, {"a": (1.0, 0.05), "b": (2.0, 0.01)}),
        ),
        (sign_of(stats.Mean(0.4, 0.1, 9), 1), sign_of(stats.Mean(0.4, 0.1, 9), -1)),
        (sign_of(stats.Mean(-0.4, 0.1, 9), -1), sign_of(stats.Mean(-0.2, 0.1, 9), -1)),
        (slope_of([0, 1, 2], [1, 3, 5], 2.0, 0.01), slope_of([0, 1, 2], [1, 3, 5], 1.9, 0.01)),
        (slope_of([1, 2, 4], [1, 4, 16], 2.0, 0.01, log=True), slope_of([1, 2, 4], [1, 4, 16], 2.0, 0.01)),
        (
            agree([{"mean": 1.1, "expected": 1.0, "stderr": 0.1}]),
            agree([{"mean": 1.1, "expected": 1.0, "stderr": 0.1}, {"mean": 2.0, "expected": 1.0, "stderr": 0.1}]),
        ),
        (
            agree([{"mean": 1.0, "expected": 1.0, "stderr": 0.0}]),
            agree([{"mean": 1.1, "expected": 1.0, "stderr": 0.0}]),
        ),
    ],
)
def test_each_combinator_holds_and_fails(good, bad):
    assert (good.status, bad.status) == ("holds", "fails")


def test_a_correction_is_an_erratum_only_where_the_printed_statement_is_wrong_and_it_is_right():
    verdicts = [
        corrected(printed=p, right=r, measured=1.0, note="right", otherwise="neither")
        for p, r in ((True, True), (True, False), (False, True), (False, False))
    ]
    assert [v.status for v in verdicts] == ["holds", "holds", "erratum", "fails"]
    assert verdicts[2].note == "right" and verdicts[3].note == "neither"


@pytest.mark.parametrize(
    ("values", "sign", "more", "status"),
    [
        ([0.1, 0.2, 0.3, 0.2, 0.2], 1, {}, "holds"),
        ([0.1, 0.2, 0.3, 0.2, 0.2], -1, {}, "fails"),
        ([0.1, 0.2, 0.3, 0.2, 0.2], -1, {"scaled": True}, "not-reproduced"),
        ([0.1, 0.2, 0.3, 0.2, 0.2], 1, {"margin": 0.15}, "not-reproduced"),
        ([0.1, 0.2, 0.3, 0.2, 0.2], -1, {"margin": 0.3}, "holds"),
        ([0.1, -0.2, 0.3, -0.2, 0.2], 1, {}, "not-reproduced"),
        ([0.1, 0.2, 0.3, 0.2], 1, {}, "not-judged"),
    ],
)
def test_a_comparison_needs_five_pairs_and_its_whole_interval(values, sign, more, status):
    found = compared(values, sign, **more)
    assert found.status == status, str(found)
    if status != "not-judged":
        assert found.interval is not None and found.seeds == 5


def test_the_power_of_a_comparison_is_what_it_would_have_seen():
    """Four of five repetitions with that true difference reject at 5 %, by simulation."""
    import numpy as np
    from scipy.stats import ttest_1samp

    rng = np.random.default_rng(0)
    seen = []
    for _ in range(400):
        drawn = rng.normal(0, 1, 8)
        power = difference(drawn).power * (1.0 / drawn.std(ddof=1))  # at the true spread of one
        seen.append(ttest_1samp(rng.normal(power, 1, 8), 0).pvalue < 0.05)
    assert 0.74 < np.mean(seen) < 0.9, np.mean(seen)
    with pytest.raises(ValueError, match="at least 2 finite pairs"):
        difference([1.0])


def test_pairs_are_over_the_seeds_that_both_have():
    assert paired({0: 1.0, 1: 5.0, 2: 3.0}, {2: 1.0, 0: 0.5}) == [0.5, 2.0]


def test_facts_survive_storage_and_are_worded():
    verdict = decide(True, 0.5, note="share of zeros", facts={"before": 0.25, "lost at": None, "by seed": [1.0, 2.5]})
    again = Verdict.from_dict(json.loads(json.dumps(verdict.to_dict())))
    assert again == verdict and again.facts["by seed"] == [1.0, 2.5]
    assert again.words == "share of zeros; before 0.25; lost at none; by seed 1, 2.5"
    assert "before 0.25" in str(again)
    assert hash(verdict) == hash(again)
    assert Verdict.from_dict({"status": "holds", "note": "old"}).words == "old"


def asked(**more):
    more = {"whose": "paper", "place": "§1"} | more
    return Claim("toy/C1", "toy", "a > b", Expected(direction="a > b"), lambda rows: decide(True), **more)


def study(**more):
    @dataclass(frozen=True)
    class Nothing:
        pass

    scales = dict.fromkeys(("smoke", "small", "paper"), Nothing())
    return Study("toy", "toy", "a toy", scales, lambda p: [{}], lambda c: [{}], lambda rows: {}, **more)


def test_a_comparison_with_too_few_seeds_is_not_judged():
    mine = asked(seeds=5, decides="the paper's own set-up")
    few, enough = (fair(mine, study(), Verdict("fails", 0.1, note="gap", seeds=n)) for n in (2, 5))
    assert (few.status, enough.status) == ("not-judged", "fails")
    assert few.note == "a comparison needs 5 paired seeds and there are 2; gap"
    assert fair(asked(seeds=5), study(), Verdict("not-run", note="no data")).status == "not-run"


def test_a_smaller_or_a_guessed_set_up_refutes_nothing():
    found = Verdict("fails", 0.1, seeds=3, scale="small", note="gap")
    smaller = fair(asked(), study(reduced="an MLP on digits"), found)
    assert smaller.status == "not-reproduced" and smaller.power == pytest.approx(3.10, abs=0.01)
    assert smaller.words == (
        "gap; here an MLP on digits; an effect of 3.1 standard deviations over seeds would have been seen"
    )
    guessed = fair(asked(), study(unprinted="the kernel"), found)
    assert guessed.status == "not-judged" and "does not print the kernel" in guessed.note
    for kept in (
        fair(asked(whose="ours"), study(reduced="an MLP"), found),
        fair(asked(decides="a counterexample"), study(unprinted="the kernel"), found),
        fair(asked(), study(reduced="an MLP"), Verdict("fails", 0.1, scale="paper")),
    ):
        assert kept.status == "fails"
    assert fair(asked(), study(reduced="an MLP"), Verdict("holds", 0.1)).status == "reproduced"
