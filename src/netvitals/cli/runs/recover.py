"""``netvitals recover RUN``: what is intact of a damaged run, as a new one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from netvitals.cli import _groups


def register(app: typer.Typer) -> None:
    app.command("recover", rich_help_panel=_groups.RUNS)(recover_run)


def recover_run(
    run: Annotated[Path, typer.Argument(help="Folder or .sqlite file of the damaged run.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Path of the new run. [default: beside the damaged run, with -recovered in its name]"),
    ] = None,
) -> None:
    """Copy all intact measurements of a damaged run to a new run; the damaged file is not changed."""
    from netvitals import runs

    found = runs.recover(run, out)
    typer.echo(f"{found}.")
    typer.echo(found.path)
