"""A watch that forecasts: what it measures goes to a forecaster, and what that says to the run."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from netvitals.capture import StepColumns, warn

if TYPE_CHECKING:
    from netvitals.forecasts import DivergenceLookahead, Forecast, Forecaster, Lookahead, LookaheadRun
    from netvitals.watching.api import Watch


class LiveForecasts:
    """The forecaster of a watch, which may be called from the thread that writes the run."""

    def __init__(self, watch: Watch, lookahead: Lookahead | None = None) -> None:
        from netvitals.forecasts import Forecaster

        self._watch = weakref.ref(watch)
        self._settings = next((v for v in watch._schedule.vitals if v.name == "optimizer"), None)
        self._failed = False
        self.waits = True  # for a loss that tells the kind of the run
        self.forecaster: Forecaster = Forecaster(self._plan)
        self.lookahead: DivergenceLookahead | None = None
        self._lookahead = lookahead
        if lookahead is not None:
            from netvitals.forecasts import DivergenceLookahead

            self.lookahead = DivergenceLookahead(self.forecaster.danger, lookahead.budget)
        plateau = next((v for v in watch._schedule.vitals if hasattr(v, "said")), None)
        if plateau is not None:
            self.forecaster.plateaus.said = plateau.said
        watch._buffer.finished.append(self.measured)
        watch._buffer.heard.append(self.losses)

    @property
    def made(self) -> list[Forecast]:
        return list(self.forecaster.made)

    def meet(self, loss: Any) -> None:
        """The first loss of the run, from whose graph its kind is read."""
        self.waits = loss is None
        watch = self._watch()
        if isinstance(loss, Tensor) and watch is not None:
            from netvitals.forecasts import kind_of

            self._guarded(lambda: setattr(self.forecaster, "kind", kind_of(loss, watch._bare)))

    def measured(self, columns: StepColumns) -> None:
        """A measured step is finished."""
        self._guarded(lambda: self.forecaster.observe(columns))

    def losses(self, steps: np.ndarray, values: np.ndarray) -> None:
        """Losses have arrived."""
        self._guarded(lambda: self.forecaster.losses(steps.tolist(), values.tolist()))

    def run_lookahead(self, step: int) -> None:
        """A measured step is over: train a copy ahead, if that is due. In the thread that trains."""
        if self.lookahead is not None:
            self._guarded(lambda: self._tried(step))

    def _tried(self, step: int) -> list[Forecast]:
        from netvitals.forecasts import ORDERS, STEPS

        watch, given, lookahead = self._watch(), self._lookahead, self.lookahead
        if watch is None or given is None or lookahead is None or self.waits:
            return []
        with watch._buffer._settling:  # the writer's thread gets losses, too
            watch._buffer.settle()
            plan = self._plan(step)
            rates = _ahead(plan, step)
            why = lookahead.due(step + 1, rates[:, 0])
            history = copy.deepcopy(self.forecaster.danger) if why else self.forecaster.danger
        steps = STEPS if plan is None or plan.end is None else min(STEPS, plan.end - step - 1)
        if not why or not given.batches or steps < 1:
            return []
        orders = ORDERS if len(given.batches) > 1 else 1
        found = self._copied(watch, given, step, rates, steps=steps, history=history, orders=orders)
        told = lookahead.take(step, why, found)
        return self.forecaster.take([] if told is None else [told])

    def _copied(self, watch: Watch, given: Lookahead, step: int, rates: np.ndarray, **more: Any) -> LookaheadRun:
        """A look-ahead of the run as it is now; none, and no cost, where it has no measured skill."""
        from netvitals.forecasts import LookaheadRun, look_ahead, unskilled

        optimizers = watch._hooks.optimizers
        if why := unskilled("look-ahead", self.forecaster.kind):
            found = LookaheadRun(step=step, refused=why)
        elif len(optimizers) != 1 or watch._ranks is not None:
            what = "several ranks train it" if watch._ranks is not None else f"{len(optimizers)} optimizers move it"
            found = LookaheadRun(step=step, refused=f"{what}; a copy is trained by one alone")
        else:
            found = look_ahead(
                watch._bare,
                given.loss_fn,
                list(given.batches),
                optimizer=optimizers[0],
                rates=rates if len(rates) else None,
                step=step + 1,
                clip=given.clip,
                seed=step,
                **more,
            )
        if found.refused:
            watch._observer.notes["look-ahead"] = found.refused
        return found

    def _guarded(self, work: Any) -> None:
        if self._failed:
            return
        try:
            self._store(work() or ())
        except Exception as error:  # of ours; what was measured is not touched by it
            self._failed = True
            warn(
                f"making forecasts failed, and forecasts are turned off for this run: {type(error).__name__}: {error}",
                "forecasting-failed",
            )

    def _store(self, made: Sequence[Forecast]) -> None:
        watch = self._watch()
        if made and watch is not None and watch._writer is not None:
            watch._writer.forecast(*(f.to_dict() for f in made))

    def _plan(self, step: int) -> Any:
        """The rates as of the last measurement of the optimizer; it is not measured each time."""
        plans = {} if self._settings is None else dict(self._settings.plans)
        return plans.get(max((known for known in plans if known <= step), default=-1))


def _ahead(plan: Any, step: int) -> np.ndarray:
    """Planned learning rates after a step; none where they are not known."""
    return np.empty((0, 1)) if plan is None else plan.lr[min(step + 1 - plan.step, len(plan.lr) - 1) :]
