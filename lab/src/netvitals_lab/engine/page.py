"""The claims page: one HTML file, the paper's number beside ours, and under every verdict what it rests on.

Of all papers it is a table by section. Of one paper it is a referee's report: what holds, what does not, what could not
be told and why, what is ours, and what we would ask the authors.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netvitals.report.page_shell import render_html, write_html
from netvitals_lab.engine.assumptions import INTRO, Setting, settings_of
from netvitals_lab.engine.progress import duration
from netvitals_lab.engine.status import Standing, plot_of
from netvitals_lab.engine.store import Results
from netvitals_lab.engine.verdict import JUDGED, LABELS, MEANINGS, STATUSES, Status

TEMPLATES = Path(__file__).with_name("templates")
FOLDED = 8  # claims of one table above which it is one row
TONES: dict[Status, str] = {
    "holds": "good",
    "fails": "critical",
    "erratum": "warning",
    "not-reproduced": "note",
    "underspecified": "note",
    "not-judged": "info",
    "not-run": "info",
}
HEADINGS: dict[Status, str] = {
    "holds": "What holds",
    "fails": "What fails",
    "erratum": "Errata, and what is right",
    "not-reproduced": "What was not reproduced at this scale",
    "underspecified": "What the text leaves open",
    "not-judged": "What cannot be judged",
    "not-run": "What was not run",
}
OURS = "Statements of ours on its subject"


@dataclass(frozen=True, kw_only=True)
class ClaimRow:
    """One claim as the template shows it."""

    id: str
    paper: str
    section: str
    statement: str
    expected: str
    status: Status
    label: str
    tone: str
    number: str
    note: str
    effect: str
    ours: bool
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
    """The claims of one table, figure or section of a paper."""

    paper: str
    section: str
    rows: Sequence[ClaimRow]
    tally: str  # how they stand, in words
    folded: bool  # many like ones: the cells of a table are one row until somebody opens it


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
    rows = [_row(s, results) for s in standings]
    alone = len(papers) == 1
    model = ClaimsModel(
        title=f"Report on {papers[0]}" if alone else "Claims",
        headline=f"A referee's report: {papers[0].replace('-', ' ')}"
        if alone
        else "What the papers claim, and what came out",
        words=_words(counts, standings),
        counts=counts,
        tones=TONES,
        labels=LABELS,
        meanings=MEANINGS,
        statuses=STATUSES,
        papers=papers,
        groups=_groups(rows, _heading if alone else _section),
        questions=[(row.id, row.question) for row in rows if row.question],
        settings=settings_of(standings),
        rests_on=INTRO,
    )
    return render_html("claims.html.j2", model, styles=("claims.css",), script="claims.js", folder=TEMPLATES)


def _section(row: ClaimRow) -> tuple[str, str]:
    return row.paper, row.section


def _heading(row: ClaimRow) -> tuple[str, str]:
    """The chapter of a referee's report that a claim belongs to; in their order, what is ours last."""
    return "", OURS if row.ours else HEADINGS[row.status]


def _groups(rows: Sequence[ClaimRow], key: Callable[[ClaimRow], tuple[str, str]]) -> list[ClaimGroup]:
    found: dict[tuple[str, str], list[ClaimRow]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    chapters = [*HEADINGS.values(), OURS]
    ordered = sorted(  # by paper, within one as they come; the chapters of a report in their order
        found.items(), key=lambda item: (item[0][0], chapters.index(item[0][1]) if item[0][1] in chapters else 0)
    )
    return [
        ClaimGroup(
            paper=paper,
            section=section,
            rows=mine,
            tally=", ".join(f"{n} {LABELS[s]}" for s in STATUSES if (n := sum(r.status == s for r in mine))),
            folded=len(mine) > FOLDED and key is _section,
        )
        for (paper, section), mine in ordered
    ]


def _words(counts: Mapping[Status, int], standings: Sequence[Standing]) -> str:
    judged = sum(counts[s] for s in JUDGED)
    papers = len({s.claim.paper for s in standings})
    spoken: dict[Status, str] = {
        "holds": "hold",
        "fails": "fail",
        "erratum": "are errata",
        "not-reproduced": "were not reproduced at this scale",
        "underspecified": "depend on what the text leaves open",
    }
    sentence = ", ".join(f"{counts[s]} {w}" for s, w in spoken.items() if counts[s])
    if not judged:
        return f"{len(standings)} claims of {papers} papers; none has been run yet."
    ours = sum(s.claim.ours for s in standings)
    return (
        f"{len(standings)} claims of {papers} paper{'s' * (papers != 1)}, {judged} of them judged: {sentence}."
        + (f" {counts['not-judged']} cannot be judged." if counts["not-judged"] else "")
        + (f" {counts['not-run']} have no verdict yet." if counts["not-run"] else "")
        + (f" {ours} are statements of ours, not the paper's." if ours else "")
    )


def _row(standing: Standing, results: Results | None) -> ClaimRow:
    from markupsafe import Markup

    claim, verdict = standing.claim, standing.verdict
    plot = plot_of(standing, results) if results is not None else None
    return ClaimRow(
        id=claim.id,
        paper=claim.paper,
        section=claim.section,
        statement=claim.statement,
        expected=str(claim.expected),
        status=verdict.status,
        label=verdict.label,
        tone=TONES[verdict.status],
        number=verdict.number,
        note=verdict.words,
        effect=claim.effect,
        ours=claim.ours,
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
