r"""Tempering: replicas at a ladder of inverse temperatures that exchange their places.

At the top the posterior is the well alone and a chain goes anywhere; at the bottom it is the posterior that was asked
for, between whose thin arms no local move turns. Two neighbours exchange with probability
$\min(1, e^{(b_i - b_j)(L_i - L_j)})$, $b = n\beta$, even pairs and odd pairs in turn, so that a replica travels the
ladder in one direction. Rungs are placed so that every exchange is refused equally often (Syed, Bouchard-Côté,
Deligiannidis and Doucet 2022).
"""

from __future__ import annotations

import math

import numpy as np

LARGEST = 50  # parameters up to which a ladder is tried unasked: its length grows with the root of λ
LONGEST = 32  # rungs
_NATS_AT_TOP = 0.5  # of loss that the hottest rung feels in the steeper fifth of the well


def top(nbeta: float, rises: np.ndarray) -> float:
    """nβ of the hottest rung: where the loss, as it rises over draws from the well, hardly matters.

    >>> top(1000.0, np.array([1.0, 3.0, 4.0, 5.0, 5.0, 5.0]))
    0.1
    """
    seen = rises[np.isfinite(rises) & (rises > 0)]
    return min(nbeta, _NATS_AT_TOP / float(np.quantile(seen, 0.8))) if seen.size else nbeta


def first(nbeta: float, hottest: float, parameters: int) -> np.ndarray:
    """A geometric ladder from cold to hot to start with, dense enough for a regular model of so many parameters.

    >>> first(1000.0, 1.0, parameters=2).round(1).tolist()
    [1000.0, 251.2, 63.1, 15.8, 4.0, 1.0]
    """
    wide = math.log(nbeta / hottest)
    count = int(np.clip(math.ceil(wide * math.sqrt(max(parameters, 2) / 2) / 1.6) + 1, 2, LONGEST))
    return np.asarray(np.geomspace(nbeta, hottest, count)) if wide > 0.1 else np.array([nbeta])


def respaced(rungs: np.ndarray, refused: np.ndarray, most: int = LONGEST) -> np.ndarray:
    r"""Rungs between which every exchange is refused equally often, three for each unit of the ladder's length.

    Its length is the sum of the shares refused.

    >>> respaced(np.array([100.0, 10.0, 1.0]), np.array([0.75, 0.25])).round(1).tolist()
    [100.0, 59.9, 35.9, 21.5, 12.9, 4.6, 1.0]
    """
    way = np.concatenate([[0.0], np.cumsum(np.clip(refused, 0.02, 1.0))])
    count = int(np.clip(math.ceil(3 * way[-1]) + 4, 2, most))
    return np.asarray(np.exp(np.interp(np.linspace(0, way[-1], count), way, np.log(rungs))))


def exchanges(
    rungs: np.ndarray, losses: np.ndarray, odd: bool, uniforms: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which replica stands on which rung after neighbours were asked to exchange, chain by chain.

    >>> places, lower, chance = exchanges(np.array([2.0, 1.0]), np.array([[0.0], [-1.0]]), False, np.full((2, 1), 0.99))
    >>> places.T.tolist(), lower.tolist(), chance.tolist()  # the lower loss goes to the colder rung
    ([[1, 0]], [0], [1.0])
    """
    lower = np.arange(int(odd), len(rungs) - 1, 2)
    gain = (rungs[lower] - rungs[lower + 1])[:, None] * (losses[lower] - losses[lower + 1])
    chance = np.exp(np.minimum(np.where(np.isnan(gain), -np.inf, gain), 0.0))
    swap = uniforms[lower] < chance
    places = np.tile(np.arange(len(rungs))[:, None], losses.shape[1])
    places[lower] += swap
    places[lower + 1] -= swap
    return places, lower, chance.mean(1)
