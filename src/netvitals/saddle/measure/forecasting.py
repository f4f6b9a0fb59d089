r"""When will the plateau end? A forecast of the escape step, with an interval, from looks at the network as it trains.

The signal γ (:mod:`netvitals.saddle.measure.plateau`) grows, with r small layers, as

$$\dot\gamma = c\,(\gamma^2+b^2)^{1-1/r}\ \text{(SGD)},\qquad
  \dot\gamma = c\,(\gamma^2+b^2)^{\frac12(1-1/r)}\cdot\frac{G}{\sqrt{v}}\ \text{(Adam)}.$$

For $\gamma\gg b$ this is the theory's $\dot\gamma\propto\gamma^{2-2/r}$; b is where the layers' growth overtakes their
random start. Everything on the right is read off the network: the rate now is $\eta\sum\lVert g_\ell\rVert_2^2$ (or
$\eta\sum\lVert g_\ell\rVert_1$), and b is the geometric mean of $\lVert g_\ell\rVert y_\ell$ over the small layers,
because a layer's gradient is the signal that a gain of one would carry. Under Adam the size of the gradients is
$G\propto(\gamma^2+b^2)^{\frac12(1-1/r)}$ and v, their second moment, lags behind: early $\gamma\sim t$, then $t^r$.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from netvitals.capture import Result
from netvitals.saddle.measure.plateau import Snapshot

Rule = Literal["sgd", "adam", "sign"]
# standard deviation of ln(remaining time, forecast / true), from runs that no test or study uses
SPREAD = 0.234
HORIZON = 1e9  # steps beyond which a forecast is "no end in view"


@dataclass(frozen=True, kw_only=True)
class EscapeForecast(Result):
    """Forecast of the ``step`` at which a plateau ends, with an interval from ``low`` to ``high``, or a ``reason`` why
    not.

    The interval has nominal coverage ``level``. The plateau ends when the loss has fallen by the fraction ``drop`` of
    its value ``rest`` on the plateau. ``at`` is the step at which the forecast was made, ``method`` its method, and
    ``r`` the number of small layers. ``skipped`` maps what could not be used to the reason. ``looks`` and ``told`` are
    the measurements and earlier forecasts that it uses. Returned by :func:`netvitals.saddle.plateau`.
    """

    at: int  # step of the last look
    step: float  # expected escape step; NaN without a forecast
    low: float
    high: float
    level: float  # nominal coverage of the interval
    r: float  # number of small layers used
    drop: float  # share of the resting loss that has to be gone
    method: str  # "growth", "live" (the chain's law), "look-ahead"; "series" in the lab
    reason: str = ""
    rest: float = math.nan  # the level of the plateau it is about, where that is known
    skipped: Mapping[str, str] = field(default_factory=dict)
    looks: tuple[tuple[float, Snapshot], ...] = field(default=(), repr=False)  # learning rate and measurement
    told: tuple[EscapeForecast, ...] = field(default=(), repr=False)  # what was said before

    @property
    def known(self) -> bool:
        return not self.reason

    def __str__(self) -> str:
        if self.reason:
            return f"no forecast at step {self.at}: {self.reason}"
        event = "leave this plateau" if self.drop < 0.1 else f"have fallen by {100 * self.drop:.0f} %"
        return (
            f"at step {self.at}: the loss will {event} around step {self.step:.0f} "
            f"({100 * self.level:.0f} % interval {self.low:.0f} to {self.high:.0f}; r = {self.r:g}, {self.method})"
        )


def forecast_live(
    history: Sequence[Snapshot],
    *,
    lr: float,
    rule: Rule = "sgd",
    momentum: float = 0.0,
    beta2: float = 0.999,
    r: int | None = None,
    drop: float = 0.5,
    level: float = 0.8,
) -> EscapeForecast:
    """Forecast from looks at the network; one look is enough, under Adam earlier ones sharpen it.

    Args:
        history: snapshots in order of step; the small layers are those of the first one.
        lr: learning rate, taken as constant from now on.
        rule: ``"sgd"`` (also with momentum), ``"adam"`` (also AdamW), or ``"sign"`` (Lion, sign descent).
        momentum: of SGD; the effective rate is lr / (1 − momentum).
        beta2: of Adam.
        r: number of small layers, instead of what the first look says.
        drop: the plateau is over when this share of the resting loss is gone.
        level: nominal coverage of the interval.

    Returns:
        The forecast, or the reason why there is none.

    >>> look = Snapshot(step=0, signal=0.01, loss=1.0, resting=1.0, names=("0", "1"), grads=(0.1, 0.1),
    ...                 signs=(0.1, 0.1), gains=(0.1, 0.1), scales=(0.05, 0.05), initial=(1.0, 1.0))
    >>> found = forecast_live([look], lr=0.01)  # two layers of a twentieth of their usual size
    >>> found.r, found.low < found.step < found.high
    (2, True)
    """
    check_shares(drop, level)
    if not history:
        raise ValueError("a forecast needs at least one measurement of the network, got none")
    if rule not in ("sgd", "adam", "sign"):
        raise ValueError(f"rule= must be 'sgd', 'adam' or 'sign', got {rule!r}")
    if not lr > 0 or not 0 <= momentum < 1:
        raise ValueError(f"lr= must be positive and momentum= in [0, 1), got {lr} and {momentum}")
    now = history[-1]
    if now.reason:
        return no_forecast(now.step, now.reason, drop=drop, level=level)
    small = history[0].small if not history[0].reason else now.small
    if r is not None:
        small = tuple(int(i) for i in np.argsort(history[0].scales)[:r])
    if not small:
        return no_forecast(
            now.step,
            "no layer is small against the others and against its usual initialisation: "
            "there is no plateau of this kind",
            drop=drop,
            level=level,
        )
    if now.progress >= drop:  # only the measured loss says so
        return no_forecast(now.step, "the plateau is over", drop=drop, level=level)
    end = max(end_signal(now.resting, drop), 1.02 * now.signal)
    speed = sum(g * g for g in now.grads) if rule == "sgd" else sum(now.signs)
    if not speed > 0:
        return no_forecast(now.step, "the gradient is exactly zero", drop=drop, level=level)
    b = start_scale(now, small)
    p = growth_power(len(small), rule)
    if rule == "adam":
        size = _gradient_size(now)
        weights = np.array([beta2 ** (now.step - seen.step) for seen in history if not seen.reason])
        squares = np.array([_gradient_size(seen) ** 2 for seen in history if not seen.reason])
        lead = size / math.sqrt(float((weights * squares).sum() / weights.sum()))
        left = _adam_flight(now.signal, b, p, lr * speed, lead, now.step, end, beta2)
    else:
        rate = lr / (1 - momentum) * speed / (now.signal**2 + b**2) ** (p / 2)
        left = float(flight(end, b, p) - flight(now.signal, b, p)) / rate
    if not left < HORIZON:
        return no_forecast(now.step, f"no end within {HORIZON:.0e} steps", drop=drop, level=level)
    return made_forecast(now.step, left, level, len(small), drop, "live", SPREAD)


def start_scale(seen: Snapshot, small: Sequence[int]) -> float:
    r"""b of a look ``seen``: geometric mean over the ``small`` layers of $\lVert g_\ell\rVert_2y_\ell$."""
    return math.exp(sum(math.log(max(seen.grads[i] * seen.gains[i], 1e-300)) for i in small) / len(small))


def optimizer_rule(optimizer: Any) -> tuple[dict[str, Any], str]:
    """Arguments of :func:`forecast_live` read off a torch optimizer, or why it has no rule here.

    Args:
        optimizer: a torch optimizer; its first group tells the learning rate.

    Returns:
        The arguments and an empty reason, or no arguments and the reason.

    >>> import torch
    >>> optimizer_rule(torch.optim.SGD([torch.zeros(1)], lr=0.1, momentum=0.9))
    ({'lr': 0.1, 'rule': 'sgd', 'momentum': 0.9}, '')
    """
    group = optimizer.param_groups[0]
    name = type(optimizer).__name__
    if len({g["lr"] for g in optimizer.param_groups}) > 1:
        return {}, f"{name} has several learning rates"
    if name == "SGD":
        return {"lr": float(group["lr"]), "rule": "sgd", "momentum": float(group.get("momentum", 0.0))}, ""
    if name in ("Adam", "AdamW", "NAdam", "RAdam"):
        return {"lr": float(group["lr"]), "rule": "adam", "beta2": float(group["betas"][1])}, ""
    if name in ("Lion", "SignSGD"):
        return {"lr": float(group["lr"]), "rule": "sign"}, ""
    return {}, f"the step of {name} has no law here; SGD, Adam and sign descent have"


def growth_power(r: float, rule: Rule) -> float:
    """The power of γ in its growth, with ``r`` small layers."""
    return 2 - 2 / r if rule == "sgd" else 1 - 1 / r


def end_signal(resting: float, drop: float) -> float:
    """γ when the loss has fallen by ``drop``: along an aligned output the loss is (1 − x)² of its resting value."""
    return 2 * (1 - math.sqrt(1 - drop)) * resting


def flight(g: Any, b: float, p: float) -> Any:
    r"""$\int_0^\gamma dx/(x^2+b^2)^{p/2}=b^{1-p}u\,{}_2F_1(\tfrac12,\tfrac p2;\tfrac32;-u^2)$, $u=\gamma/b$."""
    from scipy.special import hyp2f1

    u = np.asarray(g, float) / b
    return b ** (1 - p) * u * hyp2f1(0.5, p / 2, 1.5, -u * u)


def _adam_flight(g: float, b: float, p: float, rate: float, lead: float, step: int, end: float, beta2: float) -> float:
    """Steps until γ reaches ``end``; ``lead`` is the gradient's size over the root of its averaged square."""
    unit = (g * g + b * b) ** (p / 2)
    t = float(max(step, 1))
    mean = (1 - beta2**t) / lead**2  # Adam's running mean, before its bias correction
    begun = t
    for _ in range(20_000):
        if g >= end:
            return t - begun
        h = max(1.0, t / 400)
        size = (g * g + b * b) ** (p / 2) / unit
        mean += (size * size - mean) * (1 - beta2**h)
        t += h
        g += rate * size * min(size / math.sqrt(mean / (1 - beta2**t)), 3.0) * h
    return math.inf


