"""Claims on adapters: who forgets less at the same new loss, and which safe directions are dead."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netvitals_lab import Claims, Expected, Measured, Plot, Row, Series, Verdict, above
from netvitals_lab.engine.judges import at_level, column, compared, paired, some
from netvitals_lab.papers.dead_directions._continual import METHODS, PAIRS
from netvitals_lab.papers.dead_directions.adapters import NAME, REACHES

RIVALS = {"plain": "plain LoRA", "OGD": "OGD", "null": "null space"}
OURS = ("digits, a small network, Adam, and what each method may choose from are ours",)


def _errors(rows: Sequence[Row]) -> Plot:
    series = []
    for method in METHODS:
        mine = some(rows, method=method)
        series.append(Series(method, column(mine, "new_error"), column(mine, "old_error")))
    return Plot("error on the new task", "error on the old task", series)


claim = Claims("dead-directions", study=NAME, choices=OURS)


for name, other in RIVALS.items():

    @claim(
        f"LoRA-{name}",
        "less",
        statement=f"tangential LoRA forgets less than {other} at the same new loss, on both pairs of tasks",
        factor="pair",
        uses={"check": "forgetting"},
        seeds=5,
        plot=at_level(_errors, "pair", PAIRS[0]) if name == "OGD" else None,
    )
    def forgets_less(rows: Sequence[Row], rival: str = other) -> Verdict:
        """The old error after the new task, tangential LoRA minus a rival, over seeds in which both got there."""
        by = {
            m: {r["seed"]: r["old_error"] for r in some(rows, method=m) if r["reached"]}
            for m in ("tangential LoRA", rival)
        }
        facts: dict[str, object] = {
            f"{m}: old error, new error, reached": [
                round(float(np.mean(column(some(rows, method=m), "old_error"))), 3),
                round(float(np.mean(column(some(rows, method=m), "new_error"))), 3),
                f"{len(found)} of {len(some(rows, method=m))}",
            ]
            for m, found in by.items()
        }
        facts["before"] = round(float(np.mean(column(rows, "before_error"))), 3)
        note = f"old error on held-out examples, tangential LoRA minus {rival}, at the same new training loss"
        return compared(paired(by["tangential LoRA"], by[rival]), -1, note=note, facts=facts)


@claim("safe-contained", above(0.999, "all of them"), uses={"check": "directions"})
def contained(rows: Sequence[Row]) -> Measured:
    """the dead directions are among those that null-space methods and orthogonal gradients leave free"""
    dead = some(rows, direction="dead")
    least = min(min(r["in_null_space"], r["in_OGD"]) for r in dead)
    rest = some(rows, direction="any")
    facts = {
        "of any direction in the null space": float(np.mean(column(rest, "in_null_space"))),
        "of any direction in that of OGD": float(np.mean(column(rest, "in_OGD"))),
    }
    return Measured(least, "smallest share of a dead direction inside the free spaces", facts=facts)


@claim("safe-not-dead", Expected(value=2.0), uses={"check": "directions"})
def not_dead(rows: Sequence[Row]) -> Measured:
    """what these methods leave free is not dead: K grows along it as the square of the distance"""
    low, high = f"seen_{REACHES[0]:g}", f"seen_{REACHES[1]:g}"
    mine = some(rows, direction=("null space", "OGD"))
    slopes = [np.log(r[high] / r[low]) / np.log(REACHES[1] / REACHES[0]) for r in mine]
    dead = max(r[high] for r in some(rows, direction="dead"))
    smallest = min(r[high] for r in mine)
    facts = {
        f"K at {REACHES[1]:g} over that of any direction, {name}": float(
            np.median([a[high] / b[high] for a, b in zip(some(rows, direction=name), some(rows, direction="any"))])
        )
        for name in ("null space", "OGD")
    }
    facts |= {"largest K along a dead direction": dead, "smallest along a free one": smallest}
    facts |= {"share of a free direction that is not dead, smallest": min(column(mine, "outside_dead"))}
    worst = float(max(abs(s - 2) for s in slopes))
    ok = worst < 0.3 and dead < 1e-12 < smallest
    return Measured(worst, "largest gap to 2 of the growth of K along directions left free", facts=facts, ok=ok)
