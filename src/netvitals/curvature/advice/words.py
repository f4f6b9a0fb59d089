"""What a measurement of curvature means, in sentences."""

from __future__ import annotations

import numpy as np

from netvitals.curvature.advice.design import bottlenecks, dropped_blocks, recommend
from netvitals.curvature.advice.distance import decay
from netvitals.curvature.measure.result import InterlayerCurvature


def describe(found: InterlayerCurvature, most: int = 3) -> list[str]:
    """Sentences for a report, most important first: gaps, couplings, decay, bottlenecks, what K-FAC drops.

    Differences smaller than two standard errors are not spoken of.

    Args:
        found: what ``interlayer`` returned.
        most: at most so many pairs in a sentence that lists them.

    Returns:
        The sentences.

    >>> import torch
    >>> from torch import nn
    >>> from netvitals.curvature import interlayer
    >>> net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    >>> batch = torch.randn(8, 3), torch.randn(8, 2)
    >>> found = interlayer(net, nn.MSELoss(), batch, nodes=["0", "1", "2"], method="exact")
    >>> print(describe(found)[0])  # doctest: +ELLIPSIS
    Gauss–Newton misses ... of the curvature inside 0 ...
    """
    return [*_gaps(found, most), *_coupling(found, most), *_decay(found), *_bottlenecks(found), *_dropped(found, most)]


def _gaps(found: InterlayerCurvature, most: int) -> list[str]:
    n = len(found.nodes)
    out = []
    if found.global_gap <= found.floor:
        where = "in activation space " if found.space == "activation" else ""
        return [
            f"H equals Gauss–Newton {where}up to rounding (gap {found.global_gap:.0e}): everything after the first "
            "node is piecewise linear on this batch"
            + ("; between its parameters they differ all the same." if found.space == "activation" else ".")
        ]
    missed = [
        (float(found.missed[i, j]), i, j)
        for i in range(n)
        for j in range(i, n)
        if found.tensor[i, j] > found.floor * found.resonance[i, j]
        and found.gn_gap[i, j] > 2 * found.gn_gap_stderr[i, j]
    ]
    for share, i, j in sorted(missed, reverse=True)[:most]:
        if share < 0.2:
            break
        place = f"inside {found.nodes[i]}" if i == j else f"between {found.nodes[i]} and {found.nodes[j]}"
        out.append(
            f"Gauss–Newton misses {100 * share:.0f} % of the curvature {place} (‖H − GN‖/‖H‖; gap "
            f"{found.gn_gap[i, j]:.3g} ± {found.gn_gap_stderr[i, j]:.2g}); K-FAC-type preconditioners are blind to it."
        )
    whole = f"Over all pairs the GN-gap is {found.global_gap:.2g}"
    if found.space != "parameter":
        return [*out, f"{whole} between activations; what an optimizer meets is measured with space='parameter'."]
    return [*out, f"{whole}: {recommend(found).why}."]


def _coupling(found: InterlayerCurvature, most: int) -> list[str]:
    n = len(found.nodes)
    if n < 2:
        return []
    pairs = [
        (float(found.coupling[i, j]), i, j)
        for i in range(n)
        for j in range(i + 1, n)
        if np.isfinite(found.coupling[i, j])
    ]
    out = []
    above = [(c, i, j) for c, i, j in pairs if c - 2 * found.coupling_stderr[i, j] > 1.0 + 1e-6]
    if above:
        c, i, j = max(above)
        out.append(
            f"{found.nodes[i]} and {found.nodes[j]} couple more strongly than either with itself (C = {c:.2f}): "
            "only curvature outside Gauss–Newton can do that."
        )
    strong = sorted(((c, i, j) for c, i, j in pairs if 0.5 <= c <= 1.05 and j - i > 1), reverse=True)[:most]
    if strong:
        names = ", ".join(f"{found.nodes[i]}–{found.nodes[j]} ({c:.2f})" for c, i, j in strong)
        out.append(f"Far nodes that share curvature: {names}. A step in one changes the gradient of the other.")
    weak = [(c, i, j) for c, i, j in pairs if c + 2 * found.coupling_stderr[i, j] < 0.1]
    if weak:
        c, i, j = min(weak)
        out.append(
            f"{len(weak)} of {len(pairs)} pairs are nearly isolated (C < 0.1), most of all {found.nodes[i]} and "
            f"{found.nodes[j]} ({c:.2g})."
        )
    return out


def _decay(found: InterlayerCurvature) -> list[str]:
    if found.space != "activation" or len(found.nodes) < 4:
        return []
    d = decay(found)
    if not np.isfinite(d.rate) or d.r2 < 0.5 or abs(d.rate) < 2 * d.rate_stderr:
        return ["Curvature between layers does not fall steadily with distance."]
    if abs(d.rate) < 0.01:
        return [f"Curvature between layers stays level with distance ({d.rate:+.3f} per node)."]
    verb = "falls" if d.rate > 0 else "grows"
    return [
        f"Curvature between layers {verb} by {100 * abs(1 - np.exp(-d.rate)):.0f} % per node (R² {d.r2:.2f}); "
        f"coupling over the whole depth is {d.coupling[-1]:.2f}."
    ]


def _bottlenecks(found: InterlayerCurvature) -> list[str]:
    return [f"Bottleneck: {b}." for b in bottlenecks(found)[:2]] if found.space == "activation" else []


def _dropped(found: InterlayerCurvature, most: int) -> list[str]:
    if found.space != "parameter" or len(found.nodes) < 2:
        return []
    worst = dropped_blocks(found)[:most]
    share = 100 * found.off_diagonal_mass
    names = ", ".join(f"{d.v}–{d.w} ({100 * d.share:.0f} %)" for d in worst)
    return [f"A block-diagonal method drops {share:.0f} % of the squared curvature; the largest parts are {names}."]
