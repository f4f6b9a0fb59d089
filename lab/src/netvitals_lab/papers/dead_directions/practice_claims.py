"""Claims on rates in use: §5.1, §9.2, §9.3, §12 and §15."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from netvitals_lab import Claim, Expected, Plot, Row, Series, Verdict, decide, holds, not_run, stats, underspecified
from netvitals_lab.engine.judges import at_most, column, compared, groups, paired, some
from netvitals_lab.papers.dead_directions._judging import SLOPE, check_is, claim
from netvitals_lab.papers.dead_directions.practice import NAME

Judge = Callable[[Sequence[Row]], Verdict]
HALF = 0.5  # crossings: counts that lie further apart are not one count
SIZES = ("the networks, their sizes and their data are ours: the paper names none",)


def _short(rows: Sequence[Row]) -> Verdict | None:
    """Where an aligned start has not come far enough, nothing can be read yet."""
    still = any("no approach" in r["note"] for r in some(rows, start="aligned"))
    return not_run("t does not move far enough for a rate: run it at a larger scale") if still else None


# ------------------------------------------------------------------------------------------ §12: modules of one's own


def _deviation(rows: Sequence[Row]) -> Verdict:
    told = [r for r in rows if r["predicted"] is not None]
    silent = [f"{r['net']} {r['layer']} {r['factor']}" for r in told if r["difference"] is None]
    gaps = {when: max(abs(v) for v in column(told, "difference", when=when) if v is not None) for when in _whens(told)}
    facts = {"exponents": len(told), "networks": len({r["net"] for r in told}), **gaps}
    if silent:
        return decide(
            False, float(len(silent)), note=f"predicted and not measured: {', '.join(silent[:4])}", facts=facts
        )
    worst = max(told, key=lambda r: abs(r["difference"]))
    where = f"{worst['net']}, layer {worst['layer']}, {worst['factor']}"
    return at_most(abs(worst["difference"]), SLOPE, "largest gap of an exponent", facts={**facts, "at": where})


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


def _refusal(rows: Sequence[Row]) -> Verdict:
    open_ = [r["primitive"] for r in rows if not r["refused"]]
    said = {r["primitive"]: r["words"] for r in rows if r["refused"]}
    note = "refused with a sentence that names the part" + (f"; not refused: {', '.join(open_)}" if open_ else "")
    return decide(not open_ and all(said.values()), float(len(said)), note=note, facts={"of": len(rows)})


def _frame(rows: Sequence[Row]) -> Verdict:
    """Away from the aligned start the trajectory does not show the predicted rates."""
    if (early := _short(rows)) is not None:
        return early
    cells = [r for r in rows if r["predicted"] > 0]
    met = lambda some: sum(r["difference"] is not None and abs(r["difference"]) <= SLOPE for r in some) / len(some)
    shares = {start: met([r for r in cells if r["start"] == start]) for start in ("aligned", "random")}
    return decide(
        shares["aligned"] == 1 and shares["random"] < 0.5,
        shares["random"],
        note="share of layers and axes at which a random start shows the predicted rate within 0.05",
        facts={"from an aligned start": shares["aligned"], "measurements": len(cells)},
    )


# ------------------------------------------------------------------------------------------ §5.1: the recorder


def _axes(rows: Sequence[Row]) -> Verdict:
    if (early := _short(rows)) is not None:
        return early
    found = some(rows, start="aligned")
    missing = [r["note"] for r in found if r["difference"] is None]
    if missing:
        return decide(False, float(len(missing)), note=f"no rank was taken: {missing[0]}")
    worst = max(abs(r["difference"]) for r in found)
    by_axis = {axis: max(abs(r["difference"]) for r in group) for axis, group in groups(found, "axis").items()}
    facts = {
        **by_axis,
        "least decades of t": min(r["span"] for r in found),
        "at any checkpoint": max(r["local"] for r in found),
    }
    return at_most(worst, SLOPE, "largest gap of a rank's exponent over layers, axes and seeds", facts=facts)


def _reach(rows: Sequence[Row]) -> Verdict:
    if (early := _short(rows)) is not None:
        return early
    aligned, random = (some(rows, start=s) for s in ("aligned", "random"))
    refused = [r for r in random if r["rank"] is None]
    sound = all("reach exceeded" in r["note"] or "no approach" in r["note"] for r in refused)
    quiet = not any(r["rank"] is None for r in aligned)
    return decide(
        bool(refused) and sound and quiet and all(r["difference"] is None for r in refused),
        len(refused) / len(random),
        note="share of layers and axes of random starts that are called beyond reach, none of an aligned start",
        facts={"measurements": len(random)},
    )


# ------------------------------------------------------------------------------------------ §9.2: post-norm


def _post_norm(rows: Sequence[Row]) -> Verdict:
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
    return decide(
        ok, min(column(post, "ratio")), note="smallest σ_r over depth against the input's, post-norm", facts=facts
    )


# ------------------------------------------------------------------------------------------ §9.3: component shift


def _asymptote(rows: Sequence[Row]) -> Verdict:
    found = some(rows, window="asymptotic", norm=True)
    worst = max(abs(v) for v in column(found, "shift"))
    return at_most(
        worst, SLOPE, "largest |slope − 2·distance| at t ≤ 1e-3, six components", facts={"slopes": len(found)}
    )


def _counts(rows: Sequence[Row]) -> Verdict:
    """Is n_c = shift / δ one number for a component, whatever the set-up?"""
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


def _by_component(rows: Sequence[Row]) -> dict[str, list[float]]:
    return {c: [r["count"] for r in group if r["count"] is not None] for c, group in groups(rows, "component").items()}


# ------------------------------------------------------------------------------------------ §15: pruning and design


def _against(key: str, other: str, sign: int) -> Judge:
    """A criterion's paired difference: the rate minus another, over seeds and activations."""

    def judge(rows: Sequence[Row]) -> Verdict:
        mine, theirs = (_by_run(rows, key, name) for name in ("rate", other))
        facts: dict[str, Any] = {"rate": float(np.mean([*mine.values()])), other: float(np.mean([*theirs.values()]))}
        if key == "spearman":
            first = some(rows, criterion="rate")
            facts |= {f"log of predicted over true, {n}": float(np.mean(column(first, k))) for n, k in _LOGS.items()}
        note = {"spearman": "rank correlation with the true divergence", "rise": "rise of the test loss"}[key]
        return compared(paired(mine, theirs), sign, note=f"{note}, rate minus {other}", facts=facts)

    return judge


