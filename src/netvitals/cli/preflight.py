"""``netvitals preflight PKG.MODULE:FACTORY``: checks before training, with an exit code for a pipeline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from netvitals.cli import _groups


def register(app: typer.Typer) -> None:
    app.command("preflight", rich_help_panel=_groups.MODELS)(check_before_training)


def check_before_training(
    target: Annotated[
        str,
        typer.Argument(
            metavar="PKG.MODULE:FACTORY",
            help="Import path of a function without arguments that returns (model, loss_fn, loader, optimizer).",
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print the checks as JSON.")] = False,
    junit: Annotated[Path | None, typer.Option(help="Also write the checks as JUnit XML to this file.")] = None,
    html: Annotated[Path | None, typer.Option(help="Also write an HTML report to this file.")] = None,
    batches: Annotated[int, typer.Option(help="Read at most this many batches.")] = 24,
    seconds: Annotated[float, typer.Option(help="Approximate time limit in seconds.")] = 60.0,
) -> None:
    """Check for bugs before training. Exit code 1: a check failed; 2: the checks could not run."""
    from netvitals.cli.checkup import made
    from netvitals.preflights import preflight

    model, loss_fn, loader, optimizer = made(target, ("model", "loss_fn", "loader", "optimizer"))
    found = preflight(model, loss_fn, loader, optimizer, batches=batches, seconds=seconds)
    typer.echo(json.dumps(found.to_dict(), ensure_ascii=False) if as_json else str(found))
    if junit is not None:
        junit.write_text(found.to_junit(), encoding="utf-8")
    if html is not None:
        typer.echo(found.to_html(html), err=as_json)
    if found.failed:
        raise typer.Exit(1)
