"""``netvitals saddle plan``: from a wanted plateau to (eps, r), or from (eps, r) to the plateau."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def plan_plateau(
    activation: Annotated[str, typer.Argument(help="Name of the activation, for example tanh, gelu or relu.")],
    depth: Annotated[int, typer.Argument(help="Number of weight matrices L.")],
    width: Annotated[int, typer.Argument(help="Number of units N in each hidden layer.")],
    steps: Annotated[
        float | None,
        typer.Option(
            help="Wanted plateau length in steps; prints the initial scale eps for each number r of small layers."
        ),
    ] = None,
    eps: Annotated[
        float | None,
        typer.Option(
            help="Initial scale of the small layers; prints the plateau length for each number r of small layers."
        ),
    ] = None,
    r: Annotated[
        int | None,
        typer.Option("--r", help="Number of layers with small initial weights. [default: every possible number]"),
    ] = None,
    lr: Annotated[
        float, typer.Option(help="Learning rate of the first layer. The other layers use it divided by the width.")
    ] = 0.01,
    beta: Annotated[float, typer.Option(help="Strength beta of the target function (the teacher).")] = 1.0,
    uniform: Annotated[
        bool, typer.Option("--uniform", help="Use the same learning rate for all layers, as torch optimizers do.")
    ] = False,
    exact: Annotated[
        bool, typer.Option(help="Integrate the reduced gradient flow instead of using the leading-order formula.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compute the initial scale for a wanted plateau length, or the plateau length for an initial scale."""
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
