"""What the numbers say about the architecture: bottlenecks, what Gauss–Newton misses, bandwidths, skips."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from netvitals.capture import Result
from netvitals.curvature.engine.graph import OUT
from netvitals.curvature.measure.result import InterlayerCurvature


@dataclass(frozen=True, kw_only=True)
class CurvatureBottleneck(Result):
    """A node that every path from the nodes before it to the output passes, narrower than they are."""

    node: str
    width: int
    before: tuple[str, ...]
    stable_rank: float  # mean over pairs on either side
    effective_dimension: float  # mean over these pairs
    coupling: float

    def __str__(self) -> str:
        return (
            f"{self.node} ({self.width} wide) carries everything from {', '.join(self.before)}: across it the "
            f"stable rank is {self.stable_rank:.2f}, the effective dimension {self.effective_dimension:.1f} and the "
            f"coupling {self.coupling:.2f}"
        )


@dataclass(frozen=True)
class Dropped(Result):
    """A cross-block that a block-diagonal method ignores, and its share of the whole squared Frobenius norm."""

    v: str
    w: str
    share: float
    residual: float  # part of the block that is not Gauss–Newton, ‖H − GN‖/‖H‖

    def __str__(self) -> str:
        return f"{self.v}–{self.w}: {100 * self.share:.3g} % of the curvature, {100 * self.residual:.3g} % of it not GN"


@dataclass(frozen=True, kw_only=True)
class Recommendation(Result):
    """Whether Gauss–Newton curvature is enough, per what it misses of the parameters' Hessian."""

    missed: float  # ‖H − GN‖/‖H‖ over all pairs
    gap: float
    choice: str  # "gauss-newton", "mixed" or "full"
    worst: tuple[str, str]
    worst_gap: float
    why: str

    def __str__(self) -> str:
        pair = " and ".join(self.worst)
        return (
            f"{self.choice}: {self.why} (it misses {100 * self.missed:.3g} %, GN-gap {self.gap:.3g}; largest between "
            f"{pair}, {self.worst_gap:.3g})"
        )


def bottlenecks(found: InterlayerCurvature) -> list[CurvatureBottleneck]:
    """Find bottlenecks: nodes narrower than those before and after them, which every path to the output crosses.

    Args:
        found: result of ``between_layers`` in activation space.

    Returns:
        The bottlenecks, narrowest first.

    >>> import torch
    >>> from torch import nn
    >>> from netvitals.curvature import between_layers
    >>> net = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 1), nn.Tanh(), nn.Linear(1, 6))
    >>> batch = torch.randn(8, 3), torch.randn(8, 6)
    >>> found = between_layers(net, nn.MSELoss(), batch, nodes=["0", "2", "4"], method="exact")
    >>> [neck.node for neck in bottlenecks(found)]
    ['2']
    """
    top = found.graph.topology
    width = dict(zip(found.nodes, found.sizes))
    out = []
    for u in found.nodes:
        before = tuple(v for v in found.nodes if u in top.dominators(v, OUT) and width[v] > width[u])
        after = [w for w in found.nodes if w in top.descendants[u]]
        if not before or not any(width[w] > width[u] for w in after):
            continue  # a net that only narrows, as every classifier of images does, has no neck
        pairs = [(found.position(v), found.position(w)) for v in before for w in after]
        rows, cols = (list(x) for x in zip(*pairs))
        dimension = found.effective_dimension[rows, cols]
        out.append(
            CurvatureBottleneck(
                node=u,
                width=width[u],
                before=before,
                stable_rank=float(np.nanmean(found.stable_rank[rows, cols])),
                effective_dimension=float(np.nanmean(dimension)) if np.isfinite(dimension).any() else float("nan"),
                coupling=float(np.nanmean(found.coupling[rows, cols])),
            )
        )
    return sorted(out, key=lambda b: b.width)


def dropped_blocks(found: InterlayerCurvature, least: float = 0.0) -> list[Dropped]:
    """Rank the Hessian blocks between layers that a block-diagonal method such as K-FAC ignores.

    Args:
        found: result of ``between_layers``, usually in parameter space.
        least: leave out blocks with a share of at most this.

    Returns:
        One entry for each pair of different nodes, the largest share of the squared norm first.

    >>> import torch
    >>> from torch import nn
    >>> from netvitals.curvature import between_layers
    >>> net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    >>> batch = torch.randn(8, 3), torch.randn(8, 2)
    >>> found = between_layers(net, nn.MSELoss(), batch, space="parameter", method="exact")
    >>> [(d.v, d.w) for d in dropped_blocks(found)], 0 < dropped_blocks(found)[0].share < 1
    ([('0', '2')], True)
    """
    squares = found.resonance**2
    total = squares.sum()
    out = []
    for i, j in combinations(range(len(found.nodes)), 2):
        share = float((squares[i, j] + squares[j, i]) / total)
        if share > least:
            residual = float(found.tensor[i, j] / found.resonance[i, j]) if found.resonance[i, j] > 0 else 0.0
            out.append(Dropped(found.nodes[i], found.nodes[j], share, residual))
    return sorted(out, key=lambda d: -d.share)


