"""``netvitals singular readout``: orders, λ, m and ν of one checkpoint."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from netvitals._help import hint


def run(
    target: Annotated[
        str,
        typer.Argument(
            metavar="PKG.MODULE:FACTORY",
            help="Import path of a function without arguments that returns (model, loss_fn, batch).",
        ),
    ],
    loss: Annotated[
        str | None, typer.Option(help="Loss type: ce or mse. [default: guessed from the loss function or the targets]")
    ] = None,
    units: Annotated[
        int,
        typer.Option(
            help="Number of hidden units per pair of layers to test as dead directions, the weakest units first."
        ),
    ] = 4,
    n: Annotated[
        int, typer.Option(help="Size n of the data set for which the learning coefficient λ is estimated.")
    ] = 10_000,
    chains: Annotated[
        int | None,
        typer.Option(
            help="Number of chains that sample λ; 0 turns sampling off. [default: 4 up to 1,000 parameters, else 0]"
        ),
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Also write an HTML page with plots to this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Estimate KL orders and the learning coefficient λ of one checkpoint, or give the reason why not."""
    from rich.console import Console

    from netvitals import singular
    from netvitals.cli.checkup import made

    model, loss_fn, batch = made(target)
    with Console(stderr=True, emoji=False).status("scanning directions"):
        kind = loss or _kind(model, loss_fn, batch)
        found = singular.readout(model, kind, batch, units=units, n=n, chains=chains)
        page = _page(found, model, kind, batch) if html is not None else ""
    if html is not None:
        from netvitals.report import saved

        typer.echo(saved(page, html, "readout.html"), err=True)
    if not as_json:
        typer.echo(str(found))
        return
    typer.echo(json.dumps(_data(found)))


def _data(found: Any) -> dict[str, Any]:
    """What ``--json`` prints: λ, m and ν at the top, then the rest of the result."""
    from netvitals.capture import plain

    triple = found.triple
    return {
        "lambda": triple.lam if triple else None,
        "stderr": triple.stderr if triple else None,
        "m": plain(triple.m) if triple else None,
        "nu": plain(triple.nu) if triple else None,
        "why": found.undetermined or found.whole.why,
        "n": found.n,
        "limit": found.limit.lam,
        "sampled": found.sampled.mean if found.sampled else None,
        "sampled_stderr": found.sampled.stderr if found.sampled else None,
        "rank": found.whole.rank,
        "parameters": found.whole.parameters,
        "conditions": found.conditions,
        "skipped": found.skipped,
        "notes": list(found.notes),
        "candidates": [
            {key: row[key] for key in ("name", "kind", "verdict", "order", "slope", "stderr", "lambda", "m")}
            for row in found.rows()
        ],
    }


def _page(found: Any, model: Any, kind: Any, batch: Any) -> str:
    """The readout's page, with the stream and the spectrum where there are such."""
    from netvitals.report import readout_page
    from netvitals.singular import sigma_stream, spectrum_along

    stream = spectrum = None
    with contextlib.suppress(ValueError, RuntimeError, TypeError):  # a model without a residual stream
        stream = sigma_stream(model, batch)
    small = [c for c in found.of("singular") if sum(d.numel() for d in c.direction.values()) <= 2000]
    if small:
        spectrum = spectrum_along(model, kind, batch, candidate=small[0])
    return readout_page(found, title=f"Readout of {type(model).__name__}", stream=stream, spectrum=spectrum)


def _kind(model: Any, loss_fn: Any, batch: Any) -> str:
    """The likelihood of the loss where it is known, else by the targets: whole numbers are classes."""
    from netvitals.capture import inputs_of, likelihood_of

    targets = inputs_of(model, batch).targets
    target = targets[0] if targets else None
    for given in (loss_fn, None):
        with contextlib.suppress(ValueError):
            return likelihood_of(given, target)
    raise ValueError(
        "the loss function cannot be guessed from this batch: give --loss ce or --loss mse "
        f"{hint('likelihood-unknown')}"
    )
