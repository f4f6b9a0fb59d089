"""``netvitals compare A B``: two runs side by side in the terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from netvitals.cli import _groups
from netvitals.cli._tables import print_table

MOST = 20  # rows of a table


def register(app: typer.Typer) -> None:
    app.command("compare", rich_help_panel=_groups.RUNS)(compare_runs)


def compare_runs(
    one: Annotated[Path, typer.Argument(help="Folder or .sqlite file of the first run.")],
    other: Annotated[Path, typer.Argument(help="Folder or .sqlite file of the second run.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
) -> None:
    """Compare two runs: settings, findings, and the step at which each metric starts to differ."""
    from netvitals.findings import diagnose, table
    from netvitals.report import separated, settings
    from netvitals.runs import open_run

    if one.resolve() == other.resolve():
        raise ValueError(f"compare needs two different runs, got {one} twice")
    short = one.name != other.name
    runs = {path.name if short else str(path): open_run(path) for path in (one, other)}
    tables = [table(run) for run in runs.values()]
    found = {
        "settings": settings({name: run.meta for name, run in runs.items()}),
        "findings": {
            name: [f"{f.severity.upper()} {f.what}" for f in diagnose(t).alarming] for name, t in zip(runs, tables)
        },
        "metrics": separated(*tables),
    }
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False))
        return
    _print(list(runs), found)


def _print(names: list[str], found: dict[str, Any]) -> None:
    rows = [[row["name"], *(row["values"][name] for name in names)] for row in found["settings"]]
    if rows:
        _print_first(["setting", *names], rows, "Settings that differ")
    for name in names:
        typer.echo(f"{name}: " + ("; ".join(found["findings"][name]) or "nothing alarming"))
    rows = [
        [str(m["step"]), f"{m['vital']}/{m['metric']}", m["site"] or "model", *(f"{v:.4g}" for v in m["values"])]
        for m in found["metrics"]
        if None not in m["values"] and ":" not in m["metric"]  # pooled copies of what stands above them
    ]
    if rows:
        _print_first(
            ["step", "metric", "first at", *names],
            rows,
            "Metrics that differ by more than their noise, the earliest first",
        )
    else:
        typer.echo("no metric differs by more than its noise")


def _print_first(head: list[str], rows: list[list[str]], title: str) -> None:
    print_table(head, rows[:MOST], title)
    if len(rows) > MOST:
        typer.echo(f"and {len(rows) - MOST} more; --json prints all")
