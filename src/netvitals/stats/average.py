"""Sample mean with its standard error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from netvitals.stats._sample import sample


@dataclass(frozen=True)
class Mean:
    """A mean over independent draws (seeds, never the epochs of one run).

    Returned by :func:`mean`.

    Attributes:
        value: the mean.
        stderr: standard deviation over √n.
        n: draws.
    """

    value: float
    stderr: float
    n: int

    def z(self, expected: float) -> float:
        """Distance from ``expected`` in standard errors."""
        gap = self.value - expected
        if self.stderr == 0:
            return 0.0 if gap == 0 else float("inf") if gap > 0 else float("-inf")
        return gap / self.stderr

    def __str__(self) -> str:
        return f"{self.value:.4g} ± {self.stderr:.2g} (n={self.n})"


def mean(values: Any) -> Mean:
    r"""$\bar x \pm s/\sqrt{n}$ with $s^2 = \frac{1}{n-1}\sum (x_i-\bar x)^2$.

    Args:
        values: at least two independent numbers (seeds, never the epochs of one run).

    Returns:
        The mean with its standard error, in the unit of the values.

    >>> print(mean([1.0, 2.0, 3.0]))
    2 ± 0.58 (n=3)
    """
    x = sample(values, "mean", 2)
    return Mean(float(x.mean()), float(x.std(ddof=1) / x.size**0.5), x.size)
