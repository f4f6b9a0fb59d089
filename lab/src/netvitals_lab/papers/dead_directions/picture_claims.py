"""Figures 5 and 12: what they show, drawn and judged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netvitals.singular import rate_fit
from netvitals_lab import Claims, Expected, Measured, Plot, Row, Series, at_most
from netvitals_lab.engine.judges import groups, some
from netvitals_lab.papers.dead_directions._judging import SLOPE
from netvitals_lab.papers.dead_directions.pictures import NAME

SMALL, LARGE = 1e-2, 0.1  # the asymptotic range of a probe, and where corrections show


def local(run: Sequence[Row]) -> tuple[np.ndarray, np.ndarray]:
    """Distances between neighbours, and the slopes there."""
    run = sorted(run, key=lambda r: r["t"])
    t, entry = np.log([r["t"] for r in run]), np.log([r["entry"] for r in run])
    return np.exp((t[1:] + t[:-1]) / 2), np.diff(entry) / np.diff(t)


def _figure5(rows: Sequence[Row]) -> Plot:
    series = []
    for k, part in groups(rows, "k").items():
        t = [r["t"] for r in part]
        series.append(Series(f"Fisher form, k = {k}", t, [r["fisher"] for r in part], line=True))
        series.append(Series(f"curvature, k = {k}", t, [r["curvature"] for r in part], line=True, dashed=True))
        series.append(Series(f"volume curved more, k = {k}", t, [r["volume"] for r in part]))
    return Plot("distance t", "Fisher form, |curvature|, Fisher volume", series, log_x=True, log_y=True)


def _figure12(rows: Sequence[Row]) -> Plot:
    first = min(r["seed"] for r in rows)
    series = []
    for name in dict.fromkeys(r["activation"] for r in rows):
        t, slope = local(some(rows, activation=name, seed=first))
        series.append(Series(name, t.tolist(), slope.tolist(), line=True))
    return Plot("distance t", "local slope of the dead entry of G₁", series, log_x=True)


claim = Claims("dead-directions", study=NAME)


@claim(
    "F5",
    at_most(SLOPE, "2(k − 1), −2(k − 1), −k/(2(k − 1))"),
    uses={"figure": 5},
    plot=_figure5,
    choices=("the mean map (t^k + w², w, tw), whose curvature is known: not every family has it (E4)",),
)
def chain(rows: Sequence[Row]) -> Measured:
    """Fisher form, curvature and the volume of what is curved more are three measurements of one order"""
    gaps, facts = [], {}
    for k, part in groups(rows, "k").items():
        t, fisher, curvature, volume = ([r[c] for r in part] for c in ("t", "fisher", "curvature", "volume"))
        found = [rate_fit(t, v).slope for v in (fisher, curvature)] + [rate_fit(curvature, volume).slope]
        wanted = [2 * (k - 1), -2 * (k - 1), -k / (2 * (k - 1))]
        gaps += [abs(a - b) for a, b in zip(found, wanted)]
        facts[f"k = {k}: F and |K| in t, volume in M"] = [round(v, 4) for v in found]
    return Measured(max(gaps), "largest gap of the nine exponents", facts=facts)


@claim("F12", Expected(value=2.0), uses={"figure": 12}, plot=_figure12)
def drift(rows: Sequence[Row]) -> Measured:
    """the slope is 2 as t falls, and drifts off where t is large"""
    near, far = [], []
    for run in groups(rows, "activation", "seed").values():
        t, slope = local(run)
        near.append(float(np.abs(slope[t < SMALL] - 2).max()))
        far.append(float(np.abs(slope[t > LARGE] - 2).max()))
    facts = {f"drift above t = {LARGE:g}, smallest and largest": [min(far), max(far)]}
    ok = max(near) < SLOPE and min(far) > 2 * max(near)
    return Measured(max(near), f"largest gap to 2 of a local slope below t = {SMALL:g}", facts=facts, ok=ok)
