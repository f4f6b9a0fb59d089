"""Claims on the forecast of a plateau's end: its error, its rivals, its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from netvitals_lab import Claims, Measured, Plot, Row, Series, at_most
from netvitals_lab.papers.saddle_escape.forecasting import METHODS, coverage, error_table, summary


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


claim = Claims("saddle-escape", study="plateau-forecast")


@claim("forecast-half", at_most(0.15), plot=plot)
def halfway(rows: Sequence[Row]) -> Measured:
    """Median error of the live forecast at half of the true escape step is at most 15 %"""
    errors = error_table(rows, "live")[0.5]
    median = float(np.median(errors))
    tail = 100 * float(np.quantile(errors, 0.9))
    return Measured(
        median, f"{len(errors)} forecasts at half of the true escape step; nine in ten are within {tail:.0f} %"
    )


@claim("forecast-baselines", "smaller median error at 10, 25, 50 and 75 %")
def baselines(rows: Sequence[Row]) -> Measured:
    """The live forecast beats linear and power-law extrapolation of the loss at every point"""
    medians = {m: [float(np.median(e)) for e in error_table(rows, m).values()] for m in METHODS}
    better = all(a < min(b, c) for a, b, c in zip(medians["live"], medians["linear"], medians["power"]))
    text = "; ".join(f"{m} " + " / ".join(f"{v:.3g}" for v in medians[m]) for m in METHODS)
    return Measured(medians["live"][2], f"median errors at 10 / 25 / 50 / 75 %: {text}", ok=better)


@claim("forecast-coverage", "0.8 within two standard errors over runs", plot=plot_band)
def interval_coverage(rows: Sequence[Row]) -> Measured:
    """The 80 % interval of a forecast holds the true step in 80 % of forecasts

    Against 80 %, with the standard error of as many forecasts as there are runs: those of one run hang together.
    """
    share, runs = coverage(rows), int(summary(rows)["runs"])
    error = float(np.sqrt(0.8 * 0.2 / runs))
    facts = {"runs": runs, "standard errors off": abs(share - 0.8) / error}
    note = "share of 80 % intervals that hold the true step"
    return Measured(share, note, stderr=error, facts=facts, ok=abs(share - 0.8) <= 2 * error)
