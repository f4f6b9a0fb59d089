"""Commands that read a run, or many: report, view, top, check, forecasts, export, salvage."""

from __future__ import annotations

import typer

from netvitals.cli.runs import check, export, forecasts, report, salvage, top, view


def register(app: typer.Typer) -> None:
    for command in (report, view, top, check, forecasts, export, salvage):
        command.register(app)
