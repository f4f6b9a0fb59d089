"""``netvitals forecasts RUN``: the ledger of what was forecast, what came of it, and what is still open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from netvitals.cli import _groups


def register(app: typer.Typer) -> None:
    app.command("forecasts", rich_help_panel=_groups.RUNS)(show_ledger)


def show_ledger(
    run: Annotated[Path, typer.Argument(help="The run: its folder, or the .sqlite file.")],
    quantity: Annotated[str, typer.Option(help="Only quantities that begin like this, e.g. gates or plateau.")] = "",
    scored: Annotated[bool, typer.Option("--scored", help="Every scored forecast, one line each.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: methods, scores and open forecasts.")] = False,
) -> None:
    """The ledger of a run: forecasts with their dates and odds, scored where their day has come."""
    from netvitals.capture import plain
    from netvitals.forecasts import ForecastLog, forecast_log
    from netvitals.runs import open_run

    found = forecast_log(open_run(run))
    if quantity:
        found = ForecastLog(
            forecasts=tuple(f for f in found.forecasts if f.quantity.startswith(quantity)),
            scores=tuple(s for s in found.scores if s.forecast.quantity.startswith(quantity)),
            last_step=found.last_step,
        )
    if as_json:
        document = {
            "methods": [{**m.to_dict(), "skill": m.skill, "demoted": m.demoted} for m in found.methods()],
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
