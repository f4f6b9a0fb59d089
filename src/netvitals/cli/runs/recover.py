"""``netvitals recover RUN``: what is intact of a damaged run, as a new one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from netvitals.cli import _groups


def register(app: typer.Typer) -> None:
    app.command("recover", rich_help_panel=_groups.RUNS)(recover_run)


def recover_run(
    run: Annotated[Path, typer.Argument(help="The damaged run: its folder, or the .sqlite file.")],
    out: Annotated[
        Path | None, typer.Option(help="Where to; beside it, with -recovered in the name, if left out.")
    ] = None,
) -> None:
    """Write all that is intact of a damaged run to a new one; the damaged file is not touched."""
    from netvitals import runs

    found = runs.recover(run, out)
    typer.echo(f"{found}.")
    typer.echo(found.path)
