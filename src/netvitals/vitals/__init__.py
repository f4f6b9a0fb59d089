"""Vital signs: one file each, with one class for the watch and pure functions for everybody else.

``default()`` gives fresh instances of all of them; ``get(name)`` gives one. The rooms behind them hold the functions:
``vitals.gates.measure``, ``vitals.gates.predict``, ``vitals.drift.euler``, ``vitals.sparsity.measure``, ...
"""

from __future__ import annotations

import difflib

from netvitals.capture import Vital
from netvitals.vitals import drift, gates, gradients, imbalance, preactivations, rank, sparsity, spikes, stream
from netvitals.vitals.drift import Drift
from netvitals.vitals.gates import Gates
from netvitals.vitals.gradients import Gradients
from netvitals.vitals.imbalance import Imbalance
from netvitals.vitals.preactivations import Preactivations
from netvitals.vitals.rank import Rank
from netvitals.vitals.sparsity import Sparsity
from netvitals.vitals.spikes import Spikes
from netvitals.vitals.stream import Stream

_ALL: dict[str, type[Vital]] = {
    v.name: v for v in (Gates, Preactivations, Drift, Sparsity, Spikes, Imbalance, Rank, Stream, Gradients)
}


def names() -> list[str]:
    """Names of all vital signs.

    >>> names()
    ['gates', 'preactivations', 'drift', 'sparsity', 'spikes', 'imbalance', 'rank', 'stream', 'gradients']
    """
    return list(_ALL)


def get(name: str) -> Vital:
    """A fresh instance of one vital sign.

    >>> get("spike")
    Traceback (most recent call last):
    ...
    ValueError: there is no vital sign 'spike'; did you mean spikes or sparsity?
    """
    if name in _ALL:
        return _ALL[name]()
    near = difflib.get_close_matches(str(name), _ALL, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(_ALL)}"
    raise ValueError(f"there is no vital sign {name!r}; {hint}")


def default() -> list[Vital]:
    """Fresh instances of all vital signs, in the order they are shown a site."""
    return [kind() for kind in _ALL.values()]


__all__ = [
    "Drift",
    "Gates",
    "Gradients",
    "Imbalance",
    "Preactivations",
    "Rank",
    "Sparsity",
    "Spikes",
    "Stream",
    "Vital",
    "default",
    "drift",
    "gates",
    "get",
    "gradients",
    "imbalance",
    "names",
    "preactivations",
    "rank",
    "sparsity",
    "spikes",
    "stream",
]
