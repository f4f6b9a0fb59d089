"""``netvitals singular``: models with known answers, the singular fluctuation, and the readout of a checkpoint.

One file a command.
"""

from __future__ import annotations

import typer

from netvitals.cli import _groups
from netvitals.cli.singular import coefficient, nu, readout, zoo


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        no_args_is_help=True,
        help="Analyse singularities of a model: dead directions, KL orders and learning coefficients.",
    )
    app.add_typer(group, name="singular", rich_help_panel=_groups.MODELS)
    group.command("zoo")(zoo.run)
    group.command("nu")(nu.run)
    group.command("readout")(readout.run)
    group.command("coefficient")(coefficient.run)
