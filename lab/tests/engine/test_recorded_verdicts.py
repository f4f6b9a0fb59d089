"""Who disbelieves a verdict on record finds the command that makes it again, what it costs, the commit, our choices."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import netvitals_lab as lab
from netvitals_lab.engine.status import recorded_verdicts

PAGES = Path(__file__).parents[3] / "docs" / "verdicts"
CLAIMS = {c.id: c for c in lab.all_claims()}
RECORDED = recorded_verdicts()
UNTIMED = {  # on record from before costs were kept, and not run since: what they cost is not known
    "ddcadam",
    "dead-directions-learning",
    "gate-density-architectures",
    "gate-density-fine-tuning",
    "gate-density-forecast",
    "gate-density-images",
    "plateau-forecast",
    "saddle-he",
}


def shown(text):
    return text.replace("_", "\\_").replace("*", "\\*")


def test_every_record_is_of_a_claim():
    assert not sorted(set(RECORDED) - set(CLAIMS)), "netvitals claims --record docs/verdicts --ship"


@pytest.mark.parametrize("what", ["trials", "scale", "cost", "commit"])
def test_every_verdict_on_record_says_what_it_rests_on(what):
    lacking = sorted(claim for claim, verdict in RECORDED.items() if not getattr(verdict, what))
    if what == "cost":
        lacking = [claim for claim in lacking if CLAIMS[claim].study not in UNTIMED]
    assert not lacking, f"{len(lacking)} lack {what}: {', '.join(lacking[:8])}"


def test_every_commit_is_one():
    """A + behind it says that files had been changed since."""
    odd = sorted({v.commit for v in RECORDED.values() if not re.fullmatch(r"[0-9a-f]{7,10}\+?", v.commit)})
    assert not odd, f"commits {', '.join(odd)}"


def test_every_verdict_is_of_a_scale_that_its_study_has():
    for claim, verdict in RECORDED.items():
        assert verdict.scale in lab.find_study(CLAIMS[claim].study).scales, claim


@pytest.mark.parametrize("paper", sorted({c.paper for c in CLAIMS.values()}))
def test_every_row_of_a_page_has_its_command_and_every_study_its_set_up(paper):
    page = (PAGES / f"{paper}.md").read_text(encoding="utf-8")
    mine = [c for c in CLAIMS.values() if c.paper == paper and c.id in RECORDED]
    rows = {c.id: [line for line in page.splitlines() if line.endswith(f" `{c.command}` |")] for c in mine}
    assert not [claim for claim, found in rows.items() if len(found) != 1]
    for c in mine:
        (row,) = rows[c.id]
        assert all(shown(choice.split(";")[0]) in row for choice in c.choices), c.id
        assert c.study in row and RECORDED[c.id].commit in row, row
        assert c.study in UNTIMED or "of one core" in row or "under 1 s" in row, row
    for study in {c.study for c in mine}:
        assert f"\n### {study}\n" in page, study


def test_a_comparison_on_record_rests_on_its_paired_seeds():
    few = {
        claim: v.seeds
        for claim, v in RECORDED.items()
        if CLAIMS[claim].seeds > v.seeds and v.status not in ("not-judged", "not-run")
    }
    assert not few
