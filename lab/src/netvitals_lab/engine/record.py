"""The record: a referee's report on each paper, as text that lives beside the code.

One Markdown file a paper: how its statements stand, the headline claims in one table, then, folded, every claim by
verdict, what corrects the paper, what is ours, what we would ask the authors, and the set-up of every study. In the
folds every claim has the paper's number beside ours, what it rests on and costs, the commit, what we chose, and the
command that makes the verdict again. Pictures are drawn where the trials are at hand.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from netvitals_lab.engine.assumptions import INTRO, settings_of
from netvitals_lab.engine.chapters import CORRECTIONS, OURS, chapters, counted, headlines
from netvitals_lab.engine.page import basis
from netvitals_lab.engine.status import Standing, plot_of, recorded_verdicts
from netvitals_lab.engine.store import Results
from netvitals_lab.engine.study import SCALES
from netvitals_lab.engine.verdict import Verdict

SETUPS = "Set-ups, and what more would cost"
SHORT = 60  # letters of a number in the table of headline claims
KEPT = (
    "status",
    "measured",
    "uncertainty",
    "interval",
    "power",
    "power_in",
    "span",
    "setups",
    "correction",
)  # of a verdict, in the record


def write_record(
    standings: Sequence[Standing],
    folder: str | os.PathLike[str],
    results: Results | None = None,
    *,
    ship: str | os.PathLike[str] | None = None,
) -> list[Path]:
    """Write ``<paper>.md`` into ``folder`` for every paper among the standings; the paths, in order.

    Beside each, or in ``ship``, ``<paper>.json`` with the verdicts and the commit: what is in ``lab/recorded``,
    ``netvitals claims`` opens with.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"the record is a folder with one file for each paper, and {folder} is a file")
    folder.mkdir(parents=True, exist_ok=True)
    commit, earlier, paths = commit_here(), recorded_verdicts(), []
    for paper in sorted({s.claim.paper for s in standings}):
        mine = [_dated(s, commit, earlier.get(s.claim.id)) for s in standings if s.claim.paper == paper]
        pictures = dict(_pictures(mine, folder / "images", results)) if results is not None else {}
        kept = {s.claim.id: name for s in mine if (folder / (name := f"images/{_file(s)}")).is_file()}
        path = folder / f"{paper}.md"
        path.write_text(render_record(mine, kept | pictures), encoding="utf-8")
        paths.append(path)
        stated = {s.claim.id: _stated(s) for s in mine if s.verdict.status != "not-run"}
        text = json.dumps(stated, indent=0, ensure_ascii=False, sort_keys=True)
        ((folder if ship is None else Path(ship)) / f"{paper}.json").write_text(text, encoding="utf-8")
    return paths


def commit_here() -> str:
    """The commit of the code that runs, with a + where files have been changed since; empty outside of git."""
    here = Path(__file__).parent
    asked = (["git", "rev-parse", "--short=10", "HEAD"], ["git", "status", "--porcelain", "--", str(here.parents[1])])
    try:
        head, changed = (subprocess.run(a, cwd=here, capture_output=True, text=True, timeout=20) for a in asked)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    if head.returncode:
        return ""
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "")


def _file(standing: Standing) -> str:
    return standing.claim.id.replace("/", "-") + ".svg"


def _pictures(standings: Sequence[Standing], folder: Path, results: Results) -> Iterator[tuple[str, str]]:
    for standing in standings:
        plot = None if standing.recorded else plot_of(standing, results)
        if plot is not None:
            folder.mkdir(exist_ok=True)
            (folder / _file(standing)).write_text(plot.standalone(), encoding="utf-8")
            yield standing.claim.id, f"images/{_file(standing)}"


def _dated(standing: Standing, commit: str, earlier: Verdict | None) -> Standing:
    """With the commit of the code that made it: what is measured here and not stale is of the code that runs now; of
    what is stale, the record stays as it was."""
    if standing.stale and earlier is not None:
        return replace(standing, verdict=earlier, recorded=True, stale=False)
    if standing.recorded or standing.stale:
        return standing
    cost = float(f"{standing.verdict.cost:.1g}")  # of one machine on one day
    return replace(standing, verdict=replace(standing.verdict, commit=commit, cost=cost))


def _stated(standing: Standing) -> dict[str, Any]:
    """A verdict as it is shipped."""
    v = standing.verdict
    stated = {name: getattr(v, name) for name in KEPT} | {"note": _plain_words(standing)}
    counted = {"trials": v.trials, "seeds": v.seeds, "cost": v.cost, "scale": v.scale, "data": list(v.data)}
    stated |= {key: value for key, value in counted.items() if value} | {"commit": v.commit}
    return {key: value for key, value in stated.items() if value not in (None, "")} | {"status": v.status}


