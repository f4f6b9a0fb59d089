"""The claims page: one HTML file, one row per claim, the paper's number beside ours."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from netvitals import __version__
from netvitals.lab.engine.claim import STATUSES, Status
from netvitals.lab.engine.progress import duration
from netvitals.lab.engine.standing import Standing, plot_of
from netvitals.lab.engine.store import Results

TONES = {"holds": "good", "fails": "critical", "erratum": "warning", "not-run": "info"}


def write_page(standings: Sequence[Standing], path: str | os.PathLike[str], results: Results | None = None) -> Path:
    """Write the page and return its path; with ``results`` the pictures of the claims are drawn too."""
    path = Path(path)
    if path.is_dir():
        path = path / "claims.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".part")
    draft.write_text(render_page(standings, results), encoding="utf-8")
    draft.replace(path)
    return path


def render_page(standings: Sequence[Standing], results: Results | None = None) -> str:
    """The page as text."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    here = files("netvitals.lab.engine") / "templates"
    text = {name: (here / name).read_text(encoding="utf-8") for name in ("claims.html.j2", "claims.css", "claims.js")}
    style = "".join(
        (files("netvitals.report") / "templates" / name).read_text(encoding="utf-8")
        for name in ("style.css", "plot.css")
    )
    counts = {s: sum(x.verdict.status == s for x in standings) for s in STATUSES}
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.from_string(text["claims.html.j2"]).render(
        version=__version__,
        rows=[_row(s, results) for s in standings],
        counts=counts,
        tones=TONES,
        words=_words(counts, standings),
        papers=sorted({s.claim.paper for s in standings}),
        statuses=STATUSES,
        style=Markup(style + text["claims.css"]),
        script=Markup(text["claims.js"]),
        script_hash=base64.b64encode(hashlib.sha256(text["claims.js"].encode()).digest()).decode(),
    )


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


def _row(standing: Standing, results: Results | None) -> dict[str, Any]:
    from markupsafe import Markup

    claim, verdict = standing.claim, standing.verdict
    plot = plot_of(standing, results) if results is not None else None
    basis = []
    if verdict.trials:
        basis.append(f"{verdict.trials} trial{'s' * (verdict.trials != 1)}")
        basis += [f"{verdict.seeds} seed{'s' * (verdict.seeds != 1)}"] if verdict.seeds else []
        spent = duration(verdict.cost) if verdict.cost >= 1 else "under 1 s"
        basis += [f"scale {verdict.scale}", f"{spent} of computing"]
    return {
        "id": claim.id,
        "paper": claim.paper,
        "study": claim.study,
        "section": claim.section,
        "statement": claim.statement,
        "expected": str(claim.expected),
        "status": verdict.status,
        "tone": TONES[verdict.status],
        "number": verdict.number,
        "note": verdict.words,
        "basis": basis,
        "excluded": verdict.excluded,
        "stale": standing.stale,
        "judged": standing.judged,
        "plot": Markup(plot.svg()) if plot else "",
        "legend": plot.legend if plot else [],
    }
