"""When its day comes a forecast is scored: how far off, inside its intervals or not, against those without a law."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from netvitals.capture import Result
from netvitals.forecasts.forecast import Forecast

ENOUGH = 8  # scores before a method is judged on a run


@dataclass(frozen=True, kw_only=True)
class Score(Result):
    """A forecast whose day has come.

    Returned by :func:`score`.

    Attributes:
        forecast: as it was made.
        truth: what came.
        error: |value − truth|; for an event in steps.
        covered50: whether the 50 % interval held it.
        covered80: whether the 80 % interval held it.
        naive: |error| of each forecast without a law.
    """

    forecast: Forecast
    truth: float
    error: float
    covered50: bool
    covered80: bool
    naive: Mapping[str, float]

    def __str__(self) -> str:
        inside = "inside" if self.covered80 else "outside"
        return f"{self.forecast}: it was {self.truth:.4g}, {inside} the 80 % interval"


@dataclass(frozen=True, kw_only=True)
class MethodScore(Result):
    """One method on one quantity: how often it was right, and whether it beats those without a law.

    Returned by :func:`by_method`.

    Attributes:
        quantity: what was forecast.
        method: the law, or ``statistics``.
        scored: days that have come.
        error: mean |error|.
        best_naive: the forecast without a law that did best; empty where none was made.
        naive_error: its mean error.
        coverage50: how often the 50 % interval held, 0 to 1.
        coverage80: how often the 80 % interval held, 0 to 1.
    """

    quantity: str
    method: str
    scored: int
    error: float
    best_naive: str
    naive_error: float
    coverage50: float
    coverage80: float

    @property
    def skill(self) -> float:
        """1 − error over that of the best naive forecast; NaN where there is none."""
        if not self.best_naive:
            return math.nan
        return 1 - self.error / self.naive_error if self.naive_error > 0 else (0.0 if self.error == 0 else -math.inf)

    @property
    def demoted(self) -> bool:
        """Judged on enough days, and no better than a forecast without a law."""
        return self.scored >= ENOUGH and bool(self.best_naive) and not self.skill > 0

    def __str__(self) -> str:
        verdict = f"; demoted: '{self.best_naive}' was no worse" if self.demoted else ""
        against = f", skill {self.skill:+.2f} against '{self.best_naive}'" if self.best_naive else ""
        return (
            f"{self.quantity} by {self.method}: {self.scored} scored, mean error {self.error:.3g}{against}, "
            f"80 % intervals held {self.coverage80:.0%}{verdict}"
        )


def score(forecast: Forecast, truth: float) -> Score:
    """Compare a forecast with what came.

    Args:
        forecast: one that is not refused.
        truth: the number of that day; for an event its step, infinite where it has not come by the last day.

    Returns:
        The score.

    >>> f = Forecast(quantity="q", site="s", made_at=0, for_step=9, value=1.0, interval50=(0.9, 1.1),
    ...              interval80=(0.5, 1.5), method="m", naive={"unchanged": 0.0})
    >>> found = score(f, 1.3)
    >>> round(found.error, 3), found.covered50, found.covered80, found.naive["unchanged"]
    (0.3, False, True, 1.3)
    """
    if forecast.refused:
        raise ValueError(f"a refused forecast has no score: {forecast}")
    inside = [low <= truth <= high for low, high in (forecast.interval50, forecast.interval80)]
    return Score(
        forecast=forecast,
        truth=float(truth),
        error=abs(forecast.value - truth),
        covered50=inside[0],
        covered80=inside[1],
        naive={name: abs(value - truth) for name, value in forecast.naive.items()},
    )


def by_method(scores: Iterable[Score], key: Callable[[Score], Any] | None = None) -> list[MethodScore]:
    """Scores gathered by quantity and method.

    Args:
        scores: of one run or of many.
        key: what else they are gathered by, a function of a score.

    Returns:
        One entry a group; the best naive forecast is that with the smallest mean error over the group, chosen after the
        fact, so that a method is compared with the best there could have been.

    >>> f = Forecast(quantity="q", site="s", made_at=0, for_step=9, value=1.0, interval50=(0.9, 1.1),
    ...              interval80=(0.5, 1.5), method="m", naive={"unchanged": 0.0})
    >>> found = by_method([score(f, 1.5), score(f, 0.5)])[0]
    >>> found.scored, found.error, found.best_naive, found.skill
    (2, 0.5, 'unchanged', 0.5)
    """
    groups: dict[Any, Tally] = {}
    for s in scores:
        found = (s.forecast.quantity, s.forecast.method, key(s) if key else None)
        groups.setdefault(found, Tally()).add(s)
    return [group.result() for group in groups.values()]


class Tally:
    """Scores of one quantity and method, added up as they come."""

    def __init__(self) -> None:
        self.days: set[int] = set()  # on which the forecasts were made
        self._first: Forecast | None = None
        self._count = self._error = self._covered50 = self._covered80 = 0.0
        self._naive: dict[str, float] = {}

    def add(self, s: Score) -> None:
        if self._first is None:
            self._first, self._naive = s.forecast, dict.fromkeys(sorted(s.naive), 0.0)
        self.days.add(s.forecast.made_at)
        self._count += 1
        self._error += s.error
        self._covered50 += s.covered50
        self._covered80 += s.covered80
        self._naive = {n: total + s.naive[n] for n, total in self._naive.items() if n in s.naive}  # that all have

    def result(self) -> MethodScore:
        """How the method did; there must be a score."""
        assert self._first is not None
        best = min(self._naive, key=lambda n: self._naive[n]) if self._naive else ""
        return MethodScore(
            quantity=self._first.quantity,
            method=self._first.method,
            scored=int(self._count),
            error=self._error / self._count,
            best_naive=best,
            naive_error=self._naive.get(best, math.nan) / self._count,
            coverage50=self._covered50 / self._count,
            coverage80=self._covered80 / self._count,
        )
