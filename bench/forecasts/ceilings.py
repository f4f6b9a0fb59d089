"""What could be forecast at best? Two forecasters that know the future, scored beside those that do not.

The first knows the smooth path: the value that a line through the looks around the day gives, without those that the
truth is read from. What it is wrong by is the noise of the measurement, and no forecaster can do better on average. The
second knows every channel's mean and deviation on the day, and has the law of gate density for the rest: what it is
wrong by is the law's own. Of danger: did the loss show anything twenty steps before it was lost?
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from netvitals import activations
from netvitals.forecasts import Forecast, Score
from netvitals.forecasts.divergence import ERROR, Danger, _noise
from netvitals.gates.relaxation import empirical

AROUND = 3  # looks on either side
BEFORE, DURING = 20, 40  # steps before a run is lost, and the steps up to there in which a sign is looked for


def smooth_error(f: Forecast, series: tuple[np.ndarray, np.ndarray], truth: float) -> float:
    """|error| of the smooth path on the day of a forecast; NaN where too few looks are around it."""
    keep = np.isfinite(series[1])
    steps, values = series[0][keep].astype(float), series[1][keep]
    high = int(np.searchsorted(steps, f.for_step))
    if high >= len(steps):
        return math.nan
    low = high if steps[high] == f.for_step else high - 1
    near = [i for i in range(max(0, low - AROUND), min(len(steps), high + AROUND + 1)) if not low <= i <= high]
    if len(near) < 3:
        return math.nan
    x = steps[near] - f.for_step
    weights = 1 - (np.abs(x) / (1.2 * np.abs(x).max())) ** 2
    line = np.polynomial.polynomial.polyfit(x, values[near], 1, w=np.sqrt(weights))
    return abs(float(line[0]) - truth)


class LawCeiling:
    """The law of gate density with the channels of the day itself: errors of one run's forecasts."""

    def __init__(self, run: dict[str, Any], theta: float = 0.01) -> None:
        self.theta, self._known = theta, run["meta"]["activations"]
        self._channels: dict[str, tuple[list[int], list[tuple[np.ndarray, np.ndarray, np.ndarray | None]]]] = {}
        self._crossings: dict[str, Any] = {}
        for page in run["pages"]:
            found: dict[str, dict[str, np.ndarray]] = {}
            for array in page.array_measurements():
                if array.vital == "preactivations" and array.metric in ("mu", "sigma", "shape"):
                    found.setdefault(array.site, {})[array.metric] = np.asarray(array.value)
            for site, a in found.items():
                if "mu" in a and "sigma" in a:
                    steps, looks = self._channels.setdefault(site, ([], []))
                    steps.append(page.step)
                    looks.append((a["mu"], a["sigma"], a.get("shape", looks[-1][2] if looks else None)))

    def error(self, s: Score) -> float:
        """|error| on the day of a forecast of gate density; NaN where the channels are not known."""
        f = s.forecast
        steps, looks = self._channels.get(f.site, ([], []))
        now = int(np.searchsorted(steps, f.made_at)) if steps else 0
        if now >= len(steps) or steps[now] != f.made_at or self._known.get(f.site) is None:
            return math.nan
        mu, sigma, shape = looks[now]
        if shape is None or shape.shape[0] != mu.size:
            return math.nan
        if f.site not in self._crossings:
            self._crossings[f.site] = activations.crossings(self._known[f.site], self.theta)
        law = self._crossings[f.site]
        day = looks[int(np.argmin(np.abs(np.array(steps) - f.for_step)))]
        change = empirical(day[0], day[1], shape, law, self.theta) - empirical(mu, sigma, shape, law, self.theta)
        value = f.naive["unchanged"] + float(np.nanmean(change))
        return abs(min(max(value, 0.0), 1.0) - s.truth)


def ceiling(errors: list[float], naive: list[dict[str, float]]) -> float:
    """Skill of a forecaster with these errors over the best naive one on the same days; NaN where there are none."""
    known = [(e, n) for e, n in zip(errors, naive) if math.isfinite(e)]
    if not known:
        return math.nan
    best = min(float(np.mean([n[name] for _, n in known])) for name in known[0][1])
    return 1 - float(np.mean([e for e, _ in known])) / best if best > 0 else math.nan


def shows_a_sign(losses: np.ndarray, lost: float) -> bool:
    """Whether the loss was a tenth above its lowest by three standard errors, at some step in time for a call."""
    found, last = Danger(), int(lost) - BEFORE
    for step, loss in enumerate(losses[: last + 1]):
        found.add(step, float(loss))
        if step > last - DURING and math.isfinite(found._floor):
            climb = found._means[-1][1] - found._floor
            if climb > 0.1 and climb > 3 * ERROR * _noise(found._logs):
                return True
    return False
