"""The one row filter, the one way to declare a claim, and the ways in which a number decides it, each able to fail."""

from __future__ import annotations

import doctest
import json
from dataclasses import dataclass

import pytest

from netvitals_lab import (
    Claim,
    Claims,
    Expected,
    Measured,
    Study,
    Verdict,
    above,
    at_least,
    at_most,
    below,
    between,
    decide,
)
from netvitals_lab.engine import claim, declaring, verdict
from netvitals_lab.engine.judges import (
    column,
    compared,
    comparing,
    difference,
    frame,
    groups,
    largest_gap,
    matches,
    means,
    one,
    paired,
    rows,
    some,
)
from netvitals_lab.engine.judging import fair

ROWS = [
    {"act": "relu", "seed": 0, "loss": 1.0, "by": [1.0, 2.0]},
    {"act": "relu", "seed": 1, "loss": 2.0, "by": [1.0, 3.0]},
    {"act": "gelu", "seed": 0, "loss": 0.5},
]


@pytest.mark.parametrize("module", [claim, declaring, verdict, rows, comparing])
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
    ("expected", "words", "good", "bad"),
    [
        (at_most(0.1), "at most 0.1", 0.1, 0.1001),
        (below(5, "below 5/√N"), "below 5/√N", 4.99, 5.0),
        (at_least(2), "at least 2", 2.0, 1.99),
        (above(0.3), "above 0.3", 0.31, 0.3),
        (between(30, 100), "between 30 and 100", 30.0, 101.0),
        (Expected(1.0, tolerance=0.05), "1 ± 0.05", 1.04, 1.06),
    ],
)
def test_each_expectation_holds_fails_and_words_itself(expected, words, good, bad):
    assert str(expected) == words
    assert [Measured(v).verdict(expected).status for v in (good, bad)] == ["holds", "fails"]
    assert Measured(bad, ok=True).verdict(expected).status == "holds"  # where more than the number decides


def test_a_correction_is_an_erratum_only_where_the_printed_statement_is_wrong_and_it_is_right():
    verdicts = [
        Measured(1.0, "right", ok=p, right=r, otherwise="neither").verdict(Expected(direction="as printed"))
        for p, r in ((True, True), (True, False), (False, True), (False, False))
    ]
    assert [v.status for v in verdicts] == ["holds", "holds", "erratum", "fails"]
    assert verdicts[2].note == "right" and verdicts[3].note == "neither"


def test_a_claim_is_declared_as_a_function():
    claim = Claims("toy", study="coins", seeds=5)

    @claim("C1", at_most(0.1), uses={"act": ("relu", "gelu")}, factor="data", obstacle=lambda rows: rows[0]["short"])
    def gap(rows):
        """The gap is small,
        and stays so

        Measured on two data sets."""
        return Measured(max(r["gap"] for r in rows), "largest gap")

    @claim("C2", "differs", seeds=0, setups=lambda rows: {(r["data"],): [r] for r in rows}, statement="It differs")
    def apart(rows):
        return decide(rows[0]["gap"] > 0.1, rows[0]["gap"])

    assert list(claim) == [gap, apart]
    assert (gap.id, gap.statement, gap.seeds, apart.seeds) == ("toy/C1", "The gap is small, and stays so", 5, 0)
    assert gap.rests_on({"act": "gelu"}) and not gap.rests_on({"act": "tanh"})
    rows = [{"data": "digits", "gap": 0.05, "short": ""}, {"data": "teacher", "gap": 0.2, "short": ""}]
    assert str(gap.judge(rows)).startswith("fails: digits 0.05; teacher 0.2")
    assert gap.single(rows[:1]).status == "holds"
    assert gap.judge([{**rows[0], "short": "one step is too few"}]).status == "not-run"
    assert (apart.judge(rows).status, apart.judge(rows).setups) == ("underspecified", (1, 2))


def test_a_claim_without_a_statement_or_a_decision_says_what_is_missing():
    claim = Claims("toy", study="coins")
    with pytest.raises(ValueError, match=r"claim toy/C1: the docstring of its function is the statement"):
        claim("C1", at_most(0.1))(lambda rows: 0.0)
    undecided = claim("C2", "small", statement="It is small")(lambda rows: 0.0)
    with pytest.raises(ValueError, match=r"“small” does not decide on 0\.0: say ok="):
        undecided.judge([])


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
