"""A network under record: gates, inputs of gates, norm parameters and rank on one fixed batch, epoch by epoch.

A record ends as three kinds of row: ``epoch`` (what was measured), ``run`` (the trajectory reduced to numbers that may
be tested over runs), ``site`` (every activation at the beginning and at the end, measured beside predicted).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from netvitals import activations, gates
from netvitals.gates import trends
from netvitals.stats import effective_rank
from netvitals_lab import Row

THETAS = (0.001, 0.005, 0.01, 0.05, 0.1)
POOLINGS = ("element", "site", "channel")
MOMENTS = 5  # moments of the per-channel tests: epochs 0, 6, 12, 18, 24 of 25
SHOWN = 48  # channels kept for the picture of margins before and after
QUANTILES = (1, 5, 25, 50, 75, 95, 99)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.GroupNorm, nn.LayerNorm)


def key(theta: float, pooling: str = "element", kind: str = "all") -> str:
    """The name of a pooled density in a row.

    >>> key(0.01), key(0.1, "channel", "post_add")
    ('D@0.01 element all', 'D@0.1 channel post_add')
    """
    return f"D@{theta:g} {pooling} {kind}"


def _features(network: nn.Module, x: Tensor) -> Tensor:
    """What enters the head, with batch statistics; a copy is run, so that no buffer changes."""
    headless = copy.deepcopy(network).train()
    headless.head = nn.Identity()
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        return headless(x)


class TrajectoryRecorder:
    """Measures one network with batch statistics; ``act`` is the name of its activation."""

    def __init__(self, probe: Tensor, act: str, thetas: Sequence[float] = THETAS) -> None:
        self.probe, self.act, self.thetas = probe, act, tuple(thetas)
        self.reports: list[gates.GateReport] = []
        self.epochs: list[int] = []
        self.rows: list[Row] = []

    def __call__(self, epoch: int, network: nn.Module, accuracy: float | None = None) -> None:
        report = gates.measure(network, self.probe, thetas=self.thetas, mode="train")
        rank = effective_rank(_features(network, self.probe).flatten(1), centred=True)
        row: Row = {
            "quantity": "epoch",
            "epoch": epoch,
            "accuracy": accuracy,
            **_norm_parameters(network),
            **_inputs(report),
            **_gates(report),
            "rank_entropy": rank.entropy,
            "rank_stable": rank.stable,
            "rank_participation": rank.participation,
        }
        for kind in ("all", *report.kinds):
            of = None if kind == "all" else kind
            for pooling in POOLINGS:
                row |= {key(t, pooling, kind): report.density(t, pooling, of) for t in self.thetas}  # type: ignore[arg-type]
        self.reports.append(report)
        self.epochs.append(epoch)
        self.rows.append(row)

    def finish(self) -> list[Row]:
        """All rows of the record."""
        run: Row = {
            "quantity": "run",
            "kinds": list(self.reports[0].kinds),
            "accuracy": self.rows[-1]["accuracy"],
            "variance": self.rows[0]["variance"],
            "gate_variance": self.rows[0]["gate_variance"],
        }
        run |= self._reduced([k for k in self.rows[0] if k.startswith(("D@", "rank_")) or k in ("gate_mean", "mu")])
        for name in ("sigma", "gamma", "gate_mean", "q05", "q95", "gate_variance"):
            run |= {f"{name} first": self.rows[0][name], f"{name} last": self.rows[-1][name]}
        for theta in self.thetas:
            run |= {f"{k}@{theta:g}": v for k, v in self._channels(theta).items()}
        run |= self._shown(0.1)
        return [*map(_shortened, self.rows), run, *self._sites()]

    def _reduced(self, names: Sequence[str]) -> Row:
        """Displacement since before training and since the first epoch, and correlation with the epoch."""
        values = np.array([[row[n] for n in names] for row in self.rows])
        after = [i for i, e in enumerate(self.epochs) if e >= 0]
        times = np.repeat(np.array(self.epochs, dtype=float)[after, None], len(names), 1)
        rank, line = (trends.correlate(times, values[after], kind).values for kind in ("spearman", "pearson"))
        out: Row = {}
        for i, name in enumerate(names):
            first, start, last = values[0, i], values[after[0], i], values[-1, i]
            out |= {
                f"{name} first": first,
                f"{name} last": last,
                f"{name} change": last - first,
                f"{name} change since epoch 0": last - start,
                f"{name} rho": _plain(rank[i]),
                f"{name} pearson": _plain(line[i]),
            }
        return out

    def _channels(self, theta: float) -> Row:
        """Per-channel tests at a few moments after the start of training (P6, P7), nothing fitted."""
        crossings = _crossings(self.act, theta)
        if crossings is None:
            return {}
        after = [i for i, e in enumerate(self.epochs) if e >= 0]
        chosen = [after[i] for i in np.unique(np.linspace(0, len(after) - 1, MOMENTS).round().astype(int))]
        mu, sigma, density = (self._stacked(chosen, what, theta) for what in ("mu", "sigma", "density"))
        found = trends.channel_margins(mu, sigma, crossings, theta)
        out: Row = {}
        for name, margin in found.items():
            for kind in ("pearson", "spearman"):
                r = trends.correlate(margin, density, kind)
                suffix = "" if kind == "pearson" else " by rank"
                out |= {f"positive {name}{suffix}": _plain(r.positive), f"median r {name}{suffix}": _plain(r.median)}
                if kind == "pearson" and name != "interval_union":
                    out[f"histogram {name}"] = np.histogram(r.values[np.isfinite(r.values)], 20, (-1.0, 1.0))[0]
                out |= {"defined": r.defined, "constant": r.constant, "dropped": r.not_finite}
            out[f"agreement {name}"] = _plain(trends.agreement(margin, density).share)
        normal = found["normalized"]
        out |= {
            "margin first": _finite(normal[0]),
            "margin last": _finite(normal[-1]),
            "distance first": _finite(np.abs(normal[0])),
            "channels": mu.shape[1],
        }
        return out

    def _shown(self, theta: float) -> Row:
        crossings = _crossings(self.act, theta)
        if crossings is None:
            return {}
        ends = [0, len(self.reports) - 1]
        mu, sigma = (self._stacked(ends, what, theta) for what in ("mu", "sigma"))
        pick = np.linspace(0, mu.shape[1] - 1, min(SHOWN, mu.shape[1])).round().astype(int)
        margin = trends.channel_margins(mu, sigma, crossings, theta)["normalized"][:, pick]
        margin = margin[:, np.isfinite(margin).all(0)]
        return {"margins first": margin[0], "margins last": margin[1]}

    def _stacked(self, moments: Sequence[int], what: str, theta: float) -> np.ndarray:
        return np.stack(
            [
                np.concatenate(
                    [
                        s.channel_densities[theta] if what == "density" else getattr(s, what)
                        for s in self.reports[i].sites.values()
                    ]
                )
                for i in moments
            ]
        )

    def _sites(self) -> list[Row]:
        rows: list[Row] = []
        for when, report in (("first", self.reports[0]), ("last", self.reports[-1])):
            for theta in (t for t in (0.01, 0.1) if t in self.thetas):
                crossings = _crossings(self.act, theta)
                for name, s in report.sites.items():
                    row = {
                        "quantity": "site",
                        "when": when,
                        "theta": theta,
                        "site": name,
                        "follows": s.site.follows,
                        "density": s.density(theta),
                        "mu": float(s.mu.mean()),
                        "sigma": float(s.sigma.mean()),
                    }
                    if crossings is not None:
                        m = gates.margins(s.mu, s.sigma, crossings, theta)
                        row |= {"predicted": m.density, "half_line": float(np.mean(m.phi)), "population": m.population}
                    rows.append(row)
        return rows


def _shortened(row: Row) -> Row:
    """An epoch at the two thresholds of the paper; the sweep over thresholds is in the row of the run."""
    return {k: v for k, v in row.items() if not k.startswith("D@") or k.split(" ")[0] in ("D@0.01", "D@0.1")}


def _norm_parameters(network: nn.Module) -> Row:
    norms = [m for m in network.modules() if isinstance(m, NORMS)]
    gain = [m.weight.detach().abs().flatten() for m in norms if isinstance(m.weight, Tensor)]
    shift = [m.bias.detach().flatten() for m in norms if isinstance(m.bias, Tensor)]
    mean = {
        name: float(np.concatenate([t.numpy() for t in parts]).mean()) if parts else math.nan
        for name, parts in (("gamma", gain), ("beta", shift))
    }
    return {name: _plain(value) for name, value in mean.items()}


def _inputs(report: gates.GateReport) -> Row:
    """Pooled mean over elements; mean channel deviation over all channels and by kind of site."""
    sites = list(report.sites.values())
    weights = [s.measured for s in sites]
    row: Row = {
        "mu": float(np.average([s.mu.mean() for s in sites], weights=weights)),
        "mu channel": float(np.concatenate([s.mu for s in sites]).mean()),
        "sigma": float(np.concatenate([s.sigma for s in sites]).mean()),
    }
    for kind in report.kinds:
        row[f"sigma {kind}"] = float(np.concatenate([s.sigma for s in sites if s.site.follows == kind]).mean())
    return row


def _gates(report: gates.GateReport) -> Row:
    sites = list(report.sites.values())
    weights = [s.measured for s in sites]
    return {
        name: float(np.average(values, weights=weights))
        for name, values in (
            ("gate_mean", [s.mean for s in sites]),
            *((f"q{q:02d}", [s.quantile(q) for s in sites]) for q in QUANTILES),
            ("variance", [s.variance for s in sites]),
            ("gate_variance", [s.gate_variance for s in sites]),
        )
    }


def _crossings(act: str, theta: float) -> Any:
    """The active set of a named activation; None where a slope is learned."""
    return None if act.startswith("prelu") else activations.crossings(act, theta)


def _finite(values: np.ndarray) -> float | None:
    kept = values[np.isfinite(values)]
    return float(np.median(kept)) if kept.size else None


def _plain(value: float) -> float | None:
    return None if math.isnan(value) else value
