"""Claims on adapters: who forgets less at the same new loss, and which safe directions are dead."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from netvitals_lab import Claim, Expected, Plot, Row, Series, Verdict, decide
from netvitals_lab.engine.judges import at_level, by_factor, column, compared, paired, some
from netvitals_lab.papers.dead_directions._continual import METHODS, PAIRS
from netvitals_lab.papers.dead_directions._judging import check_is, claim
from netvitals_lab.papers.dead_directions.adapters import NAME, REACHES

RIVALS = {"plain": "plain LoRA", "OGD": "OGD", "null": "null space"}
OURS = ("digits, a small network, Adam, and what each method may choose from are ours",)


def forgets_less(rival: str) -> Callable[[Sequence[Row]], Verdict]:
    """The old error after the new task, tangential LoRA minus a rival, over seeds in which both got there."""

    def judge(rows: Sequence[Row]) -> Verdict:
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

    return judge


def _contained(rows: Sequence[Row]) -> Verdict:
    dead = some(rows, direction="dead")
    least = min(min(r["in_null_space"], r["in_OGD"]) for r in dead)
    rest = some(rows, direction="any")
    facts = {
        "of any direction in the null space": float(np.mean(column(rest, "in_null_space"))),
        "of any direction in that of OGD": float(np.mean(column(rest, "in_OGD"))),
    }
    return decide(least > 0.999, least, note="smallest share of a dead direction inside the free spaces", facts=facts)


def _not_dead(rows: Sequence[Row]) -> Verdict:
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
    return decide(ok, worst, note="largest gap to 2 of the growth of K along directions left free", facts=facts)


def _errors(rows: Sequence[Row]) -> Plot:
    series = []
    for method in METHODS:
        mine = some(rows, method=method)
        series.append(Series(method, column(mine, "new_error"), column(mine, "old_error")))
    return Plot("error on the new task", "error on the old task", series)


def claims() -> Iterator[Claim]:
    for name, rival in RIVALS.items():
        yield claim(
            NAME,
            f"LoRA-{name}",
            f"tangential LoRA forgets less than {rival} at the same new loss, on both pairs of tasks",
            Expected(direction="less"),
            by_factor(forgets_less(rival), "pair"),
            check_is("forgetting"),
            seeds=5,
            choices=OURS,
            plot=at_level(_errors, "pair", PAIRS[0]) if name == "OGD" else None,
        )
    yield claim(
        NAME,
        "safe-contained",
        "the dead directions are among those that null-space methods and orthogonal gradients leave free",
        Expected(direction="all of them"),
        _contained,
        check_is("directions"),
        choices=OURS,
    )
    yield claim(
        NAME,
        "safe-not-dead",
        "what these methods leave free is not dead: K grows along it as the square of the distance",
        Expected(value=2.0),
        _not_dead,
        check_is("directions"),
        choices=OURS,
    )


CLAIMS = tuple(claims())
