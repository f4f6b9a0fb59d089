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
    """Forecast the end of the plateau that a model is on, and leave the model as it was.

    From one measurement a copy is carried out of the saddle: when the loss *leaves* its plateau, a fall by a twentieth.
    From several, given one by one with ``earlier``, the growth of the slope tells when the loss *has fallen by*
    ``drop``. Its intervals are too narrow on most families (docs/forecasts.md). A forecast whose step has passed
    without the drop silences those that follow.

    Args:
        model: as it is now.
        loss_fn: a function of (output, target), a mean over the batch; or its name.
        batch: the same fixed batch each time, (x, y).
        optimizer: SGD, Adam or sign descent, whose rule and learning rate count; or the learning rate of plain gradient
            descent. Its learning rate has to stay the same: with a schedule, watch the vital sign ``plateau``.
        mode: ``"as_is"``, ``"train"`` or ``"eval"``.
        seed: what noise is left in the model is drawn with it.
        step: number of the training step.
        drop: the share of the plateau's level that has to be gone.
        level: nominal coverage of the interval.
        earlier: what this function returned at the measurement before.

    Returns:
        The forecast, or the reason why there is none. A measurement costs one gradient of the batch, a copy up to 125.

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
        raise ValueError(f"step must be after that of the measurement before, got {step} after {earlier.at}")
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
