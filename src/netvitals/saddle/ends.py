"""When does this plateau end? One function, called again and again as training goes on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from netvitals.capture import LossFn, Mode
from netvitals.saddle.measure.forecasting import EscapeForecast, no_forecast, optimizer_rule
from netvitals.saddle.measure.outlook import forecast_escape
from netvitals.saddle.measure.plateau import measure_plateau
from netvitals.saddle.rollout.escape import escape_rollout


def plateau(
    model: nn.Module,
    loss_fn: LossFn,
    batch: Any,
    *,
    optimizer: torch.optim.Optimizer | float,
    mode: Mode = "as_is",
    seed: int = 0,
    step: int = 0,
    drop: float = 0.5,
    level: float = 0.8,
    earlier: EscapeForecast | None = None,
) -> EscapeForecast:
    """Forecast the step at which a loss plateau ends, from the model's gradients; the model is left unchanged.

    With one measurement, a copy of the model is trained ahead until its loss has fallen by 5 %. With several
    measurements, passed one by one as ``earlier``, the growth of the loss slope predicts when the loss will have fallen
    by ``drop``. The intervals are too narrow on most kinds of networks (docs/forecasts.md). If the loss has not dropped
    at a predicted step, no further forecast is made.

    Args:
        model: the model at the current step.
        loss_fn: a function of (output, target), a mean over the batch; or its name.
        batch: the same fixed batch each time, (x, y).
        optimizer: SGD, Adam or sign descent, whose rule and learning rate count; or the learning rate of plain gradient
            descent. Its learning rate has to stay the same: with a schedule, watch the vital sign ``plateau``.
        mode: ``"as_is"``, ``"train"`` or ``"eval"``.
        seed: seed of the random numbers that the model draws.
        step: number of the training step.
        drop: the fraction of the plateau's loss by which the loss must fall.
        level: nominal coverage of the interval.
        earlier: the result of this function at the previous measurement.

    Returns:
        The forecast, or the reason why there is none. A measurement costs one gradient of the batch, training a copy up
        to 125 gradients.

    >>> _ = torch.manual_seed(0)
    >>> net = nn.Sequential(nn.Linear(4, 16, bias=False), nn.Linear(16, 1, bias=False))
    >>> x = torch.randn(64, 4)
    >>> print(plateau(net, "mse", (x, x[:, :1]), optimizer=0.1).reason)
    no layer is small against its usual initialisation: there is no plateau of this kind
    >>> with torch.no_grad():
    ...     _ = [p.mul_(0.01) for p in net.parameters()]
    >>> found = plateau(net, "mse", (x, x[:, :1]), optimizer=0.1)
    >>> found.r, found.low < found.step < found.high
    (2, True)
    """
    if earlier is not None and not earlier.at < step:
        raise ValueError(f"step= must be later than that of the previous measurement, got {step} after {earlier.at}")
    rule, why = _rule(optimizer)
    seen = measure_plateau(
        model,
        loss_fn,
        batch,
        mode=mode,
        seed=seed,
        step=step,
        optimizer=optimizer if isinstance(optimizer, torch.optim.Optimizer) else None,
    )
    before = () if earlier is None else earlier.looks
    looks = (*before, (float(rule.get("lr", 0.0)), seen))
    told = () if earlier is None else (*earlier.told, replace(earlier, looks=(), told=()))
    roll = lambda: escape_rollout(
        model, loss_fn, batch, optimizer=optimizer, mode=mode, seed=seed, step=step, level=level
    )
    if not why and not rule["lr"] > 0:
        why = "the learning rate is zero"
    if not why and len({lr for lr, _ in looks}) > 1:
        why = "the learning rate has changed since the first measurement: watch the vital sign plateau instead"
    if why:
        found = no_forecast(step, why, drop=drop, level=level)
    elif not before:
        found = roll()
    else:
        found = forecast_escape(
            [s for _, s in looks],
            [lr * s.step for lr, s in looks],
            when=lambda more: step + more / rule["lr"],
            drop=drop,
            level=level,
            earlier=told,
            lookahead=roll() if seen.reason else None,
            **rule,
        )
    return replace(found, looks=looks, told=told)


def _rule(optimizer: torch.optim.Optimizer | float) -> tuple[dict[str, Any], str]:
    if isinstance(optimizer, torch.optim.Optimizer):
        return optimizer_rule(optimizer)
    return {"lr": float(optimizer), "rule": "sgd"}, ""
