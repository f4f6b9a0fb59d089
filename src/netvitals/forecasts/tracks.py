r"""One metric at all its sites, look by look, in two clocks: steps, and the learning rate spent.

At every look the level and the slope of the last quarter of the looks are kept, by least squares in
$\tau=\sum_t\eta_t$; from them the forecast

$$y(\tau+\Delta) = y(\tau) + b\,\frac{1-e^{-k\Delta}}{k},\qquad k=\bar\lambda+\frac{a}{\tau},$$

a slope that relaxes: weights under decay forget at the rate λ, and what training does slows down as it goes on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

LEAST = 6  # looks before anything is said
WINDOW = 4  # the slope is that of the last quarter of the looks
SLOWING = 4.0  # a: chosen on the tuning families of the corpus
KEPT = 512  # looks that are remembered: the last half of them whole, the past thinned out
THIRD = 3  # naive slopes look at the last third


def thin(kept: int, *lists: list[Any]) -> None:
    """Where lists that grow together have become longer than ``kept``, every second entry of the older half goes.

    Args:
        kept: entries at most.
        *lists: of one length; changed in place.

    >>> numbers = list(range(9))
    >>> thin(8, numbers)
    >>> numbers
    [0, 2, 4, 5, 6, 7, 8]
    """
    if len(lists[0]) > kept:
        for one in lists:
            del one[1 : kept // 2 : 2]


class Tracks:
    """Values of one metric, looks × sites.

    Args:
        sites: their names.
        low: no value is below.
        high: no value is above.
        slope: share of the slope that is believed; less than 1 where readings are mostly noise.
        level: share of the way from the last reading to the line that is gone, for the same reason.

    >>> found = Tracks(["a"])
    >>> for t in range(8):
    ...     found.add(t, 0.1 * t, [1 + 0.5 * t])
    >>> [round(float(v[0]), 3) for v in found.naive(12, 1.2).values()]
    [4.5, 7.0, 7.0, 7.0]
    """

    def __init__(
        self,
        sites: Sequence[str],
        low: float = -math.inf,
        high: float = math.inf,
        *,
        slope: float = 1.0,
        level: float = 0.0,
    ) -> None:
        self.sites, self.low, self.high, self.slope, self.level = list(sites), low, high, slope, level
        self.offsets: list[np.ndarray] = []  # of the line from the last reading, at each look
        self.steps: list[int] = []
        self.taus: list[float] = []
        self.values: list[np.ndarray] = []
        self.slopes: list[np.ndarray] = []  # per unit of learning rate, at each look
        self.noises: list[np.ndarray] = []  # spread of a reading around its line

    def add(self, step: int, tau: float, values: Sequence[float] | np.ndarray) -> None:
        """A look."""
        self.steps.append(step)
        self.taus.append(tau)
        self.values.append(np.asarray(values, dtype=np.float64))
        width = max(3, (len(self.steps) - 1) // WINDOW)
        slope, noise = self._line(width, np.array(self.taus))
        x = np.array(self.taus[-width - 1 :])
        self.offsets.append(np.mean(self.values[-width - 1 :], axis=0) + slope * (x[-1] - x.mean()) - self.values[-1])
        self.slopes.append(slope)
        self.noises.append(noise)
        thin(KEPT, self.offsets, self.steps, self.taus, self.values, self.slopes, self.noises)

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def last(self) -> np.ndarray:
        return self.values[-1]

    def _line(self, width: int, clock: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Slope in ``clock`` and spread around the line of the last ``width`` + 1 looks, by site."""
        x, y = clock[-width - 1 :], np.array(self.values[-width - 1 :])
        x = x - x.mean()
        total = float((x * x).sum())
        if total <= 0 or len(x) < 3:
            return np.zeros(len(self.sites)), np.zeros(len(self.sites))
        slope = (x[:, None] * y).sum(0) / total
        rest = y - y.mean(0) - slope * x[:, None]
        return slope, np.sqrt((rest**2).sum(0) / max(1, len(x) - 2))

    def relaxed(self, look: int, dtau: float, decay: float, slowing: float = SLOWING) -> tuple[np.ndarray, np.ndarray]:
        """The forecast from a look, ``dtau`` of learning rate later; and the size of error it is measured in.

        Args:
            look: index of the look.
            dtau: learning rate between it and the day.
            decay: λ, what a unit of learning rate takes of a weight.
            slowing: a.

        Returns:
            Values and units, one a site.
        """
        spent = self.taus[look] - self.taus[0]
        lever = effective(dtau, decay + slowing / spent if spent > 0 else math.inf)
        moved = self.slope * self.slopes[look] * lever + self.level * self.offsets[look]
        unit = np.hypot(0.5 * np.abs(self.slopes[look]) * min(dtau, max(spent, 0.0)), self.noises[look])
        return np.clip(self.values[look] + moved, self.low, self.high), np.maximum(unit, 1e-12)

    def naive(self, for_step: float, tau: float) -> Mapping[str, np.ndarray]:
        """What is said without a law, for a day: the best of these is what a method has to beat.

        Args:
            for_step: the day.
            tau: the learning rate spent by then.

        Returns:
            By name, one value a site.
        """
        now, ahead = self.last, for_step - self.steps[-1]
        back = int(np.searchsorted(self.steps, self.steps[-1] - ahead))
        back = min(back, len(self.steps) - 2)
        before = self.steps[-1] - self.steps[back]
        width = max(3, (len(self.steps) - 1) // THIRD)
        per_step, _ = self._line(width, np.array(self.steps, dtype=float))
        per_rate, _ = self._line(width, np.array(self.taus))
        found = {
            "unchanged": now,
            "goes on": now + (now - self.values[back]) * (ahead / max(1, before)),
            "per step": now + per_step * ahead,
            "per learning rate": now + per_rate * (tau - self.taus[-1]),
        }
        return {name: np.clip(values, self.low, self.high) for name, values in found.items()}


def effective(dtau: float, rate: float) -> float:
    r"""$(1-e^{-k\Delta})/k$, the lever of a slope that relaxes at the rate k.

    Args:
        dtau: Δ.
        rate: k.

    Returns:
        Δ for k = 0, 1/k for long times.

    >>> effective(2.0, 0.0), round(effective(2.0, 1.0), 4), effective(2.0, math.inf)
    (2.0, 0.8647, 0.0)
    """
    if rate == math.inf:
        return 0.0
    return dtau if rate * dtau < 1e-9 else -math.expm1(-rate * dtau) / rate
