"""Verdicts on experiments 3, 3b and 4: the gap by activation, and the diamond."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from netvitals_lab import Claims, Config, Measured, Plot, Row, Series, above, at_least, at_most, below, stats
from netvitals_lab.engine.judges import column, groups, some
from netvitals_lab.papers.dag_hessian import diamond, gap
from netvitals_lab.papers.dag_hessian._measuring import mean
from netvitals_lab.papers.dag_hessian._printed import BARE, BARE_SPREAD, MERGE, NORMED, NORMED_SPREAD, SILU_SUMS
from netvitals_lab.papers.dag_hessian.printed_claims import deviations

G, M = gap.NAME, diamond.NAME
SMOOTH = ("softplus", "silu", "gelu")
PIECEWISE = ("relu", "leaky_relu:0.01")


def _start(rows: Sequence[Row], norm: str, act: str) -> list[Row]:
    return some(rows, norm=norm, act=act, data="noise", phase="init")


def _fits(rows: Sequence[Row]) -> tuple[float, float, float]:
    """R² of the gap against E[σ''²] and against its root, and the rank correlation with it, over five activations."""
    points = [
        (mean(_start(rows, "none", a), "bend"), mean(_start(rows, "none", a), "gap")) for a in (*PIECEWISE, *SMOOTH)
    ]
    bend, value = (np.array(x) for x in zip(*points))
    fit = lambda x: float(np.corrcoef(x, value)[0, 1] ** 2)
    return fit(bend), fit(np.sqrt(bend)), float(stats.spearman(bend, value).value)


def _law_plot(rows: Sequence[Row]) -> Plot:
    """Figure 5: the gap against E[σ''²], and against its root, without norm."""
    points = [(mean(_start(rows, "none", a), "bend"), mean(_start(rows, "none", a), "gap")) for a in gap.ACTS]
    bend, value = [p[0] for p in points], [p[1] for p in points]
    series = [Series("against E[σ''²]", bend, value), Series("against its root", [b**0.5 for b in bend], value)]
    return Plot("E[σ''²], and its root", "GN-gap", series)


def _gap_plot(rows: Sequence[Row]) -> Plot:
    series = []
    for norm in ("none", "layer"):
        points = [(mean(_start(rows, norm, a), "bend") ** 0.5, mean(_start(rows, norm, a), "gap")) for a in gap.ACTS]
        series.append(Series(f"norm {norm}", [p[0] for p in points], [p[1] for p in points]))
    return Plot("rms of the activation's second derivative", "GN-gap", series)


def _merge_plot(rows: Sequence[Row]) -> Plot:
    """Figure 6: the gap between the ends of the branches; a gap of exactly zero is drawn at 1e-9."""
    series = []
    for (merge, act), mine in sorted(groups(rows, "merge", "act", phase="init").items()):
        by = sorted(groups(mine, "length").items())
        series.append(Series(f"{merge}+{act}", [k for k, _ in by], [max(mean(g, "end_gap"), 1e-9) for _, g in by]))
    return Plot("length of the branches", "gap between their ends", series, log_y=True)


def _across_plot(rows: Sequence[Row]) -> Plot:
    """Figure N.2: resonance across branches of two, at the start and, dashed, after training."""
    series = []
    for phase in ("init", "final"):
        mine = [r for r in rows if r["phase"] == phase and r["length"] == 2]
        for (merge, act), of in sorted(groups(mine, "merge", "act").items()) if mine else ():
            curve = np.mean(column(of, "across"), axis=0)
            name = f"{merge}+{act}" + (" trained" if phase == "final" else "")
            distance = [float(d) for d in of[0]["across_distance"]]
            series.append(Series(name, distance, curve.tolist(), line=True, dashed=phase == "final"))
    return Plot("distance in the graph", "resonance across the branches", series, log_y=True)


def _started(c: Config) -> bool:
    return c["data"] == "noise"


claim = Claims("dag-hessian", study=G)


@claim("H3.1", below(1e-7, "below 1e-7"), uses=lambda c: c["norm"] == "none" and c["act"] in PIECEWISE)
def piecewise(rows: Sequence[Row]) -> Measured:
    """Piecewise-linear nets without norm have no gap, at any checkpoint."""
    worst = max(max(column(rows, "gap", norm="none", act=a)) for a in PIECEWISE)
    return Measured(worst, "largest global gap of relu and leaky relu without norm")


@claim("H3.2", "relu < softplus < silu < gelu", uses=_started, plot=_gap_plot)
def ordering(rows: Sequence[Row]) -> Measured:
    """Without norm the gap rises from relu over softplus and silu to gelu."""
    gaps = {a: mean(_start(rows, "none", a), "gap") for a in ("relu", *SMOOTH)}
    return Measured(gaps[SMOOTH[-1]], facts=gaps, ok=all(a < b for a, b in pairwise(gaps.values())))


@claim("H3.3", above(0.9, "R² above 0.9"), uses=_started, plot=_law_plot)
def law(rows: Sequence[Row]) -> Measured:
    """The gap is linear in E[σ''²]."""
    linear, _, rank = _fits(rows)
    facts = {"Spearman, printed .97": rank}
    return Measured(linear, "R² of the gap against E[σ''²]; the paper .908", facts=facts)


@claim(
    "H3.3-order", "H_T ~ σ''²", uses=_started, correction="H_T is linear in σ'': the gap scales as the root of E[σ''²]"
)
def order(rows: Sequence[Row]) -> Measured:
    """The tensor part scales as σ''²."""
    linear, root, _ = _fits(rows)
    note = "R² of the gap against rms σ'' over five activations: T is linear in σ'' (E35)"
    return Measured(root, note, facts={"R² against E[σ''²]": linear}, ok=linear >= root, right=root > 0.98)


@claim("H3.4", above(0.3), uses=_started)
def norm_alone(rows: Sequence[Row]) -> Measured:
    """Layer norm alone gives relu nets a gap of about 0.6."""
    value = mean(_start(rows, "layer", "relu"), "gap")
    return Measured(value, "relu with layer norm; normalisation is a smooth nonlinearity")


@claim("H3.5", below(2e-11), uses=_started)
def linear_head(rows: Sequence[Row]) -> Measured:
    """The tensor part vanishes at the greatest distance, before a linear head."""
    worst = max(r["t_sums"][-1] for r in some(rows, data="noise", phase="init"))
    return Measured(worst, "largest ‖T‖ at the greatest distance, over all activations and norms")


@claim("H3.6", at_most(0.03, "within 3 %"), uses=lambda c: _started(c) and c["depth"] == 6 and c["act"] == "silu")
def sums(rows: Sequence[Row]) -> Measured:
    """Sums of ‖GN‖ by distance of the silu net, Table N.5."""
    found = _start(rows, "none", "silu")
    seen = {d: mean(found, "gn_sums", d) for d in SILU_SUMS}
    worst = max(abs(seen[d] / v - 1) for d, v in SILU_SUMS.items())
    return Measured(
        worst,
        note="largest relative distance to Table N.5 over distances "
        + ", ".join(f"{d}: {v:.3g}" for d, v in seen.items()),
    )


@claim("H3.7", below(0.05, "within 5 %"), uses=_started)
def stochastic(rows: Sequence[Row]) -> Measured:
    """Thirty probes reproduce the exact gap."""
    errors = []
    for a in SMOOTH:
        found = _start(rows, "none", a)
        errors.append(abs(mean(found, "stochastic_gap") / mean(found, "gap") - 1))
    return Measured(max(errors), "largest relative difference of seed means at 30 probes")


@claim("H3.8", at_most(1, "within two printed deviations"), uses=lambda c: _started(c) and c["depth"] == 6)
def bare_gaps(rows: Sequence[Row]) -> Measured:
    """Gaps at the start without norm: .122, .225, .358."""
    return deviations(rows, "gap", BARE, BARE_SPREAD, norm="none", data="noise", phase="init")


@claim("H3.9", at_most(1, "within two printed deviations"), uses=lambda c: _started(c) and c["depth"] == 6)
def normed_gaps(rows: Sequence[Row]) -> Measured:
    """Gaps at the start with layer norm: .618, .626, .459, 1.967, 2.296."""
    return deviations(rows, "gap", NORMED, NORMED_SPREAD, norm="layer", data="noise", phase="init")


@claim("H3.10", "final below initial", uses=lambda c: c["epochs"] > 10 and c["norm"] == "layer")
def trained_falls(rows: Sequence[Row]) -> Measured:
    """Training shrinks the gap of silu and gelu nets with layer norm."""
    trained = [r for r in rows if r["epochs"]]
    by = lambda a: [mean(some(trained, norm="layer", act=a, phase=p), "gap") for p in ("init", "final")]
    falls = {a: by(a) for a in (*PIECEWISE, *SMOOTH)}
    return Measured(
        falls["gelu"][1] / falls["gelu"][0],
        "final over initial gap of gelu; the printed ranking after training is not universal",
        facts={
            **{f"{a} before, after": both for a, both in falls.items()},
            "final order": sorted(falls, key=lambda a: falls[a][1]),
        },
        ok=all(falls[a][1] < falls[a][0] for a in ("silu", "gelu")),
    )


@claim("H4.1", at_least(0.9, "falls"), study=M)
def within(rows: Sequence[Row]) -> Measured:
    """Within a branch resonance falls with distance."""
    found = [r for r in some(rows, data="noise") if len(r["within"]) > 1]
    steps = [(a, b) for r in found for a, b in zip(r["within"], r["within"][1:])]
    share = float(np.mean([b < 1.05 * a for a, b in steps]))
    return Measured(
        share, f"share of {len(steps)} neighbouring distances within a branch that fall (or rise by less than 5 %)"
    )


@claim("H4.2a", "ratio below 0.5", study=M, uses=_started, plot=_across_plot)
def across_start(rows: Sequence[Row]) -> Measured:
    """Across branches resonance falls at the start, by .28–.39 from d to d + 2."""
    pairs = groups([r for r in rows if r["length"] == 2 and r["data"] == "noise"], "merge", "act")
    ratios = {f"{m}+{a}": mean(g, "across", -1) / mean(g, "across", 0) for (m, a), g in sorted(pairs.items())}
    return Measured(
        max(ratios.values()),
        note="R(4)/R(2) at length 2; where it is not below 0.5 the printed .28–.39 is too steep, and cat+silu does not "
        "fall at all (E38)",
        facts=ratios,
        ok=all(v < 0.5 for v in ratios.values()),
        right=True,
    )


@claim("H4.2b", above(1, "ratio above 1"), study=M, uses=lambda c: c["epochs"] > 10, plot=_across_plot)
def across_trained(rows: Sequence[Row]) -> Measured:
    """After training it grows with distance across branches."""
    found = [r for r in rows if r["epochs"] and r["phase"] == "final" and len(r["across"]) > 1]
    ratios = {
        f"{m}+{a}": float(np.mean([across[-1] / across[0] for across in column(group, "across")]))
        for (m, a), group in sorted(groups(found, "merge", "act").items())
    }
    worst = min(ratios.values())
    return Measured(worst, "farthest over nearest across the branches after training", facts=ratios)


@claim("H4.3", "six orders of magnitude apart", study=M, plot=_merge_plot)
def merge(rows: Sequence[Row]) -> Measured:
    """A linear merge leaves no gap between the branches, a smooth one does."""
    bent = [r["end_gap"] for r in some(rows, merge="cat", act="silu")]
    straight = [r["end_gap"] for r in rows if (r["merge"], r["act"]) != ("cat", "silu")]
    worst = max(straight)
    apart = min(bent) / max(worst, 1e-16)
    return Measured(
        float(np.mean(bent)),
        note=f"mean gap of cat+silu between the ends of the branches; every other merge at most {worst:.1e}. "
        "It needs everything after the merge to be linear, as here (E37)",
        ok=worst < 1e-6 and min(bent) > 0.01 and apart > 1e6,
    )


@claim("H4.4", at_most(0.25, "within 25 %"), study=M, uses=lambda c: _started(c) and c["width"] == 32)
def merge_values(rows: Sequence[Row]) -> Measured:
    """Gap of cat+silu at the start: 1.35, 1.33, 1.32 for lengths 1, 2, 3."""
    found = sorted(groups(rows, "length", merge="cat", act="silu", data="noise", phase="init").items())
    by = {k: mean(group, "end_gap") for k, group in found}
    worst = max(abs(v / MERGE[k] - 1) for k, v in by.items())
    facts = {f"length {k}: measured, printed": [v, MERGE[k]] for k, v in by.items()}
    return Measured(worst, "largest relative distance", facts=facts)
