r"""How curvature falls off with distance between nodes: curves, fits, bands, averages over sets of pairs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from netvitals.capture import Result
from netvitals.curvature.measure.metrics import gn_gap
from netvitals.curvature.measure.result import InterlayerCurvature, shortened


@dataclass(frozen=True, kw_only=True)
class Decay(Result):
    """Mean over pairs at each distance, and the fit log R̄(d) = a − b·d with its R²; NaN where no fit is possible."""

    distance: np.ndarray
    resonance: np.ndarray
    coupling: np.ndarray
    stable_rank: np.ndarray
    gap: np.ndarray  # ratio of sums at each distance
    gauss_newton: np.ndarray  # sums over the pairs at each distance
    tensor: np.ndarray
    rate: float  # b
    rate_stderr: float
    intercept: float  # a
    r2: float

    def __str__(self) -> str:
        rows = [
            f"  {int(d)}: R {r:.3g}, C {c:.3f}, D {k:.2f}, gap {g:.2g}"
            for d, r, c, k, g in zip(self.distance, self.resonance, self.coupling, self.stable_rank, self.gap)
        ]
        head = f"decay rate {self.rate:.3f} ± {self.rate_stderr:.2g} per node (R² {self.r2:.3f})"
        return "\n".join([head, *shortened(rows)])

    def rows(self) -> list[dict[str, Any]]:
        """One row a distance."""
        keys = ("distance", "resonance", "coupling", "stable_rank", "gap", "gauss_newton", "tensor")
        columns = [getattr(self, k).tolist() for k in keys]
        return [dict(zip(keys, values)) for values in zip(*columns)]


def decay(found: InterlayerCurvature, distance: Callable[[str, str], int | None] | None = None) -> Decay:
    """Average resonance, coupling and GN-gap over pairs of nodes at the same distance, and fit their decay.

    By default the distance is the shortest path in the graph of nodes, or |i − j| if there is no graph. Pairs with i ≤
    j are used, and NaNs are skipped. The mean resonance at distance d depends on the pairs that exist at d, on the
    decay for one example, and on cancellation between examples. ``fixed_end`` and ``reduction="mean_of_norms"``
    separate these influences.

    Args:
        found: result of ``between_layers``.
        distance: function of two node names; returns their distance, or None for a pair to leave out.

    Returns:
        The curves, and the rate of the exponential fit with its standard error.

    >>> import torch
    >>> from torch import nn
    >>> from netvitals.curvature import between_layers
    >>> net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    >>> batch = torch.randn(8, 3), torch.randn(8, 2)
    >>> found = between_layers(net, nn.MSELoss(), batch, nodes=["0", "1", "2"], method="exact")
    >>> decay(found).distance.tolist()
    [0, 1, 2]
    """
    n = len(found.nodes)
    between = np.full((n, n), -1)
    for i in range(n):
        for j in range(i, n):
            d = _distance(found, i, j) if distance is None else distance(found.nodes[i], found.nodes[j])
            between[i, j] = -1 if d is None else d
    ds = np.unique(between[between >= 0])
    mean = lambda m: np.array([_mean(m[between == d]) for d in ds])
    sums = lambda m: np.array([m[between == d].sum() for d in ds])
    r, t, gn = mean(found.resonance), sums(found.tensor), sums(found.gauss_newton)
    rate, error, start, r2 = fit(ds, r)
    return Decay(
        distance=ds,
        resonance=r,
        coupling=mean(found.coupling),
        stable_rank=mean(found.stable_rank),
        gap=gn_gap(t[None], gn[None])[0],
        gauss_newton=gn,
        tensor=t,
        rate=rate,
        rate_stderr=error,
        intercept=start,
        r2=r2,
    )


def fit(distance: np.ndarray, values: np.ndarray) -> tuple[float, float, float, float]:
    """b, its standard error, a and R² of log R = a − b·d; NaNs when fewer than three points are positive."""
    from netvitals.stats import slope

    good = np.isfinite(values) & (values > 0)
    if good.sum() < 3 or np.ptp(distance[good]) == 0:
        return (math.nan,) * 4
    line = slope(distance[good], np.log(values[good]))
    return -line.value, line.stderr, line.intercept, line.r2


def decay_rate(values: Sequence[float] | np.ndarray) -> float:
    """b of log R = a − b·d for values at distances 0, 1, 2, …; NaN from fewer than three positive ones."""
    return fit(np.arange(len(values)), np.asarray(values, float))[0]


def fixed_end(found: InterlayerCurvature, w: str) -> np.ndarray:
    """R(i, w) for every node i up to w, in order: no change in the set of pairs, so closer to one example's decay."""
    j = found.position(w)
    return found.resonance[: j + 1, j]


