"""``netvitals saddle forecast``: when will the loss of a run drop?"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from netvitals._help import hint

if TYPE_CHECKING:
    from netvitals.runs import Run
    from netvitals.saddle import EscapeForecast


def forecast_escape(
    run: Annotated[Path, typer.Argument(help="The run: its folder, or the .sqlite file.")],
    r: Annotated[int | None, typer.Option("--r", help="Number of small layers, if known.")] = None,
    drop: Annotated[float, typer.Option(help="It is over when this share of the loss is gone.")] = 0.5,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """When will the loss of a run drop? From its plateau looks, or else from its loss alone."""
    from netvitals.capture import plain
    from netvitals.runs import open_run

    found, source = source_of(open_run(run), r=r, drop=drop)
    if not as_json:
        typer.echo(f"{found} [from {source}]")
        return
    facts = {key: getattr(found, key) for key in ("at", "step", "low", "high", "r", "reason")}
    typer.echo(json.dumps(plain({**facts, "source": source})))


def source_of(run: Run, *, r: int | None, drop: float) -> tuple[EscapeForecast, str]:
    """The forecast of a run: the latest one written by the vital sign ``plateau``, or one from the series it has."""
    from netvitals import saddle

    observations = {
        metric: _series(run, "plateau", metric)
        for metric in ("escape", "low", "high", "small_layers", "signal", "resting", "drop", "coverage")
    }
    steps, escape = observations["escape"]
    last = {m: float(v[1][-1]) for m, v in observations.items() if len(v[1])}
    stated = last.get("drop", 0.5)  # a stored forecast is of one event: it is never told as another
    if len(steps) and math.isfinite(escape[-1]) and r is None and math.isclose(drop, stated):
        found = saddle.EscapeForecast(
            at=int(steps[-1]),
            step=last["escape"],
            low=last["low"],
            high=last["high"],
            level=last.get("coverage", 0.8),
            r=last["small_layers"],
            drop=stated,
            method="live",
        )
        return found, "looks at a probe batch"
    if len(steps):
        rest = float(observations["resting"][1][-1])
        return saddle.forecast(*observations["signal"], resting=rest, r=r, drop=drop), "the signal on a probe batch"
    steps, loss = _loss(run)
    if len(steps) < 6:
        raise ValueError(
            f"the run {run.name!r} has {len(steps)} losses and no plateau looks: a forecast needs six "
            f"losses, or the vital sign 'plateau' {hint('no-measurements')}"
        )
    return from_loss(steps, loss, r=r, drop=drop), "the loss alone"


def from_loss(steps: Any, loss: Any, *, r: int | None, drop: float) -> EscapeForecast:
    """A forecast from the loss alone, which abstains unless what it would have said before holds.

    The same forecast is made from the first 80, 87 and 94 % of the losses: where one of them is refused, or its
    interval does not hold what is said now, or has passed, nothing is said.
    """
    from dataclasses import replace

    from netvitals import saddle

    start = float(loss[: max(1, len(loss) // 20)].mean())
    make = lambda n: saddle.forecast(steps[:n], start - loss[:n], resting=start, r=r, drop=drop)
    found = make(len(loss))
    earlier = [make(int(share * len(loss))) for share in (0.8, 0.87, 0.94)]
    held = all(e.known and e.low <= found.step <= e.high for e in earlier)
    if found.known and not held:
        nan = math.nan
        why = "what the loss alone said on earlier steps did not hold, so that nothing is said now"
        return replace(found, step=nan, low=nan, high=nan, r=nan, method="", reason=why)
    return found


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
