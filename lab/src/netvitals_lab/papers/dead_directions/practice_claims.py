"""Claims on rates in use: §5.1, §9.2, §9.3, §12 and §15."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from netvitals_lab import Claims, Expected, Measured, Plot, Row, Series, Verdict, holds, stats, underspecified
from netvitals_lab.engine.judges import column, compared, groups, paired, some
from netvitals_lab.papers.dead_directions._judging import SLOPE
from netvitals_lab.papers.dead_directions.practice import NAME

HALF = 0.5  # crossings: counts that lie further apart are not one count
SIZES = ("the networks, their sizes and their data are ours: the paper names none",)


def _short(rows: Sequence[Row]) -> str:
    """Where an aligned start has not come far enough, nothing can be read yet."""
    still = any("no approach" in r["note"] for r in some(rows, start="aligned"))
    return "t does not move far enough for a rate: run it at a larger scale" if still else ""


def _whens(rows: Sequence[Row]) -> Iterator[str]:
    yield from dict.fromkeys(r["when"] for r in rows)


def _deviation_plot(rows: Sequence[Row]) -> Plot:
    told = [r for r in some(rows, factor="G") if r["difference"] is not None]
    series = [
        Series(
            when,
            [float(r["predicted"]) for r in told if r["when"] == when],
            [float(r["observed"]) for r in told if r["when"] == when],
        )
        for when in _whens(told)
    ]
    return Plot("exponent of G, from the anatomy", "observed", series)


def _by_component(rows: Sequence[Row]) -> dict[str, list[float]]:
    return {c: [r["count"] for r in group if r["count"] is not None] for c, group in groups(rows, "component").items()}


def _against(rows: Sequence[Row], key: str, other: str, sign: int) -> Verdict:
    """A criterion's paired difference: the rate minus another, over seeds and activations."""
    mine, theirs = (_by_run(rows, key, name) for name in ("rate", other))
    facts: dict[str, Any] = {"rate": float(np.mean([*mine.values()])), other: float(np.mean([*theirs.values()]))}
    if key == "spearman":
        first = some(rows, criterion="rate")
        facts |= {f"log of predicted over true, {n}": float(np.mean(column(first, k))) for n, k in _LOGS.items()}
    note = {"spearman": "rank correlation with the true divergence", "rise": "rise of the test loss"}[key]
    return compared(paired(mine, theirs), sign, note=f"{note}, rate minus {other}", facts=facts)


_LOGS = {"by the rate": "calibration", "as a regular direction": "regular"}


def _by_run(rows: Sequence[Row], key: str, criterion: str) -> Mapping[tuple[str, int], float]:
    return {(r["activation"], r["seed"]): r[key] for r in some(rows, criterion=criterion)}


def _design_plot(rows: Sequence[Row]) -> Plot:
    points = [
        Series(name, [group[0]["steepness"]], [float(np.mean(column(group, "test")))])
        for name, group in groups(rows, "design").items()
    ]
    return Plot("mean exponent of G", "test loss", points)


_NAMES = {
    "fisher": "the empirical Fisher",
    "variance": "the variance of activations",
    "magnitude": "the size of weights",
}


claim = Claims("dead-directions", study=NAME)


@claim("S12", Expected(0.0, SLOPE), uses={"check": "deviation"}, plot=_deviation_plot, choices=SIZES)
def deviation(rows: Sequence[Row]) -> Measured:
    """observed minus predicted K-FAC rate of a network of one's own, per layer: zero on the aligned path"""
    told = [r for r in rows if r["predicted"] is not None]
    silent = [f"{r['net']} {r['layer']} {r['factor']}" for r in told if r["difference"] is None]
    gaps = {when: max(abs(v) for v in column(told, "difference", when=when) if v is not None) for when in _whens(told)}
    facts = {"exponents": len(told), "networks": len({r["net"] for r in told}), **gaps}
    if silent:
        return Measured(
            float(len(silent)), f"predicted and not measured: {', '.join(silent[:4])}", facts=facts, ok=False
        )
    worst = max(told, key=lambda r: abs(r["difference"]))
    where = f"{worst['net']}, layer {worst['layer']}, {worst['factor']}"
    return Measured(abs(worst["difference"]), "largest gap of an exponent", facts={**facts, "at": where})


