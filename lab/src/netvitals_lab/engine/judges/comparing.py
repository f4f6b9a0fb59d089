"""Is one thing better than another? Over paired seeds, with an interval, and with what could have been seen."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from netvitals_lab.engine.claim import PAIRS
from netvitals_lab.engine.verdict import Verdict, fails, holds, not_judged, not_reproduced


@dataclass(frozen=True)
class Difference:
    r"""Mean of paired differences with Student's 95 % interval.

    ``power`` is the smallest true difference that a two-sided test at 5 % sees in four of five repetitions,
    $(t_{.975} + t_{.8})\,s/\sqrt n$ with n − 1 degrees of freedom.
    """

    value: float
    stderr: float
    low: float
    high: float
    power: float
    pairs: int

    def __str__(self) -> str:
        return f"{self.value:+.3g} [{self.low:+.3g}, {self.high:+.3g}] over {self.pairs} pairs"


def difference(values: Iterable[float]) -> Difference:
    """Of paired differences; at least two.

    >>> print(difference([0.1, 0.2, 0.3, 0.2, 0.2]))
    +0.2 [+0.112, +0.288] over 5 pairs
    """
    from scipy.stats import t

    d = np.asarray(list(values), dtype=np.float64)
    if d.size < 2 or not np.isfinite(d).all():
        raise ValueError(f"a difference with an interval needs at least 2 finite pairs, got {d.tolist()}")
    spread = float(d.std(ddof=1))
    stderr, wide, mean = spread / math.sqrt(d.size), float(t.ppf(0.975, d.size - 1)), float(d.mean())
    return Difference(
        value=mean,
        stderr=stderr,
        low=mean - wide * stderr,
        high=mean + wide * stderr,
        power=seen_by(d.size) * spread,
        pairs=int(d.size),
    )


def seen_by(pairs: int) -> float:
    r"""$(t_{.975} + t_{.8})/\sqrt n$: the smallest effect that n pairs show in four of five runs, in their spread.

    >>> round(seen_by(3), 2), round(seen_by(5), 2), round(seen_by(20), 2)
    (3.1, 1.66, 0.66)
    """
    from scipy.stats import t

    return float((t.ppf(0.975, pairs - 1) + t.ppf(0.8, pairs - 1)) / math.sqrt(pairs))


def paired(first: Mapping[Any, float], second: Mapping[Any, float]) -> list[float]:
    """first − second over the seeds that both have, in the order of ``first``.

    >>> paired({0: 1.0, 1: 2.0, 2: 3.0}, {0: 0.5, 2: 1.0})
    [0.5, 2.0]
    """
    return [first[s] - second[s] for s in first if s in second]


def compared(
    differences: Sequence[float],
    sign: int,
    *,
    margin: float = 0.0,
    scaled: bool = False,
    pairs: int = PAIRS,
    note: str = "",
    **more: Any,
) -> Verdict:
    """Is the paired difference on the claimed side of ``margin``?

    >>> compared([0.1, 0.2, 0.3, 0.2, 0.2], 1).status, compared([0.1, 0.2], 1).status
    ('holds', 'not-judged')
    >>> compared([0.1, -0.2, 0.3, -0.2, 0.2], 1).status, compared([-0.1, -0.2, -0.3, -0.2, -0.2], 1).status
    ('not-reproduced', 'fails')
    """
    if len(differences) < pairs:
        text = f"a comparison needs {pairs} paired seeds and there are {len(differences)}"
        return not_judged("; ".join(filter(None, (text, note))), seeds=len(differences), **more)
    found = difference(differences)
    more = {"interval": (found.low, found.high), "seeds": found.pairs, "note": note, **more}
    low, high = sorted((sign * (found.low - margin), sign * (found.high - margin)))
    if low > 0:
        return holds(found.value, **more)
    if high < 0 and not scaled:
        return fails(found.value, **more)
    return not_reproduced(found.value, found.power, **more)