def _gradient_size(seen: Snapshot) -> float:
    return math.sqrt(sum(g * g for g in seen.grads))


def check_shares(drop: float, level: float) -> None:
    """Refuse a ``drop`` or ``level`` that is no share."""
    if not 0 < drop < 1:
        raise ValueError(f"drop= is the fraction by which the loss must fall, between 0 and 1; got {drop}")
    if not 0 < level < 1:
        raise ValueError(f"level= is the nominal coverage of the interval, between 0 and 1; got {level}")


def made_forecast(
    at: int, left: float, level: float, r: float, drop: float, method: str, spread: float
) -> EscapeForecast:
    """A forecast by ``method``, ``left`` steps after ``at``: ln(time left) has the standard deviation ``spread``;
    ``level``, ``r`` and ``drop`` are as in :class:`EscapeForecast`.
    """
    from scipy.special import ndtri

    factor = math.exp(float(ndtri(0.5 + level / 2)) * spread)
    return EscapeForecast(
        at=at,
        step=at + left,
        low=at + left / factor,
        high=at + left * factor,
        level=level,
        r=r,
        drop=drop,
        method=method,
    )


def no_forecast(at: int, reason: str, *, drop: float, level: float) -> EscapeForecast:
    """A forecast that says ``at`` a step the ``reason`` why there is none; ``drop`` and ``level`` are what was asked
    for.
    """
    return EscapeForecast(
        at=at,
        step=math.nan,
        low=math.nan,
        high=math.nan,
        level=level,
        r=math.nan,
        drop=drop,
        method="",
        reason=reason,
    )
