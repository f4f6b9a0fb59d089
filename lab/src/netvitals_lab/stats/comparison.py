"""Do groups differ? One-way analysis of variance, paired tests, and effect size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from netvitals.stats._sample import Array, pair, sample, varying


@dataclass(frozen=True)
class Anova:
    """One-way analysis of variance: do the means of several groups differ by more than their spread allows?

    Returned by :func:`anova`.

    Attributes:
        f: spread between groups over spread inside.
        p: of that F, were the means equal.
        df: degrees of freedom between and within groups.
        between_std: spread of the group means.
        within_std: pooled spread inside groups.
    """

    f: float
    p: float
    df: tuple[int, int]
    between_std: float
    within_std: float

    def __str__(self) -> str:
        return (
            f"F({self.df[0]}, {self.df[1]}) = {self.f:.4g}, p = {self.p:.3g}; "
            f"std between {self.between_std:.3g}, within {self.within_std:.3g}"
        )


@dataclass(frozen=True)
class PairedT:
    """Student's t on the differences of pairs.

    Returned by :func:`paired_t`.

    Attributes:
        t: mean difference over its standard error.
        p: two-sided.
        df: degrees of freedom.
        difference: mean of x − y.
        stderr: of the difference.
    """

    t: float
    p: float
    df: int
    difference: float
    stderr: float

    def __str__(self) -> str:
        return (
            f"mean difference {self.difference:.4g} ± {self.stderr:.2g}, t({self.df}) = {self.t:.3f}, p = {self.p:.3g}"
        )


@dataclass(frozen=True)
class Wilcoxon:
    """Exact signed-rank test; zero differences dropped and counted.

    Returned by :func:`wilcoxon`.

    Attributes:
        w_plus: sum of the ranks of positive differences.
        w_minus: sum of the ranks of negative ones.
        n: differences that are not zero.
        zeros: differences that are.
        p_greater: one-sided, of x above y.
        p_less: one-sided, of x below y.
        p_two_sided: twice the smaller one, at most 1.
    """

    w_plus: float
    w_minus: float
    n: int
    zeros: int
    p_greater: float
    p_less: float
    p_two_sided: float

    def __str__(self) -> str:
        return (
            f"W+ = {self.w_plus:g}, W− = {self.w_minus:g} (n = {self.n}, {self.zeros} zero); "
            f"p = {self.p_two_sided:.3g} (two-sided, exact)"
        )


def anova(*groups: Any) -> Anova:
    r"""$F = \frac{\sum_g n_g(\bar x_g-\bar x)^2/(k-1)}{\sum_g\sum_i (x_{gi}-\bar x_g)^2/(n-k)}$.

    Args:
        *groups: two samples or more, each of at least two finite numbers.

    Returns:
        F with its p-value, degrees of freedom, and the spread between and within groups in the unit of the data.

    >>> print(anova([1, 2, 3], [2, 3, 4], [5, 6, 7]))
    F(2, 6) = 13, p = 0.00659; std between 2.08, within 1
    """
    from scipy.stats import f_oneway

    if len(groups) < 2:
        raise ValueError(f"analysis of variance: needs at least two groups, got {len(groups)}")
    xs = [sample(g, f"analysis of variance, group {i + 1}", 2) for i, g in enumerate(groups)]
    residual = np.concatenate([x - x.mean() for x in xs])
    if not np.any(residual):
        raise ValueError("analysis of variance: no group varies within itself, so F is undefined")
    result = f_oneway(*xs)
    within = residual.size - len(xs)
    return Anova(
        f=float(result.statistic),
        p=float(result.pvalue),
        df=(len(xs) - 1, within),
        between_std=float(np.std([x.mean() for x in xs], ddof=1)),
        within_std=float(np.sqrt((residual**2).sum() / within)),
    )


def paired_t(x: Any, y: Any) -> PairedT:
    r"""$t = \bar d\,/\,(s_d/\sqrt n)$ with $d_i = x_i - y_i$.

    Args:
        x: numbers, at least two.
        y: their partners, in the same order and unit.

    Returns:
        t, the two-sided p-value, and the mean difference with its standard error in the unit of the data.

    >>> print(paired_t([3, 4, 6], [1, 3, 3]))
    mean difference 2 ± 0.58, t(2) = 3.464, p = 0.0742
    """
    from scipy.stats import ttest_rel

    a, b = pair(x, y, "paired t-test", 2)
    d = a - b
    varying(d, "paired t-test, differences")
    result = ttest_rel(a, b)
    return PairedT(
        t=float(result.statistic),
        p=float(result.pvalue),
        df=d.size - 1,
        difference=float(d.mean()),
        stderr=float(d.std(ddof=1) / d.size**0.5),
    )


def wilcoxon(x: Any, y: Any | None = None) -> Wilcoxon:
    r"""Signed-rank test of symmetry about 0 of $d = x - y$ (or of x), from the exact null distribution.

    The distribution is built from the ranks at hand, so it stays exact when absolute differences tie
    (scipy's exact table assumes that none do).

    Args:
        x: numbers; at most 1000 differences may be nonzero.
        y: their partners in the same order; None tests x itself.

    Returns:
        Both rank sums and the exact p-values; zero differences are dropped and counted.

    >>> print(wilcoxon([1, 2, 3, 4, 5, 6, 7, 8]))
    W+ = 36, W− = 0 (n = 8, 0 zero); p = 0.00781 (two-sided, exact)
    """
    from scipy.stats import rankdata

    d = sample(x, "Wilcoxon test") if y is None else np.subtract(*pair(x, y, "Wilcoxon test", 1))
    zeros = int((d == 0).sum())
    d = d[d != 0]
    if d.size == 0:
        raise ValueError(f"Wilcoxon test: all {zeros} differences are zero; nothing is left to test")
    if d.size > 1000:
        raise ValueError(f"Wilcoxon test: {d.size} pairs are too many for the exact distribution (at most 1000)")
    twice = np.rint(2 * rankdata(np.abs(d))).astype(int)  # mean ranks are multiples of one half
    w = int(twice[d > 0].sum())
    pmf = np.ones(1)
    for r in twice:  # each rank is counted or not with probability 1/2
        pmf = 0.5 * (np.pad(pmf, (0, r)) + np.pad(pmf, (r, 0)))
    greater, less = float(pmf[w:].sum()), float(pmf[: w + 1].sum())
    return Wilcoxon(
        w_plus=w / 2,
        w_minus=(int(twice.sum()) - w) / 2,
        n=d.size,
        zeros=zeros,
        p_greater=min(1.0, greater),
        p_less=min(1.0, less),
        p_two_sided=min(1.0, 2 * min(greater, less)),
    )


def cohens_d(x: Any, y: Any, *, paired: bool = False) -> float:
    r"""$d = (\bar x-\bar y)/s$, s pooled over both samples; with ``paired``, s is the spread of the differences.

    Args:
        x: the one sample, at least two numbers.
        y: the other, in the same unit.
        paired: the samples come in pairs, in the same order.

    Returns:
        The difference of the means in units of s, a pure number.

    >>> cohens_d([2, 4, 6], [1, 3, 5])
    0.5
    """
    if paired:
        diff: Array = np.subtract(*pair(x, y, "Cohen's d", 2))
        varying(diff, "Cohen's d, differences")
        return float(diff.mean() / diff.std(ddof=1))
    a, b = sample(x, "Cohen's d, x", 2), sample(y, "Cohen's d, y", 2)
    pooled = ((a.size - 1) * a.var(ddof=1) + (b.size - 1) * b.var(ddof=1)) / (a.size + b.size - 2)
    if pooled == 0:
        raise ValueError("Cohen's d: neither sample varies, so the effect has no scale")
    return float((a.mean() - b.mean()) / pooled**0.5)
