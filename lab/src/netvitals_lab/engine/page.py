"""The claims page: one HTML file, the paper's number beside ours, and under every verdict what it rests on.

Of each paper: the headline claims first; then, folded, all of its statements by verdict, what corrects them and what is
ours. Of one paper alone also what we would ask the authors.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netvitals.report.page_shell import render_html, write_html
from netvitals_lab.engine.assumptions import INTRO, Setting, settings_of
from netvitals_lab.engine.chapters import Chapter, chapters, counted, headlines, tally
from netvitals_lab.engine.claim import WHOSE, Whose
from netvitals_lab.engine.progress import duration
from netvitals_lab.engine.status import Standing, plot_of
from netvitals_lab.engine.store import Results
from netvitals_lab.engine.verdict import LABELS, MEANINGS, STATUSES, Status

SHORT = 160  # letters of a note that are shown
TEMPLATES = Path(__file__).with_name("templates")
TONES: dict[Status, str] = {
    "holds": "good",
    "reproduced": "good",
    "fails": "critical",
    "erratum": "warning",
    "not-reproduced": "note",
    "underspecified": "note",
    "not-judged": "info",
    "not-run": "info",
}


@dataclass(frozen=True, kw_only=True)
class ClaimRow:
    """One claim as the template shows it."""

    id: str
    paper: str
    place: str
    statement: str
    expected: str
    status: Status
    label: str
    tone: str
    number: str
    note: str  # how it begins
    more: str  # the rest of it, folded
    effect: str
    whose: str
    headline: str  # the set-up in a few words, of a claim that the page opens with
    basis: tuple[str, ...]  # trials, seeds, scale, data, computing time, commit
    choices: Sequence[str]  # of ours, where the paper leaves them open
    question: str  # to the authors
    command: str  # that makes the verdict again
    study: str  # whose set-up it rests on
    excluded: Sequence[tuple[str, str]]
    stale: bool
    recorded: bool
    plot: Any  # markup
    legend: Sequence[tuple[int, str]]


@dataclass(frozen=True, kw_only=True)
class ClaimGroup:
    """The claims of one chapter of a paper's report."""

    paper: str
    heading: str
    rows: Sequence[ClaimRow]
    tally: str  # how they stand, in words
    folded: bool  # one row until somebody opens it


@dataclass(frozen=True, kw_only=True)
class ClaimsModel:
    """What ``claims.html.j2`` knows, field by field."""

    title: str
    headline: str
    words: str
    counts: Mapping[Status, int]
    tones: Mapping[Status, str]
    labels: Mapping[Status, str]
    meanings: Mapping[Status, str]
    whose: Mapping[Whose, str]
    statuses: Sequence[Status]
    papers: Sequence[str]
    groups: Sequence[ClaimGroup]
    questions: Sequence[tuple[str, str]]  # claim, what we would ask
    settings: Sequence[Setting]  # of the studies, as they were run
    rests_on: str  # what these are


def write_page(standings: Sequence[Standing], path: str | os.PathLike[str], results: Results | None = None) -> Path:
    """Write the page and return its path; with ``results`` the pictures of the claims are drawn too."""
    return write_html(render_page(standings, results), path, "claims.html")


def render_page(standings: Sequence[Standing], results: Results | None = None) -> str:
    """The page as text."""
    counts = {s: sum(x.verdict.status == s for x in standings) for s in STATUSES}
    papers = sorted({s.claim.paper for s in standings})
    alone = len(papers) == 1
    model = ClaimsModel(
        title=f"Report on {papers[0]}" if alone else "Claims",
        headline=f"A referee's report: {papers[0].replace('-', ' ')}"
        if alone
        else "What the papers claim, and what came out",
        words=counted(standings),
        counts=counts,
        tones=TONES,
        labels=LABELS,
        meanings=MEANINGS,
        whose=WHOSE,
        statuses=STATUSES,
        papers=papers,
        groups=[group for paper in papers for group in _groups(paper, standings, results)],
        questions=[(s.claim.id, s.claim.question) for s in standings if s.claim.question],
        settings=settings_of(standings),
        rests_on=INTRO,
    )
    return render_html("claims.html.j2", model, styles=("claims.css",), script="claims.js", folder=TEMPLATES)


def _groups(paper: str, standings: Sequence[Standing], results: Results | None) -> list[ClaimGroup]:
    """The headline claims, open, and the others in folded chapters; a claim is in one of them."""
    mine = [s for s in standings if s.claim.paper == paper]
    first = headlines(mine)
    rest = chapters([s for s in mine if not s.claim.headline])
    found = [Chapter(f"In {len(first)} claims", "", first)] if first else []
    return [
        ClaimGroup(
            paper=paper,
            heading=chapter.heading,
            rows=[_row(s, results) for s in chapter.standings],
            tally=tally(chapter.standings),
            folded=bool(first) and chapter.standings is not first,
        )
        for chapter in (*found, *rest)
    ]


def _row(standing: Standing, results: Results | None) -> ClaimRow:
    from markupsafe import Markup

    claim, verdict = standing.claim, standing.verdict
    plot = plot_of(standing, results) if results is not None else None
    return ClaimRow(
        id=claim.id,
        paper=claim.paper,
        place=claim.place,
        statement=claim.statement,
        expected=str(claim.expected),
        status=verdict.status,
        label=verdict.label,
        tone=TONES[verdict.status],
        number=verdict.number,
        note=begins(verdict.words)[0],
        more=begins(verdict.words)[1],
        effect=claim.effect,
        whose=claim.whose,
        headline=claim.headline,
        basis=basis(standing),
        choices=claim.choices,
        question=claim.question,
        command=claim.command,
        study=claim.study,
        excluded=verdict.excluded,
        stale=standing.stale,
        recorded=standing.recorded,
        plot=Markup(plot.svg()) if plot else "",
        legend=plot.legend if plot else (),
    )


def begins(words: str, length: int = SHORT) -> tuple[str, str]:
    """A long note cut at a semicolon or full stop: what is shown, and what is folded.

    >>> begins("mean over seeds; digits 0.2; teacher 0.3", 10)
    ('mean over seeds', 'digits 0.2; teacher 0.3')
    >>> begins("mean over seeds")
    ('mean over seeds', '')
    """
    ends = [m.span() for m in re.finditer(r"[;.] ", words) if m.start() >= min(length, len(words)) // 2]
    if len(words) <= length or not ends:
        return words, ""
    fitting = [e for e in ends if e[0] <= length] or ends[:1]
    stop, go_on = fitting[-1]
    return words[:stop], words[go_on:]


def basis(standing: Standing) -> tuple[str, ...]:
    """What a verdict rests on and what it costs to make it again, in a few words."""
    verdict = standing.verdict
    if not verdict.trials:
        return ()
    spent = f"about {duration(verdict.cost)} of one core" if verdict.cost >= 1 else "under 1 s"
    seeds = (f"{verdict.seeds} seed{'s' * (verdict.seeds != 1)}",) if verdict.seeds else ()
    trials = f"{verdict.trials} trial{'s' * (verdict.trials != 1)}"
    known = verdict.cost or not standing.recorded  # older records do not say what they cost
    commit = (f"commit {verdict.commit}",) if verdict.commit else ()
    data = (f"data {', '.join(verdict.data)}",) if verdict.data else ()
    return (trials, *seeds, f"scale {verdict.scale}", *data, *((spent,) if known else ()), *commit)
