"""From (sparsity, metric) of many configurations to the cliff: normalised, excluded by rule, fitted twice, with errors.

Relative metric: accuracy over that of the dense reference of the same architecture, or the reference's loss over the
loss. Only runs that diverged or stayed at chance are left out, and they are named. The breakpoint of the best
continuous two-segment fit is one estimate of the cliff; the sparsity at which the decreasing (isotonic) fit has lost
1 % is the other. Configurations, not seeds, are resampled for the intervals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from netvitals import stats
from netvitals.lab.studies import Plot, Row, Series

DROP = 0.01  # relative loss of the metric that counts as a fall


@dataclass(frozen=True)
class Configuration:
    """One point of the study: means over the seeds that count."""

    architecture: str
    name: str
    mechanism: str
    sparsity: float
    metric: float
    relative: float  # 1 at the dense reference
    stderr: float  # of the relative metric, over seeds
    seeds: int


@dataclass(frozen=True)
class Onset:
    """Where the metric has fallen by more than 1 %."""

    sparsity: float | None  # of the isotonic fit; None if it never falls that far
    low: float
    high: float
    first: float | None  # the sparsest-but-first single configuration below 99 %, literally


@dataclass(frozen=True)
class Cliff:
    """The cliff of one set of configurations."""

    points: tuple[Configuration, ...]
    excluded: tuple[tuple[str, str], ...]  # (trial, why)
    fit: stats.TwoSegments | None
    onset: Onset | None
    front: tuple[Configuration, ...]  # no other configuration is both sparser and better

    def __str__(self) -> str:
        facts = [f"{len(self.points)} configurations, {len(self.excluded)} runs excluded"]
        facts += [str(self.fit)] if self.fit else []
        if self.onset:
            where = (
                "never"
                if self.onset.sparsity is None
                else (f"at {self.onset.sparsity:.2f} [{self.onset.low:.2f}, {self.onset.high:.2f}]")
            )
            facts.append(f"1 % lost {where}")
        return "; ".join(facts)


def configurations(rows: Sequence[Row], reference: str) -> tuple[list[Configuration], list[tuple[str, str]]]:
    """Means over seeds, normalised by architecture; and the runs left out, each with its reason."""
    kept: dict[tuple[str, str, str], list[Row]] = {}
    excluded: list[tuple[str, str]] = []
    for r in rows:
        why = r["stopped"] or ("" if math.isfinite(r["metric"]) else f"its metric is {r['metric']}")
        if not why and r["at_chance"]:
            why = f"its metric {r['metric']:.3g} is no better than {r['chance']:.3g}, which needs no learning"
        if why:
            excluded.append((f"{r['architecture']} {r['name']} seed {r['seed']}", why))
        else:
            kept.setdefault((r["architecture"], r["name"], r["mechanism"]), []).append(r)
    bases = {a: float(np.mean([r["metric"] for r in found])) for (a, n, _), found in kept.items() if n == reference}
    points = []
    for (architecture, name, mechanism), found in kept.items():
        if architecture not in bases:
            excluded += [
                (f"{architecture} {name} seed {r['seed']}", f"{architecture} has no {reference} reference")
                for r in found
            ]
            continue
        base = bases[architecture]
        ratios = [r["metric"] / base if r["rises"] else base / r["metric"] for r in found]
        spread = float(np.std(ratios, ddof=1) / len(ratios) ** 0.5) if len(ratios) > 1 else math.nan
        points.append(
            Configuration(
                architecture=architecture,
                name=name,
                mechanism=mechanism,
                sparsity=float(np.mean([r["sparsity"] for r in found])),
                metric=float(np.mean([r["metric"] for r in found])),
                relative=float(np.mean(ratios)),
                stderr=spread,
                seeds=len(found),
            )
        )
    return points, excluded


def cliff(rows: Sequence[Row], reference: str = "gelu", *, resamples: int = 500) -> Cliff:
    """Fit the rows of a study; with fewer than eight configurations there are points and no fit."""
    points, excluded = configurations(rows, reference)
    x, y = [p.sparsity for p in points], [p.relative for p in points]
    enough = len(points) >= 8 and len(set(x)) >= 5
    return Cliff(
        points=tuple(points),
        excluded=tuple(excluded),
        fit=stats.two_segments(x, y, resamples=resamples) if enough else None,
        onset=onset(x, y, resamples=resamples) if enough else None,
        front=tuple(front(points)),
    )


def onset(x: Sequence[float], y: Sequence[float], *, drop: float = DROP, resamples: int = 500, seed: int = 0) -> Onset:
    """Smallest sparsity at which the decreasing fit of the relative metric is below 1 − drop.

    >>> found = onset([0.0, 0.2, 0.4, 0.6, 0.7, 0.8, 0.9], [1.0, 1.0, 1.0, 1.0, 0.999, 0.95, 0.6], resamples=100)
    >>> round(found.sparsity, 2), found.first
    (0.72, 0.8)
    """
    a, b = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    rng = np.random.default_rng(seed)
    drawn = [_crossing(a[i], b[i], drop) for i in rng.integers(0, a.size, (resamples, a.size))]
    found = np.array([math.inf if c is None else c for c in drawn])
    low, high = np.quantile(found, [0.025, 0.975], method="nearest")
    below = a[b < 1 - drop]
    return Onset(_crossing(a, b, drop), float(low), float(high), float(below.min()) if below.size else None)


def _crossing(x: np.ndarray, y: np.ndarray, drop: float) -> float | None:
    from sklearn.isotonic import IsotonicRegression

    if np.unique(x).size < 2:
        return None
    levels = np.unique(x)
    fit = IsotonicRegression(increasing=False).fit(x, y).predict(levels)
    limit = 1 - drop
    below = np.flatnonzero(fit < limit)
    if not below.size:
        return None
    i = int(below[0])
    if i == 0:
        return float(levels[0])
    return float(levels[i - 1] + (levels[i] - levels[i - 1]) * (fit[i - 1] - limit) / (fit[i - 1] - fit[i]))


def front(points: Sequence[Configuration]) -> list[Configuration]:
    """Pareto front: sparser, or better, than every other configuration; from dense to sparse."""
    best, chosen = -math.inf, []
    for p in sorted(points, key=lambda p: (-p.sparsity, -p.relative)):
        if p.relative > best:
            best = p.relative
            chosen.append(p)
    return chosen[::-1]


def picture(found: Cliff) -> Plot:
    """Relative metric against measured sparsity, one colour per mechanism, with the two-segment fit and the front."""
    series = []
    for mechanism in dict.fromkeys(p.mechanism for p in found.points):
        mine = [p for p in found.points if p.mechanism == mechanism]
        series.append(
            Series(
                mechanism,
                [p.sparsity for p in mine],
                [p.relative for p in mine],
                [0.0 if math.isnan(p.stderr) else p.stderr for p in mine],
            )
        )
    if found.fit is not None:
        ends: list[Any] = [
            min(p.sparsity for p in found.points),
            found.fit.breakpoint,
            max(p.sparsity for p in found.points),
        ]
        series.append(Series("two segments", ends, [float(v) for v in found.fit.predict(ends)], line=True))
    series.append(
        Series("front", [p.sparsity for p in found.front], [p.relative for p in found.front], line=True, dashed=True)
    )
    return Plot("measured hard sparsity", "metric relative to the dense reference", series)
