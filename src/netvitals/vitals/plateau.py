"""A vital sign for :func:`netvitals.watch`: the plateau forecast, renewed on every measured step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from netvitals.capture import ParameterView, Recorder, Vital
from netvitals.saddle.measure.forecasting import Forecast, forecast_live, no_forecast, optimizer_rule
from netvitals.saddle.measure.plateau import Snapshot, measure_plateau

METRICS = ("signal", "loss", "resting", "escape", "low", "high", "small_layers")


class PlateauForecast(Vital):
    """Looks at a probe batch on measured steps and says when the loss will drop.

    Readings at site ``"model"``: the signal, loss and resting loss on the probe, the expected escape step with its
    interval (NaN without a forecast) and the number of small layers. ``latest`` is the last :class:`Forecast`, with the
    reason when there is none. One look costs one forward and one backward pass over the probe batch.

    Args:
        model: the watched model.
        batch: probe batch (inputs, targets); for Gaussian-like inputs add the mirror images −x.
        loss_fn: ``loss_fn(model(inputs), targets)``.
        optimizer: tells the rule and the learning rate, read anew at each look.
        drop: share of the resting loss that has to be gone for the plateau to count as over.
        keep: how many looks stay in memory.
    """

    name = "plateau"

    def __init__(
        self,
        model: nn.Module,
        batch: tuple[Any, Any],
        loss_fn: Callable[[Any, Any], Tensor],
        optimizer: torch.optim.Optimizer,
        *,
        drop: float = 0.5,
        level: float = 0.8,
        keep: int = 400,
    ) -> None:
        self.model, self.batch, self.loss_fn, self.optimizer = model, batch, loss_fn, optimizer
        self.drop, self.level, self.keep = drop, level, keep
        self.observations: list[Snapshot] = []
        self.forecasts: list[Forecast] = []

    @property
    def latest(self) -> Forecast | None:
        return self.forecasts[-1] if self.forecasts else None

    def observe(self, step: int) -> Forecast:
        """Look now and forecast."""
        self.observations.append(measure_plateau(self.model, self.loss_fn, self.batch, step=step))
        if len(self.observations) > self.keep:
            del self.observations[1]  # the first look holds the small layers
        arguments, why = optimizer_rule(self.optimizer)
        if why:
            forecast = no_forecast(step, why, drop=self.drop, level=self.level)
        else:
            forecast = forecast_live(self.observations, drop=self.drop, level=self.level, **arguments)
        self.forecasts = [*self.forecasts, forecast][-self.keep :]
        return forecast

    def parameters(self, recorder: Recorder, view: ParameterView) -> None:
        forecast, observe = self.observe(recorder.step), self.observations[-1]
        r = forecast.r if forecast.known else float(len(observe.small))
        recorder.write(
            "model",
            METRICS,
            torch.tensor(
                [observe.signal, observe.loss, observe.resting, forecast.step, forecast.low, forecast.high, r],
                dtype=torch.float64,
            ),
        )
