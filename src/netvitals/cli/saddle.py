"""``netvitals saddle``: plan a plateau, or ask a run when its plateau will end."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from netvitals.runs import Run
    from netvitals.saddle import Forecast


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Plateaus of the loss: plan one, or forecast its end.")
    app.add_typer(group, name="saddle")

    @group.command()
    def plan(
        activation: Annotated[str, typer.Argument(help="Activation, e.g. tanh, gelu, relu.")],
        depth: Annotated[int, typer.Argument(help="Number of weight layers L.")],
        width: Annotated[int, typer.Argument(help="Hidden width N.")],
        steps: Annotated[float | None, typer.Option(help="Wanted plateau in steps; gives eps for each r.")] = None,
        eps: Annotated[float | None, typer.Option(help="Small scale; gives the plateau for each r.")] = None,
        r: Annotated[int | None, typer.Option("--r", help="Number of small layers; all by default.")] = None,
        lr: Annotated[float, typer.Option(help="Learning rate of the first layer (lr / N in the others).")] = 0.01,
        beta: Annotated[float, typer.Option(help="Strength of the teacher.")] = 1.0,
        exact: Annotated[bool, typer.Option(help="Integrate the reduced flow instead of the law.")] = False,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    ) -> None:
        """From a wanted plateau to (eps, r), or from (eps, r) to the plateau."""
        from netvitals import saddle

        plans = saddle.plan(activation, depth, width, steps=steps, eps=eps, r=r, lr=lr, beta=beta, exact=exact)
        if as_json:
            rows = [{"r": p.r, "eps": p.epsilon, "steps": p.steps, "t": p.t, "s": p.s, "law": p.law} for p in plans]
            typer.echo(json.dumps(rows))
            return
        _table(
            ["small layers r", "eps", "steps", "t", "s", "law"],
            [[str(p.r), f"{p.epsilon:.4g}", f"{p.steps:.4g}", f"{p.t:.4g}", f"{p.s:.4g}", p.law] for p in plans],
            f"{activation}, {depth} layers of width {width}, learning rate {lr:g}",
        )

    @group.command()
    def forecast(
        run: Annotated[Path, typer.Argument(help="The run: its folder, or the .sqlite file.")],
        r: Annotated[int | None, typer.Option("--r", help="Number of small layers, if known.")] = None,
        drop: Annotated[float, typer.Option(help="It is over when this share of the loss is gone.")] = 0.5,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    ) -> None:
        """When will the loss of a run drop? From its plateau looks, or else from its loss alone."""
        from netvitals.runs import open_run

        told_text, source = source_of(open_run(run), r=r, drop=drop)
        if as_json:
            number = lambda v: v if math.isfinite(v) else None
            typer.echo(
                json.dumps(
                    {
                        "at": told_text.at,
                        "step": number(told_text.step),
                        "low": number(told_text.low),
                        "high": number(told_text.high),
                        "r": number(told_text.r),
                        "source": source,
                        "reason": told_text.reason,
                    }
                )
            )
        else:
            typer.echo(f"{told_text} [from {source}]")


def source_of(run: Run, *, r: int | None, drop: float) -> tuple[Forecast, str]:
    """The forecast of a run: the latest one written by the vital sign ``plateau``, or one from the series it has."""
    from netvitals import saddle

    observations = {
        metric: _series(run, "plateau", metric)
        for metric in ("escape", "low", "high", "small_layers", "signal", "resting")
    }
    steps, escape = observations["escape"]
    if len(steps) and math.isfinite(escape[-1]) and r is None:
        last = {m: float(v[1][-1]) for m, v in observations.items()}
        told_text = saddle.Forecast(
            at=int(steps[-1]),
            step=last["escape"],
            low=last["low"],
            high=last["high"],
            level=0.8,
            r=last["small_layers"],
            drop=drop,
            method="live",
        )
        return told_text, "looks at a probe batch"
    if len(steps):
        return saddle.forecast(
            *observations["signal"], resting=float(observations["resting"][1][-1]), r=r, drop=drop
        ), "the signal on a probe batch"
    steps, loss = _loss(run)
    if len(steps) < 6:
        raise ValueError(
            f"the run {run.name!r} has {len(steps)} losses and no plateau looks: a forecast needs six "
            "losses, or the vital sign netvitals.saddle.PlateauForecast"
        )
    start = float(loss[: max(1, len(loss) // 20)].mean())
    return saddle.forecast(steps, start - loss, resting=start, r=r, drop=drop), "the loss alone"


def _series(run: Run, vital: str, metric: str) -> tuple[Any, Any]:
    frame = run.frame(vital=vital, metric=metric)
    return frame["step"].to_numpy(), frame["value"].to_numpy()


def _loss(run: Run) -> tuple[Any, Any]:
    """Steps and losses, averaged in at most 200 pieces so that batch noise does not hide the fall."""
    import numpy as np

    frame = run.frame(metric="loss")
    frame = frame.filter(frame["vital"] != "plateau")
    steps, loss = frame["step"].to_numpy().astype(float), frame["value"].to_numpy()
    if len(steps) <= 200:
        return steps, loss
    pieces = np.array_split(np.arange(len(steps)), 200)
    return np.array([steps[p].mean() for p in pieces]), np.array([loss[p].mean() for p in pieces])


def _table(head: list[str], rows: list[list[str]], title: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*head, title=title)
    for row in rows:
        table.add_row(*row)
    Console(emoji=False).print(table)
