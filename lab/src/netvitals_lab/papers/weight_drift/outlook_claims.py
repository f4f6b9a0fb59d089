"""How often the drift law is right where it speaks, beside going on as before: a claim of ours."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netvitals_lab import Claims, Row, Verdict, not_judged
from netvitals_lab.engine.claim import PAIRS
from netvitals_lab.engine.judges import compared, groups
from netvitals_lab.engine.verdict import Fact


def hit_rates(rows: Sequence[Row]) -> tuple[float, float]:
    """Share of right outlooks, and of right answers of going on as before, over the rows where the law speaks."""
    law = [(r["outlook"] == "persists") == (r["after"] < 0) for r in rows]
    naive = [(r["before"] < 0) == (r["after"] < 0) for r in rows]
    return float(np.mean(law)), float(np.mean(naive))


claim = Claims("weight-drift", study="weight-drift-outlook")


@claim(
    "F14-outlook",
    "more often right than going on as before",
    seeds=PAIRS,
    effect="hit rate over the next five steps minus that of going on as before",
    choices=("digits and a small grammar, 85 steps", "SGD with momentum at 0.02 and Adam at 0.001"),
)
def foretells(rows: Sequence[Row]) -> Verdict:
    """Where the drift law speaks of a layer, it foretells whether its active inputs fall or rise

    Hit rate of the law minus that of going on as before, seed by seed.
    """
    spoken = [r for r in rows if r["outlook"]]
    if not spoken:
        return not_judged("the law speaks in no layer: none is homogeneous enough, or no mean push is sure")
    facts: dict[str, Fact] = {"share of layers and steps at which it speaks": len(spoken) / len(rows)}
    for (network, optimizer), every in groups(rows, "network", "optimizer").items():
        mine = [r for r in every if r["outlook"]]
        rates = list(hit_rates(mine)) if mine else []
        name = f"{network}, {optimizer}: speaks {len(mine)} of {len(every)} times"
        facts[name] = [f"right {rates[0]:.0%}", f"going on as before {rates[1]:.0%}"] if rates else "silent"
    right, naive = hit_rates(spoken)
    facts |= {"hit rate": right, "hit rate of going on as before": naive}
    gaps = [law - without for law, without in (hit_rates(mine) for mine in groups(spoken, "seed").values())]
    return compared(gaps, 1, note="hit rate of the law minus that of going on as before, where it speaks", facts=facts)
