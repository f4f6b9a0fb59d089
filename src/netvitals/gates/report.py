"""What measuring the gates of a model gives: every site, three ways of pooling, and the law's prediction."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from netvitals._plot import Plot, Series
from netvitals.capture import Mode, Result, Site, skipped_lines
from netvitals.gates.collapse import Collapse
from netvitals.gates.forecasting import HALVED, LAW_ERROR, GateOutlook, outlook
from netvitals.gates.prediction import Margins, margins

Pooling = Literal["element", "site", "channel"]
Backend = Literal["local_vjp", "ratio"]
SHOWN = 24  # sites on one screen


@dataclass(frozen=True, kw_only=True)
class SiteGates(Result):
    """Gate statistics of one activation on one batch.

    Part of :class:`GateReport`.

    Attributes:
        site: the place of the activation.
        densities: theta -> share of open gates among the valid ones.
        channel_densities: NaN for a channel without a valid element.
        mean: mean gate.
        percentiles: 1st to 99th of the gate, from at most 16,384 strided elements.
        variance: variance of the signed f', the smoothness index.
        gate_variance: variance of |f'|.
        measured: elements that have a gate.
        undefined: elements whose gate is undefined.
        mu: channel means of the input.
        sigma: channel deviations of the input.
        f: the activation.
    """

    site: Site
    densities: dict[float, float]
    channel_densities: dict[float, np.ndarray]
    mean: float
    percentiles: np.ndarray
    variance: float
    gate_variance: float
    measured: int
    undefined: int
    mu: np.ndarray
    sigma: np.ndarray
    f: Callable[[Tensor], Any] = field(repr=False, compare=False, default=torch.relu)

    @property
    def valid(self) -> float:
        return self.measured / max(1, self.measured + self.undefined)

    @property
    def channels(self) -> int:
        return self.mu.size

    def density(self, theta: float) -> float:
        """Return the fraction of open gates at one of the measured thresholds.

        Args:
            theta: the threshold.
        """
        return _chosen(self.densities, theta)

    def quantile(self, percent: int) -> float:
        """Return a percentile of the gate values.

        Args:
            percent: the percentile, a whole number from 1 to 99.
        """
        if not 1 <= percent <= 99:
            raise ValueError(f"percent= must be a whole number from 1 to 99, got {percent}")
        return float(self.percentiles[percent - 1])


@dataclass(frozen=True, kw_only=True)
class GateReport(Result):
    """Gate statistics of all activations of a model, from one batch. When you report a trend of gate density, name the
    pooling. Element, site and channel pooling can give trends of opposite sign, and so can the two kinds of site
    (``bn_direct``, ``post_add``).

    Returned by :func:`measure`.

    Attributes:
        sites: the gates of each activation by the name of its site.
        thetas: the measured thresholds.
        backend: ``local_vjp``, from f' itself, or ``ratio``, from gradients.
        mode: the mode that modules were in.
        examples: how many the batch had.
        skipped: place that could not be measured → reason.
    """

    sites: dict[str, SiteGates]
    thetas: tuple[float, ...]
    backend: Backend
    mode: Mode
    examples: int
    skipped: Mapping[str, str] = field(default_factory=dict)
    _crossings: dict[tuple[Any, ...], Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def kinds(self) -> tuple[str, ...]:
        """What the inputs of the sites follow, as far as it occurs: ``bn_direct``, ``post_add``, ..."""
        return tuple(dict.fromkeys(s.site.follows for s in self.sites.values()))

    @property
    def valid(self) -> float:
        measured = sum(s.measured for s in self.sites.values())
        return measured / max(1, measured + sum(s.undefined for s in self.sites.values()))

    def density(self, theta: float, pooling: Pooling = "element", follows: str | None = None) -> float:
        """Return the fraction of open gates, pooled over sites.

        Args:
            theta: one of the thresholds that were measured.
            pooling: ``"element"`` (every valid element counts once), ``"site"`` (every site once) or ``"channel"``.
            follows: only sites whose input follows this (``"bn_direct"``, ``"post_add"``).
        """
        return self._pooled(
            self._of(follows), lambda s: s.density(theta), lambda s: _chosen(s.channel_densities, theta), pooling
        )

    def predicted(self, theta: float, pooling: Pooling = "element", follows: str | None = None) -> float:
        """Predict the density from channel means and deviations, for Gaussian inputs. The result is pooled like
        ``density``, over the sites where a prediction is possible.

        Args:
            theta: one of the thresholds that were measured.
            pooling: ``"element"``, ``"site"`` or ``"channel"``.
            follows: only sites whose input follows this.
        """
        known = self.margins(theta)
        sites = [s for s in self._of(follows) if s.site.name in known]
        return self._pooled(
            sites, lambda s: known[s.site.name].density, lambda s: known[s.site.name].interval_union, pooling
        )

    def margins(self, theta: float) -> dict[str, Margins]:
        """Compute the five predictors of gate density for every site whose channels all use the same function.

        Args:
            theta: one of the thresholds that were measured.
        """
        out: dict[str, Margins] = {}
        for name, s in self.sites.items():
            crossings = self._crossings_of(s, theta)
            if crossings is not None:
                out[name] = margins(s.mu, s.sigma, crossings, theta)
        return out

    def forecast(self, theta: float | None = None, *, decay: float | Collapse | None = None) -> GateOutlook:
        """Forecast whether gate density rises or falls as weight decay shrinks the variance of each site's input.

        The forecast is a direction only: ``rise``, ``fall`` or ``neither``. A site is skipped if
        its input does not come directly from a norm, or if the predicted density is wrong by more than 0.05.

        Args:
            theta: one of the thresholds that were measured; the largest by default, where smooth activations move most.
            decay: the integrated decay S that is still to come, or what ``gates.will_collapse`` found; left out, the
                question is what happens if σ halves.
        """
        theta = max(self.thetas) if theta is None else theta
        if isinstance(decay, Collapse) and decay.answer == "unknown":
            raise ValueError(
                f"the integrated decay cannot be computed: {'; '.join(g.why for g in decay.groups if g.why)}; give it "
                "as a number"
            )
        total = decay.total if isinstance(decay, Collapse) else decay
        if total is not None and not (math.isfinite(total) and total >= 0):
            raise ValueError(f"decay= is the integrated decay S and must be at least 0, got {total}")
        shrink = HALVED if total is None else math.exp(-total)
        factors = np.geomspace(1.0, min(shrink, 0.999), 24)
        skipped, sites = {**self.skipped}, {}
        for name, s in self.sites.items():
            measured = s.density(theta)
            if s.site.follows not in ("bn_direct", "norm_direct"):
                skipped[name] = (
                    f"its input does not come directly from a norm whose scale decays (it follows: {s.site.follows})"
                )
            elif (crossings := self._crossings_of(s, theta)) is None:
                skipped[name] = "its channels use different functions"
            else:
                found = outlook(s.mu, s.sigma, crossings, theta, measured=measured, shrink=shrink, factors=factors)
                if abs(found.forecast.now - measured) <= LAW_ERROR:
                    sites[name] = found
                else:
                    skipped[name] = f"the predicted density is {found.forecast.now:.3f}, but {measured:.3f} is measured"
        return GateOutlook(theta=theta, shrink=shrink, decay=total, sites=sites, factors=factors, skipped=skipped)

    def plot(self) -> Plot:
        """Plot the gate density of every site in model order, one line per threshold."""
        at = list(range(1, len(self.sites) + 1))
        return Plot(
            "activation, in the order of the model",
            "gate density",
            [
                Series(f"θ = {t:g}", at, [s.density(t) for s in self.sites.values()], line=len(at) > 1)
                for t in self.thetas
            ],
        )

    def _crossings_of(self, s: SiteGates, theta: float) -> Any:
        owner = getattr(s.f, "__self__", None)
        f = owner if isinstance(owner, nn.Module) else s.f
        key = (s.site.op, theta, _fingerprint(s.f))
        if key not in self._crossings:
            from netvitals import activations

            try:
                self._crossings[key] = activations.crossings(f, theta) if key[2] is not None else None
            except (ValueError, TypeError, RuntimeError):
                self._crossings[key] = None  # a slope per channel, noise: no single active set
        return self._crossings[key]

    def _of(self, follows: str | None) -> list[SiteGates]:
        chosen = [s for s in self.sites.values() if follows in (None, s.site.follows)]
        if not chosen:
            raise ValueError(
                f"no activation site has follows={follows!r} (what the input of the site comes from); choose one of "
                f"{', '.join(self.kinds)}"
            )
        return chosen

    def _pooled(
        self,
        sites: Sequence[SiteGates],
        of_site: Callable[[SiteGates], float],
        of_channels: Callable[[SiteGates], np.ndarray],
        pooling: Pooling,
    ) -> float:
        if pooling == "channel":
            values = np.concatenate([of_channels(s) for s in sites]) if sites else np.empty(0)
            weights = np.ones_like(values)
        elif pooling in ("element", "site"):
            values = np.array([of_site(s) for s in sites])
            weights = np.array([float(s.measured if pooling == "element" else 1) for s in sites])
        else:
            raise ValueError(f"pooling= must be 'element', 'site' or 'channel', got {pooling!r}")
        kept = ~np.isnan(values) & (weights > 0)
        return float(np.average(values[kept], weights=weights[kept])) if kept.any() else math.nan

    def rows(self) -> list[dict[str, Any]]:
        """One row per site: densities, mean gate, quantiles, and the fraction of elements with a defined gate."""
        return [
            {
                "site": name,
                "follows": s.site.follows,
                **{f"density@{t:g}": s.densities[t] for t in self.thetas},
                "mean": s.mean,
                **{f"q{p:02d}": s.quantile(p) for p in (5, 50, 95)},
                "variance": s.variance,
                "valid": s.valid,
            }
            for name, s in self.sites.items()
        ]

    def __str__(self) -> str:
        header = ["site", "follows", *(f"D({t:g})" for t in self.thetas), "mean", "q05", "q50", "q95", "valid"]
        rows = [
            [
                name,
                s.site.follows,
                *(f"{s.densities[t]:.4f}" for t in self.thetas),
                f"{s.mean:.4f}",
                *(f"{s.quantile(p):.3f}" for p in (5, 50, 95)),
                f"{s.valid:.1%}",
            ]
            for name, s in list(self.sites.items())[:SHOWN]
        ]
        for pooling in ("element", "site", "channel"):
            rows.append(
                [
                    f"all, by {pooling}",
                    "",
                    *(f"{self.density(t, pooling):.4f}" for t in self.thetas),
                    "",
                    "",
                    "",
                    "",
                    f"{self.valid:.1%}" if pooling == "element" else "",
                ]
            )
        for kind in self.kinds if len(self.kinds) > 1 else ():
            rows.append(
                [
                    f"{kind}, by element",
                    "",
                    *(f"{self.density(t, follows=kind):.4f}" for t in self.thetas),
                    "",
                    "",
                    "",
                    "",
                    "",
                ]
            )
        widths = [max(len(r[i]) for r in [header, *rows]) for i in range(len(header))]
        lines = [
            "  ".join(c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths))).rstrip()
            for r in [header, *rows]
        ]
        if len(self.sites) > SHOWN:
            lines.insert(SHOWN + 1, f"… and {len(self.sites) - SHOWN} more")
        lines.append(f"backend {self.backend}, mode {self.mode}, {self.examples} examples")
        return "\n".join(lines + skipped_lines(self.skipped))


def _chosen(values: dict[float, Any], theta: float) -> Any:
    for known, value in values.items():
        if math.isclose(known, theta, rel_tol=1e-9, abs_tol=0.0):
            return value
    raise ValueError(
        f"density was measured at theta = {', '.join(f'{t:g}' for t in values)}, not at {theta:g}; pass thetas= with "
        "this value when measuring"
    )


def _fingerprint(f: Callable[[Tensor], Any]) -> tuple[float, ...] | None:
    """Values on a few points: sites with the same activation share one search for crossings."""
    try:
        with torch.no_grad():
            return tuple(f(torch.linspace(-6.0, 6.0, 25)).tolist())
    except Exception:
        return None
