"""One claim over several data sets: what becomes of it."""

import netvitals_lab as lab
from netvitals_lab import Verdict, decide
from netvitals_lab.engine.judges import at_level, by_factor, together

ROWS = [{"data": "digits", "rise": 0.2, "seed": 0}, {"data": "teacher,inputs=64", "rise": 0.3, "seed": 0}]


def rises(rows):
    return decide(rows[0]["rise"] > 0, rows[0]["rise"], note=f"{len(rows)} rows")


def test_it_holds_where_it_holds_at_every_level():
    verdict = by_factor(rises, "data")(ROWS)
    assert (verdict.status, verdict.measured) == ("holds", "digits 0.2; teacher 0.3")
    assert verdict.note == "as the claim says on 2 of 2: digits, teacher; digits: 1 rows; teacher: 1 rows"


def test_one_level_where_it_does_not_is_enough():
    verdict = by_factor(rises, "data")([ROWS[0], {**ROWS[1], "rise": -0.1}])
    assert verdict.status == "fails" and "on 1 of 2: digits" in verdict.note


def test_a_single_level_is_judged_as_it_is():
    assert by_factor(rises, "data")(ROWS[:1]) == rises(ROWS[:1])


def test_what_a_level_brings_is_kept():
    missed = lab.not_reproduced(0.1, 0.5, note="small")
    verdict = together({"a": Verdict("holds", 1.0), "b": missed})
    assert (verdict.status, verdict.power) == ("not-reproduced", 0.5)
    assert together({"a": lab.not_judged("two seeds"), "b": Verdict("holds", 1.0)}).status == "not-judged"


def test_the_picture_is_of_one_level():
    drawn = at_level(lambda rows: lab.Plot("x", "y", [lab.Series(rows[0]["data"], [1], [1])]), "data", "digits")
    assert drawn(ROWS).legend == [(0, "digits")]
    assert drawn(ROWS[1:]).legend == [(0, "teacher,inputs=64")]
