"""``netvitals export RUN``: a run as Parquet, CSV or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from netvitals.cli import _groups


def register(app: typer.Typer) -> None:
    app.command("export", rich_help_panel=_groups.RUNS)(export_run)


def export_run(
    run: Annotated[Path, typer.Argument(help="Folder or .sqlite file of the run.")],
    to: Annotated[str, typer.Option(help="File format: parquet, csv or json.")] = "parquet",
    out: Annotated[Path | None, typer.Option(help="Path of the file. [default: beside the run]")] = None,
) -> None:
    """Write all measurements of a run to one Parquet, CSV or JSON file."""
    from netvitals import findings, runs

    typer.echo(runs.export(findings.open_run(run), to, out))
