"""The forecast log of a run: every forecast that was stored, what came of it, and whether they were worth anything."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
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
    """All forecasts of one run in the order they were made, with their scores.

    Returned by :func:`forecast_log`.

    Attributes:
        forecasts: all of them, refused ones too.
        scores: scores of the forecasts whose target step is reached.
        last_step: how far the run's measurements go; −1 where it has none.
        diverged_at: the step at which the run diverged; infinite where it did not.
        skipped: what could not be scored → reason.
    """

    forecasts: tuple[Forecast, ...]
    scores: tuple[Score, ...]
    last_step: int
    diverged_at: float = math.inf
    skipped: Mapping[str, str] = field(default_factory=dict)

    @property
    def open(self) -> tuple[Forecast, ...]:
        """Those whose target step is ahead; of each quantity and site the latest."""
        latest = {(f.quantity, f.site): f for f in self.forecasts if f.known}
        scored = {id(s.forecast) for s in self.scores}
        return tuple(f for f in latest.values() if id(f) not in scored and f.for_step >= self.last_step)

    @property
    def refused(self) -> tuple[Forecast, ...]:
        return tuple(f for f in self.forecasts if f.refused)

    @property
    def worth(self) -> str:
        """Whether these forecasts were worth anything in this run, in a sentence or two."""
        return " ".join(filter(None, (self._worth_of_divergence(), self._worth_of_plateaus())))

    def methods(self) -> list[MethodScore]:
        """Summarise how well each method has forecast each quantity."""
        return by_method(self.scores)

    def rows(self) -> list[dict[str, Any]]:
        """One row per scored forecast."""
        return [
            {
                "quantity": s.forecast.quantity,
                "site": s.forecast.site,
                "made_at": s.forecast.made_at,
                "for_step": s.forecast.for_step,
                "method": s.forecast.method,
                "value": s.forecast.value,
                "truth": s.truth,
                "covered80": s.covered80,
            }
            for s in self.scores
        ]

    def _worth_of_divergence(self) -> str:
        calls = [f.made_at for f in self.forecasts if f.quantity == LOST and f.known]
        came, late = math.isfinite(self.diverged_at), f"step {self.diverged_at:.0f}"
        before = [c for c in calls if c < self.diverged_at]
        if came and before:
            return f"Divergence: worth it. It was called at step {before[0]}, and the run diverged at {late}."
        if came:
            return f"Divergence: worth nothing. The run diverged at {late} and was not called before."
        if any(s.forecast.quantity == LOST for s in self.scores):
            return (
                f"Divergence: worth less than nothing. It was called at step {calls[0]}, and the run did not diverge."
            )
        if calls:
            return f"Divergence: not known yet. It was called at step {calls[0]}."
        return "Divergence: nothing was called, and the run did not diverge."

    def _worth_of_plateaus(self) -> str:
        scores = [s for s in self.scores if s.forecast.quantity.startswith("plateau/")]
        if not scores:
            silent = any(f.quantity.startswith("plateau/") for f in self.forecasts)
            return "Plateaus: not known yet, none of their forecasts was due." * silent
        held = sum(s.covered80 for s in scores)
        worth = [m for m in by_method(scores) if m.skill > 0]
        word = "worth it" if len(worth) and held >= 0.5 * len(scores) else "worth nothing"
        numbers = f"{held} of {len(scores)} intervals (80 %) held"
        beaten = f", {worth[0].skill:.0%} less error than '{worth[0].best_naive}'" if worth else ""
        return f"Plateaus: {word}. {numbers}{beaten}."

    def __str__(self) -> str:
        if not self.forecasts and not math.isfinite(self.diverged_at):
            return f"{self.worth} No forecast was made."
        count = sum(f.known for f in self.forecasts)
        head = f"{count} forecasts, {len(self.scores)} scored, {len(self.refused)} refused"
        ahead = sorted(self.open, key=lambda f: f.for_step)
        more = [f"… and {len(ahead) - SHOWN} more"] * (len(ahead) > SHOWN)
        last = [f"last refusal: {self.refused[-1]}"] if self.refused else []
        still = ["still open:", *map(str, ahead[:SHOWN])] if ahead else []
        return "\n".join([self.worth, head, *map(str, self.methods()), *still, *more, *last])


def forecast_log(run: Run) -> ForecastLog:
    """Read the forecasts of a stored run and score those whose target step is reached.

    Args:
        run: a run from :func:`netvitals.open_run`, finished or not.

    Returns:
        Every stored forecast, scored where its target step is reached.

    >>> import netvitals, tempfile
    >>> from netvitals.capture import Measurement
    >>> from netvitals.runs import RunWriter
    >>> f = Forecast(quantity="plateau/drop@0.5", made_at=1, for_step=4, value=2.0,
    ...              interval80=(1, 4), method="saddle", conditions={"below": "0.5"}, naive={"as long again": 2.0})
    >>> with RunWriter(tempfile.mkdtemp() + "/run") as writer:
    ...     writer.write([Measurement(step, "plateau", "model", "loss", 1 - 0.2 * step) for step in range(5)])
    ...     writer.forecast(f.to_dict())
    >>> found = forecast_log(netvitals.open_run(writer.path))
    >>> len(found.forecasts), found.last_step, [(round(s.truth, 6), s.covered80) for s in found.scores]
    (1, 4, [(2.5, True)])
    """
    made = [Forecast.from_dict(record) for record in run.forecasts()]
    return log_of(
        made, {(vital, site, metric): (steps, values) for vital, site, metric, steps, values in run.by_series()}
    )


def log_of(made: Iterable[Forecast], series: Series) -> ForecastLog:
    """The log of forecasts over the measurements of their run."""
    made = tuple(made)
    last = max((int(steps[-1]) for steps, _ in series.values() if len(steps)), default=-1)
    lost = _lost(series)
    return ForecastLog(forecasts=made, scores=tuple(scored(made, series, last, lost)), last_step=last, diverged_at=lost)


def scored(forecasts: Iterable[Forecast], series: Series, last: int, lost: float) -> list[Score]:
    """Scores of the forecasts whose target step is reached; ``lost`` is where the run diverged, infinite if nowhere."""
    out = []
    for f in forecasts:
        truth = None if f.refused else _truth(f, series, last, lost)
        if truth is not None and not math.isnan(truth):
            out.append(score(f, truth))
    return out


def _truth(f: Forecast, series: Series, last: int, lost: float) -> float | None:
    if f.quantity == LOST:
        return lost if math.isfinite(lost) else math.inf if last > f.for_step else None
    steps, losses = series.get(("plateau", "model", "loss"), (np.empty(0), np.empty(0)))
    below = float(f.conditions.get("below", "nan"))
    return first_below(steps.tolist(), losses.tolist(), f.made_at, below, f.for_step, last)


def _lost(series: Series) -> float:
    danger = Danger()
    for (vital, _, metric), (steps, values) in series.items():
        if (vital, metric) == ("loss", "loss"):
            for step, value in zip(steps.tolist(), values.tolist()):
                danger.add(int(step), float(value))
    return math.inf if danger.lost is None else float(danger.lost)
