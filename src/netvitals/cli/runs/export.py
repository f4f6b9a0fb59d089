"""``netvitals export RUN``: a run as Parquet, CSV or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from netvitals.cli import _groups


def register(app: typer.Typer) -> None:
    app.command("export", rich_help_panel=_groups.RUNS)(export_run)


def export_run(
    run: Annotated[Path, typer.Argument(help="The run: its folder, or the .sqlite file.")],
    to: Annotated[str, typer.Option(help="parquet, csv or json.")] = "parquet",
    out: Annotated[Path | None, typer.Option(help="The file to write; beside the run if left out.")] = None,
) -> None:
    """Write every number of a run to one file."""
    from netvitals import findings, runs

    typer.echo(runs.export(findings.open_run(run), to, out))
