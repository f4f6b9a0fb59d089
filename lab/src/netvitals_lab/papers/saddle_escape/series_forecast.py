"""A plateau's end from the series of its signal alone: a baseline of the forecast that has the network."""

from __future__ import annotations

from typing import Any

import numpy as np

from netvitals.saddle import EscapeForecast, no_forecast
from netvitals.saddle.measure.forecasting import Rule, check_shares, end_signal, flight, growth_power, made_forecast

SERIES_SPREAD = 0.40  # standard deviation of ln(time left)


def series_forecast(
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
    >>> text = series_forecast(t, (0.5 - t / 1000) ** -3 / 40000, resting=0.2, r=3)
    >>> bool(text.low < 440 < text.high)
    True
    """
    t, g = np.asarray(steps, float), np.asarray(signal, float)
    check_shares(drop, level)
    if t.shape != g.shape or t.ndim != 1:
        raise ValueError(f"steps and signal must be two series of one length, got {t.shape} and {g.shape}")
    keep = np.isfinite(g)
    t, g = t[keep], g[keep]
    at = int(t[-1]) if t.size else 0
    if t.size < 6:
        return no_forecast(at, f"{t.size} points are too few, 6 are needed", drop=drop, level=level)
    end = end_signal(resting, drop)
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
    p = growth_power(used, rule)
    if g[-1] < b and used > 1:
        return no_forecast(
            at, "the signal has not begun to bend upwards; looks with weights can tell more", drop=drop, level=level
        )
    escape = (float(flight(end, b, p)) - start) / rate
    return made_forecast(at, max(escape - t[-1], 0.0), level, used, drop, "series", SERIES_SPREAD)


def _fit(t: np.ndarray, g: np.ndarray, r: float, rule: Rule) -> tuple[float, float, float, float, float] | None:
    """(misfit, b, slope, intercept, r) of the best line F(γ; b) = slope · t + intercept."""
    top = float(np.abs(g).max())
    p = growth_power(r, rule)
    best: tuple[float, float, float, float, float] | None = None
    # one b for all is enough when the law is linear anyway
    for b in top * np.exp(np.linspace(-7, 1.5, 60)) if p else [top]:
        elapsed = flight(g, b, p)
        # errors are judged in γ, relative to its size but not below a tenth of its largest value
        weight = (g * g + b * b) ** (p / 2) / (np.abs(g) + 0.1 * top)
        a = np.stack([t, np.ones_like(t)], 1) * weight[:, None]
        (slope, intercept), *_ = np.linalg.lstsq(a, elapsed * weight, rcond=None)
        if slope <= 0:
            continue
        misfit = float(((a @ [slope, intercept] - elapsed * weight) ** 2).mean())
        if best is None or misfit < best[0]:
            best = (misfit, float(b), float(slope), float(intercept), r)
    return best
