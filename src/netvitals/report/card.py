"""From readings to what the page draws: matrices of layer × step, thinned to a size that a browser takes gladly."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from netvitals.capture import ArrayReading
from netvitals.findings import Curve, Table, is_pooled
from netvitals.report.glossary import rank, sign

CELLS = 600_000  # numbers embedded in one page at most (about 3 MB)
COLUMNS = (40, 300)  # columns of a heat map: at least, at most
CURVE = 256  # points of a per-channel curve
GRID = 64  # rows and columns of a drawn matrix
ARRAYS = 48  # arrays drawn in one panel


@dataclass(frozen=True)
class CardMetric:
    """One metric of a panel: sites × steps, NaN where nothing was read."""

    name: str
    meaning: str
    sites: tuple[str, ...]
    steps: np.ndarray
    values: np.ndarray
    low: np.ndarray | None = None  # smallest and largest reading behind a column that gathers several steps
    high: np.ndarray | None = None
    gathered: int = 1  # steps behind one column, at most

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "meaning": self.meaning,
            "sites": list(self.sites),
            "steps": self.steps.tolist(),
            "data": packed(self.values),
            "low": None if self.low is None else packed(self.low),
            "high": None if self.high is None else packed(self.high),
        }


@dataclass(frozen=True)
class Card:
    """One vital sign on the page."""

    vital: str
    metrics: tuple[CardMetric, ...]
    arrays: tuple[ArrayReading, ...] = ()
    first: int = 0  # the metric shown first
    rows: tuple[tuple[str, tuple[float, ...]], ...] = field(default=())  # last numbers: site, one per metric

    @property
    def anchor(self) -> str:
        return anchor(self.vital)

    def to_json(self) -> dict[str, Any]:
        return {
            "title": sign(self.vital).title,
            "first": self.first,
            "metrics": [m.to_json() for m in self.metrics],
            "arrays": [drawn(a) for a in self.arrays[:ARRAYS]],
        }


def anchor(vital: str) -> str:
    """
    >>> anchor("my vital<1>")
    'vital-my-vital-1-'
    """
    return "vital-" + re.sub(r"[^a-zA-Z0-9_]", "-", vital)


def cards(table: Table) -> list[Card]:
    """One panel per vital sign in the table, the loss aside."""
    loss = table.loss
    by_vital: dict[str, dict[str, list[Curve]]] = {}
    for s in table.series.values():
        if s is not loss:
            by_vital.setdefault(s.vital, {}).setdefault(s.metric, []).append(s)
    arrays: dict[str, list[ArrayReading]] = {}
    for a in table.arrays.values():
        arrays.setdefault(a.vital, []).append(a)
    columns = int(np.clip(CELLS / max(1, len(table.series)), *COLUMNS))
    return [
        _card(vital, by_vital.get(vital, {}), arrays.get(vital, []), columns)
        for vital in sorted({*by_vital, *arrays}, key=rank)
    ]


def _card(vital: str, metrics: dict[str, list[Curve]], arrays: list[ArrayReading], columns: int) -> Card:
    entry = sign(vital)
    # numbers of single layers first, those of the whole model after them
    names = sorted(metrics, key=lambda m: all(is_pooled(s.site) for s in metrics[m]))
    wanted = [names.index(h) for h in entry.headline if h in metrics]
    built = tuple(matrix(name, metrics[name], columns, entry.explain(name)) for name in names)
    sites = list(dict.fromkeys(s.site for name in names for s in metrics[name]))
    last = {(s.site, name): s.last for name in names for s in metrics[name]}
    rows = tuple((site, tuple(last.get((site, name), np.nan) for name in names)) for site in sites)
    place = {site: i for i, site in enumerate(sites)}
    arrays = sorted(arrays, key=lambda a: (a.metric, place.get(a.site, len(place))))
    return Card(vital, built, arrays=tuple(arrays), first=wanted[0] if wanted else 0, rows=rows)


def matrix(name: str, series: Sequence[Curve], columns: int, meaning: str = "") -> CardMetric:
    """Sites × steps; where there are more than ``columns`` steps, each column is the mean of its readings."""
    steps = np.unique(np.concatenate([s.steps for s in series]))
    values = np.full((len(series), len(steps)), np.nan)
    for row, s in enumerate(series):
        values[row, np.searchsorted(steps, s.steps)] = s.values
    sites = tuple(s.site for s in series)
    if len(steps) <= columns:
        return CardMetric(name=name, meaning=meaning, sites=sites, steps=steps, values=values)
    edges = np.linspace(0, len(steps), columns + 1).astype(int)
    known = ~np.isnan(values)
    total, count = (np.add.reduceat(v, edges[:-1], axis=1) for v in (np.where(known, values, 0.0), known.astype(float)))
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = total / count  # NaN where a column holds no reading
    low, high = (f.reduceat(values, edges[:-1], axis=1) for f in (np.fmin, np.fmax))
    return CardMetric(
        name=name,
        meaning=meaning,
        sites=sites,
        steps=_marks(steps, edges),
        values=mean,
        low=low,
        high=high,
        gathered=int(np.diff(edges).max()),
    )


def _marks(steps: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """The step a column stands for: its first, and for the last column the very last."""
    marks = steps[edges[:-1]].copy()
    marks[-1] = steps[-1]
    return marks


def drawn(array: ArrayReading) -> dict[str, Any]:
    """An array as the page draws it: a vector sorted into a curve, a matrix averaged into at most 64 × 64 cells."""
    value = np.abs(array.value) if np.iscomplexobj(array.value) else np.asarray(array.value, dtype=np.float64)
    note = f"{value.size} values, sorted" if value.ndim < 2 else "×".join(map(str, value.shape))
    if value.ndim < 2:
        value = np.sort(value.reshape(1, -1), axis=1)
        if value.shape[1] > CURVE:
            value = value[:, np.linspace(0, value.shape[1] - 1, CURVE).astype(int)]
    else:
        value = value.reshape(value.shape[0], -1)
        for axis in (0, 1):
            if value.shape[axis] > GRID:
                edges = np.linspace(0, value.shape[axis], GRID + 1).astype(int)
                value = np.add.reduceat(value, edges[:-1], axis=axis) / np.expand_dims(np.diff(edges), 1 - axis)
    return {
        "site": array.site,
        "metric": array.metric,
        "step": array.step,
        "shape": list(value.shape),
        "note": note,
        "data": packed(value),
    }


def packed(values: np.ndarray) -> str:
    """Little-endian float32 in base64, row after row."""
    with np.errstate(over="ignore"):
        return base64.b64encode(np.ascontiguousarray(values, dtype="<f4").tobytes()).decode("ascii")
