r"""Watanabe's λ and m in closed form: smooth fibres, additive forms, normal crossings, reduced-rank regression, deep
linear networks.

λ, the real log canonical threshold, is the coefficient of log n in the free energy; m is its multiplicity. A generic
ray through a crossing does not give λ: for $K = u_1^2 u_2^2$ the ray has order 2 and would say 1/4, the truth is 1/2
with m = 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction


def rlct_single(k: int, m_perp: int = 0, h: float = 0.0) -> tuple[float, int]:
    r"""Smooth fibre $K = u^{2k} + \sum_{j \le m_\perp} v_j^2$: $\lambda = (h+1)/(2k) + m_\perp/2$, m = 1.

    Args:
        k: KL order of the singular direction u, at least 1.
        m_perp: number of regular normal directions.
        h: exponent of the prior $|u|^h$, above −1; 0 is flat.

    Returns:
        λ and its multiplicity m.

    >>> rlct_single(2, m_perp=1)
    (0.75, 1)
    """
    return rlct_additive([k], m_perp, [h])


def rlct_additive(ks: Sequence[int], m_perp: int = 0, hs: Sequence[float] | None = None) -> tuple[float, int]:
    r"""$K = \sum_i u_i^{2k_i} + \sum_{j \le m_\perp} v_j^2$: $\lambda = \sum_i (h_i+1)/(2k_i) + m_\perp/2$, m = 1.

    Args:
        ks: KL order of each singular direction, at least 1.
        m_perp: number of regular normal directions.
        hs: prior exponents, one per direction, above −1; 0 by default.

    Returns:
        λ and its multiplicity m.

    >>> rlct_additive([2, 3])
    (0.4166666666666667, 1)
    """
    if m_perp < 0:
        raise ValueError(f"m_perp= is the number of regular normal directions and must not be negative, got {m_perp}")
    ratios = _ratios(ks, hs)
    return float(sum(ratios, Fraction(m_perp, 2))), 1


def rlct_crossing(ks: Sequence[int], hs: Sequence[float] | None = None) -> tuple[float, int]:
    r"""Learning coefficient λ of a normal crossing: $K = \prod_i u_i^{2k_i}$ gives $\lambda = \min_i (h_i+1)/(2k_i)$.

    Args:
        ks: KL order of each sheet, at least 1.
        hs: prior exponents, one per sheet, above −1; 0 by default.

    Returns:
        λ and its multiplicity m, the number of sheets that attain the minimum.

    >>> rlct_crossing([1, 1])
    (0.5, 2)
    >>> rlct_crossing([1, 2, 3])
    (0.16666666666666666, 1)
    """
    ratios = _ratios(ks, hs)
    smallest = min(ratios)
    return float(smallest), ratios.count(smallest)


def rlct_reduced_rank(n_in: int, hidden: int, n_out: int, rank: int) -> tuple[float, int]:
    """Learning coefficient λ and multiplicity m of reduced-rank regression y = B A x + noise (Aoyagi and Watanabe
    2005).

    Args:
        n_in: inputs.
        hidden: rows of A, the bottleneck.
        n_out: outputs.
        rank: rank of the true map, at most the smallest size.

    Returns:
        λ and its multiplicity m.

    >>> rlct_reduced_rank(4, 3, 4, 2)
    (7.0, 2)
    """
    n, h, m, r = n_in, hidden, n_out, rank
    if min(n, h, m) < 1 or r < 0 or r > min(n, h, m):
        raise ValueError(
            f"all sizes must be positive and rank must lie between 0 and the smallest size, got inputs {n}, hidden "
            f"{h}, outputs {m}, rank {r}"
        )
    if m + h < n + r:
        return (h * m - h * r + n * r) / 2, 1
    if n + h < m + r:
        return (h * n - h * r + m * r) / 2, 1
    if m + n < h + r:
        return m * n / 2, 1
    s = -((h + r) ** 2) - m**2 - n**2 + 2 * (h + r) * (m + n) + 2 * m * n
    return (s / 8, 1) if (n + m + h + r) % 2 == 0 else ((s + 1) / 8, 2)


def rlct_deep_linear(widths: Sequence[int], rank: int) -> tuple[float, int]:
    r"""Learning coefficient λ and multiplicity m of a deep linear network $y = W_L \cdots W_1 x$ + noise (Aoyagi 2024).

    Let $M_s$ be the width of layer s minus the rank. The formula uses the ℓ + 1 smallest $M_s$, with sum S. None of
    these ℓ + 1 values exceeds S/ℓ, and every other $M_s$ does. Define M = ⌈S/ℓ⌉ and a = S − (M − 1)ℓ. Then $\lambda =
    \frac{r(n_{in} + n_{out} - r)}{2} + \frac{a(\ell-a)}{4\ell} - \frac{\ell-1}{4\ell} S^2 + \frac12 \sum_{i<j} M_i M_j$
    and $m = a(\ell - a) + 1$. A network with one hidden layer is reduced-rank regression.

    Args:
        widths: inputs, hidden widths, outputs.
        rank: rank of the true map, at most the smallest width.

    Returns:
        λ and its multiplicity m.

    >>> rlct_deep_linear((4, 3, 4), 2) == rlct_reduced_rank(4, 3, 4, 2)
    True
    >>> rlct_deep_linear((1, 1, 1, 1), 0)  # the product of three numbers
    (0.5, 3)
    """
    if len(widths) < 2 or min(widths) < 1 or not 0 <= rank <= min(widths):
        raise ValueError(
            "a deep linear network needs at least two positive widths, and rank must lie between 0 and the smallest "
            f"width; got {list(widths)} and rank {rank}"
        )
    excess = sorted(h - rank for h in widths)
    for layers in range(1, len(widths)):
        binding, rest = excess[: layers + 1], excess[layers + 1 :]
        total = sum(binding)
        if total >= layers * binding[-1] and (not rest or total < layers * rest[0]):
            break
    a = total - (math.ceil(Fraction(total, layers)) - 1) * layers
    pairs = Fraction(total**2 - sum(m * m for m in binding), 2)
    lam = (
        Fraction(rank * (widths[0] + widths[-1] - rank), 2)
        + Fraction(a * (layers - a), 4 * layers)
        - Fraction((layers - 1) * total**2, 4 * layers)
        + pairs / 2
    )
    return float(lam), a * (layers - a) + 1


def _ratios(ks: Sequence[int], hs: Sequence[float] | None) -> list[Fraction]:
    if not ks:
        raise ValueError("ks= is empty: give at least one KL order")
    if any(k < 1 or int(k) != k for k in ks):
        raise ValueError(f"KL orders must be whole numbers of at least 1, got {list(ks)}")
    hs = [0.0] * len(ks) if hs is None else list(hs)
    if len(hs) != len(ks):
        raise ValueError(
            f"hs= needs one prior exponent for each KL order: got {len(hs)} exponents for {len(ks)} orders"
        )
    if any(h <= -1 for h in hs):
        raise ValueError(f"prior exponents must be above −1, got {hs}")
    return [Fraction(Fraction(h).limit_denominator(10**6) + 1) / (2 * int(k)) for k, h in zip(ks, hs)]
