"""``netvitals curvature PKG.MODULE:FACTORY``: which layers share curvature, and how wrong Gauss–Newton is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from netvitals._help import hint
from netvitals.cli import _groups


def register(app: typer.Typer) -> None:
    app.command("curvature", rich_help_panel=_groups.MODELS)(examine_curvature)


def examine_curvature(
    target: Annotated[
        str,
        typer.Argument(
            metavar="PKG.MODULE:FACTORY",
            help="Import path of a function without arguments that returns (model, loss_fn, batch or list of batches).",
        ),
    ],
    probes: Annotated[int, typer.Option(help="Number of Hessian-vector products per layer.")] = 20,
    refine: Annotated[int, typer.Option(help="Number of Lanczos rounds for the spectral norms of Hessian blocks.")] = 0,
    nodes: Annotated[
        list[str] | None,
        typer.Option(help="Name or glob pattern of layers; may be repeated. [default: the model's blocks]"),
    ] = None,
    lr: Annotated[
        float | None, typer.Option(help="Learning rate of SGD; the largest eigenvalue is compared with 2/lr.")
    ] = None,
    mode: Annotated[str, typer.Option(help="as_is, train (dropout off) or eval.")] = "as_is",
    resume: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the state of a long measurement; the same command continues it after an interruption."
        ),
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Also write an HTML report to this file.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the results for every pair of layers as JSON.")
    ] = False,
) -> None:
    """Report which layers share curvature, where Gauss–Newton is inaccurate, and how sharp the loss is."""
    from netvitals.capture import plain
    from netvitals.cli.checkup import made

    if mode not in ("as_is", "train", "eval"):
        raise ValueError(f"mode= must be as_is, train or eval, got {mode!r}")
    model, loss_fn, batch = made(target)
    options: dict[str, Any] = {"probes": probes, "refine": refine, "nodes": nodes or None, "mode": mode}
    options["resume"] = resume
    found = measured(target, model, loss_fn, batch, lr=lr, **options)
    if as_json:
        answer = {"sentences": found.sentences(), "pairs": found.rows(), "cost": found.cost, "skipped": found.skipped}
        typer.echo(json.dumps(plain(answer)))
    else:
        typer.echo(str(found))
    if html is not None:
        typer.echo(found.to_html(html), err=as_json)


def measured(target: str, model: Any, loss_fn: Any, batch: Any, *, lr: float | None, **options: Any) -> Any:
    """The report, with a bar and the time left on stderr while products are made."""
    import torch
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from netvitals import curvature

    optimizer = None if lr is None else torch.optim.SGD(model.parameters(), lr=lr)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    shown = Console(stderr=True, emoji=False)
    with Progress(*columns, TimeRemainingColumn(), console=shown, transient=True) as bar:
        task = bar.add_task("curvature between layers", total=None)
        try:
            return curvature.report(
                model,
                loss_fn,
                batch,
                optimizer=optimizer,
                progress=lambda done, planned: bar.update(task, completed=done, total=planned),
                **options,
            )
        except (RuntimeError, IndexError) as error:  # what torch raises when model, batch and loss do not fit
            raise ValueError(
                f"the model, loss_fn and batch that {target} returns do not work together: {error} "
                f"{hint('factory-failed')}"
            ) from error
