"""``netvitals saddle plan``: from a wanted plateau to (eps, r), or from (eps, r) to the plateau."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def plan_plateau(
    activation: Annotated[str, typer.Argument(help="Activation, e.g. tanh, gelu, relu.")],
    depth: Annotated[int, typer.Argument(help="Number of weight layers L.")],
    width: Annotated[int, typer.Argument(help="Hidden width N.")],
    steps: Annotated[float | None, typer.Option(help="Wanted plateau in steps; gives eps for each r.")] = None,
    eps: Annotated[float | None, typer.Option(help="Small scale; gives the plateau for each r.")] = None,
    r: Annotated[int | None, typer.Option("--r", help="Number of small layers; all by default.")] = None,
    lr: Annotated[float, typer.Option(help="Learning rate of the first layer (lr / N in the others).")] = 0.01,
    beta: Annotated[float, typer.Option(help="Strength of the teacher.")] = 1.0,
    uniform: Annotated[
        bool, typer.Option("--uniform", help="One learning rate for all layers, as torch has it.")
    ] = False,
    exact: Annotated[bool, typer.Option(help="Integrate the reduced flow instead of the law.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """From a wanted plateau to (eps, r), or from (eps, r) to the plateau."""
    from netvitals import saddle
    from netvitals.cli._tables import print_table

    plans = saddle.plan(
        activation,
        depth,
        width,
        steps=steps,
        eps=eps,
        r=r,
        lr=lr,
        beta=beta,
        exact=exact,
        rates="uniform" if uniform else "layerwise",
    )
    if as_json:
        rows = [{"r": p.r, "eps": p.epsilon, "steps": p.steps, "t": p.t, "s": p.s, "law": p.law} for p in plans]
        typer.echo(json.dumps(rows))
        return
    print_table(
        ["small layers r", "eps", "steps", "t", "s", "law"],
        [[str(p.r), f"{p.epsilon:.4g}", f"{p.steps:.4g}", f"{p.t:.4g}", f"{p.s:.4g}", p.law] for p in plans],
        f"{activation}, {depth} layers of width {width}, learning rate {lr:g}" + (" in all layers" if uniform else ""),
    )
