r"""The story of the channels: margins, how far each is from the points where its gate opens or shuts, and over a run
whether margin and density of the same channel go together.

A *margin* of a channel is computed from the mean and standard deviation of its input alone. If it explains gate
density, then over the moments of a run margin and density of the same channel go up and down together. Nothing is
fitted, so the same numbers judge any optimizer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from netvitals._plot import Plot, Series
from netvitals.capture import Result, one_screen, skipped_lines
from netvitals.gates.prediction import _crossings, margins
from netvitals.gates.report import GateReport, _chosen

Kind = Literal["pearson", "spearman"]
MARGINS = ("raw", "normalized", "interval_union")
BINS = 20  # of a histogram
FAR = 6.0  # standard deviations; margins beyond are drawn there
MOMENTS = 3  # of a run that a correlation needs


@dataclass(frozen=True)
class ChannelCorrelations(Result):
    """Correlation of margin and density over moments, one value per channel; NaN where it is undefined."""

    kind: Kind
    values: np.ndarray
    constant: int  # channels whose margin or density never changes
    not_finite: int  # channels with a margin that is not finite (σ = 0)

    @property
    def defined(self) -> int:
        return int(np.isfinite(self.values).sum())

    @property
    def positive(self) -> float:
        """Share of the defined correlations that are positive; NaN if there is none."""
        return float((self.values[np.isfinite(self.values)] > 0).mean()) if self.defined else math.nan

    @property
    def median(self) -> float:
        return float(np.median(self.values[np.isfinite(self.values)])) if self.defined else math.nan

    def __str__(self) -> str:
        return (
            f"{self.positive:.1%} of {self.defined} channels correlate positively ({self.kind}, median "
            f"{self.median:+.2f}); {self.constant} constant and {self.not_finite} without a finite margin left out"
        )


@dataclass(frozen=True)
class TrendAgreement(Result):
    """How many channels' density moved the way their margin moved, between the first and the last moment."""

    agree: int
    disagree: int
    still: int  # margin or density did not move, or the margin is not finite

    @property
    def share(self) -> float:
        return self.agree / (self.agree + self.disagree) if self.agree + self.disagree else math.nan

    def __str__(self) -> str:
        return f"{self.share:.1%} of {self.agree + self.disagree} channels agree in sign ({self.still} did not move)"


@dataclass(frozen=True, kw_only=True)
class SiteChannels:
    """The channels of one activation; arrays have one entry a channel.

    Part of :class:`ChannelStory`.

    Attributes:
        mu: mean of the channel's input.
        sigma: its standard deviation.
        margin: μ − z_low.
        normalized: (μ − z_low)/σ.
        distance: signed distance from μ to the nearest edge of the open set, in σ: positive inside.
        density: measured share of open gates.
        predicted: by the interval-union law.
        raw_correlation: of margin and density over the moments of a run; None for a checkpoint.
        correlation: of the normalised margin and density.
    """

    mu: np.ndarray
    sigma: np.ndarray
    margin: np.ndarray
    normalized: np.ndarray
    distance: np.ndarray
    density: np.ndarray
    predicted: np.ndarray
    raw_correlation: ChannelCorrelations | None = None
    correlation: ChannelCorrelations | None = None


