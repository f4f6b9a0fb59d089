"""``netvitals forecasts RUN``: whether the forecasts of a run were worth anything, and what came of each."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from netvitals.cli import _groups


def register(app: typer.Typer) -> None:
    app.command("forecasts", rich_help_panel=_groups.RUNS)(show_log)


def show_log(
    run: Annotated[Path, typer.Argument(help="Folder or .sqlite file of the run.")],
    quantity: Annotated[
        str, typer.Option(help="Only show forecasts whose name begins with this text: plateau or loss.")
    ] = "",
    scored: Annotated[bool, typer.Option("--scored", help="Print one line for each scored forecast.")] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print all forecasts of the run and the score of each forecasting method as JSON."),
    ] = False,
) -> None:
    """Show the forecasts of a run, and the accuracy of those whose target step has been reached."""
    from netvitals.capture import plain
    from netvitals.forecasts import forecast_log
    from netvitals.runs import open_run

    found = forecast_log(open_run(run))
    if quantity:
        found = replace(
            found,
            forecasts=tuple(f for f in found.forecasts if f.quantity.startswith(quantity)),
            scores=tuple(s for s in found.scores if s.forecast.quantity.startswith(quantity)),
        )
    if as_json:
        document = {
            "worth": found.worth,
            "methods": [{**m.to_dict(), "skill": m.skill} for m in found.methods()],
            "scored": found.rows(),
            "open": [f.to_dict() for f in found.open],
            "refused": [f.to_dict() for f in found.refused],
        }
        typer.echo(json.dumps(plain(document, odd=str)))
        return
    typer.echo(str(found))
    if scored:
        for s in found.scores:
            typer.echo(f"  {s}")
