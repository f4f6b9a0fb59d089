"""Does the watch's forecast of gate density come true?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netvitals_lab import Claims, Measured, Plot, Row, Series, Verdict, above, not_run
from netvitals_lab.engine.judges import column, groups
from netvitals_lab.papers.gate_density._reading import acts, some

STUDY = "gate-density-forecast"
RATE = 0.75  # hits that the study's hypothesis asks for
SURE = 0.9  # a confident forecast


def _short(name: str) -> str:
    return name.split(",")[0].split(":")[0]


def _drawn(rows: Sequence[Row]) -> Plot:
    spoken = [r for r in some(rows, "site") if r["spoke"]]
    return Plot(
        "predicted change of density when σ is halved",
        "change until the end",
        [
            Series(
                a,
                [r["later"] - r["now"] for r in spoken if r["act"] == a],
                [r["end"] - r["asked_at"] for r in spoken if r["act"] == a],
            )
            for a in acts(spoken)
        ],
    )


claim = Claims("gate-density", study=STUDY)


@claim("X-forecast", above(RATE, "hit rate above 0.75"), uses={"optimizer": "sgd"}, plot=_drawn)
def hits(rows: Sequence[Row]) -> Measured | Verdict:
    """More than three quarters of the watch's forecasts, made after a fifth of the training under SGD at S = 2.44, come
    true"""
    spoken = [r for r in some(rows, "site") if r["spoke"]]
    if not spoken:
        return not_run("the watch made no forecast")
    hits, sure = column(spoken, "hit"), [r["hit"] for r in spoken if r["confidence"] >= SURE]
    # one number per run for the error: sites of a run are not independent
    runs = [np.mean(column(run, "hit")) for run in groups(spoken, "network", "data", "act", "seed").values()]
    rate = float(np.mean(hits))
    named = [{"hit": r["hit"], "name": f"{_short(r['network'])} on {_short(r['data'])}, {r['act']}"} for r in spoken]
    return Measured(
        rate,
        f"{sum(hits)} of {len(hits)} forecasts came true, in {len(runs)} of {len(some(rows))} runs",
        stderr=float(np.std(runs, ddof=1) / len(runs) ** 0.5) if len(runs) > 1 else None,
        facts={
            f"of those with confidence ≥ {SURE:g}": f"{sum(sure)} of {len(sure)}",
            "right had density gone on as before": sum(column(spoken, "persistence")),
            **{name: f"{sum(column(g, 'hit'))} of {len(g)}" for name, g in groups(named, "name").items()},
        },
    )


@claim("X-forecast-silence", "no forecast", uses={"optimizer": "adamw"})
def silence(rows: Sequence[Row]) -> Measured:
    """Where variance does not collapse (AdamW, the paper's decay) the watch keeps silent"""
    sites = some(rows, "site")
    spoken = [r for r in sites if r["spoke"]]
    moved = [abs(r["end"] - r["asked_at"]) for r in sites]
    return Measured(
        f"{len(spoken)} forecasts",
        note=f"at {len(sites) // 2} sites of {len(some(rows))} runs "
        f"whose variance does not collapse; density moved by {100 * np.median(moved):.2f} points (median)",
        ok=not spoken,
    )
