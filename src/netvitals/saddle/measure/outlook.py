"""When does this plateau end? A look-ahead where the network is no chain, the growing slope where it tells, the chain's
law where its conditions hold, or silence.

*Leaves the plateau* is a fall by 5 % of its level, *has fallen by x %* is another thing: after the first drop the level
is that of the plateau the loss is on now, and only the leaving is told. "Over" is said from the measured loss alone. A
forecast whose step has passed, and the loss had not fallen by then, silences the method for the rest of the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from netvitals.saddle.measure.forecasting import EscapeForecast, Rule, forecast_live, made_forecast, no_forecast
from netvitals.saddle.measure.growth import Growth, measure_growth, rate_left
from netvitals.saddle.measure.plateau import Snapshot

LEAVES = 0.05  # a plateau is left when the loss is this share below its level
GROWTH_SPREAD = 0.22  # standard deviation of ln(time left), on the tuning families
AGREE = (0.5, 2.0)  # change of the signal between looks over that which the gradients say
HELD_DOWN = 0.2  # decay during the wait that the chain's law, which knows none, bears


def forecast_escape(
    history: Sequence[Snapshot],
    taus: Sequence[float],
    *,
    when: Callable[[float], float],
    lr: float,
    rule: Rule = "sgd",
    momentum: float = 0.0,
    beta2: float = 0.999,
    decay: float = 0.0,
    drop: float = 0.5,
    level: float = 0.8,
    earlier: Sequence[EscapeForecast] = (),
    lookahead: EscapeForecast | None = None,
) -> EscapeForecast:
    """Forecast from all looks at a network so far.

    Args:
        history: looks in order.
        taus: learning rate spent by each of them.
        when: the step by which so much more learning rate is spent, as the schedule has it.
        lr: learning rate now.
        rule: how the optimizer turns gradients into steps.
        momentum: of SGD.
        beta2: of Adam.
        decay: what a unit of learning rate takes of a weight.
        drop: share of the resting loss that has to be gone; later plateaus are asked when they are left.
        level: nominal coverage of the interval.
        earlier: forecasts that were made before.
        lookahead: what a look-ahead says as of now, where the network is no chain: when the plateau is left, and how
            many factors grow together, which the growth of the slope needs after that.

    Returns:
        The forecast, or the reason why there is none.

    >>> grown = [0.01 * math.exp(i / 10) for i in range(12)]  # the fall of the loss doubles every 70 steps
    >>> looks = [Snapshot(step=10 * i, signal=g, loss=1 - g, resting=1.0, names=("0", "1"), grads=(0.1, 0.1),
    ...                   signs=(0.1, 0.1), gains=(0.1, 0.1), scales=(0.1, 0.1), speed=g) for i, g in enumerate(grown)]
    >>> found = forecast_escape(looks, [0.1 * i for i in range(12)], when=lambda more: 110 + more / 0.01, lr=0.01)
    >>> found.known, found.low < found.step < found.high
    (True, True)
    """
    now = history[-1]
    refuse = lambda why: no_forecast(now.step, why, drop=drop, level=level)
    if not (math.isfinite(now.loss) and math.isfinite(now.speed)):
        return refuse(now.reason or "loss or gradients are not finite numbers")
    seen = [(t, s) for t, s in zip(taus, history) if math.isfinite(s.loss) and s.speed > 0]
    resting = max(history[0].resting, 1e-300)
    growth = (
        measure_growth([t for t, _ in seen], [s.loss for _, s in seen], [s.speed for _, s in seen], resting)
        if len(seen) >= 2
        else Growth(since=0, reason="one measurement cannot show growth")
    )
    if growth.first and now.loss <= (1 - drop) * resting:
        return refuse("the plateau is over")
    if growth.first and lookahead is not None and lookahead.known and now.loss > (1 - LEAVES) * lookahead.rest:
        found = lookahead
    elif not growth.reason:
        found = _from_growth(history, growth, when, rule, drop, level, lookahead)
    elif growth.first and lookahead is not None:
        found = refuse(f"{growth.reason}; {lookahead.reason}" if lookahead.reason else growth.reason)
    elif growth.first:
        found = _from_chain(history, when, growth, lr, rule, momentum, beta2, decay, drop, level)
    else:
        found = refuse(growth.reason)
    wrong = next((e for e in earlier if _missed(e, history)), None) if found.known else None
    if wrong is not None:
        return refuse(
            f"the forecast of step {wrong.at} said step {wrong.step:.0f}, which passed without the drop: no more "
            "forecasts in this run"
        )
    return found


def _missed(earlier: EscapeForecast, history: Sequence[Snapshot]) -> bool:
    """Whether the step of a forecast has passed and its drop had not come by the next look."""
    if not (earlier.known and earlier.step < history[-1].step):
        return False
    until = next(s.step for s in history if s.step > earlier.step)
    seen = [s.loss for s in history if earlier.at <= s.step <= until]
    return min(seen) > (1 - earlier.drop) * earlier.rest


def _from_growth(
    history: Sequence[Snapshot],
    growth: Growth,
    when: Callable[[float], float],
    rule: Rule,
    drop: float,
    level: float,
    lookahead: EscapeForecast | None = None,
) -> EscapeForecast:
    now, share = history[-1], drop if growth.first else LEAVES
    r = max(2, len(history[0].small) or min(len(history[0].names), 4))
    if lookahead is not None and lookahead.known and growth.first:
        r = int(lookahead.r)
    left = rate_left(growth, share, 2 - 2 / r if rule == "sgd" else 1 - 1 / r)
    step = when(left)
    if left == 0 or not math.isfinite(step):
        why = (
            "this plateau has already ended"
            if left == 0
            else "the remaining learning rate is too small to reach its end"
        )
        return no_forecast(now.step, why, drop=share, level=level)
    found = made_forecast(now.step, step - now.step, level, r, share, "growth", GROWTH_SPREAD)
    return replace(found, rest=growth.level)


def _from_chain(
    history: Sequence[Snapshot],
    when: Callable[[float], float],
    growth: Growth,
    lr: float,
    rule: Rule,
    momentum: float,
    beta2: float,
    decay: float,
    drop: float,
    level: float,
) -> EscapeForecast:
    """The chain's law, before the slope is seen to grow, where the signal has been seen to."""
    now = history[-1]
    refuse = lambda why: no_forecast(now.step, why, drop=drop, level=level)
    if now.reason:
        return refuse(f"{growth.reason}; {now.reason}")
    if why := _no_evidence(history, lr, rule, momentum):
        return refuse(why)
    found = forecast_live(history, lr=lr, rule=rule, momentum=momentum, beta2=beta2, drop=drop, level=level)
    if not found.known:
        return found
    left = (found.step - now.step) * lr
    if decay * left > HELD_DOWN:
        return refuse("weight decay holds the small layers down, and the chain's law knows none")
    step = when(left)
    if not math.isfinite(step):
        return refuse("the learning rate that is left does not reach its end")
    factor = (step - now.step) / max(found.step - now.step, 1e-9)
    stretch = lambda t: now.step + (t - now.step) * factor
    return replace(found, step=step, low=stretch(found.low), high=stretch(found.high), rest=now.resting)


def _no_evidence(history: Sequence[Snapshot], lr: float, rule: Rule, momentum: float) -> str:
    """Why the signal is not seen to grow as the law says; empty where it is."""
    last = [s for s in history[-4:] if not s.reason]
    if len(last) < 4:
        return f"{len(last)} looks are too few to see the signal grow, 4 are needed"
    if not (all(s.signal > 0 for s in last) and all(a.signal < b.signal for a, b in pairwise(last))):
        return "the signal is not positive and rising"
    if not last[-1].loss < last[-1].resting:
        return "the loss is not below its resting value"
    speeds = [sum(g * g for g in s.grads) / (1 - momentum) if rule == "sgd" else sum(s.signs) for s in last]
    expected = lr * float(np.trapezoid(speeds, [s.step for s in last]))
    ratio = (last[-1].signal - last[0].signal) / max(expected, 1e-300)
    if not AGREE[0] < ratio < AGREE[1]:
        return (
            f"the signal grew by {ratio:.2f} of what the gradients predict: the formula for chains does not hold here"
        )
    return ""
