"""Claims on the forecast of a plateau's end: its error, its rivals, its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from netvitals_lab import Claim, Expected, Plot, Row, Series, Verdict, decide
from netvitals_lab.papers.saddle_escape.forecasting import METHODS, coverage, error_table, summary


def judge_half(rows: Sequence[Row]) -> Verdict:
    errors = error_table(rows, "live")[0.5]
    median = float(np.median(errors))
    tail = 100 * float(np.quantile(errors, 0.9))
    return decide(
        median <= 0.15,
        median,
        note=f"{len(errors)} forecasts at half of the true escape step; nine in ten are within {tail:.0f} %",
    )


def judge_baselines(rows: Sequence[Row]) -> Verdict:
    medians = {m: [float(np.median(e)) for e in error_table(rows, m).values()] for m in METHODS}
    better = all(a < min(b, c) for a, b, c in zip(medians["live"], medians["linear"], medians["power"]))
    text = "; ".join(f"{m} " + " / ".join(f"{v:.3g}" for v in medians[m]) for m in METHODS)
    return decide(better, medians["live"][2], note=f"median errors at 10 / 25 / 50 / 75 %: {text}")


def judge_coverage(rows: Sequence[Row]) -> Verdict:
    """Against 80 %, with the standard error of as many forecasts as there are runs: those of one run hang together."""
    share, runs = coverage(rows), int(summary(rows)["runs"])
    error = float(np.sqrt(0.8 * 0.2 / runs))
    facts = {"runs": runs, "standard errors off": abs(share - 0.8) / error}
    note = "share of 80 % intervals that hold the true step"
    return decide(abs(share - 0.8) <= 2 * error, share, error, note=note, facts=facts)


def plot(rows: Sequence[Row]) -> Plot:
    series = []
    for method in METHODS:
        table = error_table(rows, method)
        points = [(f, float(np.median(e))) for f, e in table.items() if e and math.isfinite(float(np.median(e)))]
        if points:
            series.append(Series(method, [p[0] for p in points], [max(p[1], 1e-3) for p in points], line=True))
    return Plot("share of the true escape time", "median relative error", series, log_y=True)


def plot_band(rows: Sequence[Row]) -> Plot:
    """The first run of the study: the forecast and its band as training goes on, beside the true step and the loss."""
    path = next(r for r in rows if r["method"] == "path")
    ends = [path["at"][0], path["at"][-1]]
    scaled = [value * path["true"] for value in path["loss"]]
    band = [Series(name, path["at"], path[name], line=True, dashed=True) for name in ("low", "high")]
    return Plot(
        "training step",
        "forecast of the escape step",
        [
            Series("forecast", path["at"], path["told"], line=True),
            *band,
            Series("true", ends, [path["true"]] * 2, line=True),
            Series("loss (start = true step)", path["at"], scaled, line=True),
        ],
    )


CLAIMS = (
    Claim(
        id="saddle-escape/forecast-half",
        study="plateau-forecast",
        statement="Median error of the live forecast at half of the true escape step is at most 15 %",
        expected=Expected(direction="at most 0.15"),
        judge=judge_half,
        plot=plot,
    ),
    Claim(
        id="saddle-escape/forecast-baselines",
        study="plateau-forecast",
        statement="The live forecast beats linear and power-law extrapolation of the loss at every point",
        expected=Expected(direction="smaller median error at 10, 25, 50 and 75 %"),
        judge=judge_baselines,
    ),
    Claim(
        id="saddle-escape/forecast-coverage",
        study="plateau-forecast",
        statement="The 80 % interval of a forecast holds the true step in 80 % of forecasts",
        expected=Expected(direction="0.8 within two standard errors over runs"),
        judge=judge_coverage,
        plot=plot_band,
    ),
)
