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
SERIES_SPREAD = 0.40  # when only the series of the signal is known
HORIZON = 1e9  # steps beyond which a forecast is "no end in view"


@dataclass(frozen=True, kw_only=True)
class EscapeForecast(Result):
    """Estimated escape ``step`` with its interval, ``low`` to ``high`` at ``level``, or no forecast and the ``reason``.

    Made ``at`` the last look by ``method``, with ``r`` small layers, for the share ``drop`` of the resting loss to be
    gone, on a plateau of level ``rest``; ``skipped`` is what could not be used → reason; ``looks`` and ``told`` are the
    measurements and forecasts behind it. Returned by :func:`netvitals.saddle.plateau`.
    """

    at: int  # step of the last look
    step: float  # expected escape step; NaN without a forecast
    low: float
    high: float
    level: float  # nominal coverage of the interval
    r: float  # number of small layers used
    drop: float  # share of the resting loss that has to be gone
    method: str  # "growth", "live" (the chain's law) or "series"
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


def forecast(
    steps: Any,
    signal: Any,
    *,
    resting: float,
    r: float | None = None,
    rule: Rule = "sgd",
    drop: float = 0.5,
    level: float = 0.8,
) -> EscapeForecast:
    r"""Forecast from a series of the signal alone (γ, or the fall of the loss).

    For given r and b the flight time $F(\gamma)=\int_0^\gamma dx/(x^2+b^2)^{p/2}$ is linear in time; b (and r, when it
    is not given) are those that make it most so.

    Args:
        steps: training steps.
        signal: the signal at each of them; entries that are not finite are left out.
        resting: loss of the network that has learnt nothing.
        r: number of small layers, from :func:`netvitals.saddle.bottleneck`; fitted when absent.
        rule: how the optimizer turns gradients into steps.
        drop: the plateau is over when this share of the resting loss is gone.
        level: nominal coverage of the interval.

    Returns:
        The forecast, or the reason why there is none.

    >>> t = np.arange(0, 400, 10)
    >>> text = forecast(t, (0.5 - t / 1000) ** -3 / 40000, resting=0.2, r=3)
    >>> bool(text.low < 440 < text.high)
    True
    """
    t, g = np.asarray(steps, float), np.asarray(signal, float)
    _check(drop, level)
    if t.shape != g.shape or t.ndim != 1:
        raise ValueError(f"steps and signal must be two series of one length, got {t.shape} and {g.shape}")
    keep = np.isfinite(g)
    t, g = t[keep], g[keep]
    at = int(t[-1]) if t.size else 0
    if t.size < 6:
        return no_forecast(at, f"{t.size} points are too few, 6 are needed", drop=drop, level=level)
    end = _end_signal(resting, drop)
    if g[-1] >= end:
        return no_forecast(at, "the plateau is over", drop=drop, level=level)
    if g[-1] <= 0:
        return no_forecast(
            at, "the signal is not positive: the network has not begun to follow its target", drop=drop, level=level
        )
    options = [_fit(t, g, q, rule) for q in ([float(r)] if r is not None else [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])]
    found = min((o for o in options if o is not None), key=lambda o: o[0], default=None)
    if found is None:
        return no_forecast(at, "the signal does not grow", drop=drop, level=level)
    _, b, rate, start, used = found
    p = _power(used, rule)
    if g[-1] < b and used > 1:
        return no_forecast(
            at, "the signal has not begun to bend upwards; looks with weights can tell more", drop=drop, level=level
        )
    escape = (float(_flight(end, b, p)) - start) / rate
    return made_forecast(at, max(escape - t[-1], 0.0), level, used, drop, "series", SERIES_SPREAD)


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
    _check(drop, level)
    if not history:
        raise ValueError("a forecast needs at least one look at the network")
    if rule not in ("sgd", "adam", "sign"):
        raise ValueError(f"rule must be 'sgd', 'adam' or 'sign', got {rule!r}")
    if not lr > 0 or not 0 <= momentum < 1:
        raise ValueError(f"lr must be positive and momentum in [0, 1), got {lr} and {momentum}")
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
    end = max(_end_signal(now.resting, drop), 1.02 * now.signal)
    speed = sum(g * g for g in now.grads) if rule == "sgd" else sum(now.signs)
    if not speed > 0:
        return no_forecast(now.step, "the gradient is exactly zero", drop=drop, level=level)
    b = start_scale(now, small)
    p = _power(len(small), rule)
    if rule == "adam":
        size = _gradient_size(now)
        weights = np.array([beta2 ** (now.step - seen.step) for seen in history if not seen.reason])
        squares = np.array([_gradient_size(seen) ** 2 for seen in history if not seen.reason])
        lead = size / math.sqrt(float((weights * squares).sum() / weights.sum()))
        left = _adam_flight(now.signal, b, p, lr * speed, lead, now.step, end, beta2)
    else:
        rate = lr / (1 - momentum) * speed / (now.signal**2 + b**2) ** (p / 2)
        left = float(_flight(end, b, p) - _flight(now.signal, b, p)) / rate
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


def _power(r: float, rule: Rule) -> float:
    return 2 - 2 / r if rule == "sgd" else 1 - 1 / r


def _end_signal(resting: float, drop: float) -> float:
    """γ when the loss has fallen by ``drop``: along an aligned output the loss is (1 − x)² of its resting value."""
    return 2 * (1 - math.sqrt(1 - drop)) * resting


def _flight(g: Any, b: float, p: float) -> Any:
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


def _fit(t: np.ndarray, g: np.ndarray, r: float, rule: Rule) -> tuple[float, float, float, float, float] | None:
    """(misfit, b, slope, intercept, r) of the best line F(γ; b) = slope · t + intercept."""
    top = float(np.abs(g).max())
    p = _power(r, rule)
    best: tuple[float, float, float, float, float] | None = None
    # one b for all is enough when the law is linear anyway
    for b in top * np.exp(np.linspace(-7, 1.5, 60)) if p else [top]:
        flight = _flight(g, b, p)
        # errors are judged in γ, relative to its size but not below a tenth of its largest value
        weight = (g * g + b * b) ** (p / 2) / (np.abs(g) + 0.1 * top)
        a = np.stack([t, np.ones_like(t)], 1) * weight[:, None]
        (slope, intercept), *_ = np.linalg.lstsq(a, flight * weight, rcond=None)
        if slope <= 0:
            continue
        misfit = float(((a @ [slope, intercept] - flight * weight) ** 2).mean())
        if best is None or misfit < best[0]:
            best = (misfit, float(b), float(slope), float(intercept), r)
    return best


def _check(drop: float, level: float) -> None:
    if not 0 < drop < 1:
        raise ValueError(f"drop is a share of the loss between 0 and 1, got {drop}")
    if not 0 < level < 1:
        raise ValueError(f"level is a probability between 0 and 1, got {level}")


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
