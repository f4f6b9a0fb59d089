"""Does the watch's forecast of gate density come true?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netvitals_lab import Claim, Expected, Plot, Row, Series, Verdict, decide, not_run
from netvitals_lab.engine.judges import column, groups, matches
from netvitals_lab.papers.gate_density._reading import acts, some

STUDY = "gate-density-forecast"
RATE = 0.75  # hits that the study's hypothesis asks for
SURE = 0.9  # a confident forecast


def _hits(rows: Sequence[Row]) -> Verdict:
    spoken = [r for r in some(rows, "site") if r["spoke"]]
    if not spoken:
        return not_run("the watch made no forecast")
    hits, sure = column(spoken, "hit"), [r["hit"] for r in spoken if r["confidence"] >= SURE]
    # one number per run for the error: sites of a run are not independent
    runs = [np.mean(column(run, "hit")) for run in groups(spoken, "network", "data", "act", "seed").values()]
    rate = float(np.mean(hits))
    named = [{"hit": r["hit"], "name": f"{_short(r['network'])} on {_short(r['data'])}, {r['act']}"} for r in spoken]
    return decide(
        rate > RATE,
        rate,
        float(np.std(runs, ddof=1) / len(runs) ** 0.5) if len(runs) > 1 else None,
        note=f"{sum(hits)} of {len(hits)} forecasts came true, in {len(runs)} of {len(some(rows))} runs",
        facts={
            f"of those with confidence ≥ {SURE:g}": f"{sum(sure)} of {len(sure)}",
            "right had density gone on as before": sum(column(spoken, "persistence")),
            **{name: f"{sum(column(g, 'hit'))} of {len(g)}" for name, g in groups(named, "name").items()},
        },
    )


def _short(name: str) -> str:
    return name.split(",")[0].split(":")[0]


def _silence(rows: Sequence[Row]) -> Verdict:
    sites = some(rows, "site")
    spoken = [r for r in sites if r["spoke"]]
    moved = [abs(r["end"] - r["asked_at"]) for r in sites]
    return decide(
        not spoken,
        f"{len(spoken)} forecasts",
        note=f"at {len(sites) // 2} sites of {len(some(rows))} runs "
        f"whose variance does not collapse; density moved by {100 * np.median(moved):.2f} points (median)",
    )


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


CLAIMS = (
    Claim(
        id="gate-density/X-forecast",
        study=STUDY,
        statement="More than three quarters of the watch's forecasts, "
        "made after a fifth of the training under SGD at S = 2.44, come true",
        expected=Expected(direction="hit rate above 0.75"),
        judge=_hits,
        uses=matches(optimizer="sgd"),
        plot=_drawn,
    ),
    Claim(
        id="gate-density/X-forecast-silence",
        study=STUDY,
        statement="Where variance does not collapse (AdamW, the paper's decay) the watch keeps silent",
        expected=Expected(direction="no forecast"),
        judge=_silence,
        uses=matches(optimizer="adamw"),
    ),
)
