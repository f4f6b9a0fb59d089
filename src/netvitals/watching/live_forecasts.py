"""A watch that forecasts: what it measures goes to a forecaster, and what that says to the run."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from netvitals.capture import StepColumns, warn

if TYPE_CHECKING:
    from netvitals.forecasts import Forecast, Forecaster
    from netvitals.watch import Watch


class LiveForecasts:
    """The forecaster of a watch, which may be called from the thread that writes the run.

    Args:
        watch: not kept alive by this.
    """

    def __init__(self, watch: Watch) -> None:
        from netvitals.forecasts import Forecaster

        self._watch = weakref.ref(watch)
        self._settings = next((v for v in watch._schedule.vitals if v.name == "optimizer"), None)
        self._failed = False
        self.forecaster: Forecaster = Forecaster(self._activations, self._plan)
        plateau = next((v for v in watch._schedule.vitals if hasattr(v, "said")), None)
        if plateau is not None:
            self.forecaster.plateaus.said = plateau.said
        watch._buffer.finished.append(self.look)
        watch._buffer.heard.append(self.losses)

    @property
    def made(self) -> list[Forecast]:
        return list(self.forecaster.made)

    def look(self, columns: StepColumns) -> None:
        """A measured step is finished."""
        self._guarded(lambda: self.forecaster.observe(columns))

    def losses(self, steps: np.ndarray, values: np.ndarray) -> None:
        """Losses have arrived."""
        self._guarded(lambda: self.forecaster.losses(steps.tolist(), values.tolist()))

    def _guarded(self, work: Any) -> None:
        if self._failed:
            return
        try:
            self._store(work())
        except Exception as error:  # of ours; what was measured is not touched by it
            self._failed = True
            warn(f"forecasting failed and is off from now on: {type(error).__name__}: {error}", "forecasting-failed")

    def _store(self, made: Sequence[Forecast]) -> None:
        watch = self._watch()
        if made and watch is not None and watch._writer is not None:
            watch._writer.forecast(*(f.to_dict() for f in made))

    def _activations(self) -> Mapping[str, Any]:
        watch = self._watch()
        return {} if watch is None else watch.activations

    def _plan(self, step: int) -> Any:
        """The rates as of the last look at the optimizer; it is not looked at each time."""
        plans = {} if self._settings is None else dict(self._settings.plans)
        return plans.get(max((known for known in plans if known <= step), default=-1))
