"""Claims on compression: the norm of the weights and λ_min over the phases, and the order at the end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netvitals_lab import Claims, Expected, Measured, Plot, Row, Series
from netvitals_lab.engine.judges import groups, some
from netvitals_lab.papers.dead_directions.compression import NAME

ORDER = 3  # t u in and t v out, squared on the way: t² · t


def _runs(rows: Sequence[Row]) -> list[list[Row]]:
    return [sorted(run, key=lambda r: r["step"]) for run in groups(some(rows, kind="look"), "seed").values()]


def _unlearned(rows: Sequence[Row]) -> str:
    learned = all(run[-1]["test"] > 0.95 for run in _runs(rows))
    return "" if learned else "the network did not generalise: run it at a larger scale"


def _picture(rows: Sequence[Row]) -> Plot:
    run = _runs(rows)[0]
    steps = [r["step"] + 1 for r in run]
    return Plot(
        "step + 1",
        "norm of the weights",
        (
            Series("norm of the weights", steps, [r["norm"] for r in run], line=True),
            Series("training accuracy", steps, [r["train"] for r in run], line=True, dashed=True, right=True),
            Series("test accuracy", steps, [r["test"] for r in run], line=True, right=True),
            Series("share of units that are dead", steps, [r["dead"] / r["width"] for r in run], line=True, right=True),
        ),
        log_x=True,
        right_label="accuracy, share",
    )


claim = Claims("dead-directions", study=NAME, obstacle=_unlearned)


@claim(
    "X32-phases",
    "up, then down",
    plot=_picture,
    choices=("squared units, Adam with the penalty in the loss: decoupled decay leaves no unit dead here",),
)
def phases(rows: Sequence[Row]) -> Measured:
    """the norm of the weights and λ_min rise while a network memorises and fall while it compresses"""
    up, down, floor = [], [], []
    for run in _runs(rows):
        norms = [r["norm"] for r in run]
        peak = int(np.argmax(norms))
        up.append(norms[peak] / norms[0])
        down.append(norms[-1] / norms[peak])
        top = max(r["smallest"] for r in run)
        floor.append(run[-1]["smallest"] / top)
    facts = {
        "norm, peak over start, smallest": min(up),
        "λ_min, end over peak, largest": max(floor),
        "peaks at step": [run[int(np.argmax([r["norm"] for r in run]))]["step"] for run in _runs(rows)],
        "unseen sums right at 0.95 by step": [next(r["step"] for r in run if r["test"] > 0.95) for run in _runs(rows)],
    }
    ok = min(up) > 1.2 and max(down) < 0.95 and max(floor) < 0.1
    return Measured(max(down), "norm of the weights at the end over its peak, largest over seeds", facts=facts, ok=ok)


@claim(
    "X32-order",
    Expected(value=float(ORDER)),
    choices=(
        "Adam's second moment over a thousand steps: over fifty the dead units stay restless, and no order is read",
    ),
)
def order(rows: Sequence[Row]) -> Measured:
    """at a checkpoint of the compression phase the order of a dead unit can be read: 3 for a squared one"""
    ends = some(rows, kind="end")
    orders = [k for r in ends for k in r["orders"]]
    slopes = [s for r in ends for s in r["slopes"]]
    facts = {
        "joint modes called singular, by seed": [len(r["orders"]) for r in ends],
        "exponents of the Fisher form": [min(slopes, default=0.0), max(slopes, default=0.0)],
        "units dead, by seed": [run[-1]["dead"] for run in _runs(rows)],
    }
    ok = all(r["orders"] for r in ends) and set(orders) == {ORDER}
    note = f"smallest order of a dead unit's joint mode over {len(ends)} seeds; a squared unit has {ORDER}"
    return Measured(min(orders, default=0), note, facts=facts, ok=ok)


@claim("X32-accumulation", "none")
def before(rows: Sequence[Row]) -> Measured:
    """while a network accumulates there is no order to read"""
    early = some(rows, kind="memorised")
    count = max(len(r["orders"]) for r in early)
    facts = {"joint modes looked at": [r["modes"] for r in early], "at step": [r["step"] for r in early]}
    return Measured(count, "most singular joint modes found when the sums were memorised", facts=facts, ok=count == 0)
