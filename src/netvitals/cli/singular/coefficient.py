"""``netvitals singular coefficient``: the local learning coefficient of a model or of its checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer


def run(
    target: Annotated[
        str,
        typer.Argument(
            metavar="PKG.MODULE:FACTORY", help="A function without arguments that returns model, loss_fn, batch."
        ),
    ],
    checkpoints: Annotated[
        list[Path] | None,
        typer.Argument(
            help="State dicts saved by torch.save, in the order of training; without them the model as it is."
        ),
    ] = None,
    chains: Annotated[int, typer.Option(help="Chains, at least one.")] = 4,
    draws: Annotated[int, typer.Option(help="Draws kept of each chain.")] = 400,
    localization: Annotated[float, typer.Option(help="Pull back to the checkpoint.")] = 1.0,
    html: Annotated[Path | None, typer.Option(help="Also write a page with the picture.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """The local learning coefficient of a model, or of each of its checkpoints."""
    from rich.progress import Progress

    from netvitals import singular
    from netvitals.cli.checkup import made

    model, loss_fn, batch = made(target)
    states = _states(checkpoints or []) or {0: model.state_dict()}
    with Progress(transient=True, disable=as_json) as bar:
        task = bar.add_task("sampling", total=len(states))
        found = singular.coefficient_history(
            model,
            loss_fn,
            batch,
            checkpoints=states,
            chains=chains,
            draws=draws,
            localization=localization,
            progress=lambda done, _: bar.update(task, completed=done),
        )
    if html is not None:
        from netvitals.report.dead_directions import history_page, saved

        typer.echo(saved(history_page(found), html, "coefficient.html"), err=True)
    if not as_json:
        typer.echo(str(found))
        return
    typer.echo(json.dumps(found.rows()))


def _states(paths: list[Path]) -> dict[int, Any]:
    """State dicts by step: the last number in each file's name, else its place in the list."""
    import re

    import torch

    out: dict[int, Any] = {}
    for place, path in enumerate(paths):
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
        except FileNotFoundError:
            raise FileNotFoundError(f"there is no checkpoint {path}") from None
        except Exception as error:
            raise ValueError(f"{path} is no state dict saved by torch.save: {str(error).splitlines()[0]}") from error
        if not isinstance(state, dict) or not all(isinstance(v, torch.Tensor) for v in state.values()):
            raise ValueError(f"{path} holds no state dict: save model.state_dict()")
        numbers = re.findall(r"\d+", path.stem)
        step = int(numbers[-1]) if numbers else place
        if step in out:
            raise ValueError(
                f"two checkpoints stand for step {step}, one of them {path}: the last number in a file's "
                "name is its step"
            )
        out[step] = state
    return out