@claim("S12-refusal", "all refused", uses={"check": "refusal"})
def refusal(rows: Sequence[Row]) -> Measured:
    """what the calculus has no law for is refused by name"""
    open_ = [r["primitive"] for r in rows if not r["refused"]]
    said = {r["primitive"]: r["words"] for r in rows if r["refused"]}
    note = "refused with a sentence that names the part" + (f"; not refused: {', '.join(open_)}" if open_ else "")
    return Measured(float(len(said)), note, facts={"of": len(rows)}, ok=not open_ and all(said.values()))


@claim("S12-frame", "fewer than half", uses={"check": "approach"}, obstacle=_short, choices=SIZES)
def frame(rows: Sequence[Row]) -> Measured:
    """off the aligned path a trajectory does not have the predicted rates: they are a frame of reference

    Away from the aligned start the trajectory does not show the predicted rates.
    """
    cells = [r for r in rows if r["predicted"] > 0]
    met = lambda some: sum(r["difference"] is not None and abs(r["difference"]) <= SLOPE for r in some) / len(some)
    shares = {start: met([r for r in cells if r["start"] == start]) for start in ("aligned", "random")}
    return Measured(
        shares["random"],
        "share of layers and axes at which a random start shows the predicted rate within 0.05",
        facts={"from an aligned start": shares["aligned"], "measurements": len(cells)},
        ok=shares["aligned"] == 1 and shares["random"] < 0.5,
    )


@claim("S5.1", Expected(0.0, SLOPE), uses={"check": "approach"}, obstacle=_short)
def axes(rows: Sequence[Row]) -> Measured:
    """per-rank exponents on three axes of t find the predicted rate"""
    found = some(rows, start="aligned")
    missing = [r["note"] for r in found if r["difference"] is None]
    if missing:
        return Measured(float(len(missing)), f"no rank was taken: {missing[0]}", ok=False)
    worst = max(abs(r["difference"]) for r in found)
    by_axis = {axis: max(abs(r["difference"]) for r in group) for axis, group in groups(found, "axis").items()}
    facts = {
        **by_axis,
        "least decades of t": min(r["span"] for r in found),
        "at any checkpoint": max(r["local"] for r in found),
    }
    return Measured(worst, "largest gap of a rank's exponent over layers, axes and seeds", facts=facts)


@claim("S5.1-reach", "some, and none on the aligned path", uses={"check": "approach"}, obstacle=_short)
def reach(rows: Sequence[Row]) -> Measured:
    """where no rank has the predicted exponent, the component is called beyond reach"""
    aligned, random = (some(rows, start=s) for s in ("aligned", "random"))
    refused = [r for r in random if r["rank"] is None]
    sound = all("reach exceeded" in r["note"] or "no approach" in r["note"] for r in refused)
    quiet = not any(r["rank"] is None for r in aligned)
    return Measured(
        len(refused) / len(random),
        "share of layers and axes of random starts that are called beyond reach, none of an aligned start",
        facts={"measurements": len(random)},
        ok=bool(refused) and sound and quiet and all(r["difference"] is None for r in refused),
    )


@claim("S9.2", "zero without the projection, of order one with it", uses={"check": "stream"})
def post_norm(rows: Sequence[Row]) -> Measured:
    """a post-norm stream is rank-deficient by construction, and rate-bearing on the complement of 1"""
    post = [r for r in rows if r["arrangement"] in ("post-norm", "post-norm, gains")]
    plain, lost, pre = (some(rows, arrangement=a) for a in ("post-norm", "post-norm, cancelled", "pre-norm"))
    alarm = max(column(plain, "raw"))
    ok = alarm < 1e-10 and all(r["kept"] and r["projected"] == r["nodes"] for r in post)
    ok = ok and not any(r["kept"] for r in lost) and all(r["raw"] == r["ratio"] and r["kept"] for r in pre)
    facts = {
        "without the projection": alarm,
        "with it": [min(column(post, "ratio")), max(column(post, "ratio"))],
        "where a block does cancel": max(column(lost, "ratio")),
        "pre-norm, both": min(column(pre, "ratio")),
    }
    return Measured(
        min(column(post, "ratio")), "smallest σ_r over depth against the input's, post-norm", facts=facts, ok=ok
    )


