"""``netvitals check RUN``: an exit code for a pipeline that must not go on with a sick network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    app.command("check")(check_run)


def check_run(
    run: Annotated[Path, typer.Argument(help="The run: its folder, or the .sqlite file.")],
    fail_on: Annotated[
        str, typer.Option(help="The mildest finding that fails the check: critical, warning, note or info.")
    ] = "critical",
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as a JSON list.")] = False,
) -> None:
    """Judge a run; exit code 1 where a finding is as grave as --fail-on, 0 where none is, 2 where it cannot be read."""
    from netvitals.runs import SEVERITIES

    if fail_on not in SEVERITIES:
        raise ValueError(f"--fail-on must be one of {', '.join(SEVERITIES)}, got {fail_on!r}")
    from rich.console import Console

    from netvitals import findings, runs

    found = findings.diagnose(runs.open_run(run))
    if as_json:
        typer.echo(json.dumps(found.to_dicts(), ensure_ascii=False))
    else:
        Console(emoji=False).print(found)
    grave = SEVERITIES[: SEVERITIES.index(fail_on) + 1]
    if any(f.severity in grave for f in found):
        raise typer.Exit(1)