def _plain_words(standing: Standing) -> str:
    """Note and facts; what the status brings is kept in fields of its own."""
    return replace(standing.verdict, status="holds", correction="", power=None, span=None, setups=None).words


def render_record(standings: Sequence[Standing], pictures: dict[str, str] | None = None) -> str:
    """The report on one paper as Markdown; ``pictures`` are files by claim."""
    paper = standings[0].claim.paper
    lines = [
        f"# {paper.replace('-', ' ').capitalize()}: a referee's report",
        "",
        f"{counted(standings)} `netvitals reproduce {paper}` measures them again, `netvitals reproduce --claim "
        f"{paper}/NAME` one of them, and `netvitals claims --paper {paper} --record FOLDER` writes this file.",
        "",
    ]
    first = headlines(standings)
    if first:
        lines += [
            f"## The paper in {len(first)} claims",
            "",
            "| claim | says | printed | here | verdict | set-up |",
            "|---|---|---|---|---|---|",
            *(_headline(s) for s in first),
            "",
        ]
    lines += ["## Every claim", ""]
    for chapter in chapters(standings):
        verdict = chapter.heading in (CORRECTIONS, OURS)
        lines += [
            '<details markdown="1">',
            f"<summary>{chapter.heading}: {len(chapter.standings)}</summary>",
            "",
            f"{chapter.meaning[0].upper()}{chapter.meaning[1:]}.",
            "",
            f"| claim | says | paper | here |{' verdict |' if verdict else ''} rests on |",
            f"|---|---|---|---|{'---|' if verdict else ''}---|",
            *(_row(s, verdict=verdict) for s in chapter.standings),
            "",
        ]
        drawn = [(s, pictures[s.claim.id]) for s in chapter.standings if pictures and s.claim.id in pictures]
        for standing, file in drawn:
            lines += [f"![{standing.claim.id}: {_cell(standing.claim.statement)}]({file})", ""]
        lines += ["</details>", ""]
    asked = [(s.claim.id.partition("/")[2], s.claim.question) for s in standings if s.claim.question]
    if asked:
        lines += ["## What we would ask the authors", "", *(f"- **{name}** {_cell(text)}" for name, text in asked), ""]
    return "\n".join([*lines, *_setups(standings)])


def _headline(standing: Standing) -> str:
    claim, found = standing.claim, standing.verdict
    number = found.number if len(found.number) <= SHORT else f"{found.number[: SHORT - 1].rstrip()}…"
    says = f"{claim.statement} ({claim.place})"
    cells = (claim.id.partition("/")[2], says, str(claim.expected), number, found.label, claim.headline)
    return "| " + " | ".join(map(_cell, cells)) + " |"


def _setups(standings: Sequence[Standing]) -> list[str]:
    """What we chose for every study among the standings."""
    lines: list[str] = []
    for setting in settings_of(standings):
        lines += [f"### {setting.study}", "", _cell(setting.title), ""]
        lines += [f"- {f'`{what}`' if what in SCALES else what}: {_cell(words)}" for what, words in setting.lines]
        lines.append("")
    if not lines:
        return []
    return [f"## {SETUPS}", "", '<details markdown="1">', f"<summary>{INTRO}</summary>", "", *lines, "</details>", ""]


def _row(standing: Standing, *, verdict: bool) -> str:
    claim, found = standing.claim, standing.verdict
    rests = ", ".join((*("code has changed since",) * standing.stale, *basis(standing)))
    rests += f", {len(found.excluded)} excluded" if found.excluded else ""
    rests += f". Decides, for {claim.decides}" if claim.decides else ""
    rests += f". Ours to choose: {'; '.join(claim.choices)}" if claim.choices else ""
    again = f"{'. ' if rests else ''}Set-up: [{claim.study}](#{claim.study}). `{claim.command}`"
    cells = (
        claim.id.partition("/")[2],
        claim.statement + (f" ({claim.place})" if claim.place else ""),
        str(claim.expected),
        " — ".join(part for part in (found.number, found.words) if part),
        *((found.label,) if verdict else ()),
        rests,
    )
    return "| " + " | ".join(map(_cell, cells)) + f"{again} |"


def _cell(text: str) -> str:
    """Text that a table of Markdown shows as it is, on one line."""
    return re.sub(r"([\\|*_<`])", r"\\\1", re.sub(r"\s+", " ", text))