_LOGS = {"by the rate": "calibration", "as a regular direction": "regular"}


def _by_run(rows: Sequence[Row], key: str, criterion: str) -> Mapping[tuple[str, int], float]:
    return {(r["activation"], r["seed"]): r[key] for r in some(rows, criterion=criterion)}


def _design(rows: Sequence[Row]) -> Verdict:
    by_seed = groups(rows, "seed")
    found = {
        k: [stats.spearman(column(g, "steepness"), column(g, k)).value for g in by_seed.values()]
        for k in ("test", "train")
    }
    facts = {"with the training loss": float(np.mean(found["train"])), "designs": len({r["design"] for r in rows})}
    return compared(found["test"], 1, note="Spearman correlation of steepness and test loss over designs", facts=facts)


def _design_plot(rows: Sequence[Row]) -> Plot:
    points = [
        Series(name, [group[0]["steepness"]], [float(np.mean(column(group, "test")))])
        for name, group in groups(rows, "design").items()
    ]
    return Plot("mean exponent of G", "test loss", points)


def _claims() -> Iterator[Claim]:
    def made(number: str, text: str, expected: Expected, judge: Judge, check: str, **more: Any) -> Claim:
        return claim(NAME, number, text, expected, judge, check_is(check), **more)

    zero = Expected(0.0, SLOPE)
    yield made(
        "S12",
        "observed minus predicted K-FAC rate of a network of one's own, per layer: zero on the aligned path",
        zero,
        _deviation,
        "deviation",
        plot=_deviation_plot,
        choices=SIZES,
    )
    yield made(
        "S12-refusal",
        "what the calculus has no law for is refused by name",
        Expected(direction="all refused"),
        _refusal,
        "refusal",
    )
    yield made(
        "S12-frame",
        "off the aligned path a trajectory does not have the predicted rates: they are a frame of reference",
        Expected(direction="fewer than half"),
        _frame,
        "approach",
        choices=SIZES,
    )
    yield made("S5.1", "per-rank exponents on three axes of t find the predicted rate", zero, _axes, "approach")
    yield made(
        "S5.1-reach",
        "where no rank has the predicted exponent, the component is called beyond reach",
        Expected(direction="some, and none on the aligned path"),
        _reach,
        "approach",
    )
    yield made(
        "S9.2",
        "a post-norm stream is rank-deficient by construction, and rate-bearing on the complement of 1",
        Expected(direction="zero without the projection, of order one with it"),
        _post_norm,
        "stream",
    )
    yield made("S9.3", "as t → 0 the components of a pre-norm block have no shift", zero, _asymptote, "shift")
    yield made(
        "S9.3-counts",
        "in the window a component's slope is 2·dist − δ·n with a count n of its own",
        Expected(direction="one count a component, whatever the set-up"),
        _counts,
        "shift",
        choices=("the window, the estimator and the set-ups: the paper's are lost or not given",),
        question="in which window of t, and with which Fisher, was δ measured at fc2?",
    )
    for other in ("fisher", "variance", "magnitude"):
        yield made(
            f"S15-{other}",
            f"the rate ranks units by what they cost better than {_NAMES[other]}",
            Expected(direction="above zero"),
            _against("spearman", other, 1),
            "pruning",
            effect="rank correlation with the divergence of taking out a unit alone",
            seeds=5,
            choices=SIZES,
        )
        yield made(
            f"S15-half-{other}",
            f"half of the units chosen by the rate cost less than half chosen by {_NAMES[other]}",
            Expected(direction="below zero"),
            _against("rise", other, -1),
            "pruning",
            effect="rise of the test loss",
            seeds=5,
            choices=SIZES,
        )
    yield made(
        "S15-design",
        "designs with a steeper ladder end with a larger test loss",
        Expected(direction="above zero"),
        _design,
        "design",
        effect="rank correlation of steepness and test loss",
        seeds=5,
        choices=SIZES,
        plot=_design_plot,
    )


_NAMES = {
    "fisher": "the empirical Fisher",
    "variance": "the variance of activations",
    "magnitude": "the size of weights",
}
CLAIMS = tuple(_claims())
