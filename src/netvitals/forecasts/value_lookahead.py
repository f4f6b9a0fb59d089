r"""Where vital signs go, tried: a copy trains ahead and is measured on the days that forecasts are made for.

What the past of a run says of gate density, sparsity and norms is little (``docs/forecasts.md``); a copy that trains on
the batches at hand, at the learning rates that are planned, knows where training goes. It costs what it says: with
``ahead`` = 0.25 the copy takes a quarter of the steps that have passed, each time that the run has doubled, which comes
to half of the run's steps at most.

With the fixed batch of a watch the reading of the copy is the forecast. Without it, measurements are of batches that
differ, and the forecast is $y+r_d-r_0$, with the last measurement $y$ of the run, $r_0$ and $r_d$ of the copy today
and on the day, both on the same batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from torch import nn

from netvitals.capture import LossFn, observe
from netvitals.forecasts.forecast import Forecast
from netvitals.forecasts.lookahead import LookaheadRun, MeasuredValues
from netvitals.forecasts.series_history import SeriesHistory, short

METHOD = "look-ahead"
READ = ("gates", "sparsity", "stream")  # vital signs that need nothing but a copy and a batch
GROWN = 2.0  # looked ahead again when the run has grown by this factor
BATCHES = 4  # that the copy is measured with, where there is no fixed one
ENOUGH = 16  # batches to train on: with fewer the copy learns those by heart, and is off as far as the past
# half widths of the 50 and 80 % intervals in units of what was seen: the mean step from look to look, more for a day
# further ahead, and the change; so that those of gate density held on the tuning families of the corpus
WIDTHS: Mapping[str, tuple[float, float]] = {
    "10 %": (0.33, 0.95),
    "25 %": (0.35, 1.0),
    "50 %": (0.32, 0.8),
    "100 %": (0.32, 0.8),
    "end": (0.28, 0.75),
}


class ValueLookahead:
    """Says when a copy is to train ahead for the sake of values, and makes forecasts of what it was like.

    >>> lookahead = ValueLookahead(0.25)
    >>> days = {"10 %": 110.0, "25 %": 125.0, "50 %": 150.0}
    >>> lookahead.due(100, days), lookahead.due(110, days)
    ({'10 %': 110, '25 %': 125}, {})
    """

    def __init__(self, horizon: float) -> None:
        self.horizon = horizon
        self.spent = 0  # steps of all look-aheads
        self._next = 0.0

    def due(self, step: int, days: Mapping[str, float]) -> dict[str, int]:
        """The days that are to be looked ahead on this look; none where it is not yet time."""
        within = {name: round(day) for name, day in days.items() if step + 1 < day <= step + self.horizon * step + 1}
        if step < self._next or not within:
            return {}
        self._next = GROWN * step
        return within

    def forecasts(
        self,
        step: int,
        days: Mapping[str, int],
        found: LookaheadRun,
        tracks: Mapping[tuple[str, str], SeriesHistory],
        taus: Mapping[str, float],
        *,
        fixed: bool,
        wider: Callable[[str], float] = lambda quantity: 1.0,
    ) -> list[Forecast]:
        """What a look-ahead says of every site that was followed."""
        self.spent += found.cost
        out = []
        for (vital, metric), track in tracks.items():
            factor = wider(f"{vital}/{metric}")
            for name, day in days.items():
                naive = track.naive(day, taus[name])
                for i, site in enumerate(track.sites):
                    moved = _moved(found, (vital, site, metric), track, i, day, fixed)
                    value = float(np.clip(track.last[i] + moved, track.low, track.high))
                    if math.isfinite(value):
                        unit = factor * _unit(track, i, day, moved)
                        out.append(
                            Forecast(
                                quantity=f"{vital}/{metric}",
                                site=site,
                                made_at=step,
                                for_step=day,
                                value=short(value),
                                interval50=track.around(value, WIDTHS[name][0] * unit),
                                interval80=track.around(value, WIDTHS[name][1] * unit),
                                method=METHOD,
                                horizon=name,
                                conditions={"looked ahead": f"{day - step} steps on {_batches(found)}"},
                                naive={n: short(float(v[i])) for n, v in naive.items()},
                            )
                        )
        return out


def reader(
    loss_fn: LossFn, batches: Sequence[Any], vitals: Callable[[], list[Any]]
) -> Callable[[nn.Module], MeasuredValues]:
    """A function that reads vital signs of a copy, the mean over batches.

    >>> from netvitals.vitals import Gates
    >>> import torch
    >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    >>> found = reader("mse", [(torch.ones(4, 2), torch.ones(4, 1))], lambda: [Gates()])(net)
    >>> ("gates", "1", "density@0.01") in found
    True
    """

    def read(model: nn.Module) -> MeasuredValues:
        every: dict[tuple[str, str, str], list[float]] = {}
        for batch in batches:
            for r in observe(model, loss_fn, batch, vitals=vitals()).measurements:
                every.setdefault((r.vital, r.site, r.metric), []).append(float(r.value))
        return {key: sum(values) / len(values) for key, values in every.items()}

    return read


def looks_around(steps: Sequence[int], day: float) -> dict[int, float]:
    """The looks that the reading of a day will be taken from, and the weight of each.

    >>> looks_around([0, 10], 14)
    {10: 0.6, 20: 0.4}
    """
    now, every = steps[-1], max(1, steps[-1] - steps[-2])
    before = now + math.floor((day - now) / every) * every
    part = (day - before) / every
    return {before: 1 - part, before + every: part} if part > 0 else {before: 1.0}


def _moved(
    found: LookaheadRun, key: tuple[str, str, str], track: SeriesHistory, i: int, day: int, fixed: bool
) -> float:
    """The change from today's reading; NaN where the copy was not measured."""
    now, today, total = float(track.last[i]), found.measurements.get(found.step, {}).get(key, math.nan), 0.0
    for look, weight in looks_around(track.steps, day).items():
        if look > track.steps[-1]:
            then = found.measurements.get(look, {}).get(key, math.nan)
            total += weight * (then - (now if fixed else today))
    return total


def _unit(track: SeriesHistory, i: int, day: int, moved: float) -> float:
    """What the error of a forecast is counted in."""
    half = max(3, (len(track) - 1) // 2)
    moves = float(np.abs(np.diff(np.array(track.values)[-half - 1 :, i])).mean())
    far = 1 + 4 * (day - track.steps[-1]) / max(1.0, track.steps[-1] - track.steps[0])
    return max(math.sqrt(far * moves**2 + (0.5 * moved) ** 2), 1e-9)


def _batches(found: LookaheadRun) -> str:
    return found.conditions.get("looked ahead", "").rpartition(" on ")[2] or "the batches at hand"
