"""Commands that read a run, or many: ls, report, view, top, compare, check, forecasts, export, recover."""

from __future__ import annotations

import typer

from netvitals.cli.runs import check, compare, export, forecasts, ls, recover, report, top, view


def register(app: typer.Typer) -> None:
    for command in (ls, report, view, top, compare, check, forecasts, export, recover):
        command.register(app)
