"""``netvitals saddle forecast``: when will the loss of a run drop?"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from netvitals._help import hint

if TYPE_CHECKING:
    from netvitals.runs import Run
    from netvitals.saddle import EscapeForecast


def forecast_escape(
    run: Annotated[Path, typer.Argument(help="Folder or .sqlite file of the run.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the last forecast of the step at which the loss plateau of a run ends."""
    from netvitals.capture import plain
    from netvitals.runs import open_run

    found = stored(open_run(run))
    if not as_json:
        typer.echo(str(found))
        return
    facts = {key: getattr(found, key) for key in ("at", "step", "low", "high", "r", "drop", "reason")}
    typer.echo(json.dumps(plain(facts)))


def stored(run: Run) -> EscapeForecast:
    """The latest forecast that the vital sign ``plateau`` has written."""
    from netvitals import saddle

    names = ("escape", "low", "high", "small_layers", "drop", "coverage")
    frame = run.frame(vital="plateau*")  # a pattern may find nothing
    last = {}
    for metric in names:
        values = frame.filter(frame["metric"] == metric)["value"].to_numpy()
        last[metric] = float(values[-1]) if len(values) else math.nan
    steps = frame.filter(frame["metric"] == "escape")["step"].to_numpy()
    if not len(steps):
        raise ValueError(
            f"the run {run.name!r} has no plateau measurements: train with nv.watch(..., vitals=['default', "
            f"'plateau'], probe=(x, y, loss_fn)) {hint('no-measurements')}"
        )
    at, drop, level = int(steps[-1]), last["drop"], last["coverage"]
    drop, level = 0.5 if math.isnan(drop) else drop, 0.8 if math.isnan(level) else level
    if not math.isfinite(last["escape"]):
        why = "the measurements do not allow a forecast; the reason is in `skipped` of the run"
        return saddle.no_forecast(at, why, drop=drop, level=level)
    return saddle.EscapeForecast(
        at=at,
        step=last["escape"],
        low=last["low"],
        high=last["high"],
        level=level,
        r=last["small_layers"],
        drop=drop,
        method="live",
    )
