"""Bootstrap confidence intervals: percentile, and bias-corrected and accelerated (BCa)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from netvitals.stats._sample import finite, numbers


@dataclass(frozen=True)
class Interval:
    """A statistic with its bootstrap confidence interval and standard error.

    Returned by :func:`bootstrap`.

    Attributes:
        estimate: the statistic of the data.
        low: lower end.
        high: upper end.
        stderr: spread over resamples.
        level: nominal coverage.
        method: ``BCa`` or ``percentile``.
        n: units resampled: observations, or groups when groups were given.
        resamples: how many were drawn.
    """

    estimate: float
    low: float
    high: float
    stderr: float
    level: float
    method: str
    n: int
    resamples: int

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return f"{self.estimate:.4g} [{self.low:.4g}, {self.high:.4g}] ({self.level:.0%} {self.method}, n={self.n})"


def bootstrap(
    values: Any,
    statistic: Callable[[Any], float] = np.mean,
    *,
    method: Literal["bca", "percentile"] = "bca",
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
    groups: Any | None = None,
) -> Interval:
    """Resample observations with replacement and look at the spread of ``statistic``.

    Args:
        values: one observation per row: a vector, or a matrix whose rows stay together (paired data).
        statistic: maps such an array to one number.
        method: "bca" (corrected for bias and skew) or "percentile".
        level: coverage of the interval.
        resamples: how many times to draw.
        seed: of the draws.
        groups: one label per row; whole groups are resampled. Epochs of one run are not independent: pass the run's
            label here, so that runs are drawn and not epochs.

    Returns:
        The statistic of the whole sample with its interval.

    >>> interval = bootstrap([1.0, 2.0, 3.0, 4.0, 10.0], method="percentile", seed=1)
    >>> print(f"{interval.estimate:.1f} in [{interval.low:.1f}, {interval.high:.1f}]")
    4.0 in [1.8, 7.0]
    """
    from scipy import stats

    data = numbers(values)
    finite(data, "bootstrap")
    if method not in ("bca", "percentile"):
        raise ValueError(f"bootstrap: method must be 'bca' or 'percentile', got {method!r}")
    if not 0 < level < 1:
        raise ValueError(f"bootstrap: level must lie between 0 and 1, got {level}")
    if groups is None:
        rows = [np.array([i]) for i in range(len(data))]
    else:
        labels = np.asarray(groups)
        if len(labels) != len(data):
            raise ValueError(f"bootstrap: {len(labels)} group labels for {len(data)} observations")
        rows = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    if len(rows) < 2:
        raise ValueError(
            f"bootstrap: needs at least two {'groups' if groups is not None else 'values'} to resample, got {len(rows)}"
        )

    def of(units: Any) -> float:
        return float(statistic(data[np.concatenate([rows[int(i)] for i in units])]))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a degenerate BCa interval is refused below in words
        result = stats.bootstrap(
            (np.arange(len(rows)),),
            of,
            vectorized=False,
            n_resamples=resamples,
            confidence_level=level,
            method="BCa" if method == "bca" else "percentile",
            random_state=np.random.default_rng(seed),
        )
    low, high = map(float, result.confidence_interval)
    if not (np.isfinite(low) and np.isfinite(high)):
        raise ValueError(
            "bootstrap: the statistic does not vary enough over the resamples for a "
            f"{method} interval; use method='percentile', or more data"
        )
    return Interval(
        estimate=of(range(len(rows))),
        low=low,
        high=high,
        stderr=float(result.standard_error),
        level=level,
        method=method,
        n=len(rows),
        resamples=resamples,
    )
