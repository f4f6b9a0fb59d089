"""Exact sign test: both one-sided p-values and the two-sided one, ties dropped and counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from netvitals.stats._sample import sample


@dataclass(frozen=True)
class SignTest:
    """How many of the values lie above and below the reference, and how surprising that is for a fair coin.

    Returned by :func:`sign_test`.

    Attributes:
        above: values above the reference.
        below: values below it.
        ties: dropped before testing.
        p_above: P[at least this many above].
        p_below: P[at least this many below].
        p_two_sided: twice the smaller one, at most 1.
    """

    above: int
    below: int
    ties: int
    p_above: float
    p_below: float
    p_two_sided: float

    @property
    def n(self) -> int:
        return self.above + self.below

    def __str__(self) -> str:
        ties = f", {self.ties} tied" if self.ties else ""
        return (
            f"{self.above} above, {self.below} below{ties}; p = {self.p_above:.3g} (above), "
            f"{self.p_below:.3g} (below), {self.p_two_sided:.3g} (two-sided)"
        )


def sign_test(values: Any, reference: float = 0.0) -> SignTest:
    r"""Exact binomial test of $P[x > r] = 1/2$, one value per independent run.

    Args:
        values: one number per independent run.
        reference: the value r they are compared with.

    Returns:
        Counts above, below and at the reference, and the exact p-values.

    >>> print(sign_test([0.3, 0.1, 0.2, 0.0]))
    3 above, 0 below, 1 tied; p = 0.125 (above), 1 (below), 0.25 (two-sided)
    """
    from scipy.stats import binomtest

    x = sample(values, "sign test")
    above, below = int((x > reference).sum()), int((x < reference).sum())
    if above + below == 0:
        raise ValueError(f"sign test: all {x.size} values equal the reference {reference:g}; nothing is left to test")
    p = {
        side: float(binomtest(above, above + below, 0.5, alternative=side).pvalue)
        for side in ("greater", "less", "two-sided")
    }
    return SignTest(
        above=above,
        below=below,
        ties=x.size - above - below,
        p_above=p["greater"],
        p_below=p["less"],
        p_two_sided=p["two-sided"],
    )
