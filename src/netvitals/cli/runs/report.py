"""``netvitals report RUN``: the HTML page of a run, finished or not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from netvitals.cli import _groups


def register(app: typer.Typer) -> None:
    app.command("report", rich_help_panel=_groups.RUNS)(write_report)


def write_report(
    run: Annotated[Path, typer.Argument(help="Folder or .sqlite file of the run.")],
    out: Annotated[
        Path | None, typer.Option(help="Path of the HTML file. [default: report.html beside the run]")
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the report in the browser.")] = False,
) -> None:
    """Write the report of a run as one HTML file that opens offline, and print its findings."""
    from rich.console import Console

    from netvitals import findings, runs
    from netvitals.report import write

    source = runs.open_run(run)
    found = findings.diagnose(source)
    Console(emoji=False).print(found)
    page = write(source, out or source.path.with_name("report.html"), findings=found)
    typer.echo(page)
    if show:
        typer.launch(page.resolve().as_uri())
