"""Plateaus as events: what the vital sign ``plateau`` says of a fixed batch, kept and scored."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import NormalDist

from netvitals.capture import StepColumns
from netvitals.forecasts.forecast import Forecast, refusal
from netvitals.saddle import EscapeForecast

AGAIN = 1.1  # forecasts are made when the run has grown by this factor since the last ones
KEPT = 512  # measured steps that are remembered
NORMAL80 = 1.2816


class PlateauWatch:
    """Turns the measurements of the vital sign ``plateau`` into forecasts."""

    def __init__(self) -> None:
        self._steps: list[int] = []
        self._losses: list[float] = []  # on the fixed batch
        self._next = 0.0
        self._quantity, self._told = "plateau/drop@0.5", set[str]()  # what the last forecast was of; reasons since then
        self.said: Callable[[int], EscapeForecast | None] = lambda step: None  # what the vital sign said at a step

    def observe(self, columns: StepColumns) -> list[Forecast]:
        """A measured step."""
        found = {
            metric: float(value)
            for (vital, site, metric), value in zip(columns.names(), columns.values)
            if vital == "plateau" and site == "model"
        }
        return self._stated(columns.step, found) if "loss" in found else []

    def truth(self, forecast: Forecast, step: int) -> float | None:
        """The step at which the loss came below the forecast's level; infinite where its target step has passed."""
        below = float(forecast.conditions.get("below", "nan"))
        if not math.isfinite(below):
            return math.nan
        return first_below(self._steps, self._losses, forecast.made_at, below, forecast.for_step, step)

    def _stated(self, step: int, values: dict[str, float]) -> list[Forecast]:
        self._steps.append(step)
        self._losses.append(values["loss"])
        if len(self._steps) > KEPT:  # every second one of the older half goes
            del self._steps[1 : KEPT // 2 : 2], self._losses[1 : KEPT // 2 : 2]
        escape, said = values.get("escape", math.nan), self.said(step)
        if said is not None and said.reason:
            return self._refused(step, said.reason)
        if not math.isfinite(escape) or step < self._next:
            return []
        self._next = max(step + 1.0, AGAIN * step)
        normal = NormalDist().inv_cdf(0.5 + values.get("coverage", 0.8) / 2)
        spread = math.log(max(values["high"] - step, 1e-9) / max(escape - step, 1e-9)) / normal
        below = (1 - values["drop"]) * values["rest"]
        conditions = {"fixed batch": "measured"} if said is None else {"fixed batch": "measured", "law": said.method}
        made = _event(step, escape - step, spread, values["drop"], below, conditions)
        self._quantity = made.quantity
        self._told.clear()
        return [made]

    def _refused(self, step: int, why: str) -> list[Forecast]:
        """A reason that is new; numbers in it do not make it so."""
        plain = "".join(c for c in why if c.isalpha() or c == " ")
        if plain in self._told:
            return []
        self._told.add(plain)
        return [refusal(self._quantity, step, "saddle", why)]


def first_below(
    steps: Sequence[int], losses: Sequence[float], made_at: int, below: float, last: int, now: int
) -> float | None:
    """The step, between measured ones, at which a loss came below a level after ``made_at``.

    >>> first_below([0, 10, 20], [1.0, 0.75, 0.25], 0, 0.5, 100, 20)
    15.0
    """
    begin = max(0, bisect_right(steps, made_at) - 1)
    for (a, x), (b, y) in pairwise(zip(steps[begin:], losses[begin:])):
        if y <= below < x:
            return a + (b - a) * (x - below) / (x - y)
    return math.inf if now > last else None


def _event(step: int, left: float, spread: float, drop: float, below: float, conditions: dict[str, str]) -> Forecast:
    around = step + left * math.exp(-NORMAL80 * spread), step + left * math.exp(NORMAL80 * spread)
    return Forecast(
        quantity=f"plateau/drop@{drop:g}" if drop >= 0.1 else "plateau/leaves",
        made_at=step,
        for_step=math.ceil(around[1]),
        value=step + left,
        interval80=around,
        method="saddle",
        conditions={**conditions, "below": f"{below:.6g}"},
        naive={"as long again": 2.0 * step},
    )
