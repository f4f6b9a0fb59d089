"""Look-aheads in a run: at a few looks only, and what the last one said is carried on between them.

A look-ahead costs up to 125 gradients of the probe batch, a look one. So there are four of them at most: on the first
look, at step 20, when Adam's moments are known, and whenever the run has grown by a factor of three since the last. In
between the learning rate that was to be spent until the plateau ends is counted down, along the schedule as it is known
by then.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from netvitals.saddle.measure.forecasting import EscapeForecast, no_forecast

MOST = 4  # look-aheads of a run
SECOND, AGAIN = 20, 3  # steps before the second, and the factor between those that follow


class EscapeRollouts:
    """What was looked ahead in a run, and when the next one is due.

    >>> seen = EscapeRollouts()
    >>> seen.due(0), seen.due(10)
    (True, True)
    >>> seen.keep(no_forecast(0, "no layer is small", drop=0.05, level=0.8), tau=0.0, spent=lambda first, last: 0.0)
    >>> seen.due(10), seen.due(20), seen.at(10, tau=1.0, when=lambda rate: 10 + rate).reason
    (False, True, 'no layer is small')
    """

    def __init__(self) -> None:
        self.made: list[EscapeForecast] = []
        self._ends: tuple[float, float, float] = (math.nan,) * 3  # learning rate at the low, middle and high date
        self._next = 0.0

    def due(self, step: int) -> bool:
        """Whether a look-ahead is worth its cost now."""
        return len(self.made) < MOST and step >= self._next

    def keep(self, found: EscapeForecast, *, tau: float, spent: Callable[[float, float], float]) -> None:
        """A look-ahead was made."""
        self.made.append(found)
        self._next = max(SECOND, AGAIN * found.at)
        if found.known:
            low, middle, high = (tau + spent(found.at, date) for date in (found.low, found.step, found.high))
            self._ends = low, middle, high

    def at(self, step: int, *, tau: float, when: Callable[[float], float]) -> EscapeForecast | None:
        """What the last look-ahead says as of now; None before the first."""
        if not self.made:
            return None
        last = self.made[-1]
        if last.at == step:
            return last
        refuse = lambda why: no_forecast(step, why, drop=last.drop, level=last.level)
        if not last.known:
            return refuse(last.reason)
        low, middle, high = (when(end - tau) if end > tau else float(step) for end in self._ends)
        if high <= step:
            return refuse("the date that was looked ahead has passed")
        if not math.isfinite(middle):
            return refuse("the learning rate that is left does not reach its end")
        return replace(last, at=step, step=max(middle, float(step)), low=low, high=high)
