"""The claims page: one HTML file, one row per claim, the paper's number beside ours."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netvitals.lab.engine.claim import STATUSES, Status
from netvitals.lab.engine.progress import duration
from netvitals.lab.engine.standing import Standing, plot_of
from netvitals.lab.engine.store import Results
from netvitals.report.shell import render_html, write_html

TEMPLATES = Path(__file__).with_name("templates")
FOLDED = 8  # claims of one table above which it is one row
TONES = {"holds": "good", "fails": "critical", "erratum": "warning", "not-run": "info"}


@dataclass(frozen=True, kw_only=True)
class ClaimRow:
    """One claim as the template shows it."""

    id: str
    paper: str
    section: str
    statement: str
    expected: str
    status: Status
    tone: str
    number: str
    note: str
    basis: tuple[str, ...]  # trials, seeds, scale, computing time
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
    words: str
    counts: Mapping[Status, int]
    tones: Mapping[str, str]
    statuses: Sequence[Status]
    papers: Sequence[str]
    groups: Sequence[ClaimGroup]


def write_page(standings: Sequence[Standing], path: str | os.PathLike[str], results: Results | None = None) -> Path:
    """Write the page and return its path; with ``results`` the pictures of the claims are drawn too."""
    return write_html(render_page(standings, results), path, "claims.html")


def render_page(standings: Sequence[Standing], results: Results | None = None) -> str:
    """The page as text."""
    counts = {s: sum(x.verdict.status == s for x in standings) for s in STATUSES}
    model = ClaimsModel(
        title="Claims",
        words=_words(counts, standings),
        counts=counts,
        tones=TONES,
        statuses=STATUSES,
        papers=sorted({s.claim.paper for s in standings}),
        groups=_groups([_row(s, results) for s in standings]),
    )
    return render_html("claims.html.j2", model, styles=("claims.css",), script="claims.js", folder=TEMPLATES)


def _groups(rows: Sequence[ClaimRow]) -> list[ClaimGroup]:
    found: dict[tuple[str, str], list[ClaimRow]] = {}
    for row in rows:
        found.setdefault((row.paper, row.section), []).append(row)
    ordered = sorted(found.items(), key=lambda item: item[0][0])  # by paper; within one as they come
    return [
        ClaimGroup(
            paper=paper,
            section=section,
            rows=mine,
            tally=", ".join(f"{n} {s}" for s in STATUSES if (n := sum(r.status == s for r in mine))),
            folded=len(mine) > FOLDED,
        )
        for (paper, section), mine in ordered
    ]


def _words(counts: Mapping[Status, int], standings: Sequence[Standing]) -> str:
    judged = sum(counts[s] for s in STATUSES[:3])
    papers = len({s.claim.paper for s in standings})
    spoken: dict[Status, str] = {"holds": "hold", "fails": "fail", "erratum": "are errata"}
    sentence = ", ".join(f"{counts[s]} {w}" for s, w in spoken.items() if counts[s])
    if not judged:
        return f"{len(standings)} claims of {papers} papers; none has been run yet."
    return f"{len(standings)} claims of {papers} paper{'s' * (papers != 1)}, {judged} of them judged: {sentence}." + (
        f" {counts['not-run']} have no verdict yet." if counts["not-run"] else ""
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
        tone=TONES[verdict.status],
        number=verdict.number,
        note=verdict.words,
        basis=_basis(standing),
        excluded=verdict.excluded,
        stale=standing.stale,
        recorded=standing.recorded,
        plot=Markup(plot.svg()) if plot else "",
        legend=plot.legend if plot else (),
    )


def _basis(standing: Standing) -> tuple[str, ...]:
    """What a verdict rests on, in a few words."""
    verdict = standing.verdict
    if not verdict.trials:
        return ()
    spent = duration(verdict.cost) if verdict.cost >= 1 else "under 1 s"
    seeds = (f"{verdict.seeds} seed{'s' * (verdict.seeds != 1)}",) if verdict.seeds else ()
    trials = f"{verdict.trials} trial{'s' * (verdict.trials != 1)}"
    time = () if standing.recorded else (f"{spent} of computing",)  # of a machine that is not this one
    return (trials, *seeds, f"scale {verdict.scale}", *time)
