"""``netvitals top RUN``: a run in the terminal, as it goes on."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from netvitals.cli import _groups


def register(app: typer.Typer) -> None:
    app.command("top", rich_help_panel=_groups.RUNS)(show_run)


def show_run(
    run: Annotated[Path, typer.Argument(help="Folder or .sqlite file of the run.")],
    once: Annotated[bool, typer.Option(help="Print the current state once and exit.")] = False,
    every: Annotated[float, typer.Option(help="Seconds between two updates.", min=0.2)] = 2.0,
) -> None:
    """Show loss, vital signs and findings of a run in the terminal while it trains.

    If the output is a file, print one line per minute instead.
    """
    from rich.console import Console
    from rich.live import Live

    from netvitals.report import RunPanel

    panel = RunPanel(run)
    console = Console(emoji=False)
    panel.refresh()
    if once:
        console.print(panel)
        return
    if not sys.stdout.isatty():
        _log(panel)
        return
    with Live(panel, console=console, refresh_per_second=4, screen=False) as live:
        while panel.status == "running":
            time.sleep(every)
            panel.refresh()
            live.update(panel)


def _log(panel: object) -> None:
    """One line a minute, and the last one at the end."""
    from netvitals.report import RunPanel

    assert isinstance(panel, RunPanel)
    typer.echo(panel.line())
    spoke = time.monotonic()
    while panel.status == "running":
        time.sleep(1.0)
        panel.refresh()
        if time.monotonic() - spoke > 60 or panel.status != "running":
            spoke = time.monotonic()
            typer.echo(panel.line())
