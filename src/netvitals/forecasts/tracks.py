r"""One metric at all its sites, look by look, in two clocks: steps, and the learning rate spent.

Of every look the level and the slope of the quarter of the looks up to it are kept, by least squares in
$\tau=\sum_t\eta_t$ (when somebody asks: many looks at once cost little more than one); from them the forecast

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
        self.steps: list[int] = []
        self.taus: list[float] = []
        self.values: list[np.ndarray] = []
        self._slopes: list[np.ndarray] = []  # of the looks that have been fitted
        self._noises: list[np.ndarray] = []
        self._offsets: list[np.ndarray] = []
        self._recent: tuple[int, np.ndarray, np.ndarray] | None = None  # slopes of the last third, as of a step

    def add(self, step: int, tau: float, values: Sequence[float] | np.ndarray) -> None:
        """A look."""
        self.steps.append(step)
        self.taus.append(tau)
        self.values.append(np.asarray(values, dtype=np.float64))
        if len(self.steps) > KEPT:
            self._fit()
            thin(KEPT, self._offsets, self.steps, self.taus, self.values, self._slopes, self._noises)

    @property
    def slopes(self) -> list[np.ndarray]:
        """Per unit of learning rate, at each look."""
        self._fit()
        return self._slopes

    @property
    def noises(self) -> list[np.ndarray]:
        """Spread of a reading around its line, at each look."""
        self._fit()
        return self._noises

    @property
    def offsets(self) -> list[np.ndarray]:
        """Of the line from the last reading, at each look."""
        self._fit()
        return self._offsets

    def _fit(self) -> None:
        """Lines of the looks that have none yet, those of equal width together."""
        looks = np.arange(len(self._slopes), len(self.steps))
        if not len(looks):
            return
        first = max(0, int(looks[0]) - max(3, int(looks[-1]) // WINDOW))  # no line reaches further back
        tau, values = np.array(self.taus[first:]), np.array(self.values[first:])
        widths = np.minimum(np.maximum(3, looks // WINDOW), looks)
        for width in np.unique(widths):
            at = looks[widths == width, None] + np.arange(-width, 1) - first
            slope, noise, offset = _lines(tau[at], values[at])
            self._slopes.extend(slope)
            self._noises.extend(noise)
            self._offsets.extend(offset)

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def last(self) -> np.ndarray:
        return self.values[-1]

    def _line(self, width: int, clock: Sequence[float]) -> np.ndarray:
        """Slope in ``clock`` of the last ``width`` + 1 looks, by site."""
        x, y = np.array(clock[-width - 1 :], dtype=float), np.array(self.values[-width - 1 :])
        return _lines(x[None], y[None])[0][0]

    def relaxed(
        self, look: int | np.ndarray, dtau: float | np.ndarray, decay: float, slowing: float = SLOWING
    ) -> tuple[np.ndarray, np.ndarray]:
        """The forecast from a look, ``dtau`` of learning rate later; and the size of error it is measured in.

        Args:
            look: index of the look, or of several.
            dtau: learning rate between it and the day.
            decay: λ, what a unit of learning rate takes of a weight.
            slowing: a.

        Returns:
            Values and units, one a site; with several looks, a row for each.
        """
        self._fit()
        looks, dtau = np.atleast_1d(look), np.atleast_1d(dtau)
        slope, offset, noise, value = (
            np.array([rows[i] for i in looks]) for rows in (self._slopes, self._offsets, self._noises, self.values)
        )
        spent = np.array([self.taus[i] - self.taus[0] for i in looks])
        levers = [effective(d, decay + slowing / t if t > 0 else math.inf) for d, t in zip(dtau, spent)]
        moved = self.slope * slope * np.array(levers)[:, None] + self.level * offset
        unit = np.hypot(0.5 * np.abs(slope) * np.minimum(dtau, np.maximum(spent, 0.0))[:, None], noise)
        found, unit = np.clip(value + moved, self.low, self.high), np.maximum(unit, 1e-12)
        return (found, unit) if np.ndim(look) else (found[0], unit[0])

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
        if self._recent is None or self._recent[0] != self.steps[-1]:  # asked for day after day
            self._recent = self.steps[-1], self._line(width, self.steps), self._line(width, self.taus)
        _, per_step, per_rate = self._recent
        found = {
            "unchanged": now,
            "goes on": now + (now - self.values[back]) * (ahead / max(1, before)),
            "per step": now + per_step * ahead,
            "per learning rate": now + per_rate * (tau - self.taus[-1]),
        }
        return {name: np.clip(values, self.low, self.high) for name, values in found.items()}


def _lines(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Least squares over windows, (windows, looks) against (windows, looks, sites): slopes, spreads around the lines,
    and how far each line's end is from the last value; of fewer than three looks, or where no time passes, no slope."""
    last, looks = x[:, -1], x.shape[1]
    middle = y.mean(1)
    end = last - x.mean(1)
    x = (x - x.mean(1, keepdims=True))[..., None]
    total = (x * x).sum(1)
    known = (total > 0) & (looks >= 3)
    slope = np.where(known, (x * y).sum(1) / np.where(known, total, 1.0), 0.0)
    rest = y - middle[:, None] - slope[:, None] * x
    noise = np.where(known, np.sqrt((rest**2).sum(1) / max(1, looks - 2)), 0.0)
    return slope, noise, middle + slope * end[:, None] - y[:, -1]


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
