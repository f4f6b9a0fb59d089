"""Whose statement every claim is, and what a set-up of ours may say of a paper."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

import netvitals_lab as lab
from netvitals_lab import Claim, Expected, Verdict
from netvitals_lab.engine import registry, statements
from netvitals_lab.engine.judging import fair
from netvitals_lab.engine.status import recorded_verdicts

PAPERS = ("dag-hessian", "dead-directions", "gate-density", "saddle-escape", "weight-drift")
CLAIMS = lab.all_claims()
PLACED = {"whose": "paper", "place": "Table 1"}


def toy(**more):
    return Claim("toy/C1", "toy", "it rises", Expected(direction="up"), lambda rows: lab.holds(), **more)


def test_every_row_of_a_table_is_of_a_claim():
    rows = [name for folder in registry.papers() for name in statements.statements(folder)]
    assert sorted(rows) == sorted(c.id for c in CLAIMS)


def test_a_claim_without_a_row_is_refused():
    with pytest.raises(ValueError, match=r"say whose it is, in papers/weight_drift/statements\.csv"):
        list(statements.attributed("weight-drift", [toy()]))


def test_what_is_the_papers_names_its_place():
    for whose in ("paper", "correction"):
        with pytest.raises(ValueError, match="names its section, table or equation"):
            toy(whose=whose)
    with pytest.raises(ValueError, match="whose is one of paper, correction, ours"):
        toy(whose="theirs", place="Table 1")
    assert toy().whose == "ours"


def test_a_statement_of_the_paper_is_decided_for_a_reason_or_its_study_says_what_is_not_the_papers():
    """Without either, a verdict from a set-up of ours would pass for one on the paper."""
    silent = [
        c.id
        for c in CLAIMS
        if c.whose == "paper" and not c.decides and not (s := lab.find_study(c.study)).reduced and not s.unprinted
    ]
    assert not silent


@pytest.mark.parametrize("paper", PAPERS)
def test_a_page_opens_with_ten_to_twenty_claims_of_the_paper_and_their_set_ups(paper):
    first = [c for c in CLAIMS if c.paper == paper and c.headline]
    assert 10 <= len(first) <= 20
    assert {c.whose for c in first} == {"paper"}
    assert all(len(c.headline.split()) <= 8 for c in first)


def test_no_two_verdicts_on_record_are_the_same_evidence():
    known = recorded_verdicts()
    kinds = Counter(
        (c.study, str(known[c.id].measured), known[c.id].words) for c in CLAIMS if c.id in known and known[c.id].words
    )
    assert not [kind for kind, times in kinds.items() if times > 1]


def test_a_claim_is_one_whatever_the_data():
    """Two claims of one study with one statement, but for the data, are one claim with the data as a factor."""
    kinds = Counter((c.study, c.paper, c.statement) for c in CLAIMS)
    assert not [kind for kind, times in kinds.items() if times > 1]


@pytest.mark.parametrize(
    ("verdict", "reduced", "unprinted"),
    [
        (Verdict("holds", 1.0, scale="small"), "reproduced", "reproduced"),
        (Verdict("fails", 1.0, scale="small", seeds=5), "not-reproduced", "not-judged"),
        (Verdict("erratum", 1.0, note="the sign", scale="small"), "not-judged", "not-judged"),
        (Verdict("not-reproduced", 1.0, power=0.1, scale="small"), "not-reproduced", "not-reproduced"),
        (Verdict("holds", 1.0, scale="small", setups=(8, 8)), "reproduced", "holds"),
        (Verdict("fails", 1.0, scale="small", setups=(0, 8)), "not-reproduced", "fails"),
        (Verdict("fails", 1.0, scale="small", setups=(0, 7)), "not-reproduced", "not-judged"),
    ],
)
def test_a_set_up_of_ours_decides_nothing_about_a_paper_without_a_reason(verdict, reduced, unprinted):
    study = lab.find_study("activations")
    smaller, silent = replace(study, reduced="digits for images"), replace(study, unprinted="its kernel")
    mine = toy(**PLACED)
    assert fair(mine, smaller, verdict).status == reduced
    assert fair(mine, silent, verdict).status == unprinted
    for free in (toy(), toy(**PLACED, decides="an identity"), toy(whose="correction", place="Table 1")):
        assert fair(free, smaller, verdict) == fair(free, silent, verdict) == verdict
    at_size = replace(verdict, scale="paper")
    assert fair(mine, smaller, at_size) == at_size


def test_only_a_statement_of_the_paper_is_reproduced():
    study = replace(lab.find_study("activations"), reduced="digits for images")
    once = fair(toy(**PLACED), study, Verdict("holds", 1.0, scale="small"))
    assert once.status == "reproduced" and fair(toy(), study, once).status == "holds"


def test_what_was_done_to_a_verdict_is_said_once():
    study = replace(lab.find_study("activations"), reduced="digits for images")
    once = fair(toy(**PLACED), study, Verdict("holds", 1.0, note="rises", scale="small"))
    assert once.note == "rises; here digits for images"
    assert fair(toy(**PLACED), study, once) == once
