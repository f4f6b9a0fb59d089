"""``netvitals claims``: what the papers claim, and where each claim stands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from netvitals.cli._tables import coloured, note_of


def register(app: typer.Typer) -> None:
    app.command("claims")(list_claims)


def list_claims(
    paper: Annotated[str | None, typer.Option(help="Only claims of this paper.")] = None,
    status: Annotated[str | None, typer.Option(help="Only holds, fails, erratum or not-run.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
    results: Annotated[
        Path | None, typer.Option(help="The results file. [default: runs/studies.sqlite, if it is there]")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write the claims page here.")] = None,
    record: Annotated[Path | None, typer.Option(help="Write a Markdown file for each paper into this folder.")] = None,
) -> None:
    """List all claims with their verdicts and errata."""
    from contextlib import nullcontext

    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from netvitals.capture.result import plain
    from netvitals.lab import studies as lab

    chosen = lab.all_claims(paper)
    if status is not None:
        lab.check_status(status)
    if results is None and lab.DEFAULT.is_file():
        results = lab.DEFAULT
    with lab.Results(results, write=False) if results is not None else nullcontext() as store:
        found = [s for s in lab.standings(chosen, store) if status in (None, s.verdict.status)]
        if html is not None:
            typer.echo(lab.write_page(found, html, store), err=as_json)
    for path in lab.write_record(found, record) if record is not None else ():
        typer.echo(path, err=as_json)
    if as_json:
        typer.echo(json.dumps(plain([s.to_dict() for s in found], odd=str), ensure_ascii=False))
        return
    console = Console(emoji=False)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    rows = [
        {
            "claim": s.claim.id,
            "paper says": escape(str(s.claim.expected)),
            "ours": escape(s.verdict.number),
            "verdict": coloured(s.verdict),
            "note": ""
            if s.verdict.note.startswith("not run yet") and not s.stale
            # said once, below
            else ("stale, the code has changed; " if s.stale else "") + note_of(s.verdict),
        }
        for s in found
    ]
    columns = [c for c in ("claim", "paper says", "ours", "verdict", "note") if any(row[c] for row in rows)]
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in ("claim", "verdict"))
    for row in rows:
        table.add_row(*(row[c] for c in columns))
    console.print(table, highlight=False)
    counts = {k: sum(s.verdict.status == k for s in found) for k in lab.STATUSES}
    console.print(f"{len(found)} claims: " + ", ".join(f"{n} {k}" for k, n in counts.items() if n), highlight=False)
    if counts["not-run"]:
        console.print(
            "not run yet: `netvitals studies` lists what there is, `netvitals reproduce STUDY` runs it",
            style="dim",
            highlight=False,
        )
