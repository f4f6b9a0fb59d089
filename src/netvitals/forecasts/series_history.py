"""One metric at all its sites, look by look, in two clocks: steps, and the learning rate spent.

The forecasts without a law that every method has to beat are made of it here; :mod:`netvitals.forecasts.blend` makes
the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

LEAST = 6  # looks before anything is said
KEPT = 512  # looks that are remembered: the last half of them whole, the past thinned out
THIRD = 3  # naive slopes look at the last third
HORIZONS = {"10 %": 0.1, "25 %": 0.25, "50 %": 0.5, "100 %": 1.0}  # of what has passed


class Followed(NamedTuple):
    """A metric that is forecast: the method's name, its bounds, and whether only the whole model counts."""

    method: str
    low: float = -math.inf
    high: float = math.inf
    pooled: bool = False


FOLLOWED: Mapping[tuple[str, str], Followed] = {
    ("gates", "density@"): Followed("relaxation", 0.0, 1.0),
    ("preactivations", "preact_drift"): Followed("statistics"),
    ("sparsity", "hard"): Followed("statistics", 0.0, 1.0),
    ("stream", "rms"): Followed("lines", 0.0),
    ("gradients", "grad_norm"): Followed("statistics", 0.0, pooled=True),
    ("attention", "max_logit"): Followed("unchanged"),
}


def followed(vital: str, metric: str) -> Followed | None:
    """How a metric is forecast; None where it is not.

    >>> followed("sparsity", "hard").high, followed("sparsity", "soft")
    (1.0, None)
    """
    if vital == "gates":
        return FOLLOWED["gates", "density@"] if metric.startswith("density@0.01") and ":" not in metric else None
    return FOLLOWED.get((vital, metric))


def thin(kept: int, *lists: list[Any]) -> None:
    """Where lists that grow together have become longer than ``kept``, every second entry of the older half goes.

    >>> numbers = list(range(9))
    >>> thin(8, numbers)
    >>> numbers
    [0, 2, 4, 5, 6, 7, 8]
    """
    if len(lists[0]) > kept:
        for one in lists:
            del one[1 : kept // 2 : 2]


class SeriesHistory:
    """Values of one metric, looks × sites.

    >>> found = SeriesHistory(["a"])
    >>> for t in range(8):
    ...     found.add(t, 0.1 * t, [1 + 0.5 * t])
    >>> [round(float(v[0]), 3) for v in found.naive(12, 1.2).values()]
    [4.5, 7.0, 7.0, 7.0]
    """

    def __init__(self, sites: Sequence[str], low: float = -math.inf, high: float = math.inf) -> None:
        self.sites, self.low, self.high = list(sites), low, high
        self.steps: list[int] = []
        self.taus: list[float] = []
        self.values: list[np.ndarray] = []
        self._recent: tuple[int, np.ndarray, np.ndarray] | None = None  # slopes of the last third, as of a step

    def add(self, step: int, tau: float, values: Sequence[float] | np.ndarray) -> None:
        """A look."""
        self.steps.append(step)
        self.taus.append(tau)
        self.values.append(np.asarray(values, dtype=np.float64))
        thin(KEPT, self.steps, self.taus, self.values)

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def last(self) -> np.ndarray:
        return self.values[-1]

    def days(self, end: int | None) -> dict[str, float]:
        """The days that are asked for: shares of what has passed, and the last look before the end."""
        step = self.steps[-1]
        days = {name: step + share * (step - self.steps[0]) for name, share in HORIZONS.items()}
        every = max(1, step - self.steps[-2])
        if end is not None and (end - 1 - step) // every > 0:
            days["end"] = float(step + (end - 1 - step) // every * every)
        return days

    def around(self, value: float, half: float) -> tuple[float, float]:
        """An interval, inside of what the metric can be."""
        return short(max(value - half, self.low)), short(min(value + half, self.high))

    def naive(self, for_step: float, tau: float) -> Mapping[str, np.ndarray]:
        """What is said without a law, for a day: the best of these is what a method has to beat."""
        now, ahead = self.last, for_step - self.steps[-1]
        back = int(np.searchsorted(self.steps, self.steps[-1] - ahead))
        back = min(back, len(self.steps) - 2)
        before = self.steps[-1] - self.steps[back]
        width = max(3, (len(self.steps) - 1) // THIRD)
        if self._recent is None or self._recent[0] != self.steps[-1]:  # asked for day after day
            self._recent = self.steps[-1], self._slope(width, self.steps), self._slope(width, self.taus)
        _, per_step, per_rate = self._recent
        found = {
            "unchanged": now,
            "goes on": now + (now - self.values[back]) * (ahead / max(1, before)),
            "per step": now + per_step * ahead,
            "per learning rate": now + per_rate * (tau - self.taus[-1]),
        }
        return {name: np.clip(values, self.low, self.high) for name, values in found.items()}

    def _slope(self, width: int, clock: Sequence[float]) -> np.ndarray:
        """Slope in ``clock`` of the last ``width`` + 1 looks, by site."""
        return line(np.array(clock[-width - 1 :], dtype=float), np.array(self.values[-width - 1 :]))[0]


def short(value: float) -> float:
    """Six digits.

    >>> short(1 / 3)
    0.333333
    """
    return float(f"{value:.6g}")


def line(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Least squares of looks × sites over a clock.

    >>> [v.round(3).tolist() for v in line(np.arange(4.0), np.array([[0.0], [1.0], [2.0], [3.0]]))]
    [[1.0], [0.0], [0.0]]
    """
    middle, end = y.mean(0), x[-1] - x.mean()
    x = x - x.mean()
    total = float((x * x).sum())
    if len(x) < 3 or total <= 0:
        return np.zeros(y.shape[1]), np.zeros(y.shape[1]), middle - y[-1]
    slope = x @ y / total
    rest = y - middle - np.outer(x, slope)
    return slope, np.sqrt((rest**2).sum(0) / max(1, len(x) - 2)), middle + slope * end - y[-1]


def effective(dtau: float, rate: float) -> float:
    r"""$(1-e^{-k\Delta})/k$, the lever of a slope that relaxes at the rate k.

    >>> effective(2.0, 0.0), round(effective(2.0, 1.0), 4), effective(2.0, math.inf)
    (2.0, 0.8647, 0.0)
    """
    if rate == math.inf:
        return 0.0
    return dtau if rate * dtau < 1e-9 else -math.expm1(-rate * dtau) / rate
