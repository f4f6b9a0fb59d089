"""Everything that is forecast of one run while it trains: made on some looks, stored, and scored when its day comes."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np

from netvitals.capture import StepColumns
from netvitals.forecasts.blend import BlendedForecast, climb_of, half_widths, own_width, unknown_rate
from netvitals.forecasts.divergence import MEAN, Danger
from netvitals.forecasts.forecast import Forecast, refusal
from netvitals.forecasts.gate_paths import GatePaths, turning
from netvitals.forecasts.plateaus import LAYOUTS, PlateauWatch
from netvitals.forecasts.scoring import MethodScore, Score, Tally, score
from netvitals.forecasts.series_history import LEAST, SeriesHistory, followed, short
from netvitals.optim import RatePlan

AGAIN = 1.25  # forecasts are made when the run has grown by this factor since the last ones
FORCES = 8  # measurements of a force that its error is taken over
DAYS = 6  # on which a method must have been scored before it can be demoted
SITES = 64  # of a quantity, at most
RECENT = 40  # looks that the truth of a day is read from
REMEMBERED = 200  # errors of a quantity that its intervals are moved by


NOTED = ("gradients", "drift", "stream", "curvature")  # vital signs that danger is said beside


class Forecaster:
    """Hears of every look and every loss; what it returns is to be stored.

    Args:
        activations: asked for the activation of each site, by name.
        plan_of: asked for the plan of learning rates as of a step; None where no optimizer is known.

    >>> maker = Forecaster()
    >>> maker.losses(range(50), [1.0 / (1 + step) for step in range(50)])  # a loss that falls smoothly is no danger
    []
    """

    def __init__(
        self,
        activations: Callable[[], Mapping[str, Any]] = dict,
        plan_of: Callable[[int], RatePlan | None] = lambda step: None,
    ) -> None:
        self.made: list[Forecast] = []
        self.scores: list[Score] = []
        self.danger = Danger()
        self.plateaus = PlateauWatch()
        self._activations, self._plan_of = activations, plan_of
        self.tracks: dict[tuple[str, str], SeriesHistory] = {}  # what is followed, by vital sign and metric
        self.asked = -1  # the last look on which values were forecast
        self._gates: GatePaths | None = None
        self._plan: RatePlan | None = None
        self._tau, self._step, self._next = 0.0, -1, 0.0
        self._dated: list[tuple[int, int, Forecast]] = []  # a heap by day
        self._events: list[Forecast] = []  # that have not come
        self._count = count()
        self._tallies: dict[str, dict[str, Tally]] = {}  # by quantity and horizon
        self._ratios: dict[str, deque[float]] = {}  # |error| over half the 80 % interval, by quantity
        self._first_rate = self._peak = 0.0  # learning rates at the looks
        self._looks = 0
        self._calm: dict[str, str] = {}
        self._known: dict[Any, Any] = {}  # places by layout of columns
        self._forces: dict[str, list[float]] = {}  # mean gradient at the inputs of each site, of the last looks

    # ---------------------------------------------------------------- what it hears

    def losses(self, steps: Sequence[int], values: Sequence[float]) -> list[Forecast]:
        """Losses of steps, in order; returns what is to be said of danger.

        Args:
            steps: their numbers.
            values: the losses.
        """
        out = []
        for step, loss, (rate, later) in zip(steps, values, self._rates_at(np.asarray(steps, int))):
            if self.danger.add(int(step), float(loss), rate, later):
                out.append(self.danger.forecast(int(step), dict(self._calm)))
        self.plateaus.losses(steps, values)
        self.made += out
        return out

    def observe(self, columns: StepColumns) -> list[Forecast]:
        """A look that is finished; returns the forecasts made on it, refused ones too.

        Args:
            columns: the measurements of one measured step.
        """
        step = columns.step
        self._advance(step)
        places, noted = self._places(columns)
        for key, (sites, at) in places.items():
            self._add(key, step, dict(zip(sites, columns.values[at].tolist())))
        if self._gates is not None:
            self._gates.add(self._tau, columns)
        self._looks += 1
        self._note(zip(noted, columns.values[[i for *_, i in noted]].tolist()) if noted else ())
        self._score(step)
        out = self.plateaus.observe(columns, self._plan, self._tau)
        if self._looks >= LEAST + 2 and step >= self._next:
            self.asked, self._next = step, max(step + 1, step * AGAIN)
            if self._plan is not None:
                self.danger.plan(step, self._plan.lr[:, 0])
            for key, tracks in self.tracks.items():
                out += self._forecast(key, tracks)
        self.take(out)
        return out

    def take(self, made: list[Forecast]) -> None:
        """Forecasts that are to be kept, and scored when their day comes.

        Args:
            made: on the last look.
        """
        self.made += made
        for forecast in made:
            if forecast.is_event and forecast.known:
                self._events.append(forecast)
            elif forecast.known:
                heapq.heappush(self._dated, (forecast.for_step, next(self._count), forecast))

    def _advance(self, step: int) -> None:
        if self._step >= 0 and step > self._step:
            spent = 1.0 * (step - self._step) if self._plan is None else float(self._plan.rates(self._step, step)[0])
            self._tau += spent
        self._step, self._plan = step, self._plan_of(step) or self._plan
        if self._plan is not None:
            rate = self._rates_at(np.array([step]))[0][0]
            self._first_rate, self._peak = self._first_rate or rate, max(self._peak, rate)

    def _rates_at(self, steps: np.ndarray) -> list[list[float]]:
        """The learning rates of steps, and those twenty steps on."""
        if self._plan is None:
            return [[math.nan, math.nan]] * len(steps)
        places = np.array([steps, steps + MEAN]).T - self._plan.step
        return list(self._plan.lr[:, 0][places.clip(0, len(self._plan.lr) - 1)].tolist())

    def _add(self, key: tuple[str, str], step: int, values: Mapping[str, float]) -> None:
        tracks = self.tracks.get(key)
        if tracks is None:
            kind = followed(*key)
            assert kind is not None
            tracks = self.tracks[key] = SeriesHistory(list(values)[:SITES], kind.low, kind.high)
            if key[0] == "gates" and self._gates is None:
                self._gates = GatePaths(float(key[1].partition("@")[2]))
        tracks.add(step, self._tau, [values.get(s, math.nan) for s in tracks.sites])

    def _places(self, columns: StepColumns) -> tuple[dict[tuple[str, str], Any], list[tuple[str, str, str, int]]]:
        """Where in the columns of this layout the numbers stand that are followed, and those that are noted."""
        known = self._known.get(columns.layout)
        if known is None:
            if len(self._known) > LAYOUTS:
                self._known.clear()
            sites: dict[tuple[str, str], tuple[list[str], list[int]]] = {}
            noted = []
            for i, (vital, site, metric) in enumerate(columns.names()):
                kind = followed(vital, metric)
                if kind is not None and ((site == "model") if kind.pooled else not _pooled(site)):
                    names, at = sites.setdefault((vital, metric), ([], []))
                    names.append(site)
                    at.append(i)
                if vital in NOTED:
                    noted.append((vital, site, metric, i))
            known = self._known[columns.layout] = sites, noted
        return known

    def _note(self, stated: Iterable[tuple[tuple[str, str, str, int], float]]) -> None:
        """What danger is said beside."""
        for (vital, site, metric, _), value in stated:
            if (vital, site, metric) == ("gradients", "model", "update_ratio"):
                self._calm["update ratio"] = f"{value:.3g}"
            elif (vital, metric) == ("drift", "g_all") and math.isfinite(value):
                self._forces[site] = [*self._forces.get(site, ()), value][-FORCES:]
            elif vital == "stream" and metric == "growth" and value > 2:
                self._calm["stream"] = f"grows by {value:.1f} at {site}"
            elif vital == "curvature" and metric.startswith("sharpness"):
                self._calm["sharpness"] = f"{value:.3g} against 2/lr"

    # ---------------------------------------------------------------- what it says

    def _forecast(self, key: tuple[str, str], tracks: SeriesHistory) -> list[Forecast]:
        if len(tracks) < LEAST or np.ptp(np.array(tracks.values), axis=0).max(initial=0.0) == 0:
            return []
        step, kind = tracks.steps[-1], followed(*key)
        assert kind is not None
        quantity = f"{key[0]}/{key[1]}"
        days = tracks.days(None if self._plan is None else self._plan.end)
        decay = 0.0 if self._plan is None else float(self._plan.decay[0])
        rests = {name: self.rest(step, day) for name, day in days.items()}
        law = self._law(key, tracks, days, rests, decay)
        verdicts, blend = self._verdicts(quantity), BlendedForecast(key[0], tracks)
        ahead = None if self._plan is None else self._plan.lr[:, 0]
        wider = self.wider(quantity)
        out = []
        for name, day in days.items():
            verdict = verdicts.get(name)
            moved = np.array([law[s][0][name] if s in law else math.nan for s in tracks.sites]) if law else None
            climb = climb_of(ahead, day - step, self._first_rate, self._peak)
            if why := unknown_rate(key[0], climb[0]):
                out.append(refusal(quantity, step, round(day), kind.method, name, why))
                continue
            value, unit = blend.at(name, day, rests[name], moved, climb)
            narrow, wide = half_widths(name, key[0], wider)
            naive = tracks.naive(day, tracks.taus[-1] + rests[name])
            if kind.method == "lines":
                value = 0.5 * (naive["per step"] + naive["per learning rate"])
            for i, site in enumerate(tracks.sites):
                conditions: dict[str, str] = {}
                if key == ("preactivations", "preact_drift"):
                    conditions |= self._force(site)
                expected = float(value[i])
                if site in law:
                    conditions |= law[site][1]
                if verdict is not None and verdict.demoted and verdict.best_naive != kind.method:
                    expected = float(naive[verdict.best_naive][i])
                    conditions["demoted"] = (
                        f"{verdict.skill:+.2f} against '{verdict.best_naive}', which is told instead"
                    )
                if not math.isfinite(expected):
                    continue
                out.append(
                    Forecast(
                        quantity=quantity,
                        site=site,
                        made_at=step,
                        for_step=round(day),
                        value=short(expected),
                        interval50=tracks.around(expected, narrow * float(unit[i])),
                        interval80=tracks.around(expected, wide * float(unit[i])),
                        method=kind.method,
                        horizon=name,
                        conditions=conditions,
                        naive={n: short(float(v[i])) for n, v in naive.items()},
                    )
                )
        return out

    def _force(self, site: str) -> dict[str, str]:
        """What pushes the inputs of a site, with its error: descent moves them against their mean gradient."""
        last = self._forces.get(site, [])
        if len(last) < 3:
            return {}
        mean, error = float(np.mean(last)), float(np.std(last, ddof=1)) / math.sqrt(len(last))
        way = "not surely either way" if abs(mean) <= 2 * error else "down" if mean > 0 else "up"
        return {"force": f"mean gradient {mean:+.2g} ± {error:.1g}: {way}"}

    def _verdicts(self, quantity: str) -> dict[str, MethodScore]:
        """How the method did on this run so far, by horizon; where too few days have come it is not judged."""
        tallies = self._tallies.get(quantity, {})
        return {name: tally.result() for name, tally in tallies.items() if len(tally.days) >= DAYS}

    def rest(self, step: int, day: float) -> float:
        """Learning rate from a step until a day.

        Args:
            step: the first.
            day: the last, not included.
        """
        return float(day - step) if self._plan is None else float(self._plan.rates(step, day)[0])

    def _law(
        self,
        key: tuple[str, str],
        tracks: SeriesHistory,
        days: Mapping[str, float],
        rests: Mapping[str, float],
        decay: float,
    ) -> dict[str, tuple[dict[str, float], Mapping[str, str]]]:
        """By site: what the channels' law adds on each day, and where it turns round."""
        if key[0] != "gates" or self._gates is None:
            return {}
        known, out = self._activations(), {}
        order = sorted(days, key=lambda n: days[n])
        for i, site in enumerate(tracks.sites):
            changes = self._gates.changes(site, [rests[n] for n in order], decay, known.get(site))
            if changes is not None and np.isfinite(changes).all():
                turns = turning([tracks.steps[-1], *(days[n] for n in order)], float(tracks.last[i]), changes)
                out[site] = (dict(zip(order, changes.tolist())), turns)
        return out

    # ---------------------------------------------------------------- when the day comes

    def _score(self, step: int) -> None:
        """Score every forecast whose day has come, by the measurements around it."""
        waiting: list[Forecast] = []
        for event in self._events:
            happened = self.plateaus.truth(event, step)
            if happened is None:
                waiting.append(event)
            elif not math.isnan(happened):
                self._keep(score(event, happened))
        self._events = waiting
        recent: dict[tuple[str, str], np.ndarray] = {}
        while self._dated and self._dated[0][0] <= step:
            forecast = heapq.heappop(self._dated)[-1]
            key = _key(forecast.quantity)
            tracks = self.tracks[key]
            if key not in recent:
                recent[key] = np.array(tracks.values[-RECENT:])
            column = recent[key][:, tracks.sites.index(forecast.site)]
            truth = float(np.interp(forecast.for_step, tracks.steps[-RECENT:], column))
            if not math.isnan(truth):
                self._keep(score(forecast, truth))

    def _keep(self, found: Score) -> None:
        self.scores.append(found)
        f = found.forecast
        if not f.is_event:
            half = max(f.interval80[1] - f.value, f.value - f.interval80[0], 1e-12)
            self._ratios.setdefault(f.judged_as, deque(maxlen=REMEMBERED)).append(found.error / half)
        self._tallies.setdefault(f.judged_as, {}).setdefault(f.horizon, Tally()).add(found)

    def wider(self, quantity: str) -> float:
        """By what intervals are to be widened on this run, from what came true on it.

        Args:
            quantity: as :attr:`Forecast.judged_as` has it.
        """
        judged = len({day for tally in self._tallies.get(quantity, {}).values() for day in tally.days})
        return own_width(self._ratios.get(quantity, ()), judged)


def _pooled(site: str) -> bool:
    return site == "model" or site.startswith("model/")


def _key(quantity: str) -> tuple[str, str]:
    vital, _, metric = quantity.partition("/")
    return vital, metric
