r"""Will this run be lost? A loss that climbs from its lowest while the learning rate does not fall.

A run counts as lost where its loss (the median of five steps) is not finite or three times that of the start, or where
its mean over twenty steps has given back nine tenths of what it had gained, if that was a tenth of the start or more.

It is called where, with the trimmed mean $M$ of twenty losses, its lowest $M_0$ and the noise of one loss $s$ (of its
logarithm, $s_\ln$), the schedule does not lower the rate within twenty steps and

- the rate is above all that it was until the lowest, and for ten steps 35 % of the logarithm gained are given back and
  $\ln M/M_0>0.3$, by four standard errors, or a fifth of the gain, by six;
- the rate is no higher, and for five steps a fifth of the logarithm gained and $\ln M/M_0>0.3$, by fourteen standard
  errors, or 45 % of the gain, by eight, and the loss still climbs;

or where the schedule is about to raise the rate, in one leap that lasts, to eight times what the run has known. The
date is that of the climb so far, carried on in the logarithm, or that of the leap. A call is withdrawn after twenty
steps without its reasons.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from netvitals.forecasts.forecast import Forecast

QUANTITY = "loss/lost"
WIDTH = 9  # steps of the median
GAIN = 0.1  # the gain that can be given back, as a share of the start
MEAN = 20  # steps of the mean that is compared with its lowest, and of the future that is asked for
TRIM = 2  # losses left out at either end of it: one spike is no climb
BEYOND = 4.0  # standard errors of a gain
HOLD = 10  # steps in a row; those of a leap and of a steady rate count twice
CALM = 20  # steps before anything is said
TREND = 30  # steps whose climb is carried on
ERROR = math.sqrt(2 / MEAN)  # of the difference of two means, in units of the noise
# what follows was chosen on the tuning families of the corpus
RISEN = 0.05  # ln of the rate over the highest until the lowest loss: above it the rate has risen
CLIMB = 0.3  # ln of the climb, at least
# where the rate has risen and where it has not: the part of the logarithm gained that is given back, by so many
# standard errors, or the part of the gain, by so many; and what a step of it counts for, of HOLD
ROSE, STEADY = (0.35, 4.0, 0.2, 6.0, 1), (0.2, 14.0, 0.45, 8.0, 2)
UPWARD = 0.01  # climb of the logarithm a step, where the rate has not risen
LEAP, LASTS = 8.0, 40  # a rate that is so many times what the run has known, for so many steps
NOTICE = 30  # steps ahead that a leap is called
SPREAD = 1.0  # standard deviation of ln(time left)


class Danger:
    """Follows the loss step by step.

    >>> found = Danger()
    >>> for t in range(200):
    ...     _ = found.add(t, math.exp(-t / 20) if t < 100 else 0.007 * math.exp((t - 100) / 15), 0.1)
    >>> found.called is not None and 100 < found.called < 150
    True
    """

    def __init__(self) -> None:
        self.called: int | None = None  # the step at which it was called
        self.lost: int | None = None  # the step at which it was lost
        self.withdrawn: list[int] = []  # the steps at which a call was taken back
        self.leap: float = math.inf  # the step at which the schedule leaps
        self._losses: list[float] = []
        self._logs: list[float] = []
        self._rates: list[tuple[float, float]] = []  # learning rate, and the highest so far
        self._held = self._calm = self._high = 0
        self._first = math.nan
        self._means: list[tuple[float, float]] = []  # of the losses and of their logarithms
        self._ordered: tuple[list[float], list[float]] = [], []  # the last losses and their logarithms, by size
        self._lowest = math.inf  # lowest mean
        self._floor = math.inf  # lowest mean of logarithms
        self._rate = self._highest = math.nan  # the learning rate there, and the highest until then
        self._peak = 0.0  # the highest learning rate so far
        self._why: dict[str, str] = {}
        self.silent = False  # it only suspects: another method calls

    @property
    def climb(self) -> tuple[float, float]:
        """How far the mean loss is above its lowest of some time ago, in the logarithm, and the standard error of it;
        NaN and infinite as long as nobody knows."""
        if self._floor == math.inf:
            return math.nan, math.inf
        return self._means[-1][1] - self._floor, ERROR * _noise(self._logs)

    @property
    def highest_rate(self) -> float:
        """The highest learning rate so far; 0 where none is known."""
        return self._peak

    def plan(self, step: int, rates: np.ndarray) -> None:
        """What the schedule has in store; ``leap`` is set from it.

        >>> found = Danger()
        >>> found.plan(100, np.repeat([0.1, 1.0], 50))
        >>> found.leap
        150
        """
        begun = np.full(NOTICE, max(self._peak, float(rates[0])))
        known = np.maximum.accumulate(np.concatenate([begun, rates]))[: len(rates)]
        at = np.flatnonzero(rates > LEAP * known)
        self.leap = math.inf
        if len(at) and bool((rates[at[0] : at[0] + LASTS] > LEAP * known[at[0]]).all()):
            self.leap = step + int(at[0])

    def add(self, step: int, loss: float, rate: float = math.nan, later: float = math.nan) -> bool:
        """One step."""
        value = loss if loss < 1e30 and loss > -math.inf else 1e30
        self._losses.append(value)
        self._logs.append(math.log(max(value, 1e-12)))
        if rate > self._peak:
            self._peak = rate
        self._rates.append((rate, self._peak))
        if len(self._losses) == 5:
            self._first = _median(self._losses)
        self._follow()
        if self.lost is None and len(self._losses) >= 5:
            self._note_lost(step)
        near = 0 < self.leap - step <= NOTICE
        bad = 0 if len(self._losses) <= CALM else 2 if near else self._climbs(rate, later)
        self._held = self._held + bad if bad else 0
        self._calm = 0 if bad else self._calm + 1
        if len(self._losses) > 400:
            del self._losses[:200], self._logs[:200], self._rates[:200], self._means[:200]
        if self._held >= HOLD and self.called is None:
            self.called = step
            return not self.silent
        if self.called is not None and self._calm >= MEAN:  # it came back
            self.called = None
            self.withdrawn.append(step)
        return False

    def _follow(self) -> None:
        """The mean of the last steps, and its lowest until twenty steps ago."""
        losses, logs = self._ordered  # in one order, so that one search finds the place in both
        if len(losses) == MEAN:
            gone = bisect_left(losses, self._losses[-MEAN - 1])
            del losses[gone], logs[gone]
        place = bisect_left(losses, self._losses[-1])
        losses.insert(place, self._losses[-1])
        logs.insert(place, self._logs[-1])
        cut = TRIM if len(losses) > 3 * TRIM else 0
        count = len(losses) - 2 * cut
        self._means.append((sum(losses[cut : cut + count]) / count, sum(logs[cut : cut + count]) / count))
        if len(self._means) <= 2 * MEAN:
            return
        for at in range(MEAN - 1, len(self._means) - MEAN) if self._lowest == math.inf else (-MEAN - 1,):
            mean, log = self._means[at]
            self._lowest = min(self._lowest, mean)
            if log < self._floor:
                self._floor, (self._rate, self._highest) = log, self._rates[at]

    def _climbs(self, rate: float, later: float) -> int:
        """Whether the loss is on its way back, as far as the rate lets it; what this step counts for."""
        mean, log = self._means[-1]
        climb = log - self._floor
        if self._lowest == math.inf or (climb <= CLIMB and mean - self._lowest <= ROSE[2] * GAIN * self._lowest):
            return 0  # too little for either
        if _ln(later, rate) < -RISEN:
            return 0
        gain = math.log(max(self._first, 1e-12)) - self._floor
        back = (mean - self._lowest) / max(self._first - self._lowest, 0.03 * self._first) if gain > GAIN else 0.0
        risen = _ln(rate, self._highest)
        part, sure, share, surely, counts = ROSE if risen > RISEN else STEADY
        upward = 0.0
        if climb > max(CLIMB, part * gain) and climb > sure * ERROR * _noise(self._logs):
            what, upward = f"{math.exp(climb):.1f} times its lowest", UPWARD
        elif back > share and mean - self._lowest > surely * ERROR * _noise(self._losses):
            what = f"{min(back, 1.0):.0%} of its gain given back since its lowest"
        else:
            return 0
        if _ln(rate, self._rate) < -2 * RISEN or (risen <= RISEN and self._trend() <= upward):
            return 0  # the rate has fallen since, or the climb is over
        self._why = {
            "loss": f"{mean:.3g}, {what} ({self._lowest:.3g})",
            "learning rate": f"{math.exp(risen):.1f} times what it was before" if risen > RISEN else "does not fall",
        }
        return counts

    def _trend(self) -> float:
        """Climb of the logarithm a step, over medians of the last steps."""
        count = min(TREND, len(self._logs) - WIDTH)
        ends = range(len(self._logs) - count, len(self._logs))
        medians = [_median(self._logs[end - WIDTH + 1 : end + 1]) for end in ends]
        return sum((i - (count - 1) / 2) * m for i, m in enumerate(medians)) * 12 / max(1, count**3 - count)

    def _note_lost(self, step: int) -> None:
        if self._losses[-1] > 3 * self._first:
            self._high = 5
        self._high -= 1
        if self._high >= 0 and _median(self._losses[-5:]) > 3 * self._first:
            self.lost = step
        gain, climb = self._first - self._lowest, self._means[-1][0] - self._lowest
        if gain >= GAIN * self._first and climb >= 0.9 * gain and gain > BEYOND * ERROR * _noise(self._losses):
            self.lost = step

    def forecast(self, step: int, why: dict[str, str]) -> Forecast:
        """When the run will be lost, from the climb so far."""
        if 0 < self.leap - step <= NOTICE:
            left, method = self.leap - step + HOLD // 2, "schedule"
            reasons = {"learning rate": f"will be more than {LEAP:g} times what it has been, at step {self.leap:.0f}"}
        else:
            climb, now = self._trend(), self._means[-1][1]
            gap = math.log(max(self._first, 1e-12)) - now
            left = max(5.0, gap / climb) if climb > 1e-4 and gap > 0 else 25.0 if gap <= 0 else 2.0 * len(self._logs)
            method, reasons = "climb", self._why
        return lost_near(step, left, SPREAD, method, {**reasons, **why})


def lost_near(step: int, left: float, spread: float, method: str, conditions: Mapping[str, str]) -> Forecast:
    """The forecast that a run will be lost, with a lognormal time left.

    >>> print(lost_near(100, 50.0, 0.3, "look-ahead", {}))
    loss/lost at model: near step 150 (80 % interval 134 to 173; look-ahead, made at step 100)
    """
    span = step + left * math.exp(-1.282 * spread), step + left * math.exp(1.282 * spread)
    return Forecast(
        quantity=QUANTITY,
        made_at=step,
        for_step=math.ceil(span[1]),
        value=step + left,
        interval80=span,
        method=method,
        conditions=dict(conditions),
    )


def _median(values: Sequence[float]) -> float:
    """Of a few numbers: a call of numpy takes longer than their order."""
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else 0.5 * (ordered[half - 1] + ordered[half])


def _noise(values: Sequence[float]) -> float:
    """Spread of one value around its neighbours, before the last ones."""
    before = values[-91 : -MEAN // 2]
    return _median([abs(b - a) for a, b in pairwise(before)]) / 0.954 if len(before) > 6 else math.inf


def _ln(one: float, other: float) -> float:
    """Logarithm of a ratio of learning rates; 0 where one of them is not known."""
    return math.log(max(one, 1e-12) / max(other, 1e-12)) if math.isfinite(one) and math.isfinite(other) else 0.0
