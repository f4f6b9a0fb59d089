"""What is forecast of one run: divergence from its losses, the end of a plateau where that is measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from netvitals.capture import StepColumns
from netvitals.forecasts.divergence import MEAN, Danger
from netvitals.forecasts.forecast import Forecast
from netvitals.forecasts.plateaus import PlateauWatch
from netvitals.forecasts.skill import shown
from netvitals.optim import RatePlan

LAYOUTS = 64  # of columns that are known at a time
RATIO, SHARPNESS = ("gradients", "model", "update_ratio"), "sharpness"


class Forecaster:
    """Gets every measured step and every loss; what it returns is to be stored.

    Args:
        plan_of: asked for the plan of learning rates as of a step; None where no optimizer is known.

    >>> maker = Forecaster()
    >>> maker.losses(range(50), [1.0 / (1 + step) for step in range(50)])  # a loss that falls smoothly
    []
    """

    def __init__(self, plan_of: Callable[[int], RatePlan | None] = lambda step: None) -> None:
        self.made: list[Forecast] = []
        self.danger = Danger()
        self.plateaus = PlateauWatch()
        self.kind = ""  # of the run, as skill.kind_of has it
        self._plan_of = plan_of
        self._plan: RatePlan | None = None
        self._beside: dict[str, str] = {}  # what divergence is said beside
        self._places: dict[Any, list[tuple[int, tuple[str, str, str]]]] = {}  # of that, by layout of columns

    def losses(self, steps: Sequence[int], values: Sequence[float]) -> list[Forecast]:
        """Losses of steps, in order; returns what is to be said of divergence.

        Args:
            steps: their numbers.
            values: the losses.
        """
        made = []
        for step, loss, (rate, later) in zip(steps, values, self._rates_at(np.asarray(steps, int))):
            if self.danger.add(int(step), float(loss), rate, later):
                made.append(self.danger.forecast(int(step), dict(self._beside)))
        return self.take(made)

    def observe(self, columns: StepColumns) -> list[Forecast]:
        """A measured step is finished; returns the forecasts made of it, refused ones too.

        Args:
            columns: its measurements.
        """
        self._plan = self._plan_of(columns.step) or self._plan
        if self._plan is not None:
            self.danger.plan(columns.step, self._plan.lr[:, 0])
        for i, (vital, site, _) in self._noted(columns):
            value = float(columns.values[i])
            if vital == "gradients":
                self._beside["update ratio"] = f"{value:.3g}"
            elif vital == "curvature":
                self._beside["sharpness"] = f"{value:.3g} against 2/lr"
            elif value > 2:
                self._beside["stream"] = f"grows by {value:.1f} at {site}"
        return self.take(self.plateaus.observe(columns))

    def take(self, made: list[Forecast]) -> list[Forecast]:
        """Keep forecasts, each as far as its method has a measured skill on this kind of run.

        Args:
            made: on the last measured step.
        """
        said = {f.refused for f in self.made if f.refused}
        kept = [f for f in (shown(f, self.kind) for f in made) if f.refused not in said or f.known]
        self.made += kept
        return kept

    def _rates_at(self, steps: np.ndarray) -> list[list[float]]:
        """The learning rates of steps, and those twenty steps on."""
        if self._plan is None:
            return [[math.nan, math.nan]] * len(steps)
        places = np.array([steps, steps + MEAN]).T - self._plan.step
        return list(self._plan.lr[:, 0][places.clip(0, len(self._plan.lr) - 1)].tolist())

    def _noted(self, columns: StepColumns) -> list[tuple[int, tuple[str, str, str]]]:
        found = self._places.get(columns.layout)
        if found is None:
            if len(self._places) > LAYOUTS:
                self._places.clear()
            found = self._places[columns.layout] = [
                (i, name)
                for i, name in enumerate(columns.names())
                if name == RATIO
                or name[::2] == ("stream", "growth")
                or (name[0] == "curvature" and name[2].startswith(SHARPNESS))
            ]
        return found
