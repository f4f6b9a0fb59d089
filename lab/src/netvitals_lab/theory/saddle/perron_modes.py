r"""Instability of stage-one couplings: the Schur–Perron test, and why no finite closure gives its rate.

$J=\begin{pmatrix}-A&B\\C&-D\end{pmatrix}$ with diagonal $A,D>0$ and $B,C\ge0$ has a positive real eigenvalue exactly
when the loop gain $\rho(D^{-1}CA^{-1}B)$ exceeds 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from netvitals.capture.result import Result


@dataclass(frozen=True, kw_only=True)
class Perron(Result):
    """Result of the test. ``rate`` is λ⋆, NaN when the loop gain is at most 1."""

    loop_gain: float
    rate: float
    vector: np.ndarray | None
    strictly_positive: bool  # whether the x part of the eigenvector is positive in every entry
    notes: tuple[str, ...]

    @property
    def unstable(self) -> bool:
        return self.loop_gain > 1

    def __str__(self) -> str:
        if not self.unstable:
            return f"loop gain {self.loop_gain:.4g} ≤ 1: no positive real eigenvalue"
        return "; ".join([f"loop gain {self.loop_gain:.4g} > 1: grows at rate {self.rate:.6g}", *self.notes])


def perron(a: Any, b: Any, c: Any, d: Any) -> Perron:
    r"""Loop gain, growth rate and eigenvector of $J$; λ⋆ is the root of $\rho((D+\lambda)^{-1}C(A+\lambda)^{-1}B)=1$.

    >>> print(perron([1.0], [[2.0]], [[3.0]], [1.0]))
    loop gain 6 > 1: grows at rate 1.44949
    """
    a, b, c, d = (np.asarray(m, float) for m in (a, b, c, d))
    if a.ndim != 1 or d.ndim != 1 or b.shape != (a.size, d.size) or c.shape != (d.size, a.size):
        raise ValueError(
            f"shapes do not fit: A {a.shape} and D {d.shape} are diagonals, B must be {(a.size, d.size)} "
            f"(got {b.shape}), C must be {(d.size, a.size)} (got {c.shape})"
        )
    if (a <= 0).any() or (d <= 0).any():
        raise ValueError("A and D must be positive")
    if (b < 0).any() or (c < 0).any():
        least = min(b.min(initial=0.0), c.min(initial=0.0))
        raise ValueError(
            f"B and C must not be negative, got {least:.3g}: Prop. 24 says nothing of such a matrix; "
            "block_growth() gives its rate"
        )
    gain = _radius(_loop(a, b, c, d, 0.0))
    notes = []
    if (b.sum(1) == 0).any():
        notes.append("B has a zero row: the eigenvector's x part vanishes there (erratum E19)")
    if gain <= 1:
        return Perron(loop_gain=gain, rate=math.nan, vector=None, strictly_positive=False, notes=tuple(notes))
    from scipy.optimize import brentq

    high = float(np.linalg.norm(b, 2) * np.linalg.norm(c, 2)) ** 0.5 + 1.0
    rate = float(brentq(lambda lam: _radius(_loop(a, b, c, d, lam)) - 1, 0.0, high, xtol=1e-14, rtol=1e-14))
    values, vectors = np.linalg.eig(_loop(a, b, c, d, rate))
    eta = np.abs(np.real(vectors[:, int(np.argmax(np.real(values)))]))
    x = b @ eta / (a + rate)
    vector = np.concatenate([x, eta])
    return Perron(
        loop_gain=gain,
        rate=rate,
        vector=vector / np.linalg.norm(vector),
        strictly_positive=bool((x > 0).all()),
        notes=tuple(notes),
    )


def stage_matrix(a: Any, b: Any, c: Any, d: Any) -> np.ndarray:
    """J itself, to compare with a plain eigenvalue solver."""
    return np.block([[-np.diag(a), np.asarray(b, float)], [np.asarray(c, float), -np.diag(d)]])


def jacobian_blocks(jacobian: Any, x: Any, eta: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(A, B, C, D) of a Jacobian at a state: x and eta are the indices of the two groups of coordinates.

    A and D are taken from the diagonal; their off-diagonal entries have to be small for the test to apply.
    """
    j = np.asarray(jacobian, float)
    x, eta = np.asarray(x), np.asarray(eta)
    return -np.diag(j)[x], j[np.ix_(x, eta)], j[np.ix_(eta, x)], -np.diag(j)[eta]


