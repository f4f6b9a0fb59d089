r"""Shells of the escape integral: between two scales the chain behaves like a shallower one.

With $s_1\le\dots\le s_L$ and $D_\ell=s_\ell^2-s_1^2$ the integrand $1/\sqrt{\prod_\ell(Y+D_\ell)}$ is compared with
$Y^{-j/2}/\prod_{i>j}s_i$ on $s_j^2\le Y\le s_{j+1}^2$. At a shell's edges the two differ by a factor of order 1, in its
middle by the ratio η of the scales (not η², Lemma 19 as printed), and their integrals by $O(1/\ln(1/\eta))$ (E15).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np


def integrand(y: float | np.ndarray, scales: Sequence[float]) -> float | np.ndarray:
    r"""$1/\sqrt{\prod_\ell(Y+s_\ell^2-s_1^2)}$ with scales in rising order."""
    s = _rising(scales)
    product = np.prod([np.asarray(y, float) + x * x - s[0] ** 2 for x in s], axis=0)
    return 1 / np.sqrt(product)


def shell_estimate(y: float, scales: Sequence[float]) -> float:
    r"""$Y^{-j/2}/\prod_{i>j}s_i$ on the shell that Y lies in.

    >>> round(float(shell_estimate(1e-6, [1e-4, 1e-2, 1.0]) / integrand(1e-6, [1e-4, 1e-2, 1.0])), 3)
    1.005
    """
    s = _rising(scales)
    if y < s[0] ** 2 * (1 - 1e-12):
        raise ValueError(f"Y = {y:.3g} lies below the first shell, which begins at {s[0] ** 2:.3g}")
    j = sum(x * x <= y for x in s) or 1
    return float(y ** (-j / 2) / math.prod(s[j:]))


def exact_integral(scales: Sequence[float], end: float = 1.0) -> float:
    r"""$\int_{s_1^2}^{end^2}dY/\sqrt{\prod_\ell(Y+D_\ell)}$: 2K times the leading escape time."""
    from scipy.integrate import quad

    s = _rising(scales)
    inside = [2 * math.log(x) for x in s[1:] if s[0] < x < end]
    by_log = lambda u: float(integrand(math.exp(u), s)) * math.exp(u)
    edges = [2 * math.log(s[0]), *sorted(set(inside)), 2 * math.log(end)]
    return sum(quad(by_log, a, b, epsabs=0, epsrel=1e-11, limit=500)[0] for a, b in pairwise(edges))


def shell_sum(scales: Sequence[float], end: float = 1.0) -> float:
    r"""The same integral from the shells: $\sum_j\int_{s_j^2}^{s_{j+1}^2}Y^{-j/2}dY/\prod_{i>j}s_i$.

    >>> round(shell_sum([1e-3, 1e-3, 1.0]), 3)  # 2 ln(1/eps)
    13.816
    """
    s = [x for x in _rising(scales) if x < end]
    rest = math.prod(x for x in _rising(scales) if x >= end)
    total = 0.0
    for j, (a, b) in enumerate(pairwise([*s, end]), start=1):
        power = 1 - j / 2
        area = 2 * math.log(b / a) if j == 2 else ((b * b) ** power - (a * a) ** power) / power
        total += area / (math.prod(s[j:]) * rest)
    return total


def _rising(scales: Sequence[float]) -> list[float]:
    s = [float(x) for x in scales]
    if not s or min(s) <= 0 or s != sorted(s):
        raise ValueError(f"scales must be positive and rising, got {s}")
    return s