@dataclass(frozen=True, kw_only=True)
class ChannelStory(Result):
    """Margins and gate densities of every channel, at one checkpoint or over a run.

    Returned by :func:`channels`.

    Attributes:
        theta: threshold of the gates.
        sites: activation -> its channels, at the last moment.
        moments: how many moments of a run were compared; 1 for a checkpoint.
        skipped: activation that could not be analysed → reason.
    """

    theta: float
    sites: dict[str, SiteChannels]
    moments: int
    skipped: Mapping[str, str] = field(default_factory=dict)

    def positive(self, which: Literal["raw", "normalized"] = "normalized") -> float:
        """Return the fraction of channels whose margin and density correlate positively over the run.

        Args:
            which: which of the two margins.
        """
        values = self._correlations(which)
        return float((values > 0).mean()) if values.size else math.nan

    def rows(self) -> list[dict[str, Any]]:
        """One row per channel."""
        names = ("mu", "sigma", "margin", "normalized", "distance", "density", "predicted")
        return [
            {"site": name, "channel": c, **{n: float(getattr(s, n)[c]) for n in names}}
            for name, s in self.sites.items()
            for c in range(s.mu.size)
        ]

    def plot(self) -> Plot:
        """Plot density against margin. For a run, the plot shows histograms over channels of the correlation between
        density and both margins. For a checkpoint, the plot shows the density of every channel over its normalised
        margin.
        """
        if self.moments >= MOMENTS:
            edges = np.linspace(-1, 1, BINS + 1)
            series = []
            for which in ("raw", "normalized"):
                counts = np.histogram(self._correlations(which), edges)[0]
                series.append(
                    Series(f"{which} margin", ((edges[1:] + edges[:-1]) / 2).tolist(), counts.tolist(), line=True)
                )
            return Plot("correlation of margin and density over the run", "channels", series)
        margin = np.concatenate([s.normalized for s in self.sites.values()])
        kept = np.isfinite(margin)
        every = {
            k: np.concatenate([getattr(s, k) for s in self.sites.values()])[kept] for k in ("density", "predicted")
        }
        at = np.clip(margin[kept], -FAR, FAR)
        stride = max(1, at.size // 400)
        series = [
            Series(name, at[::stride].tolist(), every[k][::stride].tolist())
            for k, name in (("density", "measured"), ("predicted", "law"))
        ]
        return Plot("normalised margin (μ − z_low)/σ", f"gate density, θ = {self.theta:g}", series)

    def __str__(self) -> str:
        total = sum(s.mu.size for s in self.sites.values())
        lines = [f"{total:,} channels of {len(self.sites)} activations, θ = {self.theta:g}:"]
        for name, s in self.sites.items():
            inside, near = (s.distance > 0).mean(), np.median(np.abs(s.distance))
            lines.append(
                f"  {name}: {inside:.0%} of channel means inside the open set, {near:.2f} σ from its edge in "
                f"the median; density {np.nanmean(s.density):.3f}, by the law {np.nanmean(s.predicted):.3f}"
            )
        if self.moments >= MOMENTS:
            lines.append(
                f"Over {self.moments} moments density goes with the normalised margin in {self.positive():.0%} of "
                f"channels, with the raw margin in {self.positive('raw'):.0%}."
            )
        return one_screen(lines + skipped_lines(self.skipped))

    def _correlations(self, which: str) -> np.ndarray:
        found = [s.correlation if which == "normalized" else s.raw_correlation for s in self.sites.values()]
        values = np.concatenate([c.values for c in found if c is not None] or [np.empty(0)])
        return values[np.isfinite(values)]


def channels(source: Any, theta: float = 0.1) -> ChannelStory:
    """Compute margins and gate densities of every channel, at one checkpoint or over a run, and their correlation.

    Args:
        source: what :func:`measure` gave; or a run with the vital signs ``gates`` and ``preactivations``, as
            ``netvitals.open_run`` gives it, at all moments that kept their arrays.
        theta: a gate is open where |f'| > theta; one of the thresholds that were measured.

    Returns:
        One entry a channel; over a run of three moments or more also the correlations of §5.2.

    >>> from torch import nn
    >>> import torch
    >>> from netvitals.gates import measure
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    >>> story = channels(measure(net, torch.randn(64, 4)))
    >>> story.moments, story.sites["2"].distance.shape
    (1, (8,))
    """
    if isinstance(source, GateReport):
        skipped, sites = dict(source.skipped), {}
        for name, s in source.sites.items():
            crossings = source._crossings_of(s, theta)
            if crossings is None:
                skipped[name] = "its channels use different functions"
            else:
                density = _chosen(s.channel_densities, theta)
                sites[name] = _told(s.mu[None], s.sigma[None], density[None], crossings, theta)
        return ChannelStory(theta=theta, sites=sites, moments=1, skipped=skipped)
    if not hasattr(source, "arrays") or not hasattr(source, "meta"):
        raise TypeError(
            "source= must be a result of gates.measure, or a run from netvitals.open_run; got a "
            f"{type(source).__name__}"
        )
    return _of_run(source, theta)


def _of_run(run: Any, theta: float) -> ChannelStory:
    metric = f"density@{theta:g}"
    kept: dict[str, dict[str, dict[int, np.ndarray]]] = {}
    for vital, wanted in (("preactivations", ("mu", "sigma")), ("gates", (metric,))):
        try:
            arrays = run.arrays(vital, metric=wanted)
        except LookupError:  # a run without this vital sign or threshold
            continue
        for a in arrays:
            kept.setdefault(a.site, {}).setdefault(a.metric, {})[a.step] = np.asarray(a.value, dtype=np.float64)
    if not any(metric in found for found in kept.values()):
        raise ValueError(
            f"the run has no {metric} for single channels: record one with watch(..., vitals=['gates', "
            f"'preactivations']) and the gate threshold {theta:g}"
        )
    known, skipped, sites, moments = _activations(run.meta), {}, {}, 0
    for name, found in kept.items():
        steps = sorted(set.intersection(*(set(found.get(m, {})) for m in ("mu", "sigma", metric))))
        if not steps or len({found[m][t].shape for m in ("mu", "sigma", metric) for t in steps}) > 1:
            skipped[name] = "mean, deviation and density were not recorded at the same steps"
        elif name not in known:
            skipped[name] = "its activation is not in the registry"
        else:
            try:
                crossings = _crossings(known[name], theta)
            except (ValueError, TypeError, RuntimeError):
                skipped[name] = "its channels use different functions"
                continue
            mu, sigma, density = (np.stack([found[m][t] for t in steps]) for m in ("mu", "sigma", metric))
            sites[name] = _told(mu, sigma, density, crossings, theta)
            moments = max(moments, len(steps))
    return ChannelStory(theta=theta, sites=sites, moments=moments, skipped=skipped)


def _activations(meta: Mapping[str, Any]) -> dict[str, Any]:
    from netvitals import activations

    specs, out = meta.get("activations") or {}, {}
    for site in meta.get("sites", ()):
        if site.get("kind") == "activation" and site.get("op"):
            try:
                out[str(site["name"])] = activations.get(str(specs.get(site["name"], site["op"])))
            except (ValueError, LookupError, TypeError):
                continue
    return out


def _told(mu: np.ndarray, sigma: np.ndarray, density: np.ndarray, crossings: Any, theta: float) -> SiteChannels:
    """Arrays are (moments, channels)."""
    last = margins(mu[-1], sigma[-1], crossings, theta)
    raw = both = None
    if len(mu) >= MOMENTS:
        every = channel_margins(mu, sigma, crossings, theta)
        raw, both = (correlate(every[which], density) for which in ("raw", "normalized"))
    return SiteChannels(
        mu=mu[-1],
        sigma=sigma[-1],
        margin=last.raw,
        normalized=last.normalized,
        distance=_distance(mu[-1], sigma[-1], crossings.intervals),
        density=density[-1],
        predicted=last.interval_union,
        raw_correlation=raw,
        correlation=both,
    )


def _distance(mu: np.ndarray, sigma: np.ndarray, intervals: tuple[tuple[float, float], ...]) -> np.ndarray:
    """From the mean to the nearest finite edge of the open set, in σ: positive inside, infinite without an edge."""
    edges = [z for interval in intervals for z in interval if math.isfinite(z)]
    inside = np.zeros(mu.shape, dtype=bool)
    for a, b in intervals:
        inside |= (mu > a) & (mu < b)
    nearest = np.min([np.abs(mu - z) for z in edges], axis=0) if edges else np.full(mu.shape, np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(inside, 1.0, -1.0) * nearest / sigma


def channel_margins(mu: Any, sigma: Any, f: Any, theta: float = 0.01) -> dict[str, np.ndarray]:
    """Raw, normalised and interval-union predictor of every channel at every moment: arrays shaped like ``mu``.

    >>> m = channel_margins([[0.5, -0.5]], [[1.0, 0.5]], "relu")
    >>> m["normalized"].tolist()
    [[0.5, -1.0]]
    """
    mean, std = np.broadcast_arrays(np.asarray(mu, dtype=np.float64), np.asarray(sigma, dtype=np.float64))
    found = margins(mean, std, f, theta)
    return {name: np.asarray(found[name]).reshape(mean.shape) for name in MARGINS}


def correlate(margin: Any, density: Any, kind: Kind = "pearson") -> ChannelCorrelations:
    r"""$r_c = \mathrm{corr}_t(M_c(t), D_c(t))$ for every channel.

    >>> print(correlate([[0, 0], [1, 1], [2, 2]], [[.1, .3], [.2, .3], [.4, .3]]))
    100.0% of 1 channels correlate positively (pearson, median +0.98); 1 constant and 0 without a finite margin left out
    """
    m, d = _pair(margin, density, least=3)
    if kind not in ("pearson", "spearman"):
        raise ValueError(f"kind= must be 'pearson' or 'spearman', got {kind!r}")
    finite = np.isfinite(m).all(0) & np.isfinite(d).all(0)
    m, d = np.where(finite, m, 0.0), np.where(finite, d, 0.0)
    still = finite & ((np.ptp(m, 0) == 0) | (np.ptp(d, 0) == 0))
    if kind == "spearman":
        from scipy.stats import rankdata

        m, d = rankdata(m, axis=0), rankdata(d, axis=0)
    m, d = m - m.mean(0), d - d.mean(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        # scaled before squaring: a margin may be of any size
        m, d = m / np.abs(m).max(0), d / np.abs(d).max(0)
        r = (m * d).sum(0) / np.sqrt((m * m).sum(0) * (d * d).sum(0))
    return ChannelCorrelations(kind, np.where(finite & ~still, r, np.nan), int(still.sum()), int((~finite).sum()))


def agreement(margin: Any, density: Any) -> TrendAgreement:
    r"""Channels with $\mathrm{sign}(M_c(T)-M_c(0)) = \mathrm{sign}(D_c(T)-D_c(0))$; moments along the first axis.

    >>> print(agreement([[0, 0, 0], [1, -1, 1]], [[.5, .5, .5], [.6, .6, .5]]))
    50.0% of 2 channels agree in sign (1 did not move)
    """
    m, d = _pair(margin, density, least=2)
    with np.errstate(invalid="ignore"):
        a, b = m[-1] - m[0], d[-1] - d[0]
    decided = np.isfinite(a) & np.isfinite(b) & (a != 0) & (b != 0)
    same = int((np.sign(a[decided]) == np.sign(b[decided])).sum())
    return TrendAgreement(same, int(decided.sum()) - same, int((~decided).sum()))


def _pair(margin: Any, density: Any, least: int) -> tuple[np.ndarray, np.ndarray]:
    m, d = (np.asarray(v, dtype=np.float64) for v in (margin, density))
    if m.ndim != 2 or m.shape != d.shape or m.shape[0] < least:
        raise ValueError(
            f"margin= and density= must have the same shape (times, channels) with at least {least} times, got "
            f"{m.shape} and {d.shape}"
        )
    return m, d