@dataclass(frozen=True, kw_only=True)
class BlockGrowth(Result):
    """How fast a stage-one Jacobian grows, and what Prop. 24 assumes of it."""

    rate: float  # largest real part of an eigenvalue, of x and eta together
    own: float  # the same of the x block alone, without any coupling
    violated: dict[str, float]  # hypothesis of Prop. 24 → by how much it is missed, in the units of the Jacobian
    loop_gain: float  # of the proposition; NaN where a hypothesis is missed

    def __str__(self) -> str:
        parts = [f"grows at {self.rate:.4g}, its x block alone at {self.own:.4g}"]
        parts += [f"{name} (by {by:.2g})" for name, by in self.violated.items()]
        parts += [f"loop gain {self.loop_gain:.4g}"] if not self.violated else []
        return "; ".join(parts)


def block_growth(jacobian: Any, x: Any, eta: Any) -> BlockGrowth:
    r"""$\max\operatorname{Re}\lambda(J)$ of a Jacobian as it is, and whether Prop. 24 may be used for it.

    Its hypotheses are checked, not assumed: A and D diagonal and positive, B and C nowhere negative. At the balanced
    saddle of three tanh modes they fail. The entries of the x block off its diagonal are of order ε^(L−2), those of A
    only of order ε^(2(L−2)), so the x block grows by itself and needs no loop gain.

    >>> print(block_growth([[0.0, 2.0, 0.1], [2.0, -1.0, 0.1], [0.1, 0.1, -1.0]], [0, 1], [2]))
    grows at 1.569, its x block alone at 1.562; A is not positive (by 0); A is not diagonal (by 2)
    """
    j = np.asarray(jacobian, float)
    x, eta = np.asarray(x), np.asarray(eta)
    if j.ndim != 2 or j.shape[0] != j.shape[1] or max(x.max(initial=0), eta.max(initial=0)) >= len(j):
        raise ValueError(f"the Jacobian is square and holds both groups of coordinates, got shape {j.shape}")
    both = np.concatenate([x, eta])
    a, b, c, d = jacobian_blocks(j, x, eta)
    violated: dict[str, float] = {}
    for name, diagonal, group in (("A", a, x), ("D", d, eta)):
        if (diagonal <= 0).any():
            violated[f"{name} is not positive"] = float(-diagonal.min())
        block = j[np.ix_(group, group)]
        off = np.abs(block - np.diag(np.diag(block))).max(initial=0.0)
        if off > 0:
            violated[f"{name} is not diagonal"] = float(off)
    for name, block in (("B", b), ("C", c)):
        if (block < 0).any():
            violated[f"{name} has negative entries"] = float(-block.min())
    lead = lambda group: float(np.linalg.eigvals(j[np.ix_(group, group)]).real.max())
    gain = math.nan if violated else perron(a, b, c, d).loop_gain
    return BlockGrowth(rate=lead(both), own=lead(x), violated=violated, loop_gain=gain)


@dataclass(frozen=True)
class Truncations(Result):
    """Growth rate when only degrees up to K are kept. NaN while the loop gain of the truncation is at most 1."""

    rates: tuple[float, ...]
    gains: tuple[float, ...]

    @property
    def first(self) -> int | None:
        """Smallest K with a growing mode (smaller truncations have none, erratum E20)."""
        return next((k + 1 for k, g in enumerate(self.gains) if g > 1), None)

    @property
    def strictly_increasing(self) -> bool:
        grown = [r for r in self.rates if not math.isnan(r)]
        return len(grown) > 1 and all(b > a for a, b in pairwise(grown))

    def times(self, eps: float) -> tuple[float, ...]:
        """Escape times ln(1/ε)/λ_K: every finite closure is too slow."""
        return tuple(math.log(1 / eps) / r for r in self.rates)

    def __str__(self) -> str:
        shown = ", ".join("none" if math.isnan(r) else f"{r:.6g}" for r in self.rates)
        return f"rates by truncation: {shown}" + (" (strictly increasing)" if self.strictly_increasing else "")


def truncations(a: Any, b: Any, c: Any, d: Any) -> Truncations:
    """Growth rates of a graded problem cut at degree K = 1..K_max (entry k of A and D has degree k + 1)."""
    a, b, c, d = (np.asarray(m, float) for m in (a, b, c, d))
    found = [perron(a[:k], b[:k, :k], c[:k, :k], d[:k]) for k in range(1, len(a) + 1)]
    return Truncations(tuple(p.rate for p in found), tuple(p.loop_gain for p in found))


def graded_example(levels: int = 12) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A synthetic hierarchy: every degree feeds its neighbours, ever more weakly."""
    k = np.arange(1, levels + 1)
    near = np.exp(-np.abs(k[:, None] - k[None, :])) / np.sqrt(k[:, None] * k[None, :])
    return np.ones(levels), 1.2 * near, 1.3 * near, 0.9 + 0.1 * k


def _loop(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray, lam: float) -> np.ndarray:
    return (c / (d + lam)[:, None]) @ (b / (a + lam)[:, None])


def _radius(m: np.ndarray) -> float:
    return float(np.abs(np.linalg.eigvals(m)).max())
