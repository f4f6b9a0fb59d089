"""The plateau forecast, renewed on every measured step: why the loss is flat, and when it will drop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from netvitals.anatomy import Anatomy, chart
from netvitals.capture import Metric, ParameterView, Recorder, Vital, WatchContext
from netvitals.capture.task import inputs_of
from netvitals.saddle.measure.forecasting import EscapeForecast, forecast_live, no_forecast, optimizer_rule
from netvitals.saddle.measure.plateau import measure_plateau

if TYPE_CHECKING:
    from netvitals.saddle.measure.plateau import Snapshot


class PlateauForecast(Vital):
    """Looks at a probe batch on measured steps and says when the loss will drop.

    Readings at site ``"model"``: the signal, loss and resting loss on the probe, the expected escape step with its
    interval (NaN without a forecast) and the number of small layers. ``latest`` is the last
    :class:`EscapeForecast`, with the reason when there is none. One look costs one forward and one backward pass over
    the probe batch.

    Args:
        model: the watched model; left out, the watch gives it, with its probe and its optimizer.
        loss_fn: ``loss_fn(model(inputs), targets)``.
        batch: probe batch (inputs, targets); for Gaussian-like inputs add the mirror images −x.
        optimizer: tells the rule and the learning rate, read anew at each look.
        drop: share of the resting loss that has to be gone for the plateau to count as over.
        level: of the interval around the escape step.
        keep: how many looks stay in memory.
    """

    name = "plateau"
    title = "Plateau"
    meaning = (
        "Why the loss is flat, and when it will drop: the signal grows out of small layers by a law that knows the "
        "step of its escape."
    )
    metrics: ClassVar = {
        "signal": Metric("how much of the resting loss the first order takes away", "loss"),
        "loss": Metric("loss on the probe batch", "loss"),
        "resting": Metric("loss on the probe batch of a model that answers the same to everything", "loss"),
        "escape": Metric("the step at which the plateau is expected to end", "step"),
        "low": Metric("lower end of its interval", "step"),
        "high": Metric("upper end of its interval", "step"),
        "small_layers": Metric("layers that are small, whose product the signal is", "layers"),
    }
    headline = ("escape", "signal", "loss")
    needs = "probe=(x, y, loss_fn) and optimizer="

    def __init__(
        self,
        model: nn.Module | None = None,
        loss_fn: Callable[[Any, Any], Tensor] | None = None,
        batch: tuple[Any, Any] | None = None,
        *,
        optimizer: torch.optim.Optimizer | None = None,
        drop: float = 0.5,
        level: float = 0.8,
        keep: int = 400,
    ) -> None:
        self.model, self.loss_fn, self.batch, self.optimizer = model, loss_fn, batch, optimizer
        self.drop, self.level, self.keep = drop, level, keep
        self.observations: list[Snapshot] = []
        self.forecasts: list[EscapeForecast] = []
        self._given = model is not None
        self._anatomy: Anatomy | None = None  # the model is charted once

    def begin(self, context: WatchContext) -> None:
        if not self._given:
            self.loss_fn, self.batch = context.fixed_batch(self.name)
            self.model, self.optimizer = context.model, context.optimizer(self.name)
            self.observations, self.forecasts, self._anatomy = [], [], None

    @property
    def latest(self) -> EscapeForecast | None:
        return self.forecasts[-1] if self.forecasts else None

    def observe(self, step: int) -> EscapeForecast:
        """Look now and forecast."""
        if self.model is None or self.loss_fn is None or self.batch is None:
            raise ValueError("this plateau forecast has no model yet: give it to watch, or model, loss_fn and batch")
        if self._anatomy is None:
            self._anatomy = chart(self.model, inputs_of(self.model, self.batch).inputs, keep_tensors=False)
        seen = measure_plateau(
            self.model, self.loss_fn, self.batch, step=step, anatomy=self._anatomy, optimizer=self.optimizer
        )
        self.observations.append(seen)
        if len(self.observations) > self.keep:
            del self.observations[1]  # the first look holds the small layers
        arguments, why = (
            ({}, "no optimizer was given, so no step will follow")
            if self.optimizer is None
            else optimizer_rule(self.optimizer)
        )
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
            tuple(self.metrics),
            torch.tensor(
                [observe.signal, observe.loss, observe.resting, forecast.step, forecast.low, forecast.high, r],
                dtype=torch.float64,
            ),
        )
