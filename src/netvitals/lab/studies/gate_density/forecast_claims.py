"""Beyond the paper: does the watch's forecast of gate density come true?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netvitals.lab.engine.judges import matches
from netvitals.lab.studies import Claim, Expected, Plot, Row, Series, Verdict, decide, not_run
from netvitals.lab.studies.gate_density._reading import acts, some

STUDY = "gate-density-forecast"
RATE = 0.75  # hits that the study's hypothesis asks for
SURE = 0.9  # a confident forecast


def _hits(rows: Sequence[Row]) -> Verdict:
    spoken = [r for r in some(rows, "site") if r["spoke"]]
    if not spoken:
        return not_run("the watch made no forecast")
    hits = [r["hit"] for r in spoken]
    runs: dict[tuple[str, ...], list[bool]] = {}
    for r in spoken:
        runs.setdefault(tuple(str(r[k]) for k in ("network", "data", "act", "seed")), []).append(r["hit"])
    sure = [r["hit"] for r in spoken if r["confidence"] >= SURE]
    lines = [f"{name} {sum(v)}/{len(v)}" for name, v in _groups(spoken).items()]
    rate = float(np.mean(hits))
    # one number per run for the error: sites of a run are not independent
    means = [np.mean(v) for v in runs.values()]
    error = float(np.std(means, ddof=1) / len(means) ** 0.5) if len(means) > 1 else None
    asked = len(some(rows))
    return decide(
        rate > RATE,
        rate,
        error,
        note=f"{sum(hits)} of {len(hits)} forecasts came true, in {len(runs)} of "
        f"{asked} runs; with confidence ≥ {SURE:g}: {sum(sure)} of {len(sure)}; density going on as it went "
        f"so far would have been right {sum(r['persistence'] for r in spoken)} times. " + ", ".join(lines),
    )


def _groups(spoken: Sequence[Row]) -> dict[str, list[bool]]:
    out: dict[str, list[bool]] = {}
    for r in spoken:
        network, data = (r[k].split(",")[0].split(":")[0] for k in ("network", "data"))
        out.setdefault(f"{network} on {data}, {r['act']}", []).append(r["hit"])
    return out


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
        statement="Beyond the paper: more than three quarters of the watch's forecasts, "
        "made after a fifth of the training under SGD at S = 2.44, come true",
        expected=Expected(direction="hit rate above 0.75"),
        judge=_hits,
        uses=matches(optimizer="sgd"),
        plot=_drawn,
    ),
    Claim(
        id="gate-density/X-forecast-silence",
        study=STUDY,
        statement="Beyond the paper: where variance does not collapse (AdamW, the paper's decay) "
        "the watch keeps silent",
        expected=Expected(direction="no forecast"),
        judge=_silence,
        uses=matches(optimizer="adamw"),
    ),
)
