"""E2: escape time against ε, by depth for balanced chains and by number of small layers for six-layer chains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from netvitals import saddle
from netvitals_lab import Claims, Config, Measured, Plot, Row, Series, Study, at_most


@dataclass(frozen=True)
class ScalingParameters:
    points: int
    depths: tuple[int, ...] = (3, 4, 5, 6)
    necks: tuple[int, ...] = (3, 4, 5, 6)


SCALES = {"smoke": ScalingParameters(8, (3, 4), (3, 4)), "small": ScalingParameters(20), "paper": ScalingParameters(20)}
WIDTH, THRESHOLD = 64, 0.3


def trials(p: ScalingParameters) -> list[Config]:
    """Points are log-uniform in [10^-2, 10^-0.75], in the paper and here; fewer of them at smoke."""
    return [{"panel": "depth", "depth": d, "r": d, "points": p.points} for d in p.depths] + [
        {"panel": "neck", "depth": 6, "r": r, "points": p.points} for r in p.necks
    ]


def trial(config: Config) -> list[Row]:
    """All ε of one curve in one call of the batched flow."""
    eps = np.logspace(-2, -0.75, 20)[: config["points"]]
    x0 = np.ones((len(eps), config["depth"]))
    x0[:, : config["r"]] = eps[:, None]
    ode = saddle.escape_time(x0, "tanh", WIDTH, threshold=THRESHOLD)
    law = saddle.escape_time(x0, "tanh", WIDTH, threshold=THRESHOLD, method="leading")
    return [
        {"eps": float(e), "ode": float(t), "leading": float(q)}
        for e, t, q in zip(eps, np.asarray(ode.t), np.asarray(law.t))
    ]


def fits(rows: Sequence[Row]) -> dict[tuple[str, int], tuple[saddle.ExponentFit, saddle.ExponentFit, float]]:
    """Per curve: fit over all points, over the first five, and the ratio ODE over leading law at the smallest ε."""
    out = {}
    for panel, r in sorted({(row["panel"], row["r"]) for row in rows}):
        part = sorted((row for row in rows if (row["panel"], row["r"]) == (panel, r)), key=lambda row: row["eps"])
        e, t = [p["eps"] for p in part], [p["ode"] for p in part]
        out[panel, r] = (
            saddle.fit_exponent(e, t, r=r),
            saddle.fit_exponent(e[:5], t[:5], r=r),
            part[0]["ode"] / part[0]["leading"],
        )
    return out


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    return {
        f"{panel} r = {r}": f"slope {full.slope:.3f}, first five {first.slope:.3f}, "
        f"ODE / law at the smallest eps {ratio:.4f}"
        for (panel, r), (full, first, ratio) in fits(rows).items()
    }


def _slopes(rows: Sequence[Row], panel: str) -> Measured:
    first = {r: v[1] for (p, r), v in fits(rows).items() if p == panel}
    worst = max(abs(f.slope - f.expected) for f in first.values() if f.expected is not None)
    return Measured(
        worst,
        "; ".join(f"r = {r}: {f.slope:.3f}" for r, f in first.items()) + " on the five smallest eps",
        stderr=max(f.stderr for f in first.values()),
    )


def _plot(panel: str) -> Any:
    def draw(rows: Sequence[Row]) -> Plot:
        series = []
        for r in sorted({row["r"] for row in rows if row["panel"] == panel}):
            part = [row for row in rows if row["panel"] == panel and row["r"] == r]
            e = [row["eps"] for row in part]
            series += [
                Series(f"r = {r}, law", e, [row["leading"] for row in part], line=True),
                Series(f"r = {r}, ODE", e, [row["ode"] for row in part]),
            ]
        return Plot("small scale ε", "escape time t", series, log_x=True, log_y=True)

    return draw


STUDIES = (
    Study(
        name="saddle-scaling",
        paper="saddle-escape",
        title="Escape time against ε, by depth and by small layers (E2)",
        scales=SCALES,
        trials=trials,
        settled="small is the paper's own size, a differential equation without chance",
        trial=trial,
        summary=summary,
    ),
)


claim = Claims("saddle-escape", study="saddle-scaling")


@claim("C15", at_most(0.02, "ratio at ε = 0.01 within 2 %"), uses={"panel": "depth"}, plot=_plot("depth"))
def ratio(rows: Sequence[Row]) -> Measured:
    """The escape time tends to its leading-order quadrature (T8, E2)"""
    ratios = {r: v[2] for (panel, r), v in fits(rows).items() if panel == "depth"}
    worst = max(abs(v - 1) for v in ratios.values())
    text = "; ".join(f"L = {r}: {v:.4f}" for r, v in ratios.items())
    return Measured(worst, f"{text} at eps = 0.01")


@claim("C16", at_most(0.05, "slope of the five smallest ε within 0.05 of −(L−2)"), uses={"panel": "depth"})
def chains(rows: Sequence[Row]) -> Measured:
    """Balanced chains escape as ε^−(L−2) for L ≥ 3 (T10, E2a)"""
    return _slopes(rows, "depth")


@claim(
    "E2b",
    at_most(0.05, "slope of the five smallest ε within 0.05 of −(r−2)"),
    uses={"panel": "neck"},
    plot=_plot("neck"),
)
def bottlenecks(rows: Sequence[Row]) -> Measured:
    """At six layers the exponent is −(r−2) (T11, E2b)"""
    return _slopes(rows, "neck")
