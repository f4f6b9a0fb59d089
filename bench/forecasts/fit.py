"""Where the weights of ``netvitals.forecasts.blend`` come from: least absolute errors on the tuning families.

    python bench/forecasts/fit.py FOLDER [VITAL]      weights, half widths, and the skill of each family when left out

Every run is replayed; on each day of forecasts the parts of the blend are kept with what came. Weights are fitted by
iteratively reweighted least squares with a small ridge; half widths are quantiles of the errors of families that were
left out of the fit, all families counting alike.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from corpus import TUNING
from run import lost_at, replayed, stored

from netvitals.forecasts import Score
from netvitals.forecasts.blend import FITTED, BlendedForecast

PARTS = 9
RIDGE = 0.01
HORIZONS = ("10 %", "25 %", "50 %", "100 %", "end")


class Kept(BlendedForecast):
    """A blend that keeps its parts by (step, horizon)."""

    store: ClassVar[dict[tuple[str, int, str], tuple[np.ndarray, np.ndarray, np.ndarray, list[str]]]] = {}

    def __init__(self, vital: str, tracks: Any) -> None:
        super().__init__(vital, tracks)
        self.vital = vital

    def at(self, horizon: str, day: float, rest: float, law: Any = None, climb: Any = (0.0, 0.0)) -> Any:
        value, unit = super().at(horizon, day, rest, law, climb)
        parts = np.array(self.parts(day, rest, law, climb))
        key = self.vital, int(self.tracks.steps[-1]), horizon
        self.store[key] = (parts, unit, self.tracks.last, self.tracks.sites)
        return value, unit


def rows_of(run: dict[str, Any], vital: str) -> dict[str, list[np.ndarray]]:
    """By horizon: parts, unit, change that came and changes of the naive forecasts, one row a site and day."""
    Kept.store = {}
    scores, forecaster, _ = replayed(run)
    lost = lost_at(run, forecaster)
    out: dict[str, list[np.ndarray]] = {}
    for s in scores:
        f: Any = s.forecast
        found = Kept.store.get((vital, f.made_at, f.horizon))
        if found is None or not f.quantity.startswith(vital) or f.for_step >= lost or not math.isfinite(s.truth):
            continue
        parts, unit, last, sites = found
        out.setdefault(f.horizon, []).append(_row(s, parts[:, sites.index(f.site)], unit, last, sites.index(f.site)))
    return out


def _row(s: Score, parts: np.ndarray, unit: np.ndarray, last: np.ndarray, i: int) -> np.ndarray:
    naive = [s.naive[name] for name in ("unchanged", "goes on", "per step", "per learning rate")]
    return np.array([*parts, unit[i], s.truth - last[i], *naive])  # naive: their errors


def fitted(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Least absolute errors with a ridge in units of each part's size."""
    size = np.sqrt((x * x).mean(0)) + 1e-12
    scaled, weights = x / size, np.zeros(x.shape[1])
    least = 0.05 * float(np.median(np.abs(y))) + 1e-9
    for _ in range(30):
        per = 1 / np.maximum(np.abs(y - scaled @ weights), least)
        left = (scaled * per[:, None]).T @ scaled / len(y)
        left[np.diag_indices(len(left))] += RIDGE * np.trace(left) / len(left)
        weights = np.linalg.solve(left, (scaled * per[:, None]).T @ y / len(y))
    return weights / size


def quantile(values: np.ndarray, weights: np.ndarray, level: float) -> float:
    order = np.argsort(values)
    return float(values[order][np.searchsorted(np.cumsum(weights[order]) / weights.sum(), level)])


def report(vital: str, rows: dict[str, dict[str, np.ndarray]]) -> None:
    """Weights, half widths and skill of one vital sign; ``rows`` by horizon and family."""
    used = [i for i in range(PARTS) if any(len(w) > i and w[i] for w, _ in FITTED[vital].values())]
    for horizon in HORIZONS:
        families = rows.get(horizon, {})
        errors, units, naive = [], [], []
        for family, found in families.items():
            rest = np.concatenate([r for name, r in families.items() if name != family])
            weights = fitted(rest[:, used], rest[:, PARTS + 1])
            errors.append(np.abs(found[:, used] @ weights - found[:, PARTS + 1]))
            units.append(errors[-1] / found[:, PARTS])
            naive.append(found[:, PARTS + 2 :])
        every = np.concatenate(list(families.values()))
        weights = fitted(every[:, used], every[:, PARTS + 1])
        alike = np.concatenate([np.full(len(u), 1 / len(u)) for u in units])
        wide = [round(quantile(np.concatenate(units), alike, q), 2) for q in (0.5, 0.8)]
        skill = 1 - np.concatenate(errors).mean() / np.concatenate(naive).mean(0).min()
        print(f"{vital} | {horizon} | left out {skill:+.2f} | {np.round(weights, 3).tolist()} | {wide}", flush=True)


if __name__ == "__main__":
    import netvitals.forecasts.forecaster as forecaster_module

    forecaster_module.BlendedForecast = Kept  # type: ignore[misc]
    for vital in sys.argv[2:] or FITTED:
        rows: dict[str, dict[str, list[np.ndarray]]] = {}
        for run in stored(Path(sys.argv[1]), TUNING):
            for horizon, found in rows_of(run, vital).items():
                rows.setdefault(horizon, {}).setdefault(run["family"], []).extend(found)
        report(vital, {h: {f: np.array(r) for f, r in by.items()} for h, by in rows.items()})
