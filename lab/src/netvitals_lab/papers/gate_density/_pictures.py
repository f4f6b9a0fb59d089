"""Pictures of the claims: density by epoch, margins, predicted against measured, σ by optimizer, and their kin."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netvitals_lab import Plot, Row, Series
from netvitals_lab.papers.gate_density._reading import acts, some
from netvitals_lab.papers.gate_density._recorder import key

POINTS = 240  # dots of one series, about


def density_by_epoch(
    rows: Sequence[Row], theta: float = 0.1, pooling: str = "element", kind: str = "all", beside: str = ""
) -> Plot:
    """Mean over runs with its 95 % interval, one line per activation; epoch −1 is before training.

    ``beside`` draws another column on the right, dashed: ``rank_entropy`` or ``accuracy``.
    """
    name = key(theta, pooling, kind)
    series = []
    for tone, act in enumerate(acts(rows)):
        mine = [r for r in rows if r["quantity"] == "epoch" and r["act"] == act and name in r]
        epochs = sorted({r["epoch"] for r in mine})
        for column in (name, *((beside,) if beside else ())):
            values = [[r[column] for r in mine if r["epoch"] == e and r.get(column) is not None] for e in epochs]
            there = [(e, v) for e, v in zip(epochs, values) if v]
            series.append(
                Series(
                    name=act if column == name else f"{act}, {beside}",
                    x=[e for e, _ in there],
                    y=[float(np.mean(v)) for _, v in there],
                    error=[half_width(v) for _, v in there],
                    line=True,
                    dashed=column != name,
                    tone=tone,
                    right=column != name,
                )
            )
    where = "" if kind == "all" else f", {kind} sites"
    return Plot("epoch", f"gate density, θ = {theta:g}, by {pooling}{where}", series, right_label=beside)


def half_width(values: Sequence[float]) -> float:
    """Half of the 95 % interval of a mean, by Student's t; 0 for a single value.

    >>> round(half_width([1.0, 2.0, 3.0]), 3)
    2.484
    """
    if len(values) < 2:
        return 0.0
    from scipy.stats import t

    return float(t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5)


def margins(rows: Sequence[Row]) -> Plot:
    """Normalised margin of channels before training and at its end."""
    series = []
    for act in acts(rows):
        runs = [r for r in some(rows, act=act) if "margins first" in r]
        pairs = [p for r in runs for p in zip(r["margins first"], r["margins last"])]
        pairs = pairs[:: -(-len(pairs) // POINTS)]
        series.append(Series(act, [a for a, _ in pairs], [b for _, b in pairs]))
    return Plot("margin (μ − z_low)/σ before training, θ = 0.10", "margin at the end", series)


def predicted(rows: Sequence[Row], theta: float = 0.1) -> Plot:
    """Density of every site at the end: what the law says from μ and σ, and what was measured."""
    series = []
    for act in acts(rows):
        sites = [r for r in some(rows, "site", act=act, when="last", theta=theta) if "predicted" in r]
        series.append(Series(act, [r["predicted"] for r in sites], [r["density"] for r in sites]))
    ends = [min(min(s.x) for s in series), max(max(s.x) for s in series)]
    return Plot(
        f"predicted density, interval-union law, θ = {theta:g}",
        "measured density",
        [*series, Series("equal", ends, ends, line=True, dashed=True)],
    )


def sigma_by_optimizer(rows: Sequence[Row]) -> Plot:
    """Mean channel deviation by epoch, one line per optimizer and decay, over all activations."""
    series = []
    epochs = [r for r in rows if r["quantity"] == "epoch"]
    for arm in dict.fromkeys((r["optimizer"], r["coupling"], r["S"], bool(r.get("exempt"))) for r in epochs):
        mine = [r for r in epochs if (r["optimizer"], r["coupling"], r["S"], bool(r.get("exempt"))) == arm]
        times = sorted({r["epoch"] for r in mine})
        name = f"{arm[0]}{' decoupled' if arm[:2] == ('sgd', 'decoupled') else ''}, S = {arm[2]:g}" + (
            ", norms exempt" if arm[3] else ""
        )
        series.append(
            Series(
                name, times, [float(np.mean([r["sigma"] for r in mine if r["epoch"] == e])) for e in times], line=True
            )
        )
    return Plot("epoch", "mean channel σ", series)


def collapse_by_decay(rows: Sequence[Row]) -> Plot:
    """Deviation at the end over deviation at the start, against the integrated decay that the norm scales felt."""
    series = []
    for arm in dict.fromkeys((r["optimizer"], r["coupling"]) for r in some(rows)):
        mine = [r for r in some(rows, optimizer=arm[0], coupling=arm[1]) if not r.get("exempt")]
        series.append(
            Series(
                f"{arm[0]}, {arm[1]}",
                [r["realised S"] for r in mine],
                [r["sigma last"] / r["sigma first"] for r in mine],
            )
        )
    return Plot(
        "integrated decay felt by the norm scales", "σ at the end / σ at the start", series, log_x=True, log_y=True
    )


def correlations(rows: Sequence[Row], margin: str = "normalized") -> Plot:
    """Histogram of per-channel correlations of margin and density, θ = 0.10, as shares of the channels."""
    centres = [-0.95 + 0.1 * i for i in range(20)]
    series = []
    for act in acts(rows):
        name = f"histogram {margin}@0.1"
        counts = np.sum([r[name] for r in some(rows, act=act) if name in r], axis=0)
        series.append(Series(act, centres, (counts / max(1, counts.sum())).tolist(), line=True))
    return Plot(f"correlation of {margin} margin and density", "share of channels", series)


def by_threshold(rows: Sequence[Row], pooling: str = "element") -> Plot:
    """Change of density in points at five thresholds."""
    series = []
    for act in acts(rows):
        runs = some(rows, act=act)
        thetas = sorted(
            float(k[2:].split(" ")[0]) for k in runs[0] if k.startswith("D@") and k.endswith(f" {pooling} all change")
        )
        values = [[100 * r[f"{key(t, pooling)} change"] for r in runs] for t in thetas]
        series.append(
            Series(act, thetas, [float(np.mean(v)) for v in values], [float(np.std(v)) for v in values], line=True)
        )
    return Plot("θ", f"change of density in points, by {pooling}", series, log_x=True)


def quantile_bands(rows: Sequence[Row], act: str) -> Plot:
    """Percentiles of the gate by epoch."""
    mine = [r for r in rows if r["quantity"] == "epoch" and r["act"] == act]
    epochs = sorted({r["epoch"] for r in mine})
    return Plot(
        "epoch",
        f"gate of {act}",
        [
            Series(
                f"{q}th percentile",
                epochs,
                [float(np.mean([r[f"q{q:02d}"] for r in mine if r["epoch"] == e])) for e in epochs],
                line=True,
            )
            for q in (1, 5, 25, 50, 75, 95, 99)
        ],
    )


def by_condition(rows: Sequence[Row], x: str, y: str, x_label: str, y_label: str) -> Plot:
    """One dot per run and one series per activation, of two quantities of a run."""
    return Plot(
        x_label,
        y_label,
        [
            Series(act, [r[x] for r in runs], [r[y] for r in runs])
            for act in acts(some(rows))
            if (runs := [r for r in some(rows, act=act) if r.get(x) is not None and r.get(y) is not None])
        ],
    )
