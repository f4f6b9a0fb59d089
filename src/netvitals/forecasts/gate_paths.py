"""Gate density of every site on coming days, as the law of its channels has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from netvitals.capture import StepColumns
from netvitals.gates import empirical, relax, turning_point

KEPT = 64  # looks whose channels are remembered


class GatePaths:
    """Remembers the channels of every site at some looks, and moves them on."""

    def __init__(self, theta: float) -> None:
        self.theta = theta
        self._looks: list[tuple[float, dict[str, tuple[np.ndarray, np.ndarray]]]] = []  # (τ, site → μ, σ)
        self._shapes: dict[str, np.ndarray] = {}
        self._crossings: dict[str, Any] = {}

    def add(self, tau: float, columns: StepColumns) -> None:
        """The arrays of a look."""
        found: dict[str, dict[str, np.ndarray]] = {}
        for (vital, sites, (metric,)), values in zip(columns.array_layout, columns.arrays):
            if vital == "preactivations" and metric in ("mu", "sigma"):
                for site, value in zip(sites, values):
                    found.setdefault(site, {})[metric] = value
            elif vital == "preactivations" and metric == "shape":
                self._shapes.update(zip(sites, values))
        self._looks.append((tau, {s: (a["mu"], a["sigma"]) for s, a in found.items() if len(a) == 2}))
        if len(self._looks) > KEPT:
            self._looks = self._looks[::2]

    def changes(self, site: str, rests: Sequence[float], decay: float, f: Any) -> np.ndarray | None:
        """What the law adds to the density of today on each day; None where the site's channels are not known."""
        if len(self._looks) < 3 or f is None or site not in self._shapes or site not in self._looks[-1][1]:
            return None
        tau, now = self._looks[-1]
        half = max((i for i, (t, _) in enumerate(self._looks) if t <= tau / 2), default=0)
        then = self._looks[half][1].get(site)
        if then is None or self._shapes[site].shape[0] != now[site][0].size:
            return None
        if site not in self._crossings:
            from netvitals import activations

            self._crossings[site] = activations.crossings(f, self.theta)
        law = self._crossings[site]
        mu, sigma = now[site]
        past = tau - self._looks[half][0]
        means = [mu, *(relax(mu, then[0], past, rest, decay) for rest in rests)]
        widths = [sigma, *(np.maximum(relax(sigma, then[1], past, rest, decay), 0.02 * sigma) for rest in rests)]
        shapes = np.tile(self._shapes[site], (len(means), 1))  # all days at once
        density = empirical(np.concatenate(means), np.concatenate(widths), shapes, law, self.theta)
        today, *days = density.reshape(len(means), -1)
        moved = [day - today for day in days]
        return np.array([np.nanmean(m) if np.isfinite(m).any() else np.nan for m in moved])


def turning(steps: Sequence[float], now: float, changes: np.ndarray) -> Mapping[str, str]:
    """The condition that says where a density turns round, empty where it does not.

    >>> turning([0, 10, 20], 0.5, np.array([-0.1, 0.02]))
    {'turning point': 'near step 10'}
    """
    at = turning_point(steps, [now, *(now + changes)])
    return {"turning point": f"near step {at:.0f}"} if at == at else {}