@claim("S9.3", Expected(0.0, SLOPE), uses={"check": "shift"})
def asymptote(rows: Sequence[Row]) -> Measured:
    """as t → 0 the components of a pre-norm block have no shift"""
    found = some(rows, window="asymptotic", norm=True)
    worst = max(abs(v) for v in column(found, "shift"))
    return Measured(worst, "largest |slope − 2·distance| at t ≤ 1e-3, six components", facts={"slopes": len(found)})


@claim(
    "S9.3-counts",
    "one count a component, whatever the set-up",
    uses={"check": "shift"},
    choices=("the window, the estimator and the set-ups: the paper's are lost or not given",),
    question="in which window of t, and with which Fisher, was δ measured at fc2?",
)
def counts(rows: Sequence[Row]) -> Verdict:
    """in the window a component's slope is 2·dist − δ·n with a count n of its own

    Is n_c = shift / δ one number for a component, whatever the set-up?
    """
    found = {f: _by_component(some(rows, window="end", norm=True, fisher=f)) for f in ("expected", "empirical")}
    spread = {f: max(max(v) - min(v) for v in table.values()) for f, table in found.items()}
    deltas = {f: column(rows, "delta", window="end", norm=True, fisher=f) for f in found}
    bare = column(rows, "delta", window="end", norm=False, fisher="empirical")
    facts: dict[str, Any] = {f"δ, {f} Fisher": [min(d), max(d)] for f, d in deltas.items()}
    facts |= {"δ without any norm, empirical Fisher": [min(bare), max(bare)]}
    facts |= {f"n of {c}": [min(v), max(v)] for c, v in found["empirical"].items() if c != "fc2"}
    if max(spread.values()) <= HALF:
        return holds(max(spread.values()), note="largest spread of a count over set-ups", facts=facts)
    worst = max(found["empirical"].values(), key=lambda v: max(v) - min(v))
    return underspecified(
        (min(worst), max(worst)),
        spread["empirical"],
        note="n of the worst component over set-ups, with the loss gradient's Fisher; with the population's, δ at fc2 "
        "is near zero and the counts have no meaning",
        facts=facts,
    )


for other, words in _NAMES.items():

    @claim(
        f"S15-{other}",
        "above zero",
        statement=f"the rate ranks units by what they cost better than {words}",
        uses={"check": "pruning"},
        effect="rank correlation with the divergence of taking out a unit alone",
        seeds=5,
        choices=SIZES,
    )
    def ranks(rows: Sequence[Row], other: str = other) -> Verdict:
        return _against(rows, "spearman", other, 1)

    @claim(
        f"S15-half-{other}",
        "below zero",
        statement=f"half of the units chosen by the rate cost less than half chosen by {words}",
        uses={"check": "pruning"},
        effect="rise of the test loss",
        seeds=5,
        choices=SIZES,
    )
    def half(rows: Sequence[Row], other: str = other) -> Verdict:
        return _against(rows, "rise", other, -1)


@claim(
    "S15-design",
    "above zero",
    uses={"check": "design"},
    effect="rank correlation of steepness and test loss",
    seeds=5,
    choices=SIZES,
    plot=_design_plot,
)
def design(rows: Sequence[Row]) -> Verdict:
    """designs with a steeper ladder end with a larger test loss"""
    by_seed = groups(rows, "seed")
    found = {
        k: [stats.spearman(column(g, "steepness"), column(g, k)).value for g in by_seed.values()]
        for k in ("test", "train")
    }
    facts = {"with the training loss": float(np.mean(found["train"])), "designs": len({r["design"] for r in rows})}
    return compared(found["test"], 1, note="Spearman correlation of steepness and test loss over designs", facts=facts)
