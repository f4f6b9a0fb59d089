"""A forecast is scored once its target step is reached: how far off, inside its intervals or not, and a baseline."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from netvitals.capture import Result
from netvitals.forecasts.forecast import Forecast


@dataclass(frozen=True, kw_only=True)
class Score(Result):
    """A forecast whose target step is reached.

    Returned by :func:`score`.

    Attributes:
        forecast: as it was made.
        truth: the step at which the event came; infinite where it had not by the target step.
        error: |value − truth| in steps.
        covered80: whether the 80 % interval held it.
        naive: |error| of each baseline.
    """

    forecast: Forecast
    truth: float
    error: float
    covered80: bool
    naive: Mapping[str, float]

    def __str__(self) -> str:
        inside = "inside" if self.covered80 else "outside"
        came = f"it came at step {self.truth:.0f}" if math.isfinite(self.truth) else "it did not come"
        return f"{self.forecast}: {came}, {inside} the 80 % interval"


@dataclass(frozen=True, kw_only=True)
class MethodScore(Result):
    """One method on one quantity: how often it was right, and whether it beats its baseline.

    Returned by :func:`by_method`.

    Attributes:
        quantity: what was forecast.
        method: by which method.
        scored: forecasts whose target step is reached.
        error: median |error| in steps; infinite where most events did not come.
        best_naive: the baseline that did best; empty where there is none.
        naive_error: its median error.
        coverage80: how often the 80 % interval held, 0 to 1.
    """

    quantity: str
    method: str
    scored: int
    error: float
    best_naive: str
    naive_error: float
    coverage80: float

    @property
    def skill(self) -> float:
        """1 − error over that of the best baseline; NaN where there is none."""
        if not self.best_naive or not math.isfinite(self.naive_error):
            return math.nan
        return 1 - self.error / self.naive_error if self.naive_error > 0 else (0.0 if self.error == 0 else -math.inf)

    def __str__(self) -> str:
        against = f", skill {self.skill:+.2f} against '{self.best_naive}'" if self.skill == self.skill else ""
        off = f"median error {self.error:.3g} steps" if math.isfinite(self.error) else "most did not come true"
        return (
            f"{self.quantity} by {self.method}: {self.scored} scored, {off}{against}, 80 % intervals held "
            f"{self.coverage80:.0%}"
        )


def score(forecast: Forecast, truth: float) -> Score:
    """Compare a forecast with what came.

    Args:
        forecast: one that is not refused.
        truth: the step of the event, infinite where it has not come by the target step.

    Returns:
        The score.

    >>> f = Forecast(quantity="q", made_at=10, for_step=60, value=40.0, interval80=(30, 60), method="m",
    ...              naive={"as long again": 20.0})
    >>> found = score(f, 50.0)
    >>> found.error, found.covered80, found.naive["as long again"]
    (10.0, True, 30.0)
    """
    if forecast.refused:
        raise ValueError(f"this forecast was refused when it was made, so it has no score: {forecast}")
    low, high = forecast.interval80
    return Score(
        forecast=forecast,
        truth=float(truth),
        error=abs(forecast.value - truth),
        covered80=low <= truth <= high,
        naive={name: abs(value - truth) for name, value in forecast.naive.items()},
    )


def by_method(scores: Iterable[Score]) -> list[MethodScore]:
    """Scores gathered by quantity and method.

    Args:
        scores: of one run or of many.

    Returns:
        One entry a group; the baseline is that with the smallest median error over the group, chosen after the fact.

    >>> f = Forecast(quantity="q", made_at=10, for_step=60, value=40.0, interval80=(30, 60), method="m",
    ...              naive={"as long again": 20.0})
    >>> found = by_method([score(f, 50.0), score(f, 30.0)])[0]
    >>> found.scored, found.error, found.best_naive, found.skill
    (2, 10.0, 'as long again', 0.5)
    """
    groups: dict[tuple[str, str], list[Score]] = {}
    for s in scores:
        groups.setdefault((s.forecast.quantity, s.forecast.method), []).append(s)
    return [_gathered(group) for group in groups.values()]


def _gathered(group: list[Score]) -> MethodScore:
    common = set.intersection(*(set(s.naive) for s in group))
    naive = {name: float(np.median([s.naive[name] for s in group])) for name in sorted(common)}
    best = min(naive, key=lambda n: naive[n]) if naive else ""
    return MethodScore(
        quantity=group[0].forecast.quantity,
        method=group[0].forecast.method,
        scored=len(group),
        error=float(np.median([s.error for s in group])),
        best_naive=best,
        naive_error=naive.get(best, math.nan),
        coverage80=sum(s.covered80 for s in group) / len(group),
    )
