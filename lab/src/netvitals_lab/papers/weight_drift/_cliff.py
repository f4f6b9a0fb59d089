"""From (sparsity, metric) of many runs to the cliff: normalised, nothing that learned badly left out, fitted by group.

Relative metric: accuracy over that of the dense reference of the same architecture, data and budget, or the reference's
loss over the loss. A run at chance is a point like any other: it is where the cliff leads. The breakpoint of the best
continuous two-segment fit is one estimate of the cliff; the sparsity at which the decreasing (isotonic) fit has lost
1 % is the other. Configurations, not runs, are resampled for the intervals.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from netvitals import drift
from netvitals_lab import Plot, Row, Series, stats

DROP = 0.01  # relative loss of the metric that counts as an onset
MEMBERS = ("gelu", "relu")  # configurations that belong to every mechanism
MECHANISMS = ("quantile norm", "top-k")


@dataclass(frozen=True)
class CliffOutcome:
    """One run of the study."""

    configuration: str
    sparsity: float
    relative: float  # 1 at the dense reference
    learned: bool  # better than chance


@dataclass(frozen=True)
class Where:
    """Which runs a fit is over; an empty text means all."""

    budget: float
    architecture: str = ""
    data: str = ""
    mechanism: str = ""

    def __str__(self) -> str:
        parts = (self.architecture, self.data, self.mechanism, f"budget ×{self.budget:g}")
        return ", ".join(p for p in parts if p) if self.architecture else f"all, budget ×{self.budget:g}"


@dataclass(frozen=True)
class Onset:
    """Where the metric has fallen by more than 1 %."""

    sparsity: float | None  # of the isotonic fit; None if it never falls that far
    low: float
    high: float


@dataclass(frozen=True)
class Cliff:
    """The cliff of one set of runs."""

    where: Where
    points: tuple[CliffOutcome, ...]
    unmeasured: tuple[tuple[str, str], ...]  # (trial, why)
    fit: stats.TwoSegments | None  # None with fewer than five different sparsities
    onset: Onset | None

    @property
    def lost(self) -> float:
        """What the sparsest configuration has lost, as a share of the reference."""
        top = max(np.mean([p.sparsity for p in self.of(c)]) for c in self.names)
        return float(
            max(1 - np.mean([p.relative for p in self.of(c)]) for c in self.names if self._at(c) >= top - 0.02)
        )

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(p.configuration for p in self.points))

    def of(self, configuration: str) -> list[CliffOutcome]:
        return [p for p in self.points if p.configuration == configuration]

    def _at(self, configuration: str) -> float:
        return float(np.mean([p.sparsity for p in self.of(configuration)]))

    @property
    def falls(self) -> bool:
        """Whether there is a cliff: steeper and downward behind the breakpoint, and 5 % lost between it and the end."""
        if self.fit is None:
            return False
        return drift.falls(self.fit, max(p.sparsity for p in self.points))

    def __str__(self) -> str:
        facts = [f"{len(self.points)} runs, {sum(not p.learned for p in self.points)} at chance"]
        facts += [str(self.fit) if self.falls else f"no fall (sparsest lost {self.lost:.1%})"] if self.fit else []
        if self.onset:
            o = self.onset
            facts.append("1 % lost " + (f"at {o.sparsity:.2f} [{o.low:.2f}, {o.high:.2f}]" if o.sparsity else "never"))
        return "; ".join(facts)


def outcomes(rows: Sequence[Row], reference: str, where: Where) -> tuple[list[CliffOutcome], list[tuple[str, str]]]:
    """The runs of ``where`` as points, relative to the reference of their own architecture, data and budget."""
    found: list[CliffOutcome] = []
    left: list[tuple[str, str]] = []
    mine = [r for r in rows if r["budget"] == where.budget]
    bases: dict[tuple[str, str], float] = {}
    for key in dict.fromkeys((r["architecture"], r["data"]) for r in mine):
        dense = [r["metric"] for r in mine if (r["architecture"], r["data"]) == key and r["name"] == reference]
        bases |= {key: float(np.mean(dense))} if dense else {}
    for r in mine:
        apart = (
            (where.architecture and r["architecture"] != where.architecture)
            or (where.data and r["data"] != where.data)
            or (where.mechanism and r["mechanism"] != where.mechanism and r["name"] not in MEMBERS)
        )
        if apart:
            continue
        name, base = f"{r['architecture']} {r['data']} {r['name']}", bases.get((r["architecture"], r["data"]))
        if base is None or r["sparsity"] is None or not math.isfinite(r["sparsity"]):
            why = f"{r['architecture']} on {r['data']} has no {reference} reference" if base is None else r["stopped"]
            left.append((f"{name} seed {r['seed']}", why or "its sparsity could not be measured"))
            continue
        relative = r["metric"] / base if r["rises"] else base / r["metric"]
        found.append(CliffOutcome(name, float(r["sparsity"]), float(relative), learned=not r["at_chance"]))
    return found, left


def cliff(rows: Sequence[Row], where: Where, reference: str = "gelu", *, resamples: int = 500) -> Cliff:
    """Fit the runs of one group; with fewer than five different sparsities there are points and no fit."""
    points, left = outcomes(rows, reference, where)
    groups = [p.configuration for p in points]
    enough = len(set(groups)) >= 5
    x, y = [p.sparsity for p in points], [p.relative for p in points]
    return Cliff(
        where=where,
        points=tuple(points),
        unmeasured=tuple(left),
        fit=stats.two_segments(x, y, resamples=resamples, groups=groups) if enough else None,
        onset=onset(x, y, groups, resamples=resamples) if enough else None,
    )


def falls(rows: Sequence[Row], reference: str = "gelu", *, resamples: int = 500) -> Iterator[Cliff]:
    """The cliff of every architecture, data set, mechanism and budget that has a fit, then the pooled ones."""
    for a, d in dict.fromkeys((r["architecture"], r["data"]) for r in rows):
        for mechanism in MECHANISMS:
            for budget in sorted({r["budget"] for r in rows if (r["architecture"], r["data"]) == (a, d)}):
                found = cliff(rows, Where(budget, a, d, mechanism), reference, resamples=resamples)
                if found.fit is not None:
                    yield found
    for budget in sorted({r["budget"] for r in rows}):
        yield cliff(rows, Where(budget), reference, resamples=resamples)


def onset(
    x: Sequence[float],
    y: Sequence[float],
    groups: Sequence[str],
    *,
    drop: float = DROP,
    resamples: int = 500,
    seed: int = 0,
) -> Onset:
    """Smallest sparsity at which the decreasing fit of the relative metric is below 1 − drop.

    >>> found = onset([0.0, 0.2, 0.4, 0.6, 0.7, 0.8, 0.9], [1.0, 1.0, 1.0, 1.0, 0.999, 0.95, 0.6], "abcdefg",
    ...               resamples=100)
    >>> round(found.sparsity, 2)
    0.72
    """
    a, b, of = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64), np.asarray(groups)
    members = [np.flatnonzero(of == name) for name in dict.fromkeys(groups)]
    rng = np.random.default_rng(seed)
    drawn = []
    for chosen in rng.integers(0, len(members), (resamples, len(members))):
        index = np.concatenate([members[i] for i in chosen])
        drawn.append(_crossing(a[index], b[index], drop))
    found = np.array([math.inf if c is None else c for c in drawn])
    low, high = np.quantile(found, [0.025, 0.975], method="nearest")
    return Onset(_crossing(a, b, drop), float(low), float(high))


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


def picture(rows: Sequence[Row], reference: str) -> Plot:
    """Relative metric against measured sparsity: a line for each group, at the shortest and the longest budget."""
    budgets = sorted({r["budget"] for r in rows})
    every = [c for c in falls(rows, reference, resamples=20) if c.where.budget in (budgets[0], budgets[-1])]
    chosen = [c for c in every if c.where.architecture] or every  # all together where no group has enough points
    series = []
    groups = list(dict.fromkeys((c.where.architecture, c.where.data, c.where.mechanism) for c in chosen))
    for found in chosen:
        means = sorted(
            (float(np.mean([p.sparsity for p in found.of(c)])), float(np.mean([p.relative for p in found.of(c)])))
            for c in found.names
        )
        dashed = found.where.budget == budgets[0] != budgets[-1]
        tone = groups.index((found.where.architecture, found.where.data, found.where.mechanism))
        x, y = ([m[k] for m in means] for k in (0, 1))
        series.append(Series(str(found.where), x, y, line=True, dashed=dashed, tone=tone))
    return Plot("measured hard sparsity", "metric relative to the dense reference", series)
