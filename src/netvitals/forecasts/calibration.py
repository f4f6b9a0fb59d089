"""Intervals that are earned: how wrong the same method was on the same run, in units of what it saw at the time.

Errors of forecasts whose day has come are divided by the unit that :meth:`~netvitals.forecasts.tracks.Tracks.relaxed`
gave with them; the quantiles of these, over all sites of a quantity, are what today's unit is multiplied with. Until a
run has errors of its own, those of the tuning families of the corpus stand in for them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netvitals.forecasts.tracks import LEAST, Tracks

# half widths of the 50 and 80 % intervals in units, before a run has errors of its own: the tuning families
PRIOR = {"10 %": (0.9, 2.4), "25 %": (0.9, 2.5), "50 %": (0.9, 2.7), "100 %": (1.0, 3.0), "end": (1.1, 3.6)}
WIDER = (1.1, 1.2)  # than the run's own errors: days to come are further off than those that have
WEIGHT = 24  # errors that the prior counts for
TRIED = 12  # earlier looks that a method is tried on


def past_errors(tracks: Tracks, share: float, decay: float) -> np.ndarray:
    """What the method would have been wrong by, in units, on days of this run that have come.

    Args:
        tracks: of the quantity.
        share: how far ahead, as a share of the steps that had passed.
        decay: λ.

    Returns:
        |error| / unit over looks and sites, the recent ones last.
    """
    steps, now = np.array(tracks.steps), len(tracks) - 1
    latest = np.searchsorted(steps * (1 + share), steps[now], side="right") - 1
    looks = np.unique(np.linspace(LEAST - 1, latest, TRIED).astype(int)) if latest >= LEAST - 1 else np.empty(0, int)
    days = np.searchsorted(steps, steps[looks] * (1 + share))
    looks, days = looks[(looks < days) & (days <= now)], days[(looks < days) & (days <= now)]
    if not len(looks):
        return np.empty(0)
    taus = np.array(tracks.taus)
    value, unit = tracks.relaxed(looks, taus[days] - taus[looks], decay)
    errors = (np.abs(value - np.array([tracks.values[day] for day in days])) / unit).reshape(-1)
    return errors[np.isfinite(errors)]


def half_widths(errors: np.ndarray, horizon: str) -> tuple[float, float]:
    """Half widths of the 50 and the 80 % interval in units: quantiles of the run's own errors, with the prior's.

    Args:
        errors: from :func:`past_errors`.
        horizon: whose prior stands in.

    Returns:
        Two factors.

    >>> half_widths(np.empty(0), "25 %")
    (0.9, 2.5)
    >>> [round(w, 1) for w in half_widths(np.full(10_000, 5.0), "25 %")]
    [5.5, 6.0]
    """
    prior = PRIOR.get(horizon, PRIOR["end"])
    if not len(errors):
        return prior
    out: Sequence[float] = [
        (WEIGHT * p + len(errors) * wider * own) / (WEIGHT + len(errors))
        for p, wider, own in zip(prior, WIDER, np.quantile(errors, (0.5, 0.8)).tolist())
    ]
    return out[0], out[1]