def recommend(found: InterlayerCurvature, small: float = 0.1, large: float = 0.7) -> Recommendation:
    r"""Recommend Gauss–Newton or full Hessian products for an optimizer, from the relative error $\|H-GN\|/\|H\|$.

    The choice is Gauss–Newton below ``small``, the full Hessian above ``large``, and ``"mixed"`` in between. The choice
    is also ``"mixed"`` if the error of the whole matrix is below ``small``, but that of one layer's diagonal block is
    above ``large``. ``why`` names that layer.

    The advice needs a result in parameter space (Corollary 12). A piecewise-linear network has no gap in activation
    space, but can have a large one in parameter space.

    Args:
        found: result of ``between_layers(..., space="parameter")``.
        small: below this relative error over all pairs, Gauss–Newton is recommended.
        large: above this relative error, the full Hessian is recommended; above 0.7, Gauss–Newton misses half of the
            squared norm.

    Returns:
        The choice, why, and the pair with the largest gap.

    >>> import torch
    >>> from torch import nn
    >>> from netvitals.curvature import between_layers
    >>> net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    >>> batch = torch.randn(8, 3), torch.randn(8, 2)
    >>> found = between_layers(net, nn.MSELoss(), batch, space="parameter", method="exact")
    >>> recommend(found).choice
    'mixed'
    """
    if found.space != "parameter":
        raise ValueError(
            "this result was measured with space='activation', but optimizer advice needs parameter space: use "
            "between_layers(..., space='parameter') or curvature.report"
        )
    missed, _ = found.missed_in_all
    live = np.where(found.gauss_newton > 0, found.gn_gap, -np.inf)
    i, j = np.unravel_index(int(np.argmax(live)), live.shape)
    gap = found.global_gap
    own = np.diag(found.missed)
    outside = [found.nodes[k] for k in np.argsort(-own) if own[k] > large]  # few layers may hold all the curvature
    choice = "full" if missed > large else "gauss-newton" if missed < small and not outside else "mixed"
    words = {
        "gauss-newton": "Gauss–Newton and K-FAC-type curvature is accurate here",
        "mixed": "Gauss–Newton is a fair guide, but blocks with a large gap need products with the full Hessian",
        "full": "most curvature is outside Gauss–Newton: use products with the full Hessian",
    }
    if missed < small and outside:
        named = ", ".join(outside[:3]) + (f" and {len(outside) - 3} more" if len(outside) > 3 else "")
        words["mixed"] = (
            "over all layers together Gauss–Newton is accurate, because a few of them hold the curvature; inside "
            f"{named} it misses most, and a method that treats layers apart needs products with the full Hessian there"
        )
    if gap <= found.floor:
        words["gauss-newton"] = "H = GN up to rounding"
    worst = (found.nodes[int(i)], found.nodes[int(j)])
    return Recommendation(
        missed=missed, gap=gap, choice=choice, worst=worst, worst_gap=float(live[i, j]), why=words[choice]
    )


def uniform_skips(depth: int, budget: int) -> tuple[int, ...]:
    """Starts of ``budget`` skips spread evenly over a chain of ``depth`` layers (Prop. 75, a heuristic; erratum E24).

    >>> uniform_skips(8, 2)
    (0, 4)
    """
    if not 0 < budget <= depth:
        raise ValueError(f"budget= must be between 1 and the number of layers ({depth}), got {budget}")
    span = depth // budget
    return tuple(i * span for i in range(budget))


def best_skips(
    depth: int, budget: int, measure: Callable[[tuple[int, ...]], float], most: int = 200
) -> tuple[tuple[int, ...], float]:
    """The placement with the largest measured value (for example the smallest resonance over all pairs).

    Tries all placements when there are at most ``most``, otherwise improves the uniform one a skip at a time.
    """
    start = uniform_skips(depth, budget)
    options = list(combinations(range(depth), budget))
    if len(options) <= most:
        scored = [(measure(o), o) for o in options]
        value, placed = max(scored)
        return placed, value
    best, value, spent = start, measure(start), 1
    improved = True
    while improved and spent < most:
        improved = False
        for near in _neighbours(best, depth):
            score, spent = measure(near), spent + 1
            if score > value:
                best, value, improved = near, score, True
                break
    return best, value


def _neighbours(placed: Sequence[int], depth: int) -> list[tuple[int, ...]]:
    out = []
    for i, p in enumerate(placed):
        for q in (p - 1, p + 1):
            if 0 <= q < depth and q not in placed:
                out.append(tuple(sorted([*placed[:i], q, *placed[i + 1 :]])))
    return out
