"""Pictures of the reconstruction: Figures 15, 17, 20, 22, 23, 25, 26, 31, 33 to 35 and 37, from the stored rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netvitals_lab import Plot, Row, Series
from netvitals_lab.engine.judges import groups, some
from netvitals_lab.papers.gate_density import reconstruction as rec
from netvitals_lab.papers.gate_density.transition import SUCCESS, table


def slices(rows: Sequence[Row]) -> Plot:
    """Figure 15: the loss along one line through the solution, relative to its largest value there."""
    series = []
    for row in some(rows, check="landscape"):
        values = np.array(row["slice"], float)
        place = np.linspace(-1, 1, len(values))
        series.append(Series(f"α = {row['alpha']:g}", place.tolist(), (values / values.max()).tolist(), line=True))
    return Plot("distance from the solution", "loss over its largest", series)


def fitted(rows: Sequence[Row]) -> Plot:
    """Figure 17: mean IoU, and the fits with three and with four parameters."""
    alphas, iou = table(rows, "iou", check="transition")
    spread = iou.std(1, ddof=1) / iou.shape[1] ** 0.5 if iou.shape[1] > 1 else np.zeros(len(alphas))
    dense = np.linspace(alphas.min(), alphas.max(), 120)
    series = [Series("mean over seeds", alphas.tolist(), iou.mean(1).tolist(), error=spread.tolist())]
    for count in (3, 4):
        fit = rec.fit_phase(alphas, iou, count)
        curve = rec.curve(dense, fit.floor, fit.midpoint, fit.width, fit.top)
        name = f"{count} parameters, cond {fit.condition:.1e}"
        series.append(Series(name, dense.tolist(), curve.tolist(), line=True, dashed=count == 4))
    return Plot("stiffness", "IoU", series)


def cutoffs(rows: Sequence[Row]) -> Plot:
    """Figure 20: IoU at stiffness 10 by cutoff and optimiser."""
    series = []
    for method, mine in groups(rows, "method", check="cutoff").items():
        points = sorted((r["c"], float(np.mean(r["iou"]))) for r in mine)
        series.append(Series(str(method), [p[0] for p in points], [p[1] for p in points], line=True))
    return Plot("cutoff c", "IoU at stiffness 10", series)


def oracle(rows: Sequence[Row]) -> Plot:
    """Figure 22: Adam, the oracle and projected gradient by stiffness."""
    series = []
    for method, mine in groups(rows, "method", check="oracle").items():
        alphas, iou = table(mine, "iou")
        series.append(Series(str(method), alphas.tolist(), iou.mean(1).tolist(), line=True))
    return Plot("stiffness", "IoU", series, log_x=True)


def successes(rows: Sequence[Row]) -> Plot:
    """Figures 31 and 34: share of seeds with IoU above 0.7, by optimiser, and on the dense grid of Adam."""
    series = []
    for (check, method), mine in groups(
        [r for r in rows if r["check"] in ("methods", "transition")], "check", "method"
    ).items():
        alphas, iou = table(mine, "iou")
        name = f"{method}" + (", dense grid" if check == "transition" else "")
        share = (iou > SUCCESS).mean(1)
        series.append(Series(name, alphas.tolist(), share.tolist(), line=True, dashed=check == "transition"))
    return Plot("stiffness", f"share with IoU > {SUCCESS:g}", series, log_x=True)


def spreads(rows: Sequence[Row]) -> Plot:
    """Figure 33: how far restarts end apart in the input and in the output."""
    mine = sorted(some(rows, check="restarts"), key=lambda r: r["alpha"])
    alphas = [float(r["alpha"]) for r in mine]
    series = [
        Series(name, alphas, [float(r[key]) for r in mine], line=True)
        for name, key in (("inputs", "input_spread"), ("outputs", "output_spread"))
    ]
    return Plot("stiffness", "spread over restarts", series)


def kernels(rows: Sequence[Row]) -> Plot:
    """Figures 25 and 26: IoU by stiffness, a line for each kernel; random kernels as their mean."""
    series = []
    plain = [r for r in rows if r["picture"] == "checkerboard" and not r["reachable"] and r["padding"] == "zero"]
    for (kernel, scale), mine in groups(plain, "kernel", "scale").items():
        by = sorted((a, float(np.mean([np.mean(r["iou"]) for r in g]))) for a, g in groups(mine, "alpha").items())
        series.append(Series(f"{kernel} × {scale:g}", [b[0] for b in by], [b[1] for b in by], line=True))
    return Plot("stiffness", "IoU", series, log_x=True)


def collapse_rate(alphas: np.ndarray, one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """c of F² = F¹/(1 + cα), stiffness by stiffness; NaN where a share is zero.

    >>> collapse_rate(np.array([20.0]), np.array([0.147]), np.array([0.078])).round(3)
    array([0.044])
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = (one / two - 1) / alphas
    return np.where(np.isfinite(rate), rate, np.nan)


def rates(rows: Sequence[Row]) -> Plot:
    """Figure 23: c(α) by the kernel of the second layer, beside the printed 0.211 α^(−0.674)."""
    series, grid = [], np.array([])
    for second in dict.fromkeys(r["second"] for r in rows):
        alphas, one = table(rows, "one", second=second)
        c = collapse_rate(alphas, one.mean(1), table(rows, "effective", second=second)[1].mean(1))
        keep = (alphas >= 10) & (c > 0)
        grid = alphas[keep] if keep.any() else grid
        series.append(Series(str(second), alphas[keep].tolist(), c[keep].tolist(), line=True))
    law = (0.211 * grid**-0.674).tolist()
    return Plot("stiffness", "c", [*series, Series("printed", grid.tolist(), law, line=True, dashed=True)], True, True)


def learned(rows: Sequence[Row]) -> Plot:
    """Figure 35: IoU with the kernel fixed and learned, and on the right the ratio of their active shares."""
    alphas, fixed = table(rows, "fixed_iou")
    joint = table(rows, "joint_iou")[1].mean(1)
    ratio = table(rows, "joint_active")[1].mean(1) / np.maximum(table(rows, "fixed_active")[1].mean(1), 1e-9)
    x = alphas.tolist()
    series = [
        Series("fixed kernel", x, fixed.mean(1).tolist(), line=True),
        Series("learned kernel", x, joint.tolist(), line=True),
        Series("active share, learned over fixed", x, ratio.tolist(), line=True, dashed=True, right=True),
    ]
    return Plot("stiffness", "IoU", series, log_x=True, right_label="ratio of active shares")


def independence(rows: Sequence[Row]) -> Plot:
    """Figure 37: correlation of the two layers' gates by stiffness, every solution a point."""
    by: dict[str, list[tuple[float, float]]] = {}
    for r in rows:
        by.setdefault(str(r["second"]), []).extend((float(r["alpha"]), float(v)) for v in r["correlation"])
    series = [Series(name, [p[0] for p in points], [p[1] for p in points]) for name, points in by.items()]
    return Plot("stiffness", "correlation of the gates", series, log_x=True)
