"""``netvitals check RUN``: an exit code for a pipeline that must not go on with a sick network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from netvitals.cli import _groups


def register(app: typer.Typer) -> None:
    app.command("check", rich_help_panel=_groups.RUNS)(check_run)


def check_run(
    run: Annotated[Path, typer.Argument(help="Folder or .sqlite file of the run.")],
    fail_on: Annotated[
        str, typer.Option(help="Lowest severity that fails the check: critical, warning, note or info.")
    ] = "critical",
    against: Annotated[
        list[Path] | None,
        typer.Option(
            help="A good run to compare with; metrics outside of its range fail the check. May be repeated.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print the findings as JSON; with --against, also the metrics outside of the range."
        ),
    ] = False,
) -> None:
    """Check a run for findings, or compare it with good runs. Exit code 1: check failed; 2: unreadable run."""
    from netvitals.runs import SEVERITIES

    if fail_on not in SEVERITIES:
        raise ValueError(f"--fail-on must be one of {', '.join(SEVERITIES)}, got {fail_on!r}")
    from rich.console import Console

    from netvitals import findings, runs

    found = findings.diagnose(runs.open_run(run))
    left = _left(run, against) if against else []
    if as_json:
        plain = found.to_dicts()
        typer.echo(json.dumps({"findings": plain, "left": left} if against else plain, ensure_ascii=False))
    else:
        Console(emoji=False).print(found)
        for row in left:
            low, high = ("?" if edge is None else f"{edge:.4g}" for edge in row["band"])
            value = "not a number" if row["value"] is None else f"{row['value']:.4g}"
            typer.echo(
                f"{row['vital']}/{row['metric']} left the band at step {row['step']}: {value}, not {low} to {high}"
            )
        if against and not left:
            typer.echo("every metric stayed in the band of the good run")
    grave = SEVERITIES[: SEVERITIES.index(fail_on) + 1]
    if left or any(f.severity in grave for f in found):
        raise typer.Exit(1)


def _left(run: Path, against: list[Path]) -> list[dict[str, Any]]:
    from netvitals.findings import table
    from netvitals.report import left_band
    from netvitals.runs import open_run

    return left_band(table(open_run(run)), [table(open_run(good)) for good in against])
