r"""Expansion of the chain around the zero saddle: leading drive, first remainder, drift of the gaps.

Counting powers of $\lVert X\rVert$: the first nonlinear insertion at activation j costs degree $L+(q-1)j$.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from netvitals.capture.result import Result
from netvitals.saddle.laws.chain import ScalarChain
from netvitals.saddle.laws.drives import Drive, drive


@dataclass(frozen=True)
class Expansion(Result):
    """Predicted orders and coefficients for one activation, depth, width and teacher."""

    d: Drive
    a_q: float
    h_q: float

    @property
    def remainder_order(self) -> float:
        r"""$\min(L+q-2,\,2L-1)$: degree of $R_\ell=\dot X_\ell-K\prod_{m\ne\ell}X_m$."""
        return min(self.d.depth + self.d.q - 2, 2 * self.d.depth - 1)

    def pair_order(self, i: int, j: int) -> float:
        r"""Degree of $d(X_i^2-X_j^2)/dt$ for layers i < j (counted from 1): $L+(q-1)i$."""
        if not 1 <= i < j <= self.d.depth:
            raise ValueError(f"layers must satisfy 1 ≤ i < j ≤ {self.d.depth}, got i = {i}, j = {j}")
        return self.d.depth + (self.d.q - 1) * i

    def leading(self, x: Tensor) -> Tensor:
        r"""$K_t\prod_{m\ne\ell}X_m$, the same for every layer up to the missing factor."""
        return self.d.k * _others(x)

    def remainder(self, x: Tensor) -> Tensor:
        r"""$R_\ell\approx K_tq_\ell\lambda'X_1^{q-1}\prod_{m\ne\ell}X_m$ with $q_1=q$, $q_{\ell\ge2}=1$ (eq. 24)."""
        factor = torch.ones_like(x)
        factor[..., 0] = self.d.q
        return self.d.k * self.d.lam_prime * factor * x[..., :1] ** (self.d.q - 1) * _others(x)

    def gap_drift(self, x: Tensor) -> Tensor:
        r"""Leading value of $d(X_1^2-X_j^2)/dt = 2(q-1)K_t\lambda'X_1^{q-1}\prod_mX_m$, the same for all j."""
        return 2 * (self.d.q - 1) * self.d.k * self.d.lam_prime * x[..., 0] ** (self.d.q - 1) * x.prod(-1)

    def invariant(self, x: Tensor, *, printed: bool = False) -> Tensor:
        r"""$I_1=X_1^2-X_L^2-\frac{2(q-1)}{q+1}\lambda'X_1^{q+1}$, constant along the chain to its next order (Thm 16).

        The printed series has $s^{q+1}(1+y_1)^{(q-1)/2}$, $s=X_L$, in the place of $X_1^{q+1}$: right on the balanced
        ray only, since there alone $V_0(y)=0$ (E13).
        """
        q, s, first = self.d.q, x[..., -1], x[..., 0]
        power = s**2 * first ** (q - 1) if printed else first ** (q + 1)
        return first**2 - s**2 - 2 * (q - 1) / (q + 1) * self.d.lam_prime * power

    def insertion(self, x: Tensor, g: Tensor, k: int) -> Tensor:
        r"""Part of f with one nonlinear insertion at activation k (eq. 25), k = 1..L−1:

        $\sqrt N\alpha^{L-k-1}(\prod_{m>k}X_m)\,a_q(\alpha^{k-1}X_1\cdots X_kg)^q$.
        """
        if not 1 <= k <= self.d.depth - 1:
            raise ValueError(f"a chain of depth {self.d.depth} has activations 1..{self.d.depth - 1}, got {k}")
        a = self.d.slope
        inner = a ** (k - 1) * x[..., :k].prod(-1, keepdim=True) * g
        outer = math.sqrt(self.d.width) * a ** (self.d.depth - k - 1) * x[..., k:].prod(-1, keepdim=True)
        return outer * self.a_q * inner**self.d.q

    def linear_output(self, x: Tensor, g: Tensor) -> Tensor:
        r"""$\sqrt N\alpha^{L-1}(\prod X_m)g$."""
        return math.sqrt(self.d.width) * self.d.slope ** (self.d.depth - 1) * x.prod(-1, keepdim=True) * g


def expansion(f: str | Callable[[Tensor], Tensor], depth: int, width: int, beta: float = 1.0) -> Expansion:
    """Orders and coefficients near the origin; refuses activations that the theory does not cover.

    >>> expansion("tanh", depth=4, width=64).pair_order(1, 3)
    6.0
    """
    from netvitals.activations import constants

    d = drive(f, depth, width, beta)
    if math.isinf(d.q):
        return Expansion(d, 0.0, 0.0)
    c = constants(f)
    return Expansion(d, c.a_q, c.h_q)


def measured_order(
    fn: Callable[[Tensor], Tensor], direction: Tensor, scales: tuple[float, ...] = (0.05, 0.07, 0.1)
) -> np.ndarray:
    """Log–log slope of ``|fn(scale · direction)|`` in the scale, entry by entry: the measured order of a small term."""
    from netvitals.stats import loglog_slope

    values = torch.stack([fn(s * direction).detach().abs().reshape(-1) for s in scales]).numpy()
    return np.array([loglog_slope(scales, column).value for column in values.T])


def gap_velocity(chain: ScalarChain, x: Tensor, i: int, j: int) -> Tensor:
    r"""Exact $d(X_i^2-X_j^2)/dt$ (layers counted from 1)."""
    v = 2 * x * chain.velocity(x)
    return v[..., i - 1] - v[..., j - 1]


def _others(x: Tensor) -> Tensor:
    """Product of all other scales, also when one of them is zero."""
    depth = x.shape[-1]
    keep = ~torch.eye(depth, dtype=torch.bool)
    return torch.where(keep, x[..., None, :], torch.ones_like(x)[..., None, :]).prod(-1)
