"""The plateau forecast, renewed on every measured step: why the loss is flat, and when it will drop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from netvitals._help import hint
from netvitals.anatomy import Anatomy, chart
from netvitals.capture import LinearView, Metric, ParameterView, Recorder, Vital, WatchContext, inputs_of
from netvitals.optim import FutureRates, RatePlan, group_settings
from netvitals.saddle import (
    EscapeForecast,
    EscapeRollouts,
    escape_rollout,
    fall_speed,
    forecast_escape,
    measure_plateau,
    no_forecast,
    optimizer_rule,
)

if TYPE_CHECKING:
    from netvitals.saddle import Snapshot


class PlateauForecast(Vital):
    """Looks at a probe batch on measured steps and says when the loss will drop.

    Measurements at site ``"model"``: the signal, loss and resting loss on the probe, the expected escape step with its
    interval (NaN without a forecast) and the number of small layers. ``latest`` is the last
    :class:`EscapeForecast`, with the reason when there is none. One look costs one forward and one backward pass over
    the probe batch. Where the network is no plain chain (attention, gated blocks), the way out of the plateau is
    looked ahead on four looks at most, for 125 such passes each at most.

    Args:
        model: the watched model; left out, the watch gives it, with its probe and its optimizer.
        loss_fn: ``loss_fn(model(inputs), targets)``.
        batch: probe batch (inputs, targets); for Gaussian-like inputs add the mirror images −x.
        optimizer: tells the rule and the learning rate, read anew at each look.
        drop: share of the resting loss that has to be gone for the plateau to count as over.
        level: of the interval around the escape step.
        keep: how many looks stay in memory.

    >>> import torch
    >>> net = nn.Sequential(nn.Linear(4, 8, bias=False), nn.Linear(8, 1, bias=False))
    >>> batch = torch.randn(32, 4), torch.randn(32, 1)
    >>> opt = torch.optim.SGD(net.parameters(), lr=0.01)
    >>> print(PlateauForecast(net, nn.MSELoss(), batch, optimizer=opt).observe(0))
    no forecast at step 0: 1 looks are too few to see the signal grow, 4 are needed
    """

    name = "plateau"
    title = "Plateau"
    meaning = (
        "Whether the loss is on a plateau because some layers have small weights, and at which step it will drop. "
        "The forecast extrapolates how fast the loss falls below that of a constant output."
    )
    metrics: ClassVar = {
        "signal": Metric("signal: how much lower the loss is, to first order, than that of a constant output", "loss"),
        "loss": Metric("loss on the probe batch", "loss"),
        "resting": Metric("loss of a constant output (independent of the input) on the probe batch", "loss"),
        "escape": Metric("step at which the plateau is expected to end", "step"),
        "low": Metric("earliest likely step at which the plateau ends", "step"),
        "high": Metric("latest likely step at which the plateau ends", "step"),
        "small_layers": Metric("number of layers whose weights are small", "layers"),
        "speed": Metric("decrease of the loss per unit of learning rate, under the optimizer's update rule", "loss"),
        "drop": Metric("fraction by which the loss must fall for the plateau to count as ended", "share"),
        "rest": Metric("loss at the start of this plateau", "loss"),
        "coverage": Metric("nominal coverage of the interval from low to high", "share"),
    }
    headline = ("escape", "signal", "loss")
    needs = "probe=(x, y, loss_fn) and optimizer= (without a probe only how fast the loss falls is measured)"

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
        self._context: WatchContext | None = None
        self._restart()

    def _restart(self) -> None:
        self._future: FutureRates | None = None
        self._plan: RatePlan | None = None
        self._taus: list[float] = []
        self._lookaheads = EscapeRollouts()
        self._examples: int | None = None  # in a batch of the loop

    def begin(self, context: WatchContext) -> None:
        self._context = context
        if self._given:
            return
        self.model, self.observations, self.forecasts, self._anatomy = context.model, [], [], None
        self._restart()
        if context.probe is None or context.probe[2] is None:  # only the gradients of the loop are left
            self.loss_fn = self.batch = self.optimizer = None
            return
        self.loss_fn, self.batch = context.fixed_batch(self.name)
        self.optimizer = context.optimizer(self.name)

    def said(self, step: int) -> EscapeForecast | None:
        """The forecast of a look, while it is remembered.

        Args:
            step: number of the training step.
        """
        return next((f for f in reversed(self.forecasts) if f.at == step), None)

    @property
    def latest(self) -> EscapeForecast | None:
        return self.forecasts[-1] if self.forecasts else None

    def observe(self, step: int) -> EscapeForecast:
        """Look now and forecast.

        Args:
            step: number of the training step.
        """
        if self.model is None or self.loss_fn is None or self.batch is None:
            raise ValueError(
                "the vital sign 'plateau' needs a model: pass it to watch(vitals=[...]), or give model, loss_fn "
                f"and batch {hint('needs-probe')}"
            )
        if self._anatomy is None:
            self._anatomy = chart(self.model, inputs_of(self.model, self.batch).inputs, keep_tensors=False)
        seen = measure_plateau(
            self.model, self.loss_fn, self.batch, step=step, anatomy=self._anatomy, optimizer=self.optimizer
        )
        arguments, why = (
            ({}, "no optimizer was given, so no step will follow")
            if self.optimizer is None
            else optimizer_rule(self.optimizer)
        )
        self._spend(step)
        self.observations.append(seen)
        if len(self.observations) > self.keep:
            del self.observations[1], self._taus[1]  # the first look holds the small layers
        if why or self._plan is None:
            forecast = no_forecast(step, why, drop=self.drop, level=self.level)
        elif not arguments["lr"] > 0:
            forecast = no_forecast(step, "the learning rate is zero", drop=self.drop, level=self.level)
        else:
            forecast = forecast_escape(
                self.observations,
                self._taus,
                when=self._plan.when,
                decay=self._plan.decay[0],
                drop=self.drop,
                level=self.level,
                earlier=self.forecasts,
                lookahead=self._lookahead(step, self._plan) if seen.reason else None,
                **arguments,
            )
        self.forecasts = [*self.forecasts, forecast][-self.keep :]
        return forecast

    def _lookahead(self, step: int, plan: RatePlan) -> EscapeForecast | None:
        """What a look-ahead says as of now: a new one where it is due, or else the last."""
        assert self.model is not None and self.optimizer is not None
        if self._lookaheads.due(step):
            found = escape_rollout(
                self.model,
                self.loss_fn,
                self.batch,
                optimizer=self.optimizer,
                step=step,
                level=self.level,
                anatomy=self._anatomy,
                examples=self._examples,
                when=plan.when,
            )
            spent = lambda first, last: float(plan.rates(first, last)[0])
            self._lookaheads.keep(found, tau=self._taus[-1], spent=spent)
        return self._lookaheads.at(step, tau=self._taus[-1], when=plan.when)

    def _spend(self, step: int) -> None:
        """The plan of learning rates from here on, and what was spent since the last look."""
        if self.optimizer is None:
            self._taus.append(float(step))
            return
        if self._future is None:
            scheduler, total = (
                (None, None)
                if self._context is None
                else (
                    self._context.scheduler,
                    self._context.total_steps,
                )
            )
            self._future = FutureRates(self.optimizer, scheduler, total)
        settings = [group_settings(g, type(self.optimizer).__name__) for g in self.optimizer.param_groups]
        gains = [1 / (1 - float(s["momentum"])) if s["beta2"] != s["beta2"] else 1.0 for s in settings]
        decays = [float(s["weight_decay"]) * (1.0 if s["decoupled"] else g) for s, g in zip(settings, gains)]
        before, self._plan = self._plan, self._future.plan(self.optimizer, step, gains, decays)
        last = self._taus[-1] if self._taus else 0.0
        self._taus.append(last + (0.0 if before is None else float(before.rates(before.step, step)[0])))

    def linear(self, recorder: Recorder, view: LinearView) -> None:
        self._examples = int(view.x.shape[view.site.batch_dim or 0])

    def parameters(self, recorder: Recorder, view: ParameterView) -> None:
        if self.loss_fn is None:
            self._without_probe(recorder, view)
            return
        forecast, observe = self.observe(recorder.step), self.observations[-1]
        if not forecast.known:
            recorder.skipped["plateau"] = f"no forecast at step {forecast.at}: {forecast.reason}"
        r = forecast.r if forecast.known else float(len(observe.small))
        numbers = [observe.signal, observe.loss, observe.resting, forecast.step, forecast.low, forecast.high, r]
        numbers += [observe.speed, forecast.drop, forecast.rest, forecast.level]
        recorder.write("model", tuple(self.metrics), torch.tensor(numbers, dtype=torch.float64))

    def _without_probe(self, recorder: Recorder, view: ParameterView) -> None:
        """The speed of the batch that was trained on: what a forecast from the loss alone is checked by."""
        optimizers = () if self._context is None else self._context.known_optimizers()
        recorder.skipped["plateau"] = (
            "without probe=(x, y, loss_fn) there is no fixed batch to measure: only how fast the loss falls is "
            "measured, on the batches of the loop"
        )
        names = [n for n in view.grads if n in view.params]
        if names:
            rule = optimizers[0] if len(optimizers) == 1 else None
            speed = fall_speed(rule, [view.params[n] for n in names], [view.grads[n] for n in names])
            recorder.write("model", ("speed",), speed)
