"""Plateaus as events: what the vital sign ``plateau`` says of a fixed batch, or else the loss and its own slope.

Without a fixed batch the slope is that of the batches of the loop, full of their noise: the loss-alone forecast speaks
only where the loss falls as its slope says, and where what it would have said on its last looks agrees.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import NormalDist
from typing import Any

from netvitals.capture import StepColumns
from netvitals.forecasts.forecast import Forecast, refusal
from netvitals.forecasts.series_history import KEPT, thin
from netvitals.optim import RatePlan
from netvitals.saddle import LEAVES, EscapeForecast, measure_growth, rate_left

RECENT = 1000  # losses that wait for the next look at most
AGAIN = 1.1  # forecasts are made when the run has grown by this factor since the last ones
CLOSE = 1.01  # by this factor the run has grown before the slope of the loss is measured again
ALONE_SPREAD = 0.4  # standard deviation of ln(time left) from the loss alone
AGREE = 0.2  # spread of the last dates, as a share of the time left, that a forecast from the loss alone bears
SHADOWS = 4  # of them
LAYOUTS = 64  # of columns that are known at a time
NORMAL50, NORMAL80 = 0.6745, 1.2816


class PlateauWatch:
    """Hears of looks and losses, and says when plateaus end."""

    def __init__(self) -> None:
        self._steps: list[int] = []
        self._losses: list[float] = []  # on the fixed batch, or means of the loop's
        self._speeds: list[float] = []
        self._taus: list[float] = []
        self._recent: deque[tuple[int, float]] = deque(maxlen=RECENT)  # losses of the loop since the last look
        self._dates: list[float] = []  # what the loss alone would have said
        self._next = self._look = 0.0
        self._quantity, self._told = "plateau/drop@0.5", set[str]()  # what the last forecast was of; reasons since then
        self._known: dict[Any, list[tuple[str, str, int]]] = {}  # what is read, by layout of columns
        self.said: Callable[[int], EscapeForecast | None] = lambda step: None  # what the vital sign said at a step

    def losses(self, steps: Sequence[int], values: Sequence[float]) -> None:
        """Losses of the loop."""
        self._recent.extend((int(s), float(v)) for s, v in zip(steps, values))

    def observe(self, columns: StepColumns, plan: RatePlan | None, tau: float) -> list[Forecast]:
        """A look."""
        if columns.layout not in self._known:
            if len(self._known) > LAYOUTS:
                self._known.clear()
            self._known[columns.layout] = [
                (vital, metric, i)
                for i, (vital, site, metric) in enumerate(columns.names())
                if site == "model" and (vital == "plateau" or (vital, metric) == ("gradients", "descent"))
            ]
        found = {(vital, metric): float(columns.values[i]) for vital, metric, i in self._known[columns.layout]}
        if ("plateau", "loss") in found:
            return self._stated(columns.step, {metric: v for (vital, metric), v in found.items() if vital == "plateau"})
        return self._alone(columns.step, found, plan, tau)

    def truth(self, forecast: Forecast, step: int) -> float | None:
        """The step at which the loss came below the forecast's level; infinite where its target step has passed."""
        below = float(forecast.conditions.get("below", "nan"))
        if not math.isfinite(below):
            return math.nan
        return first_below(self._steps, self._losses, forecast.made_at, below, forecast.for_step, step)

    def _stated(self, step: int, values: dict[str, float]) -> list[Forecast]:
        self._steps.append(step)
        self._losses.append(values["loss"])
        thin(KEPT, self._steps, self._losses)
        escape, said = values.get("escape", math.nan), self.said(step)
        if said is not None and said.reason:
            return self._refused(step, said.reason, "saddle")
        if not math.isfinite(escape) or step < self._next:
            return []
        self._next = max(step + 1.0, AGAIN * step)
        normal = NormalDist().inv_cdf(0.5 + values.get("coverage", 0.8) / 2)
        spread = math.log(max(values["high"] - step, 1e-9) / max(escape - step, 1e-9)) / normal
        below = (1 - values["drop"]) * values["rest"]
        conditions = {"fixed batch": "looked at"} if said is None else {"fixed batch": "looked at", "law": said.method}
        return self._speak(_event(step, escape - step, spread, values["drop"], below, "saddle", conditions))

    def _alone(
        self, step: int, found: dict[tuple[str, str], float], plan: RatePlan | None, tau: float
    ) -> list[Forecast]:
        descent = found.get(("gradients", "descent"))
        if descent is None or plan is None or not self._recent or not plan.lr[0, 0] > 0:
            return []
        recent = []
        while self._recent and self._recent[0][0] <= step:  # several looks may be finished at once
            recent.append(self._recent.popleft()[1])
        if not recent:
            return []
        self._steps.append(step)
        self._losses.append(sum(recent) / len(recent))
        self._speeds.append(descent / float(plan.lr[0, 0]))
        self._taus.append(tau)
        thin(KEPT, self._steps, self._losses, self._speeds, self._taus)
        if len(self._steps) < 8 or step < self._look:
            return []
        self._look = CLOSE * step
        growth = measure_growth(self._taus, self._losses, self._speeds, max(self._losses[:3]))
        left = math.nan if growth.reason else rate_left(growth, 0.5 if growth.first else LEAVES, 1.0)
        date = plan.when(left) if left > 0 else math.nan
        self._dates = [*self._dates, date][-SHADOWS:]
        known = len(self._dates) == SHADOWS and all(map(math.isfinite, self._dates))
        spread = max(self._dates) - min(self._dates) if known else math.nan
        why = growth.reason or (
            "" if spread <= AGREE * max(date - step, 1.0) else "what it would have said on its last looks did not hold"
        )
        if why or not math.isfinite(date):
            return self._refused(step, why or "this plateau is left already")
        if step < self._next:
            return []
        self._next = max(step + 1.0, AGAIN * step)
        drop = 0.5 if growth.first else LEAVES
        conditions = {"slope": str(growth), "earlier forecasts": f"within {spread:.0f} steps of each other"}
        below = (1 - drop) * growth.level
        return self._speak(_event(step, date - step, ALONE_SPREAD, drop, below, "loss alone", conditions))

    def _refused(self, step: int, why: str, method: str = "loss alone") -> list[Forecast]:
        """A reason that is new; numbers in it do not make it so."""
        plain = "".join(c for c in why if c.isalpha() or c == " ")
        if plain in self._told:
            return []
        self._told.add(plain)
        return [refusal(self._quantity, step, step, method, "event", why)]

    def _speak(self, forecast: Forecast) -> list[Forecast]:
        self._quantity = forecast.quantity
        self._told.clear()
        return [forecast]


def first_below(
    steps: Sequence[int], losses: Sequence[float], made_at: int, below: float, last: int, now: int
) -> float | None:
    """The step, between looks, at which a loss came below a level after ``made_at``.

    >>> first_below([0, 10, 20], [1.0, 0.75, 0.25], 0, 0.5, 100, 20)
    15.0
    """
    begin = max(0, bisect_right(steps, made_at) - 1)
    for (a, x), (b, y) in pairwise(zip(steps[begin:], losses[begin:])):
        if y <= below < x:
            return a + (b - a) * (x - below) / (x - y)
    return math.inf if now > last else None


def _event(
    step: int, left: float, spread: float, drop: float, below: float, method: str, conditions: dict[str, str]
) -> Forecast:
    around = [(step + left * math.exp(-z * spread), step + left * math.exp(z * spread)) for z in (NORMAL50, NORMAL80)]
    return Forecast(
        quantity=f"plateau/drop@{drop:g}" if drop >= 0.1 else "plateau/leaves",
        site="model",
        made_at=step,
        for_step=math.ceil(around[1][1]),
        value=step + left,
        interval50=around[0],
        interval80=around[1],
        method=method,
        horizon="event",
        conditions={**conditions, "below": f"{below:.6g}"},
    )
