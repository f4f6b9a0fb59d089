"""Will this run be lost? A loss that climbs from its lowest while the learning rate does not fall.

A run counts as lost where its loss (the median of five steps) is not finite or three times that of the start, or where
its mean over twenty steps has given back nine tenths of what it had gained, if that was a tenth of the start or more.
It is called where for five steps the loss (the median of nine) has been twice its lowest and above a twentieth of the
start, or its mean over twenty steps has given back a tenth of its gain, by four standard errors, or it is half above
the start; and the schedule does not lower the rate meanwhile. The date is that of the climb so far, carried on in the
logarithm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from netvitals.forecasts.forecast import Forecast

QUANTITY = "loss/lost"
WIDTH = 9  # steps of the median
CLIMB = 2.0  # over its lowest
SHARE = 0.05  # of the start
BACK, GAIN = 0.1, 0.1  # part of the gain that is given back; the gain, as a share of the start
MEAN = 20  # steps of the mean that is compared with its lowest
TRIM = 2  # losses left out at either end of it: one spike is no climb
BEYOND = 4.0  # standard errors
HOLD = 5  # steps in a row
CALM = 20  # steps before anything is said
MEDIAN_ERROR = 0.59  # of the difference of two medians of nine, in units of the noise
TREND = 30  # steps whose climb is carried on
SPREAD = 1.1  # standard deviation of ln(time left), on the tuning families


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
        self._losses: list[float] = []
        self._rates: list[float] = []
        self._medians: list[float] = []
        self._held = 0
        self._first = math.nan
        self._low = math.inf  # lowest median
        self._means: list[float] = []
        self._lowest = math.inf  # lowest mean

    def add(self, step: int, loss: float, rate: float = math.nan) -> bool:
        """One step.

        Args:
            step: of the run.
            loss: of it.
            rate: its learning rate, where it is known.

        Returns:
            Whether danger is called at this step.
        """
        value = loss if math.isfinite(loss) else 1e30
        self._losses.append(value)
        self._rates.append(rate)
        if len(self._losses) == 5:
            self._first = _median(self._losses)
        median = _median(self._losses[-WIDTH:])
        self._medians.append(median)
        if len(self._medians) > 5:
            self._low = min(self._low, self._medians[-6])
        gain, climb = self._gain_and_climb()
        returns = gain > GAIN * self._first and climb > BACK * gain
        climbs = median > CLIMB * self._low and median > SHARE * self._first
        if returns or climbs or self.lost is None:
            noise = self._noise() if returns or climbs or climb >= 0.9 * gain > 0 else math.inf  # it takes the time
            self._note_lost(step, gain, climb, noise)
            returns = returns and climb > BEYOND * noise * math.sqrt(2 / MEAN)
            climbs = climbs and median - self._low > 3 * MEDIAN_ERROR * noise
        bad = (climbs or returns or median > 1.5 * self._first) and not _falls(self._rates[-CALM - 1 :])
        self._held = self._held + 1 if bad and len(self._losses) > CALM else 0
        if len(self._losses) > 400:
            del self._losses[:200], self._medians[:200], self._rates[:200], self._means[:200]
        if self._held >= HOLD and self.called is None:
            self.called = step
            return True
        if self.called is not None and not bad and median < 1.5 * self._low:
            self.called = None  # it came back
        return False

    def _gain_and_climb(self) -> tuple[float, float]:
        """How far the mean of the last steps had come down at its lowest, and how far it is above that now."""
        last = self._losses[-MEAN:]
        middle = sorted(last)[TRIM:-TRIM] if len(self._losses) > 3 * TRIM else last
        self._means.append(sum(middle) / len(middle))
        if len(self._means) <= 2 * MEAN:
            return 0.0, 0.0
        begun = self._lowest == math.inf
        self._lowest = min(self._lowest, min(self._means[MEAN - 1 : -MEAN]) if begun else self._means[-MEAN - 1])
        return self._first - self._lowest, self._means[-1] - self._lowest

    def _noise(self) -> float:
        """Spread of one loss around its neighbours, before the last ones."""
        before = self._losses[-91 : -MEAN // 2]
        return _median([abs(b - a) for a, b in pairwise(before)]) / 0.954 if len(before) > 6 else math.inf

    def _note_lost(self, step: int, gain: float, climb: float, noise: float) -> None:
        short = _median(self._losses[-5:])
        sure = gain >= GAIN * self._first and gain > BEYOND * noise * math.sqrt(2 / MEAN)
        if self.lost is None and (short > 3 * self._first or (sure and climb >= 0.9 * gain)):
            self.lost = step

    def forecast(self, step: int, why: dict[str, str]) -> Forecast:
        """When the run will be lost, from the climb so far.

        Args:
            step: now.
            why: conditions besides: the update ratio, the stream, the sharpness, as far as they were measured.

        Returns:
            The forecast of an event.
        """
        recent = np.log(np.maximum(self._medians[-TREND:], 1e-300))
        x = np.arange(len(recent)) - (len(recent) - 1) / 2
        climb = float((x * recent).sum() / max((x * x).sum(), 1e-9))
        now = self._medians[-1]
        gap = math.log(max(self._first, 1e-300) / max(now, 1e-300))
        left = max(5.0, gap / climb) if climb > 1e-4 and gap > 0 else 25.0 if gap <= 0 else 2.0 * len(self._medians)
        span = [(step + left * math.exp(-z * SPREAD), step + left * math.exp(z * SPREAD)) for z in (0.674, 1.282)]
        return Forecast(
            quantity=QUANTITY,
            site="model",
            made_at=step,
            for_step=math.ceil(span[1][1]),
            value=step + left,
            interval50=span[0],
            interval80=span[1],
            method="climb",
            horizon="event",
            conditions={
                "loss": f"{now:.3g}, {now / max(self._low, 1e-300):.1f} times its lowest ({self._low:.3g})",
                "learning rate": "does not fall",
                **why,
            },
        )


def _median(values: Sequence[float]) -> float:
    """Of a few numbers: a call of numpy takes longer than their order."""
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else 0.5 * (ordered[half - 1] + ordered[half])


def _falls(rates: Sequence[float]) -> bool:
    known = [r for r in rates if math.isfinite(r)]
    return bool(known) and known[-1] < 0.9 * max(known)
