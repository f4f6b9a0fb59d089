"""The ledger of a run: every forecast that was stored, and the score of each whose day has come, from the
measurements."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from netvitals.capture import Result
from netvitals.forecasts.divergence import QUANTITY as LOST
from netvitals.forecasts.divergence import Danger
from netvitals.forecasts.forecast import Forecast
from netvitals.forecasts.plateaus import first_below
from netvitals.forecasts.scoring import MethodScore, Score, by_method, score
from netvitals.runs import Run

SHOWN = 12  # open forecasts on one screen

Series = Mapping[tuple[str, str, str], tuple[np.ndarray, np.ndarray]]  # (vital, site, metric) → steps, values


@dataclass(frozen=True, kw_only=True)
class ForecastLog(Result):
    """Forecasts of one run, in the order they were made.

    Returned by :func:`forecast_log`.

    Attributes:
        forecasts: all of them, refused ones too.
        scores: of those whose day has come.
        last_step: how far the run's measurements go; −1 where it has none.
        skipped: what could not be scored → reason.
    """

    forecasts: tuple[Forecast, ...]
    scores: tuple[Score, ...]
    last_step: int
    skipped: Mapping[str, str] = field(default_factory=dict)

    @property
    def open(self) -> tuple[Forecast, ...]:
        """Those whose day has not come; of each quantity, site and horizon the latest."""
        latest = {(f.quantity, f.site, f.horizon): f for f in self.forecasts if f.known}
        scored = {id(s.forecast) for s in self.scores}
        return tuple(f for f in latest.values() if id(f) not in scored and f.for_step >= self.last_step)

    @property
    def refused(self) -> tuple[Forecast, ...]:
        return tuple(f for f in self.forecasts if f.refused)

    def methods(self) -> list[MethodScore]:
        """How each method did on each quantity."""
        return by_method(self.scores)

    def calibration(self) -> dict[str, tuple[float, float]]:
        """By quantity: how often the 50 and the 80 % intervals held."""
        return {m.quantity: (m.coverage50, m.coverage80) for m in self.methods()}

    def rows(self) -> list[dict[str, Any]]:
        """One row a scored forecast."""
        return [
            {
                "quantity": s.forecast.quantity,
                "site": s.forecast.site,
                "made_at": s.forecast.made_at,
                "for_step": s.forecast.for_step,
                "horizon": s.forecast.horizon,
                "method": s.forecast.method,
                "value": s.forecast.value,
                "truth": s.truth,
                "covered80": s.covered80,
            }
            for s in self.scores
        ]

    def __str__(self) -> str:
        if not self.forecasts:
            return "no forecast was made: a run is asked from its eighth measured step on"
        head = (
            f"{sum(f.known for f in self.forecasts)} forecasts, {len(self.scores)} scored, {len(self.refused)} times "
            "refused"
        )
        ahead = sorted(self.open, key=lambda f: (not f.is_event, f.for_step))
        more = [f"… and {len(ahead) - SHOWN} more"] * (len(ahead) > SHOWN)
        last = [f"last refusal: {self.refused[-1]}"] if self.refused else []
        return "\n".join(
            [head, *map(str, self.methods()), *(["still open:"] if ahead else []), *map(str, ahead[:SHOWN])]
            + more
            + last
        )


def forecast_log(run: Run) -> ForecastLog:
    """The ledger of a run on disk.

    Args:
        run: from :func:`netvitals.open_run`, finished or not.

    Returns:
        Every stored forecast, scored as far as its day has come.

    >>> import netvitals, tempfile
    >>> from netvitals.capture import Measurement
    >>> from netvitals.runs import RunWriter
    >>> f = Forecast(quantity="gates/density@0.01", site="1", made_at=0, for_step=2, value=0.5, interval50=(0.4, 0.6),
    ...              interval80=(0.3, 0.7), method="relaxation", horizon="100 %")
    >>> with RunWriter(tempfile.mkdtemp() + "/run") as writer:
    ...     writer.write([Measurement(step, "gates", "1", "density@0.01", 0.55) for step in range(5)])
    ...     writer.forecast(f.to_dict())
    >>> found = forecast_log(netvitals.open_run(writer.path))
    >>> len(found.forecasts), found.last_step, [s.covered80 for s in found.scores]
    (1, 4, [True])
    """
    made = [Forecast.from_dict(record) for record in run.forecasts()]
    series = {(vital, site, metric): (steps, values) for vital, site, metric, steps, values in run.by_series()}
    last = max((int(steps[-1]) for steps, _ in series.values() if len(steps)), default=-1)
    return ForecastLog(forecasts=tuple(made), scores=tuple(scored(made, series, last)), last_step=last)


def scored(forecasts: Iterable[Forecast], series: Series, last: int) -> list[Score]:
    """Scores of the forecasts whose day has come."""
    lost = _lost(series)
    out = []
    for f in forecasts:
        if f.refused:
            continue
        truth = _event_truth(f, series, last, lost) if f.is_event else _truth(f, series, last)
        if truth is not None and not math.isnan(truth):
            out.append(score(f, truth))
    return out


def _truth(f: Forecast, series: Series, last: int) -> float | None:
    vital, _, metric = f.quantity.partition("/")
    steps, values = series.get((vital, f.site, metric), (np.empty(0), np.empty(0)))
    if not len(steps) or f.for_step > steps[-1]:
        return None
    return float(np.interp(f.for_step, steps, values))


def _event_truth(f: Forecast, series: Series, last: int, lost: float) -> float | None:
    if f.quantity == LOST:
        return lost if math.isfinite(lost) else math.inf if last > f.for_step else None
    steps, losses = _losses(series, f.method)
    below = float(f.conditions.get("below", "nan"))
    return first_below(steps, losses, f.made_at, below, f.for_step, last)


def _losses(series: Series, method: str) -> tuple[Sequence[int], Sequence[float]]:
    fixed = series.get(("plateau", "model", "loss"))
    if method != "loss alone" and fixed is not None:
        return fixed[0].tolist(), fixed[1].tolist()
    found = next(((s, v) for (vital, _, metric), (s, v) in series.items() if (vital, metric) == ("loss", "loss")), None)
    if found is None:
        return [], []
    steps, values = found
    width = max(1, min(len(values) // 20, 25))
    smooth = np.convolve(values, np.ones(width) / width, "valid") if len(values) >= width else values
    return steps[width - 1 :].tolist(), smooth.tolist()


def _lost(series: Series) -> float:
    danger = Danger()
    for (vital, _, metric), (steps, values) in series.items():
        if (vital, metric) == ("loss", "loss"):
            for step, value in zip(steps.tolist(), values.tolist()):
                danger.add(int(step), float(value))
    return math.inf if danger.lost is None else float(danger.lost)
