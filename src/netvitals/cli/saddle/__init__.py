"""``netvitals saddle``: plan a plateau, or ask a run when its plateau will end."""

from __future__ import annotations

import typer

from netvitals.cli import _groups
from netvitals.cli.saddle.forecast import forecast_escape
from netvitals.cli.saddle.plan import plan_plateau


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        no_args_is_help=True,
        help="Loss plateaus of networks with small initial weights: plan their length, or forecast their end.",
    )
    app.add_typer(group, name="saddle", rich_help_panel=_groups.MODELS)
    group.command("plan")(plan_plateau)
    group.command("forecast")(forecast_escape)
