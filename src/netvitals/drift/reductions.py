r"""What a watch on one batch and a meter over a data set make of the same sums: one formula for both.

A vital sign holds shares and norms of many sites in flat arrays, a meter holds counts and sums of one site over many
batches. Both end here, so that a number means the same in a run and in a report:

* sparsity, from how often each unit was not zero: ``hard`` $= 1 - \sum_c n_c / (C\,n)$, ``dead`` = share of units with
  $n_c = 0$, ``always_on`` = share of units with $n_c = n$;
* spikes, from a maximum, a mean, a median and the two central moments: ``max_over_mean``, ``max_over_median``,
  ``kurtosis`` $= \lVert (a-\bar a)^2\rVert_2^2 / (n\,(\mathrm{Var}\,a)^2)$, and whether the maximum is ``massive``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

MASSIVE = 100.0  # massive activations: above this value ...
MASSIVE_OVER_MEDIAN = 1000.0  # ... and this many medians


class UnitShares(NamedTuple):
    """Shares of one site, or of many as arrays."""

    hard: Any  # of zeros among all elements
    dead: Any  # of units that are zero on everything
    always_on: Any  # of units that are zero on nothing


def unit_shares(on: Any, *, total: Callable[[Any], Any], units: Any, full: float = 1) -> UnitShares:
    """Sparsity from how often every unit was on.

    >>> unit_shares(np.array([0, 3, 4, 4]), total=np.sum, units=4, full=4)._asdict()
    {'hard': 0.3125, 'dead': 0.25, 'always_on': 0.5}
    """
    return UnitShares(
        hard=_number(1 - total(on) / (units * full)),
        dead=_number(total(on == 0) / units),
        always_on=_number(total(on == full) / units),
    )


class Heights(NamedTuple):
    """How far the largest entry towers over the rest, of one tensor or of many as arrays."""

    over_mean: Any
    over_median: Any
    kurtosis: Any
    massive: Any


def heights(largest: Any, *, mean: Any, median: Any, variance: Any, fourth: Any, elements: Any) -> Heights:
    """The ratios of a spike; NaN where there is nothing to compare with (all entries zero, or all equal).

    >>> heights(200.0, mean=2.0, median=0.1, variance=4.0, fourth=80.0, elements=100)
    Heights(over_mean=100.0, over_median=2000.0, kurtosis=4.0, massive=True)
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        over_mean, over_median = _ratio(largest, mean), _ratio(largest, median)
        kurtosis = _ratio(fourth, variance) ** 2 / elements
    return Heights(
        over_mean=_number(over_mean),
        over_median=_number(over_median),
        kurtosis=_number(kurtosis),
        massive=is_massive(largest, over_median),
    )


def is_massive(largest: Any, over_median: Any) -> Any:
    """Whether an entry exceeds 100 and 1000 medians."""
    found = (np.asarray(largest) > MASSIVE) & (np.asarray(over_median) > MASSIVE_OVER_MEDIAN)
    return found if np.ndim(found) else bool(found)


def _ratio(above: Any, below: Any) -> Any:
    below = np.asarray(below)
    return np.asarray(above) / np.where(below == 0, np.nan, below)


def _number(value: Any) -> Any:
    return value if np.ndim(value) else float(value)
