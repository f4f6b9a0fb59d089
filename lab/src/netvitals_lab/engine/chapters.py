"""The order of a report: the headline claims, then every statement of the paper by verdict, corrections, and ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from netvitals_lab.engine.claim import WHOSE
from netvitals_lab.engine.statements import position
from netvitals_lab.engine.status import Standing
from netvitals_lab.engine.verdict import JUDGED, LABELS, MEANINGS, STATUSES, Status

HEADINGS: dict[Status, str] = {
    "holds": "What holds",
    "reproduced": "What was reproduced at this scale",
    "fails": "What fails",
    "erratum": "Errata, and what is right",
    "not-reproduced": "What was not reproduced at this scale",
    "underspecified": "What the text leaves open",
    "not-judged": "What cannot be judged",
    "not-run": "What was not run",
}
CORRECTIONS = "Corrected statements"
OURS = "Statements of ours on its subject"


@dataclass(frozen=True)
class Chapter:
    """Some of a paper's claims under one heading."""

    heading: str
    meaning: str
    standings: Sequence[Standing]


def headlines(standings: Sequence[Standing]) -> list[Standing]:
    """The claims that a page opens with, in the order of their table."""
    return sorted((s for s in standings if s.claim.headline), key=lambda s: position(s.claim))


def chapters(standings: Sequence[Standing]) -> list[Chapter]:
    """All claims of one paper: its statements by verdict, then what corrects them, then ours."""
    of_paper = [s for s in standings if s.claim.whose == "paper"]
    found = [Chapter(h, MEANINGS[k], [s for s in of_paper if s.verdict.status == k]) for k, h in HEADINGS.items()]
    found.append(Chapter(CORRECTIONS, WHOSE["correction"], [s for s in standings if s.claim.whose == "correction"]))
    found.append(Chapter(OURS, WHOSE["ours"], [s for s in standings if s.claim.whose == "ours"]))
    return [c for c in found if c.standings]


def tally(standings: Sequence[Standing]) -> str:
    """How many stand how, in words.

    >>> tally([])
    ''
    """
    counts = {k: sum(s.verdict.status == k for s in standings) for k in STATUSES}
    return ", ".join(f"{n} {LABELS[k]}" for k, n in counts.items() if n)


def counted(standings: Sequence[Standing]) -> str:
    """One sentence: the statements of the papers and how they stand, then what is ours."""
    of_paper = [s for s in standings if s.claim.whose == "paper"]
    judged = sum(s.verdict.status in JUDGED for s in of_paper)
    papers = len({s.claim.paper for s in of_paper})
    whose = "the paper" if papers < 2 else f"{papers} papers"
    parts = [f"{len(of_paper)} statement{'s' * (len(of_paper) != 1)} of {whose}, {judged} of them judged"]
    parts[0] += f": {tally(of_paper)}" if of_paper else ""
    for word, whose_it_is in (("corrected", "correction"), ("ours", "ours")):
        rest = [s for s in standings if s.claim.whose == whose_it_is]
        parts += [f"{len(rest)} {word}: {tally(rest)}"] if rest else []
    return "; ".join(parts) + "."
