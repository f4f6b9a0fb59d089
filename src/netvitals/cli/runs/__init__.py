"""Commands that read a run, or many: report, view, top, check, forecasts, export, recover."""

from __future__ import annotations

import typer

from netvitals.cli.runs import check, export, forecasts, recover, report, top, view


def register(app: typer.Typer) -> None:
    for command in (report, view, top, check, forecasts, export, recover):
        command.register(app)
