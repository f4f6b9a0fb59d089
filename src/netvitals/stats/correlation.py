"""Correlations between paired samples, with two-sided p-values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from netvitals.stats._sample import pair, varying


@dataclass(frozen=True)
class Correlation:
    """A correlation coefficient and the two-sided p-value of its t-approximation.

    Returned by :func:`pearson`, :func:`spearman`.

    Attributes:
        kind: ``Pearson`` or ``Spearman``.
        value: from −1 to 1.
        p: two-sided.
        n: pairs.
    """

    kind: str
    value: float
    p: float
    n: int

    def __str__(self) -> str:
        return f"{self.kind} {self.value:+.3f} (p = {self.p:.3g}, n = {self.n})"


def pearson(x: Any, y: Any) -> Correlation:
    r"""$r = \frac{\sum (x_i-\bar x)(y_i-\bar y)}{\sqrt{\sum (x_i-\bar x)^2 \sum (y_i-\bar y)^2}}$.

    Args:
        x: at least three numbers, not all the same.
        y: their partners, in the same order.

    Returns:
        r in [−1, 1] with the two-sided p-value.

    >>> print(pearson([1, 2, 3, 4], [1, 3, 2, 4]))
    Pearson +0.800 (p = 0.2, n = 4)
    """
    from scipy.stats import pearsonr

    a, b = pair(x, y, "Pearson correlation", 3)
    varying(a, "Pearson correlation, x")
    varying(b, "Pearson correlation, y")
    result = pearsonr(a, b)
    return Correlation("Pearson", float(result.statistic), float(result.pvalue), a.size)


def spearman(x: Any, y: Any) -> Correlation:
    """Pearson correlation of the ranks; tied values share their mean rank.

    Args:
        x: at least three numbers, not all the same.
        y: their partners, in the same order.

    Returns:
        The rank correlation in [−1, 1] with the two-sided p-value.

    >>> print(spearman([1, 2, 3, 4], [1, 10, 100, 1000]))
    Spearman +1.000 (p = 0, n = 4)
    """
    from scipy.stats import spearmanr

    a, b = pair(x, y, "Spearman correlation", 3)
    varying(a, "Spearman correlation, x")
    varying(b, "Spearman correlation, y")
    result = spearmanr(a, b)
    return Correlation("Spearman", float(result.statistic), float(result.pvalue), a.size)
