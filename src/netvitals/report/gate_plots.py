"""Two pictures of gates in a run: what the law predicts from μ and σ alone against what was measured, and where the
margins of the channels went."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from netvitals._plot import Plot, Series
from netvitals.capture import ArrayMeasurement
from netvitals.findings import Measurements, activations_of
from netvitals.runs import Run

POINTS = 400  # channels drawn of one kind of site, evenly strided
KINDS = {"bn_direct": "after a BatchNorm", "norm_direct": "after another norm", "post_add": "after an addition"}
OTHER = "after a layer"
FAR = 6.0  # standard deviations; margins beyond are drawn there


class Picture(NamedTuple):
    """A plot with its headline and what to see in it."""

    title: str
    caption: str
    plot: Plot


def gate_pictures(measurements: Measurements, source: Any = None) -> list[Picture]:
    """The pictures that the measurements allow: both for a run on disk, the first for anything with arrays by
    channel."""
    known = activations_of(measurements)
    follows = {str(s.get("name")): KINDS.get(str(s.get("follows")), OTHER) for s in measurements.meta.get("sites", ())}
    out = []
    thetas = sorted(
        {
            float(metric.split("@")[1])
            for vital, _, metric in measurements.arrays
            if vital == "gates" and metric.startswith("density@")
        }
    )
    if known and thetas and (law := _law(measurements, known, follows, thetas[-1])):
        out.append(law)
    if known and thetas and isinstance(source, Run) and len(measurements.steps) > 1:
        first = source.arrays("preactivations", metric=("mu", "sigma"), first=True)
        if moved := _margins(measurements, first, known, follows, thetas[-1]):
            out.append(moved)
    return out


def _law(
    measurements: Measurements, known: Mapping[str, Any], follows: Mapping[str, str], theta: float
) -> Picture | None:
    from netvitals.gates import predict

    points: dict[str, list[np.ndarray]] = {}
    gaps = []
    for site, f in known.items():
        mu, sigma = (measurements.array("preactivations", site, m) for m in ("mu", "sigma"))
        measured = measurements.array("gates", site, f"density@{theta:g}")
        if mu is None or sigma is None or measured is None or not len(mu) == len(sigma) == len(measured):
            continue
        predicted = _finite(lambda f=f, mu=mu, sigma=sigma: predict(mu, sigma, f, theta), len(mu))
        points.setdefault(follows.get(site, OTHER), []).append(np.array([measured, predicted]))
        gaps.append(abs(np.nanmean(predicted) - np.nanmean(measured)))
    gaps = [g for g in gaps if np.isfinite(g)]
    if not gaps:
        return None
    return Picture(
        f"Predicted against measured gate density, θ = {theta:g}",
        f"Each point is one channel at the last measured step with stored arrays. The prediction uses only the mean "
        f"and standard deviation of the channel's input, and is exact on the dashed line. The "
        f"median error over {len(gaps)} layers is {100 * float(np.median(gaps)):.1f} percentage points.",
        Plot("measured", "predicted", [*_clouds(points), _diagonal(points)]),
    )


def _margins(
    measurements: Measurements,
    first: Iterable[ArrayMeasurement],
    known: Mapping[str, Any],
    follows: Mapping[str, str],
    theta: float,
) -> Picture | None:
    from netvitals.gates import margins

    before = {(a.site, a.metric): a.value for a in first}
    points: dict[str, list[np.ndarray]] = {}
    falling = total = 0
    for site, f in known.items():
        ends = [
            e
            for e in (
                before.get((site, "mu")),
                before.get((site, "sigma")),
                *(measurements.array("preactivations", site, m) for m in ("mu", "sigma")),
            )
            if e is not None
        ]
        if len(ends) < 4 or len({len(e) for e in ends}) > 1:
            continue
        then, now = (
            _finite(lambda f=f, mu=mu, sigma=sigma: margins(mu, sigma, f, theta).normalized, len(mu))
            for mu, sigma in (ends[:2], ends[2:])
        )
        points.setdefault(follows.get(site, OTHER), []).append(np.clip([then, now], -FAR, FAR))
        both = np.isfinite(then) & np.isfinite(now)
        falling, total = falling + int((now < then)[both].sum()), total + int(both.sum())
    if not total:
        return None
    return Picture(
        f"Margin of every channel, first and last, θ = {theta:g}",
        f"The margin (μ − z_low)/σ is the distance of a channel's mean from its gate threshold, in standard "
        f"deviations. With a margin above 0, a smaller variance opens gates; below 0 it closes them. The margin of "
        f"{falling:,} of {total:,} channels fell (points below the dashed line). Margins are clipped at ±{FAR:g}.",
        Plot(
            "margin at the first measured step",
            "margin at the last measured step",
            [*_clouds(points), _diagonal(points)],
        ),
    )


def _finite(compute: Any, size: int) -> np.ndarray:
    """What ``compute`` gives, with NaN for what is not finite; all NaN where the law has no answer."""
    try:
        values = np.asarray(compute(), dtype=float)
    except (ValueError, TypeError, RuntimeError):
        return np.full(size, np.nan)
    return np.where(np.isfinite(values), values, np.nan)


def _clouds(points: Mapping[str, list[np.ndarray]]) -> Iterator[Series]:
    """One set of points a kind of site, each kind always in its colour."""
    for tone, kind in enumerate((*KINDS.values(), OTHER)):
        if kind in points:
            x, y = np.concatenate(points[kind], axis=1)
            stride = max(1, -(-len(x) // POINTS))
            yield Series(kind, x[::stride].tolist(), y[::stride].tolist(), tone=tone)


def _diagonal(points: Mapping[str, list[np.ndarray]]) -> Series:
    every = np.concatenate([p for group in points.values() for p in group], axis=1)
    ends = [float(np.nanmin(every)), float(np.nanmax(every))]
    return Series("equal", ends, ends, line=True, dashed=True, tone=7)
