r"""The end of a plateau from how its own slope grows: no chain, no small layers, no rest to be known.

On a plateau the loss falls at the speed $D=-d\ell/d\tau$ (τ: learning rate spent), which is read off the gradient and
the optimizer's rule. Out of a saddle the amplitude of what is being learnt grows as $\dot x=c\,x^p(1-x)$ with
$\ell=\ell_0(1-x)^2$: p = 2 − 2/r for gradient descent with r layers that grow together, 1 − 1/r for Adam. Then
$\kappa=d\ln D/d\tau$ gives $x=p\,\dot x/\kappa$, and the rest is one integral,

$$\tau^*-\tau=\int_x^{x^*}\frac{dy}{c\,y^p(1-y)},\qquad x^*=1-\sqrt{1-\text{drop}}.$$

κ is measured, so decay, momentum and schedules are in it. What is taken for granted is checked: D has grown since its
least value and grows by more than its error; the loss fell since then by what D says; it is below where it was.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from netvitals.capture import Result

LEAST = 5  # looks since the slope was least
RECENT = 0.35  # the share of them whose growth counts
SURE = 3.0  # standard errors that the growth must differ from zero by
GROWN = 1.3  # the slope must have grown by this factor
AGREE = (0.4, 2.5)  # measured fall over that which the speed says
PEAK = 3.0  # the slope falls by this factor from a peak before a new plateau counts


@dataclass(frozen=True, kw_only=True)
class Growth(Result):
    """How the slope of the loss grows on the plateau it is on; ``reason`` is empty, or says why it does not tell.

    Returned by :func:`measure_growth`.

    Attributes:
        since: index of the look at which the slope was least.
        rate: κ, per unit of learning rate.
        stderr: of the rate.
        speed: D now; on the first plateau with the part that is learnt taken out.
        fallen: measured fall of the loss over that which the speed says.
        level: loss at the beginning of this plateau.
        loss: the loss now.
        first: no drop came before.
        reason: why it tells nothing; empty where it does.
    """

    since: int
    rate: float = math.nan
    stderr: float = math.nan
    speed: float = math.nan
    fallen: float = math.nan
    level: float = math.nan
    loss: float = math.nan
    first: bool = True
    reason: str = ""

    def __str__(self) -> str:
        if self.reason:
            return self.reason
        return (
            f"the slope grows by {self.rate:.3g} ± {self.stderr:.2g} per unit of learning rate; the loss fell by "
            f"{self.fallen:.2f} of what it says"
        )


def measure_growth(
    taus: Sequence[float], losses: Sequence[float], speeds: Sequence[float], resting: float = math.nan
) -> Growth:
    """Growth of the slope over the looks of one run, on the plateau that it is on now.

    Args:
        taus: learning rate spent by each look.
        losses: on a fixed batch.
        speeds: fall of the loss per unit of learning rate, as :attr:`Snapshot.speed` has it.
        resting: loss of a model that has learnt nothing; the first loss if left out.

    Returns:
        The growth, or the reason why nothing can be told.

    >>> tau = np.linspace(0, 6, 40)
    >>> x = 1 / (1 + 999 * np.exp(-tau))
    >>> found = measure_growth(tau, (1 - x) ** 2, 2 * (1 - x) ** 2 * x)
    >>> round(found.rate, 2), round(found.fallen, 2)
    (0.86, 1.0)
    """
    tau, loss, speed = (np.asarray(v, dtype=float) for v in (taus, losses, speeds))
    if loss.min(initial=math.inf) <= 0:
        return Growth(since=0, reason="the loss is not positive, but the formula needs a positive loss")
    if not (np.isfinite(loss).all() and np.isfinite(speed).all() and (speed > 0).all()):
        return Growth(since=0, reason="loss or gradients are not finite numbers, or the gradient is exactly zero")
    now = len(tau) - 1
    begin = last_drop(speed)
    level = float(resting) if resting > 0 else float(loss[0])
    # without the (1 − x)² of what is learnt; what is left of a later plateau is not known
    free = np.log(speed if begin else speed * (level / np.maximum(loss, 1e-300)))
    smooth = np.convolve(np.pad(free, 1, mode="edge"), np.ones(3) / 3, "valid")
    since = begin + int(np.argmin(smooth[begin:]))
    first = begin == 0
    if now - since < LEAST - 1:
        return Growth(since=since, first=first, reason="the slope of the loss does not grow")
    width = max(4, int((now - since) * RECENT))
    x, y = tau[now - width :], free[now - width :]
    x = x - x.mean()
    total = float((x * x).sum())
    if total <= 0:
        return Growth(since=since, first=first, reason="the learning rate was zero")
    rate = float((x * y).sum() / total)
    stderr = math.sqrt(float(((y - y.mean() - rate * x) ** 2).sum()) / max(1, width - 1) / total)
    fallen = float((loss[since] - loss[now]) / max(np.trapezoid(speed[since:], tau[since:]), 1e-300))
    if not rate > SURE * stderr or free[now] - free[since] < math.log(GROWN):
        why = f"the growth of the loss slope is not significant: {rate:.3g} ± {stderr:.2g}"
    elif not loss[now] < loss[since]:
        why = "the loss is not below where this plateau began"
    elif not AGREE[0] < fallen < AGREE[1]:
        why = f"the loss fell by {fallen:.2f} of what its slope predicts: more than one direction grows"
    else:
        why = ""
    return Growth(
        since=since,
        rate=rate,
        stderr=stderr,
        speed=float(np.exp(free[now])),
        fallen=fallen,
        level=level if first else float(loss[since]),
        loss=float(loss[now]),
        first=first,
        reason=why,
    )


def last_drop(speeds: np.ndarray) -> int:
    """Index of the last steep part that is over: a peak of the slope after which it fell by a factor of three and more
    and before which it had grown by as much; 0 where there was none.

    >>> last_drop(np.array([1, 2, 8, 20, 9, 2, 1.5, 2.0])), last_drop(np.array([9.0, 3, 2, 1, 2, 4]))
    (3, 0)
    """
    found, low, high, at = 0, math.inf, -math.inf, 0
    for i, v in enumerate(speeds):
        low = min(low, v)
        if v > high:
            high, at = v, i
        if high > PEAK * low and v < high / PEAK and at > 0 and low < speeds[at] / PEAK:
            rose = float(np.min(speeds[found : at + 1])) * PEAK < speeds[at]
            if rose:
                found = at
            low, high, at = v, v, i
    return found


def rate_left(growth: Growth, drop: float, power: float) -> float:
    """Learning rate until the loss has fallen by ``drop`` of the level of this plateau."""
    if growth.reason:
        raise ValueError(f"the slope of the loss cannot be extrapolated: {growth.reason}")
    if growth.loss <= (1 - drop) * growth.level:
        return 0.0
    if not growth.first:
        return _small_fall(growth, drop, power)
    end = 1 - math.sqrt(1 - drop)
    seen = 1 - math.sqrt(min(1.0, max(0.0, growth.loss / growth.level)))
    pace = growth.speed * max(1 - seen, 0.05) / (2 * growth.level)
    x = power * pace / growth.rate
    trust = min(1.0, seen / 0.1) if seen > 0.02 else 0.0  # what was measured, where enough is learnt to be measured
    x = min(x + trust * (seen - x), 0.98 * end)
    grid = np.geomspace(x, end, 200)
    return float(np.trapezoid(x**power / (pace * grid**power * (1 - grid)), grid))


def _small_fall(growth: Growth, drop: float, power: float) -> float:
    r"""The same on a later plateau, whose next drop may be a small part of its level: the fall s that the growing
    direction has made so far is pD/κ, and $\dot s=D\,(s/s_{now})^p$."""
    pace = growth.speed
    s = power * pace / growth.rate
    wanted = drop * growth.level - (growth.level - growth.loss)
    grid = np.linspace(s, s + wanted, 200)
    return float(np.trapezoid((s / grid) ** power / pace, grid))
