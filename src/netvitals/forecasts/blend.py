r"""Where a quantity goes: a blend of what its past says, fitted once on the tuning families of the corpus.

With the last measurement $y$, the forecast of a day is $y+\sum_k w_k c_k$. The $c_k$ are changes that carry over from
one network to another, because each is in the units of the quantity's own past: to the mean of the last three
measurements; to
the end of the line through the last quarter; along its slope per step, which fades as $e^{-2\Delta/t}$, and the same
times the share of the learning rate that is still to be spent; as it went before; to the mean of all measurements. Gate
density has the law of its channels besides (:mod:`netvitals.forecasts.gate_paths`), and, with sparsity, what a learning
rate does that climbs beyond all that the network has known: units close, in proportion to $d(1-d)$ of the open share
$d$, to $\ln\eta/\eta_{max}$, and to how far the rate has climbed before; beyond twice the known rate nothing is said.

Half widths of intervals are quantiles of the errors on the same families, each left out of the fit in its turn and all
of them counting alike, in units of what was seen at the time: the spread around the line, the mean step from look to
look and how far ahead the day is, the slope and the climb.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from netvitals.forecasts.series_history import SeriesHistory, effective, line

QUARTER, HALF = 4, 2  # parts of the looks that lines and steps are taken from
FADING = 2.0  # a slope per step fades by this over the age of the run
BEYOND = 1.5  # what happened before is carried on to this multiple of the age at most
ROSE = 3.0  # ln of the climb so far that counts
KNOWN = 2.0  # a rate may climb to this multiple of the highest so far; what it does beyond differs from net to net
PRIOR = 12  # days of a run's own that weigh as much as the corpus
SMALLEST, LARGEST = 0.3, 4.0  # factor on the intervals that a run's own errors can ask for

# by horizon: weights of (mean of three, end of the line, slope, as before, mean of all, the slope by the rate that is
# left, the law of the channels, the climb, the climb by that before), and half widths of the 50 and 80 % intervals
Row = tuple[tuple[float, ...], tuple[float, float]]
FITTED: Mapping[str, Mapping[str, Row]] = {
    "gates": {
        "10 %": ((-0.123, 0.127, 0.052, 0.041, -0.015, 0.467, 0.865, -0.15, -0.155), (0.6, 1.43)),
        "25 %": ((-0.313, 0.035, -0.016, 0.139, -0.033, 0.178, 0.575, -0.146, -0.196), (0.74, 1.71)),
        "50 %": ((-0.719, 0.093, -0.029, 0.068, -0.038, 0.065, 0.752, -0.193, -0.166), (0.84, 2.04)),
        "100 %": ((-0.779, 0.475, -0.075, 0.003, -0.11, 0.12, 0.808, -0.205, -0.21), (0.89, 2.25)),
        "end": ((-0.916, 0.494, -0.049, 0.041, 0.004, 0.035, 0.64, -0.27, -0.205), (0.71, 2.35)),
    },
    "sparsity": {
        "10 %": ((-0.092, 0.144, 0.036, 0.089, -0.031, 0.468, 0.0, 0.143, 0.154), (0.55, 1.24)),
        "25 %": ((-0.288, 0.057, -0.05, 0.157, -0.054, 0.208, 0.0, 0.199, 0.185), (0.63, 1.39)),
        "50 %": ((-0.801, -0.044, -0.066, 0.106, -0.058, 0.185, 0.0, 0.2, 0.209), (0.68, 1.54)),
        "100 %": ((-0.693, 0.332, -0.055, -0.039, -0.294, 0.112, 0.0, 0.206, 0.297), (0.79, 1.79)),
        "end": ((-1.094, 0.112, 0.022, 0.03, 0.001, -0.126, 0.0, 0.282, 0.188), (0.61, 1.76)),
    },
    "preactivations": {
        "10 %": ((0.014, 0.129, 0.131, 0.135, -0.017, 1.964), (0.55, 1.23)),
        "25 %": ((0.407, -0.497, 0.059, 0.231, -0.018, 1.436), (0.75, 1.74)),
        "50 %": ((0.558, -1.287, 0.049, 0.178, 0.058, 1.178), (1.01, 2.51)),
        "100 %": ((0.478, -1.374, 0.174, -0.057, -0.11, 0.508), (1.44, 3.95)),
        "end": ((-0.403, -0.159, 0.212, 0.012, -0.037, 0.195), (1.27, 6.68)),
    },
    "gradients": {
        "10 %": ((0.18, 0.724, -0.42, -0.085, 0.008, -2.543), (0.56, 1.47)),
        "25 %": ((0.143, 0.995, -0.169, 0.084, -0.001, -0.699), (0.55, 1.38)),
        "50 %": ((0.125, 0.643, -0.188, 0.023, -0.014, -0.142), (0.52, 1.37)),
        "100 %": ((0.027, 0.466, 0.058, 0.015, 0.044, -0.224), (0.53, 1.44)),
        "end": ((0.368, 0.495, -0.039, 0.002, 0.007, 0.087), (0.51, 1.32)),
    },
}
# where nothing that was learned on some families held on others, the last measurement stands, or the stream goes on
# between the lines per step and per learning rate; their intervals are those of the tuning families too
LINES: Mapping[str, Row] = {
    "10 %": ((), (0.37, 0.71)),
    "25 %": ((), (0.66, 1.06)),
    "50 %": ((), (1.04, 1.76)),
    "100 %": ((), (1.81, 3.52)),
    "end": ((), (2.7, 6.91)),
}
UNCHANGED: Mapping[str, Row] = {
    "10 %": ((), (0.72, 1.28)),
    "25 %": ((), (1.16, 1.95)),
    "50 %": ((), (1.74, 2.95)),
    "100 %": ((), (2.13, 3.8)),
    "end": ((), (2.9, 5.11)),
}
WEIGHTS: Mapping[str, Mapping[str, Row]] = {**FITTED, "stream": LINES}


class BlendedForecast:
    """Forecasts of one metric from its last look, for as many days as are asked.

    >>> tracks = SeriesHistory(["a"])
    >>> for t in range(12):
    ...     tracks.add(10 * t, t, [0.5 - 0.02 * t])
    >>> falls, unit = BlendedForecast("sparsity", tracks).at("25 %", 137, 2.5)
    >>> bool(falls[0] < tracks.last[0]), bool(unit[0] > 0)
    (True, True)
    """

    def __init__(self, vital: str, tracks: SeriesHistory) -> None:
        self.tracks, self.rows = tracks, WEIGHTS.get(vital, UNCHANGED)
        self._share = {"gates": lambda v: v, "sparsity": lambda v: 1 - v}.get(vital)
        self._values = values = np.array(tracks.values)
        steps, taus = np.array(tracks.steps, dtype=float), np.array(tracks.taus)
        look = len(values) - 1
        width, half = max(3, look // QUARTER), max(3, look // HALF)
        self._steps, self._age, self._spent = steps, float(steps[-1] - steps[0]), float(taus[-1] - taus[0])
        _, self._noise, end = line(taus[-width - 1 :], values[-width - 1 :])
        self._slope = line(steps[-width - 1 :], values[-width - 1 :])[0]
        self._moves = np.abs(np.diff(values[-half - 1 :], axis=0)).mean(0)
        now = values[-1]
        self._levels = (values[-3:].mean(0) - now, end), values.mean(0) - now

    def at(
        self,
        horizon: str,
        day: float,
        rest: float,
        law: np.ndarray | None = None,
        climb: tuple[float, float] = (0.0, 0.0),
    ) -> tuple[np.ndarray, np.ndarray]:
        """The forecast of a day."""
        weights, _ = self.rows.get(horizon, self.rows["end"])
        changes, now = self.parts(day, rest, law, climb), self.tracks.last
        moved = sum((w * c for w, c in zip(weights, changes)), np.zeros_like(now))
        far = 1 + 4 * (day - self.tracks.steps[-1]) / max(1.0, self._age)
        slope, rise = changes[2], changes[7]
        unit = np.sqrt(self._noise**2 + far * self._moves**2 + (0.5 * slope) ** 2 + (0.3 * rise) ** 2)
        return np.clip(now + moved, self.tracks.low, self.tracks.high), np.maximum(unit, 1e-9)

    def parts(self, day: float, rest: float, law: np.ndarray | None, climb: tuple[float, float]) -> list[np.ndarray]:
        """The changes that are weighed, by site, in the order of the weights."""
        now, ahead = self.tracks.last, day - self.tracks.steps[-1]
        slope = self._slope * effective(ahead, FADING / self._age if self._age > 0 else math.inf)
        share = self._share(now) if self._share is not None else np.zeros_like(now)
        rise = share * (1 - share) * climb[0]
        return [
            *self._levels[0],
            slope,
            self._before(ahead),
            self._levels[1],
            slope * rest / (rest + self._spent + 1e-12),
            np.zeros_like(now) if law is None else np.where(np.isfinite(law), law, 0.0),
            rise,
            rise * min(climb[1], ROSE),
        ]

    def _before(self, ahead: float) -> np.ndarray:
        """The change over as many steps back, carried on."""
        now, back = self.tracks.last, min(ahead, self._age)
        if back <= 0:
            return np.zeros_like(now)
        when = self._steps[-1] - back
        at = int(np.clip(np.searchsorted(self._steps, when), 1, len(self._steps) - 1))
        part = (when - self._steps[at - 1]) / (self._steps[at] - self._steps[at - 1])
        before = (1 - part) * self._values[at - 1] + part * self._values[at]
        return (now - before) * min(ahead / back, BEYOND)


def climb_of(rates: np.ndarray | None, ahead: float, first: float, peak: float) -> tuple[float, float]:
    """How far the learning rate will climb beyond its highest so far, and how far it has climbed, in the logarithm.

    >>> [round(v, 3) for v in climb_of(np.array([2.0, 4.0, 8.0]), 1, 1.0, 2.0)]
    [0.693, 0.693]
    """
    if rates is None or not (first > 0 and peak > 0):
        return 0.0, 0.0
    now, most = float(rates[0]), float(rates[: int(ahead) + 1].max())
    return max(0.0, math.log(max(most, 1e-300) / peak)), max(0.0, math.log(now / first)) if now >= 0.999 * peak else 0.0


def unknown_rate(vital: str, climb: float) -> str:
    """Why nothing is said of open shares on a day, empty where something is: the rate climbs far beyond what was seen.

    What such a rate does to the gates of one network it does not do to those of another.

    >>> unknown_rate("gates", 0.1), unknown_rate("gates", math.log(8))
    ('', 'the learning rate climbs to 8 times the highest that this run has known')
    """
    if vital not in ("gates", "sparsity") or climb <= math.log(KNOWN):
        return ""
    return f"the learning rate climbs to {math.exp(climb):.2g} times the highest that this run has known"


def own_width(ratios: Sequence[float], days: int) -> float:
    """By what the intervals of the corpus are to be widened on this run, from what came true on it.

    >>> own_width([], 0), own_width([2.0] * 40, 12)
    (1.0, 1.5)
    """
    if not ratios or not days:
        return 1.0
    own = min(max(float(np.quantile(ratios, 0.8)), SMALLEST), LARGEST)
    return (PRIOR + days * own) / (PRIOR + days)


def half_widths(horizon: str, vital: str, factor: float = 1.0) -> tuple[float, float]:
    """Half widths of the 50 and the 80 % interval, in units.

    >>> half_widths("25 %", "gates")
    (0.74, 1.71)
    """
    rows = WEIGHTS.get(vital, UNCHANGED)
    _, (narrow, wide) = rows.get(horizon, rows["end"])
    return narrow * factor, wide * factor