def averages(found: InterlayerCurvature, pairs: Iterable[tuple[str, str]]) -> dict[str, float]:
    """Mean resonance, coupling, stable rank and gap over chosen pairs: far pairs, within or across branches."""
    at = [(found.position(v), found.position(w)) for v, w in pairs]
    if not at:
        raise ValueError("averages() needs at least one pair of nodes, got none")
    rows, cols = zip(*at)
    keys = ("resonance", "coupling", "stable_rank", "gn_gap")
    return {k: float(_mean(getattr(found, k)[list(rows), list(cols)])) for k in keys}


def far_pairs(nodes: tuple[str, ...], position: int) -> list[tuple[str, str]]:
    """Pairs on either side of a position: i < position < j."""
    return [(nodes[i], nodes[j]) for i in range(position) for j in range(position + 1, len(nodes))]


def interaction_radius(found: InterlayerCurvature, contraction: float, scale: float, eps: float) -> int | None:
    r"""Least k with $C(s\rho)^k<\epsilon\|H_{v,v}\|_F$ for all v; None when nothing contracts ($s\rho\ge1$)."""
    if not contraction > 0:
        raise ValueError(
            f"contraction= must be a positive number, got {contraction}. It is s·ρ: the fan-out s of the graph "
            "times the norm ρ of its edges"
        )
    if contraction >= 1:
        return None
    goal = eps * float(np.nanmin(np.diag(found.resonance)))
    k = max(0, math.ceil(math.log(goal / scale) / math.log(contraction)))
    while scale * contraction**k >= goal:
        k += 1
    return k


def band_threshold(contraction: float, eps: float) -> int | None:
    r"""$\lceil\log\epsilon/\log(s\rho)\rceil$: Gauss–Newton blocks further apart are below ε of the loss curvature."""
    return math.ceil(math.log(eps) / math.log(contraction)) if 0 < contraction < 1 else None


def distances(found: InterlayerCurvature) -> np.ndarray:
    """N×N: edges on the shortest path between two nodes, along or against the arrows; infinite where there is none.

    In a chain it is |i − j|. Beside a shortcut or in a branch it is not: the place in the list says nothing there.
    """
    n = len(found.nodes)
    out = np.zeros((n, n))
    for i in range(n):
        for j in range(i + 1, n):
            d = _distance(found, i, j)
            out[i, j] = out[j, i] = math.inf if d is None else d
    return out


def mass_outside(found: InterlayerCurvature, bandwidth: int) -> float:
    """Share of the squared Frobenius norm in blocks more than ``bandwidth`` edges of the graph apart."""
    far = distances(found) > bandwidth
    squares = found.resonance**2
    return float(squares[far].sum() / squares.sum())


def bandwidth(found: InterlayerCurvature, eps: float = 0.05) -> int:
    """Return the smallest bandwidth of a banded preconditioner that leaves out at most ``eps`` of the Frobenius norm.

    Args:
        found: result of ``between_layers``.
        eps: relative Frobenius error that may be left out.

    Returns:
        The largest distance between two layers in the band, in edges of the graph; the ends of a skip connection have
        distance 1.

    >>> import torch
    >>> from torch import nn
    >>> from netvitals.curvature import between_layers
    >>> net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    >>> batch = torch.randn(8, 3), torch.randn(8, 2)
    >>> found = between_layers(net, nn.MSELoss(), batch, nodes=["0", "1", "2"], method="exact")
    >>> bandwidth(found, eps=1.0)  # the diagonal leaves out less than everything
    0
    """
    apart = distances(found)
    reach = sorted({int(d) for d in apart[np.isfinite(apart)]})
    return next((k for k in reach if mass_outside(found, k) ** 0.5 <= eps), reach[-1])


def _distance(found: InterlayerCurvature, i: int, j: int) -> int | None:
    if not found.graph.names:
        return j - i
    return found.graph.topology.distance(found.nodes[i], found.nodes[j])


def _mean(values: np.ndarray) -> float:
    good = values[np.isfinite(values)]
    return float(good.mean()) if len(good) else math.nan
