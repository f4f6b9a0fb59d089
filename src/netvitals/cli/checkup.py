"""``netvitals checkup PKG.MODULE:FACTORY``: examine a model that a function of the user's makes."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from netvitals._help import hint
from netvitals.cli import _groups


def register(app: typer.Typer) -> None:
    app.command("checkup", rich_help_panel=_groups.MODELS)(examine_model)


def examine_model(
    target: Annotated[
        str,
        typer.Argument(
            metavar="PKG.MODULE:FACTORY",
            help="Import path of a function without arguments that returns (model, loss_fn, batch).",
        ),
    ],
    html: Annotated[Path | None, typer.Option(help="Also write an HTML report to this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print measurements and findings as JSON.")] = False,
    curvature: Annotated[bool, typer.Option(help="Also measure the curvature between layers.")] = True,
    singular: Annotated[
        bool, typer.Option(help="Also measure dead directions of norms, attention and hidden units.")
    ] = False,
    lr: Annotated[
        float | None, typer.Option(help="Learning rate of SGD; if given, also forecast when a loss plateau ends.")
    ] = None,
) -> None:
    """Measure every vital sign of a model on one batch, and print the findings."""
    from rich.console import Console

    found = examined(target, curvature=curvature, singular=singular, lr=lr)
    if as_json:
        typer.echo(json.dumps(as_plain(found)))
    else:
        console = Console(emoji=False)
        console.print(
            f"[bold]{found.model}[/]  loss {found.loss:.6g}, {len(found.sites)} sites, "
            f"{len(found.measurements)} measurements"
        )
        console.print(found.findings())
        if found.singular is not None:
            console.print(str(found.singular), markup=False)
        if found.plateau is not None:
            console.print(f"plateau: {found.plateau}", markup=False, highlight=False)
    if html is not None:
        page = found.to_html(html)
        typer.echo(page, err=as_json)


def examined(target: str, *, curvature: bool, singular: bool, lr: float | None = None) -> Any:
    """The checkup of what a factory makes, with a line of progress on stderr while curvature is measured."""
    from rich.console import Console
    from rich.progress import Progress

    import netvitals as nv

    model, loss_fn, batch = made(target)
    with Progress(console=Console(stderr=True, emoji=False), transient=True) as bar:
        task = bar.add_task("measuring", total=None)
        try:
            return nv.checkup(
                model,
                loss_fn,
                batch,
                curvature=curvature,
                singular=singular,
                optimizer=lr,
                progress=lambda done, planned: bar.update(
                    task, description="curvature between layers", completed=done, total=planned
                ),
            )
        except (RuntimeError, IndexError) as error:  # what torch raises when model, batch and loss do not fit
            raise ValueError(
                f"the model, loss_fn and batch that {target} returns do not work together: {error} "
                f"{hint('factory-failed')}"
            ) from error


def made(target: str, parts: tuple[str, ...] = ("model", "loss_fn", "batch = (x, y)")) -> tuple[Any, ...]:
    """What the factory makes that ``target`` names, found from the working directory too."""
    module_name, _, name = target.partition(":")
    if not module_name or not name:
        raise ValueError(f"expected PKG.MODULE:FACTORY, as in mypackage.models:make, got {target!r}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"there is no module {error.name!r} that can be imported from {here}; run the command in a folder where "
            f"`python -c 'import {module_name}'` works {hint('factory-failed')}"
        ) from error
    except Exception as error:
        raise ValueError(
            f"importing {module_name} failed: {type(error).__name__}: {error} {hint('factory-failed')}"
        ) from error
    factory = getattr(module, name, None)
    if not callable(factory):
        known = [
            n
            for n, v in vars(module).items()
            if callable(v) and not n.startswith("_") and getattr(v, "__module__", "") == module_name
        ]
        names = f"; it has {', '.join(known[:8])}" if known else ""
        raise ValueError(f"the module {module_name} has no function {name!r}{names} {hint('factory-failed')}")
    try:
        result = factory()
    except Exception as error:
        raise ValueError(f"calling {target} raised {type(error).__name__}: {error} {hint('factory-failed')}") from error
    if not isinstance(result, tuple | list) or len(result) != len(parts):
        given = f"{len(result)} values" if isinstance(result, tuple | list) else f"a {type(result).__name__}"
        raise ValueError(
            f"{target} must return {len(parts)} values, {', '.join(parts[:-1])} and {parts[-1]}; it returned {given} "
            f"{hint('factory-failed')}"
        )
    return tuple(result)


def as_plain(found: Any) -> dict[str, Any]:
    """A checkup in plain values; numbers that JSON cannot hold are null."""
    from netvitals.capture import plain

    measurements = [
        {"vital": r.vital, "site": r.site, "metric": r.metric, "value": r.value} for r in found.measurements
    ]
    return plain(
        {
            "model": found.model,
            "loss": found.loss,
            "meta": found.meta,
            "measurements": measurements,
            "findings": found.findings().to_dicts(),
            "skipped": found.skipped,
            "plateau": None if found.plateau is None else vars(found.plateau),
        }
    )
