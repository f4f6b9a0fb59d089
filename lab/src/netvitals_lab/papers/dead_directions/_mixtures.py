"""Two unit Gaussians with weight, first and second mean: Fisher matrices by quadrature on a grid."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.func import jacfwd

from netvitals.singular import rate_fit
from netvitals.singular.laws.geometry import sectional_curvature
from netvitals_lab import Row

f64 = torch.float64
GRID = torch.linspace(-14, 14, 2801, dtype=f64)


def density(w: Tensor, first: Tensor, second: Tensor) -> Tensor:
    bell = lambda m: torch.exp(-(GRID - m).square() / 2) / math.sqrt(2 * math.pi)
    return (1 - w) * bell(first) + w * bell(second)


def fisher(theta: Tensor, coordinates: str = "means") -> Tensor:
    """F of (w, μ1, μ2), or of (split s, mean m, weight w) with ``coordinates="split"``."""

    def p(th: Tensor) -> Tensor:
        if coordinates == "means":
            return density(th[0], th[1], th[2])
        s, m, w = th
        return density(w, m - w * s, m + (1 - w) * s)

    score = jacfwd(p)(theta)
    return torch.trapezoid(score.T[:, None] * score.T[None] / p(theta), GRID)


def merge() -> list[Row]:
    """Eigenvalue slopes as the two means merge, three parameters: 6, 2, 0 (X11)."""
    ts = np.geomspace(0.02, 0.1, 6)
    rows: list[Row] = []
    for w in (0.5, 0.3):
        values = np.stack([_spectrum(torch.tensor([w, -w * t, (1 - w) * t], dtype=f64)) for t in ts])
        for rank, predicted in enumerate((6, 2, 0)):
            fit = rate_fit(ts, values[:, rank], floor=0.0)
            rows.append({"weight": w, "rank": rank, "predicted": predicted, "measured": fit.slope})
    return rows


def two_parameters() -> list[Row]:
    """The merge with fixed weight, parameters (μ1, μ2): slopes 2 and 0 (X10)."""
    ts = np.geomspace(0.01, 0.1, 6)
    rows: list[Row] = []
    for w in (0.5, 0.3, 0.1):
        values = np.stack(
            [np.linalg.eigvalsh(fisher(torch.tensor([w, -w * t, (1 - w) * t], dtype=f64)).numpy()[1:, 1:]) for t in ts]
        )
        rows += [
            {"weight": w, "rank": i, "predicted": (2, 0)[i], "measured": rate_fit(ts, values[:, i]).slope}
            for i in range(2)
        ]
    return rows


def three_components() -> list[Row]:
    """One pair of three merges, parameters (μ1, μ2, μ3) and fixed weights: slopes 2, 0, 0 (Table 8, second row)."""
    ts = np.geomspace(0.01, 0.1, 6)
    bell = lambda m: torch.exp(-(GRID - m).square() / 2) / math.sqrt(2 * math.pi)
    rows: list[Row] = []
    for weights in ((1 / 3, 1 / 3, 1 / 3), (0.2, 0.3, 0.5)):
        p = lambda th, weights=weights: sum(w * bell(m) for w, m in zip(weights, th))
        values = []
        for t in ts:
            share = weights[1] / (weights[0] + weights[1])
            theta = torch.tensor([-share * t, (1 - share) * t, 3.0], dtype=f64)
            score = jacfwd(p)(theta)
            found = torch.trapezoid(score.T[:, None] * score.T[None] / p(theta), GRID)
            values.append(np.linalg.eigvalsh(found.numpy()))
        rows += [
            {"weight": weights[0], "rank": i, "predicted": (2, 0, 0)[i], "measured": rate_fit(ts, slopes).slope}
            for i, slopes in enumerate(np.stack(values).T)
        ]
    return rows


def weight_boundary() -> list[Row]:
    """w → 0 at fixed means: λ_min and κ against w (N4); the direction ∂μ2 is tangential, no order follows."""
    ws = np.geomspace(1e-4, 1e-2, 6)
    rows: list[Row] = []
    for gap in (1.0, 2.0, 3.0):
        values = np.stack([_spectrum(torch.tensor([w, 0.0, gap], dtype=f64)) for w in ws])
        zero = torch.zeros((), dtype=f64)
        there, beyond = (density(zero, zero, torch.tensor(gap + far, dtype=f64)) for far in (0.0, 0.5))
        rows.append(
            {
                "gap": gap,
                "moved": float((beyond - there).abs().max()),
                "smallest": rate_fit(ws, values[:, 0]).slope,
                "condition": rate_fit(ws, values[:, -1] / values[:, 0]).slope,
            }
        )
    return rows


def curvature() -> list[Row]:
    """Sectional curvature of the mixture: finite in the (split, mean) plane, −1/(w(1−w)s²) in (split, weight)."""
    rows: list[Row] = []
    for w in (0.5, 0.3, 0.2, 0.1):
        rest = torch.tensor([w], dtype=f64)
        flat = lambda th, rest=rest: fisher(torch.cat([th, rest]), "split")[:2, :2]
        mean = [sectional_curvature(flat, torch.tensor([s, 0.0], dtype=f64)) for s in (0.1, 0.05)]
        whole = lambda th: fisher(th, "split")
        steep = [s * s * sectional_curvature(whole, torch.tensor([s, 0.0, w], dtype=f64), (0, 2)) for s in (0.1, 0.05)]
        for plane, near, text in (("mean", mean, 1 - 3 / (8 * w * (1 - w))), ("weight", steep, -1 / (w * (1 - w)))):
            # the error of the limit s → 0 is of order s²
            rows.append({"weight": w, "plane": plane, "measured": (4 * near[1] - near[0]) / 3, "predicted": text})
    return rows


def next_order() -> list[Row]:
    """F₄/C₆ of the split: 6(20w²−20w+3)/(8w²−8w+1), with a pole at w = (2−√2)/4 (erratum E5)."""
    rows: list[Row] = []
    for w in (0.5, 0.4, 0.2, 0.1):
        c = (w * (1 - w)) ** 2
        residue = []
        for s in (0.2, 0.1):
            th = torch.tensor([s, 0.0, w], dtype=f64)
            truth = density(torch.tensor(w, dtype=f64), torch.zeros((), dtype=f64), torch.zeros((), dtype=f64))
            p = density(th[2], -th[2] * th[0], (1 - th[2]) * th[0])
            r = (p - truth) / truth
            k = float(torch.trapezoid(truth * (r - torch.log1p(r)), GRID))
            f = float(fisher(th, "split")[0, 0])
            residue.append(((f - 2 * c * s**2) / s**4, (k - c * s**4 / 4) / s**6))
        f4, c6 = ((4 * residue[1][i] - residue[0][i]) / 3 for i in range(2))
        rows.append(
            {"weight": w, "measured": f4 / c6, "predicted": 6 * (20 * w**2 - 20 * w + 3) / (8 * w**2 - 8 * w + 1)}
        )
    return rows


def _spectrum(theta: Tensor) -> np.ndarray:
    return np.maximum(torch.linalg.eigvalsh(fisher(theta)).numpy(), 0.0)
