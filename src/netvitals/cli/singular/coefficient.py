"""``netvitals singular coefficient``: the local learning coefficient of a model or of its checkpoints."""

from __future__ import annotations

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
    checkpoints: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Files with state dicts from torch.save, in training order. [default: only the model that the "
            "function returns]"
        ),
    ] = None,
    chains: Annotated[int, typer.Option(help="Number of sampling chains.")] = 4,
    draws: Annotated[int, typer.Option(help="Number of draws to keep from each chain.")] = 400,
    localization: Annotated[
        float, typer.Option(help="Strength γ with which sampling is pulled back to the checkpoint.")
    ] = 1.0,
    batch_size: Annotated[int | None, typer.Option(help="Number of examples per sampling step. [default: all]")] = None,
    part: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PATTERN",
            help="Sample only parameters that match this pattern; repeat the option to get one curve per part.",
        ),
    ] = None,
    by_part: Annotated[bool, typer.Option("--by-part", help="Estimate one curve for each part of the model.")] = False,
    seed: Annotated[int, typer.Option(help="Random seed of the chains.")] = 0,
    html: Annotated[Path | None, typer.Option(help="Also write an HTML page with a plot to this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Estimate the local learning coefficient of a model, of its parts, or at each of its checkpoints."""
    from rich.progress import Progress

    from netvitals import singular
    from netvitals.cli.checkup import made
    from netvitals.singular import CoefficientHistory, PartHistories

    model, loss_fn, batch = made(target)
    states = _states(checkpoints or []) or {0: model.state_dict()}
    options: dict[str, Any] = {
        "checkpoints": states,
        "chains": chains,
        "draws": draws,
        "localization": localization,
        "batch_size": batch_size,
        "seed": seed,
    }
    found: CoefficientHistory | PartHistories
    with Progress(transient=True, disable=as_json) as bar:
        task = bar.add_task("sampling", total=None)
        tick = lambda done, total: bar.update(task, completed=done, total=total)
        if part or by_part:
            parts = _parts(part) if part else None
            found = singular.coefficient_by_part(model, loss_fn, batch, parts=parts, progress=tick, **options)
        else:
            found = singular.coefficient_history(model, loss_fn, batch, progress=tick, **options)
    if html is not None:
        from netvitals.report import history_page, saved

        typer.echo(saved(history_page(found), html, "coefficient.html"), err=True)
    typer.echo(json.dumps(found.rows()) if as_json else str(found))


def _parts(given: list[str]) -> dict[str, list[str]]:
    """Patterns by name; a name may come twice, and a pattern may be its own name."""
    out: dict[str, list[str]] = {}
    for one in given:
        name, _, pattern = one.partition("=")
        if not name:
            raise ValueError(f"--part must be NAME=PATTERN, for example attention='*.attn.*', got {one!r}")
        out.setdefault(name, []).append(pattern or name)
    return out


def _states(paths: list[Path]) -> dict[int, Any]:
    """State dicts by step: the last number in each file's name, else its place in the list."""
    import re

    import torch

    out: dict[int, Any] = {}
    for place, path in enumerate(paths):
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
        except FileNotFoundError:
            raise FileNotFoundError(f"there is no checkpoint file {path} {hint('checkpoint-unreadable')}") from None
        except Exception as error:
            raise ValueError(
                f"{path} cannot be read as a state dict saved by torch.save: {str(error).splitlines()[0]} "
                f"{hint('checkpoint-unreadable')}"
            ) from error
        if not isinstance(state, dict) or not all(isinstance(v, torch.Tensor) for v in state.values()):
            raise ValueError(f"{path} contains no state dict: save model.state_dict() {hint('checkpoint-unreadable')}")
        numbers = re.findall(r"\d+", path.stem)
        step = int(numbers[-1]) if numbers else place
        if step in out:
            raise ValueError(
                f"two checkpoint files, one of them {path}, have the same step {step}: the last number in each file "
                f"name must be its step {hint('checkpoint-unreadable')}"
            )
        out[step] = state
    return out
