"""The record: where the claims of each paper stand, as text that lives beside the code.

One Markdown file a paper, in the order of its claims, first how many hold, then every claim with what the paper says,
what was measured, on how many trials at which scale, and the note. Nothing in it depends on when or where it was run.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from netvitals.lab.engine.claim import STATUSES
from netvitals.lab.engine.standing import Standing


def write_record(standings: Sequence[Standing], folder: str | os.PathLike[str]) -> list[Path]:
    """Write ``<paper>.md`` into ``folder`` for every paper among the standings; the paths, in order.

    Beside each ``<paper>.json`` with the verdicts: in ``lab/recorded`` it is what ``netvitals claims`` opens with.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"the record is a folder with one file for each paper, and {folder} is a file")
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for paper in sorted({s.claim.paper for s in standings}):
        path = folder / f"{paper}.md"
        path.write_text(render_record([s for s in standings if s.claim.paper == paper]), encoding="utf-8")
        paths.append(path)
        stated = {s.claim.id: _stated(s) for s in standings if s.claim.paper == paper and s.verdict.status != "not-run"}
        text = json.dumps(stated, indent=0, ensure_ascii=False, sort_keys=True)
        path.with_suffix(".json").write_text(text, encoding="utf-8")
    return paths


def _stated(standing: Standing) -> dict[str, Any]:
    """A verdict as it is shipped: without what depends on the machine that measured it."""
    v = standing.verdict
    stated = {"status": v.status, "measured": v.measured, "uncertainty": v.uncertainty, "note": v.words}
    stated |= {"trials": v.trials, "seeds": v.seeds, "scale": v.scale}
    return {key: value for key, value in stated.items() if value not in (None, "", 0)} | {"status": v.status}


def render_record(standings: Sequence[Standing]) -> str:
    """The record of one paper as Markdown."""
    paper = standings[0].claim.paper
    counts = {k: sum(s.verdict.status == k for s in standings) for k in STATUSES}
    lines = [
        f"# {paper.replace('-', ' ').capitalize()}: claims and verdicts",
        "",
        f"{len(standings)} claims: " + ", ".join(f"{n} {k}" for k, n in counts.items() if n) + ". "
        f"`netvitals reproduce {paper}` measures them again, "
        f"`netvitals claims --paper {paper} --record FOLDER` writes this file.",
        "",
    ]
    for study in dict.fromkeys(s.claim.study for s in standings):
        lines += [
            f"## `{study}`",
            "",
            "| claim | says | expected | measured | verdict | basis |",
            "|---|---|---|---|---|---|",
        ]
        lines += [_row(s) for s in standings if s.claim.study == study]
        lines.append("")
    return "\n".join(lines)


def _row(standing: Standing) -> str:
    claim, verdict = standing.claim, standing.verdict
    basis = "code has changed since; " if standing.stale else ""
    if verdict.trials:
        basis += f"{verdict.trials} trial{'s' * (verdict.trials != 1)}"
        basis += f", {verdict.seeds} seeds" if verdict.seeds > 1 else ""
        basis += f", {verdict.scale}" if verdict.scale else ""
    if verdict.excluded:
        basis += f", {len(verdict.excluded)} excluded"
    measured = " — ".join(part for part in (verdict.number, verdict.words) if part)
    cells = (
        claim.id.partition("/")[2],
        claim.statement + (f" ({claim.section})" if claim.section else ""),
        str(claim.expected),
        measured,
        verdict.status,
        basis,
    )
    return "| " + " | ".join(map(_cell, cells)) + " |"


def _cell(text: str) -> str:
    """Text that a table of Markdown shows as it is, on one line."""
    return re.sub(r"([\\|*_<`])", r"\\\1", re.sub(r"\s+", " ", text))
