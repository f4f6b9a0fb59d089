"""``netvitals claims``: what the papers claim, and where each claim stands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from netvitals_lab.commands._words import coloured, note_of

HINT = (
    "on record: measured before and shipped with netvitals; `netvitals reproduce STUDY` measures it here, "
    "`netvitals claims --paper PAPER` lists one by one, `--html FILE` writes the page"
)


def register(app: typer.Typer) -> None:
    app.command("claims", rich_help_panel="The papers")(list_claims)


def list_claims(
    paper: Annotated[str | None, typer.Option(help="Only list claims of this paper.")] = None,
    status: Annotated[
        str | None,
        typer.Option(
            help="Only list claims with this verdict: holds, reproduced, fails, erratum, not-reproduced, "
            "underspecified, not-judged or not-run."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
    results: Annotated[
        Path | None, typer.Option(help="File with stored results. [default: runs/studies.sqlite, if it exists]")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write an HTML page of all claims to this file.")] = None,
    record: Annotated[
        Path | None, typer.Option(help="Write one report per paper, like a referee's report, into this folder.")
    ] = None,
    ship: Annotated[
        bool,
        typer.Option(
            "--ship",
            help="With --record: make the recorded verdicts the ones that `netvitals claims` shows by default.",
        ),
    ] = False,
) -> None:
    """List all claims of the papers behind netvitals, with their verdicts and errata."""
    from contextlib import nullcontext

    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    import netvitals_lab as lab
    from netvitals.capture.result import plain

    chosen = lab.all_claims(paper)
    if status is not None:
        lab.check_status(status)
    if results is None and lab.DEFAULT.is_file():
        results = lab.DEFAULT
    with lab.Results(results, write=False) if results is not None else nullcontext() as store:
        found = [s for s in lab.standings(chosen, store, recorded=True) if status in (None, s.verdict.status)]
        if html is not None:
            typer.echo(lab.write_page(found, html, store), err=as_json)
        if ship and (record is None or status is not None):
            raise typer.BadParameter("--ship goes with --record and without --status: it replaces what is on record")
        where = lab.RECORDED if ship else None
        for path in lab.write_record(found, record, store, ship=where) if record is not None else ():
            typer.echo(path, err=as_json)
        if ship and record is not None and (record.parent / "papers").is_dir():
            from netvitals_lab.index import write_indices

            for path in write_indices(record.parent / "papers", record / "images"):
                typer.echo(path, err=as_json)
    if as_json:
        typer.echo(json.dumps(plain([s.to_dict() for s in found], odd=str), ensure_ascii=False))
        return
    console = Console(emoji=False)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    if paper is None and status is None:
        _by_study(console, table, found, lab.STATUSES)
        return
    rows = [
        {
            "claim": s.claim.id,
            "paper says": escape(str(s.claim.expected)),
            "ours": escape(s.verdict.number),
            "verdict": coloured(s.verdict),
            "note": ""
            if s.verdict.note.startswith("not run yet") and not s.stale
            # said once, below
            else _prefix(s) + note_of(s.verdict),
        }
        for s in found
    ]
    narrow = console.width < 110  # a column of notes would be one of single letters
    columns = [c for c in ("claim", "paper says", "ours", "verdict", "note") if any(row[c] for row in rows)]
    columns = [c for c in columns if c != "note" or not narrow]
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in ("claim", "verdict"))
    for row in rows:
        table.add_row(*(row[c] for c in columns))
    console.print(table, highlight=False)
    counts = {k: sum(s.verdict.status == k for s in found) for k in lab.STATUSES}
    console.print(f"{len(found)} claims: " + ", ".join(f"{n} {k}" for k, n in counts.items() if n), highlight=False)
    if any(s.recorded for s in found) or counts["not-run"]:
        console.print(HINT, style="dim", highlight=False)


def _by_study(console: Any, table: Any, found: list[Any], statuses: tuple[str, ...]) -> None:
    """How many claims of each study stand how: the list of all is a page, not a screen."""
    shown = [k for k in statuses if any(s.verdict.status == k for s in found)]
    table.add_column("study", no_wrap=True)
    for status in shown:
        table.add_column(status.replace("-", " "), justify="right")
    for study in dict.fromkeys(s.claim.study for s in found):
        mine = [s for s in found if s.claim.study == study]
        counts = [sum(s.verdict.status == k for s in mine) for k in shown]
        table.add_row(study, *(str(n) if n else "·" for n in counts))
    console.print(table, highlight=False)
    total = ", ".join(f"{sum(s.verdict.status == k for s in found)} {k}" for k in shown)
    recorded = sum(s.recorded for s in found)
    here = len(found) - recorded
    console.print(f"{len(found)} claims: {total}; {recorded} of them on record, {here} from the results here")
    console.print(HINT, style="dim", highlight=False)


def _prefix(standing: Any) -> str:
    return "stale, the code has changed; " if standing.stale else "on record; " if standing.recorded else ""
