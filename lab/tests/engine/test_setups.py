"""A claim asked in many set-ups: what becomes of it, what the page says of that, and what a claim not run waits for."""

import pytest

from netvitals_lab import Claim, Expected, all_claims, find_claim, find_study, render_page
from netvitals_lab.engine.assumptions import awaited, settings_of
from netvitals_lab.engine.judges import over_setups
from netvitals_lab.engine.judging import WIDE, fair
from netvitals_lab.engine.status import Standing
from netvitals_lab.engine.verdict import Verdict, decide, not_judged, not_reproduced


def rows(*numbers, kinds=("zero", "circular")):
    return [{"padding": kinds[i % 2], "block": 4 * (1 + i // 2), "iou": v} for i, v in enumerate(numbers)]


def apart(given):
    return {(f"{r['padding']} padding", f"blocks of {r['block']}"): [r] for r in given}


def above(limit=0.9):
    return lambda mine: decide(mine[0]["iou"] > limit, mine[0]["iou"], 0.01, "IoU", facts={"seen": mine[0]["iou"]})


@pytest.mark.parametrize(
    ("numbers", "printed", "status"),
    [
        ((0.95, 0.99), None, "holds"),
        ((0.95, 0.5), None, "underspecified"),
        ((0.7, 0.5), None, "fails"),
        ((0.7, 0.5), 0.6, "underspecified"),  # between the two: it depends on the set-up
        ((0.7, 0.5), 0.7, "underspecified"),
        ((0.7, 0.5), 0.71, "fails"),
    ],
)
def test_all_some_or_none_of_the_set_ups_agree(numbers, printed, status):
    verdict = over_setups(above(), apart, printed)(rows(*numbers))
    assert verdict.status == status, str(verdict)
    assert verdict.setups == (sum(v > 0.9 for v in numbers), 2) and verdict.span == (min(numbers), max(numbers))
    assert (verdict.measured, verdict.uncertainty, verdict.note) == (numbers[0], 0.01, "IoU")  # of the first
    assert verdict.facts["in our set-up"] == f"seen {numbers[0]}"
    assert ("as printed, by choice" in verdict.facts) == (0 < verdict.setups[0] < 2)


def test_each_choice_says_in_how_many_set_ups_it_is_so():
    facts = over_setups(above(), apart)(rows(0.5, 0.95, 0.6, 0.97)).facts
    assert facts["as printed, by choice"] == (
        "zero padding 0 of 2, circular padding 2 of 2; blocks of 4 1 of 2, blocks of 8 1 of 2"
    )
    assert (facts["where it is so"], facts["where it is not"]) == ("0.95 to 0.97", "0.5 to 0.6")


def test_set_ups_that_cannot_tell_are_counted_apart_and_what_was_not_seen_is_no_refutation():
    judge = lambda mine: not_judged("no pixel") if mine[0]["iou"] < 0.2 else above()(mine)
    some = over_setups(judge, apart)(rows(0.1, 0.95, 0.5))
    assert some.setups == (1, 2) and some.measured == 0.95
    assert some.facts["set-ups that cannot tell: 1, the first because"] == "no pixel"
    silent = over_setups(judge, apart)(rows(0.1, 0.1))
    assert silent.status == "not-judged" and silent.note == "none of 2 set-ups can tell; in the first, no pixel"
    unseen = over_setups(lambda mine: not_reproduced(mine[0]["iou"], mine[0]["iou"] / 10), apart)(rows(0.5, 0.6))
    assert unseen.status == "not-reproduced" and unseen.power == pytest.approx(0.06) and unseen.setups == (0, 2)
    with pytest.raises(ValueError, match="needs a number in each"):
        over_setups(lambda mine: decide(True), apart)(rows(0.5, 0.6))


def test_what_no_set_up_shows_is_refuted_only_where_there_are_enough_of_them():
    study = find_study("gate-density-transition")
    claim = Claim("toy/C", study.name, "up", Expected(direction="up"), above(), whose="paper", place="§1")
    status = lambda *setups: fair(claim, study, Verdict("fails", 0.1, scale="small", setups=setups)).status
    assert (status(0, WIDE), status(0, WIDE - 1)) == ("fails", "not-judged")
    assert fair(claim, study, Verdict("fails", 0.1, scale="small")).status == "not-judged"
    kept = Verdict.from_dict({"status": "underspecified", "span": [0, 1], "setups": [3, 16]})
    assert kept.setups == (3, 16) and "as printed in 3 of 16 set-ups; from 0 to 1 over the set-ups" in kept.words
    assert fair(claim, study, kept) == kept


def test_a_claim_not_run_says_what_it_waits_for():
    assert awaited(find_claim("gate-density/E21")) == "not run yet: netvitals reproduce --claim gate-density/E21"
    text = awaited(find_claim("dag-hessian/H2.5"))
    assert "only the paper scale has its trials: 40 of them on cifar100, about 12 hours of a GPU" in text, text
    assert text.endswith("netvitals reproduce --claim dag-hessian/H2.5 --scale paper")
    lost = Claim("toy/C", "no-such-study", "up", Expected(direction="up"), above())
    assert awaited(lost) == "not run yet: netvitals reproduce --claim toy/C"


def test_every_row_of_the_page_leads_to_the_set_up_of_its_study():
    claims = all_claims("gate-density")[-3:]
    page = render_page([Standing(c, Verdict("holds", 0.5, scale="small", trials=1)) for c in claims])
    for claim in claims:
        assert f'<a href="#{claim.study}">set-up</a>' in page and f'<dl id="{claim.study}">' in page
    (setting,) = settings_of([Standing(claims[0], Verdict("holds", 0.5, scale="small"))])
    assert setting.lines[0][0] == "small" and setting.lines[-1][0] == "medium"
