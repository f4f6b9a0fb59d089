"""Numbers in prose are those on record: ``[11.4](verdicts/weight-drift.md "weight-drift/C20")`` names its claim."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import netvitals_lab as lab
from netvitals_lab.engine.status import recorded_verdicts
from netvitals_lab.engine.verdict import JUDGED

DOCS = Path(__file__).parents[3] / "docs"
CHANGES = DOCS / "verdicts" / "changes.md"
BEFORE = "421112e5"  # the commit that the changes are counted from
WRITTEN = ("verdicts/", "papers/")  # by the record itself
LINK = re.compile(r'\[([^\]]+)\]\([^)\s]*?(?:verdicts/)?([\w-]+)\.md[^)\s]*\s+"([\w-]+/[^"]+)"\)')
NUMBER = re.compile(r"[-−+]?\d[\d,]*\.?\d*(?:e[-−+]?\d+)?|[-−+]?\.\d+")
PAGES = [
    p
    for p in sorted(DOCS.rglob("*.md"))
    if not str(p.relative_to(DOCS)).startswith(WRITTEN) or p in (DOCS / "verdicts" / "index.md", CHANGES)
]
QUOTED = [(p.relative_to(DOCS).as_posix(), *m.groups()) for p in PAGES for m in LINK.finditer(p.read_text("utf-8"))]


def numbers(text: str) -> list[tuple[float, float]]:
    """Every number of a text with half a unit of its last digit."""
    found = []
    for word in NUMBER.findall(text.replace("−", "-")):
        plain = word.replace(",", "").rstrip(".")
        mantissa, _, power = plain.partition("e")
        digits = len(mantissa.partition(".")[2])
        found.append((float(plain), 0.5 * 10.0 ** (int(power or 0) - digits)))
    return found


def agrees(said: tuple[float, float], known: list[float], percent: bool) -> bool:
    value, half = said
    scales = (1.0, 100.0) if percent else (1.0,)
    return any(abs(abs(scale * k) - abs(value)) <= half * (1 + 1e-9) for k in known for scale in scales)


def wrong(text: str, claim: str) -> list[float]:
    """The numbers of a link's text that the verdict on record does not have."""
    verdict = recorded_verdicts()[claim]
    known = [v for v, _ in numbers(f"{verdict.number} {verdict.words} {verdict.measured}")]
    return [n[0] for n in numbers(text) if not agrees(n, known, "%" in text)]


def test_what_is_quoted_is_found():
    assert numbers("11.4, −.083 ± 0.0053 of 1,780 and 2e-3") == [
        (11.4, 0.05),
        (-0.083, 0.0005),
        (0.0053, 0.00005),
        (1780.0, 0.5),
        (0.002, 0.0005),
    ]
    assert wrong("11.4 times", "weight-drift/C20") == [] and wrong("27 ± 5", "weight-drift/C20") == [27.0, 5.0]
    assert len(QUOTED) > 40


@pytest.mark.parametrize(("page", "text", "paper", "claim"), QUOTED, ids=lambda v: v[:40] if isinstance(v, str) else v)
def test_a_quoted_number_is_the_one_on_record(page, text, paper, claim):
    assert claim in recorded_verdicts(), f"{page}: there is no verdict on record for {claim}"
    assert lab.find_claim(claim).paper == paper, f"{page}: {claim} is on another page"
    assert not wrong(text, claim), f"{page}: [{text}] against {recorded_verdicts()[claim].number}"


def tally(kinds: tuple[str, ...]) -> dict[str, list[int]]:
    """By paper: its statements, those judged, those of each kind; then corrections and statements of ours."""
    found = lab.standings(lab.all_claims(), None, recorded=True)
    counted = {}
    for paper in sorted({s.claim.paper for s in found}):
        mine = [s for s in found if s.claim.paper == paper]
        status = [s.verdict.status for s in mine if s.claim.whose == "paper"]
        counted[paper] = [
            len(status),
            sum(status.count(k) for k in JUDGED),
            *(status.count(k) for k in kinds),
            *(sum(s.claim.whose == w for s in mine) for w in ("correction", "ours")),
        ]
    return counted


KINDS = ("holds", "reproduced", "fails", "erratum", "not-reproduced", "underspecified")


def test_the_page_over_all_papers_counts_as_the_record_does():
    lines = (DOCS / "verdicts" / "index.md").read_text("utf-8").splitlines()
    assert len(lines) <= 60
    said = {
        m[1]: [int(n) for n in m[2].split("|")] for x in lines if (m := re.match(r"\| \[.*\]\((.*)\.md\) \|(.*)\|$", x))
    }
    assert said == tally(KINDS)


def counts(when: str) -> dict[str, list[int]]:
    """The rows of the page of changes."""
    lines = CHANGES.read_text("utf-8").splitlines()
    rows = [re.match(rf"\| ([\w-]+) \| {when} \|(.*)\|$", line) for line in lines]
    return {m[1]: [int(n) for n in m[2].split("|")] for m in rows if m}


def test_the_page_of_changes_counts_as_the_record_does():
    assert counts("after") == {paper: numbers[:-2] for paper, numbers in tally(KINDS).items()}


def test_the_page_of_changes_counts_the_past_as_its_commit_did():
    """At least as many of every kind stood on the pages of then, which counted our own statements too."""
    labels = ("holds", "fails", "erratum", "not reproduced at this scale", "underspecified")
    for paper, (statements, judged, *of) in counts("before").items():
        asked = ["git", "show", f"{BEFORE}:docs/verdicts/{paper}.md"]
        then = subprocess.run(asked, cwd=DOCS, capture_output=True, text=True, timeout=60)
        if then.returncode:
            pytest.skip(f"commit {BEFORE} is not in this clone")
        line = then.stdout.splitlines()[2].split(".")[0]
        assert statements == int(re.match(r"(\d+) claims", line)[1]) - int(
            re.search(r"(\d+) of them are ours", line)[1]
        )
        most = [int(m[1]) if (m := re.search(rf"(\d+) {label}\b", line)) else 0 for label in labels]
        known = [of[0], *of[2:]]
        assert judged == sum(of) and all(k <= m for k, m in zip(known, most))


def test_the_ten_verdicts_in_doubt_are_those_on_record():
    rows = re.findall(r"^\| ([\w-]+/[\w.-]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", CHANGES.read_text("utf-8"), re.M)
    assert len(rows) == 10 == len({claim for claim, *_ in rows})
    found = {s.claim.id: s for s in lab.standings(lab.all_claims(), None, recorded=True)}
    assert {claim: label for claim, label, *_ in rows} == {c: found[c].verdict.label for c, *_ in rows}
    assert all(found[claim].claim.whose == "paper" for claim, *_ in rows)
