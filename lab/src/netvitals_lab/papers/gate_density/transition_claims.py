"""Claims on the transition in stiffness. Levels are judged as printed, directions apart from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from netvitals_lab import Claims, Expected, Measured, Plot, Row, Series, Verdict, above, below, decide, not_run, stats
from netvitals_lab.engine.judges import Setup, column, groups, over_setups, some
from netvitals_lab.engine.verdict import Fact
from netvitals_lab.papers.gate_density import reconstruction as rec
from netvitals_lab.papers.gate_density import transition_pictures as pictures
from netvitals_lab.papers.gate_density.setups import CHOICES, apart, drawn, without_iou
from netvitals_lab.papers.gate_density.transition import BEST, SUCCESS, table

TABLE_6 = {"adam": 0.947, "lbfgsb": 0.883, "momentum": 0.784, "nesterov": 0.754, "pgd": 0.787}
ORACLE = {  # A.9.4
    "mean IoU, adam": 0.950,
    "mean IoU, oracle": 0.794,
    "mean IoU, pgd": 0.811,
    "gap to Adam at α = 13": 0.332,
    "gap to Adam at α = 25": 0.246,
    "active, oracle over PGD at α = 10": 1.12,
    "active, oracle over PGD at α = 25": 1.64,
}
ORACLE_NEAR = 0.05
LEVEL = 0.02  # a level of IoU counts as reproduced within this


def value_at(rows: Sequence[Row], alpha: float, column: str = "iou", **where: Any) -> float:
    alphas, values = table(rows, column, **where)
    return float(values.mean(1)[list(alphas).index(alpha)])


def seed_mean(row: Row) -> float:
    return float(np.mean(row["iou"]))


def by_stiffness(alphas: Iterable[float], values: Iterable[float]) -> dict[str, float]:
    """Numbers by stiffness as facts of a verdict."""
    return {f"α = {a:g}": float(v) for a, v in zip(alphas, values)}


def levels_by_method(rows: Sequence[Row]) -> Verdict:
    """The printed IoU at α = 20, method by method."""
    iou = {m: value_at(rows, 20.0, check="methods", method=m) for m in BEST}
    worst = max(abs(iou[m] - v) for m, v in TABLE_6.items())
    facts: dict[str, Fact] = {f"{m}, paper": [iou[m], v] for m, v in TABLE_6.items()}
    return decide(worst <= LEVEL, worst, note="largest gap to the printed IoU at α = 20", facts=facts)


def within_range(
    found: Verdict, numbers: Iterable[dict[str, float]], printed: dict[str, float], limit: float
) -> Verdict:
    """A verdict over set-ups of which none has all printed numbers, while each lies in the range of some of them."""
    rows = list(numbers)
    by = {name: [row[name] for row in rows] for name in printed}
    facts = {f"{m}, least and most over the set-ups; printed": [min(v), max(v), printed[m]] for m, v in by.items()}
    inside = all(min(v) - limit <= printed[m] <= max(v) + limit for m, v in by.items())
    status = "underspecified" if found.status == "fails" and inside else found.status
    return replace(found, status=status, facts={**facts, **found.facts})


def by_recovery(rows: Sequence[Row]) -> dict[Setup, list[Row]]:
    """Set-ups, and two meanings of recovery: the paper's bar for success, and every pixel."""
    bars = {f"IoU above {SUCCESS:g} is recovery": SUCCESS, "IoU of 1 is recovery": 1 - 1e-9}
    return {
        (*setup, word): [r | {"recovered": bar} for r in mine]
        for setup, mine in apart(some(rows, check="jacobian")).items()
        for word, bar in bars.items()
    }


def paired_effect(x: np.ndarray, y: np.ndarray) -> list[float]:
    """Mean difference over its deviation (Cohen's d of pairs; 99 where the pairs differ alike), and Wilcoxon's p.

    >>> paired_effect(np.array([2.0, 3.0, 4.0]), np.array([1.0, 1.0, 1.0]))
    [2.0, 0.25]
    """
    gap = x - y
    spread = float(gap.std(ddof=1)) if len(gap) > 1 else 0.0
    size = float(np.clip(gap.mean() / spread, -99, 99)) if spread > 0 else float(np.sign(gap.mean())) * 99.0
    return [size, float(stats.wilcoxon(x, y).p_two_sided) if (gap != 0).any() else 1.0]


def oracle_numbers(rows: Sequence[Row]) -> dict[str, float]:
    """What A.9.4 prints of Adam, the oracle and projected gradient: means over stiffness, gaps, active shares."""
    alphas = table(rows, "iou", check="oracle", method="adam")[0]
    iou, active = (
        {m: table(rows, c, check="oracle", method=m)[1].mean(1) for m in ("adam", "oracle", "pgd")}
        for c in ("iou", "active")
    )
    at = list(alphas).index
    gap, share = iou["adam"] - iou["oracle"], active["oracle"] / active["pgd"]
    means = [float(v.mean()) for v in iou.values()]
    return dict(zip(ORACLE, (*means, gap[at(13.0)], gap[at(25.0)], share[at(10.0)], share[at(25.0)]), strict=True))


def coarse(rows: Sequence[Row]) -> str:
    """The oracle's numbers are printed at stiffness 10, 13 and 25."""
    missing = sorted({10.0, 13.0, 25.0} - {float(a) for r in rows for a in np.atleast_1d(r["alpha"])})
    return f"stiffness {missing[0]:g} was not run: run it at a larger scale" if missing else ""


def oracle_levels(rows: Sequence[Row]) -> Verdict:
    found = oracle_numbers(rows)
    worst = max(abs(v - ORACLE[k]) for k, v in found.items())
    facts: dict[str, Fact] = {f"{k}, paper": [v, ORACLE[k]] for k, v in found.items()}
    note = f"largest distance of {len(ORACLE)} printed numbers"
    return decide(worst <= ORACLE_NEAR, worst, note=note, facts=facts)


def curves(check: str, name: str, by: str) -> Callable[[Sequence[Row]], Plot]:
    def plot(rows: Sequence[Row]) -> Plot:
        series = []
        for key, group in groups(rows, by, check=check).items():
            alphas, values = table(group, name)
            series.append(Series(str(key), alphas.tolist(), values.mean(1).tolist(), line=True))
        return Plot("stiffness", name, series, log_x=True)

    return plot


STUDY = "gate-density-transition"


claim = Claims("gate-density", study=STUDY, choices=CHOICES)


@claim("E21", "Adam best", setups=apart, uses={"check": "methods"}, plot=drawn(curves("methods", "iou", "method")))
def best_at_20(rows: Sequence[Row]) -> Measured:
    """At stiffness 20 Adam reconstructs best of five optimisers"""
    iou = {m: value_at(rows, 20.0, check="methods", method=m) for m in BEST}
    ranked = dict(sorted(iou.items(), key=lambda e: -e[1]))
    gap = iou["adam"] - max(v for m, v in iou.items() if m != "adam")
    ok = next(iter(ranked)) == "adam"
    return Measured(gap, "IoU of Adam over the next best at α = 20", facts=ranked, ok=ok)


@claim("E21-levels", Expected(0.0, LEVEL), uses={"check": "methods"}, plot=drawn(curves("methods", "active", "method")))
def levels_anywhere(rows: Sequence[Row]) -> Verdict:
    """IoU at stiffness 20 is .947, .883, .784, .754, .787 (Table 6)

    The printed IoU at α = 20: in one set-up, or method by method within the range of all of them.
    """
    by = ({m: value_at(mine, 20.0, check="methods", method=m) for m in BEST} for mine in apart(rows).values())
    return within_range(over_setups(levels_by_method, apart)(rows), by, TABLE_6, LEVEL)


@claim("E22", "α ≈ 5", setups=apart, uses={"check": "transition"}, plot=drawn(curves("transition", "loss", "method")))
def loss_minimum(rows: Sequence[Row]) -> Measured:
    """The loss is smallest near stiffness 5, and IoU falls from 10 on"""
    alphas, loss = table(rows, "loss", check="transition")
    iou = table(rows, "iou", check="transition")[1].mean(1)
    at, high = float(alphas[loss.mean(1).argmin()]), alphas >= 10
    falling = bool((np.diff(iou[high]) <= 0.005).all())
    return Measured(
        at,
        f"stiffness of the smallest loss; IoU from α = 10 on {'falls' if falling else 'does not fall'} throughout",
        facts={"smallest loss": loss.mean(1).min(), **by_stiffness(alphas[high], iou[high])},
        ok=2 < at <= 7 and falling,
    )


@claim(
    "E23-information",
    above(10, "ratio of condition numbers ≫ 1"),
    setups=apart,
    uses={"check": "transition"},
    plot=drawn(pictures.fitted),
)
def collinear(rows: Sequence[Row]) -> Measured:
    """A fourth parameter makes the Fisher information nearly singular"""
    alphas, iou = table(rows, "iou", check="transition")
    ratio = rec.fit_phase(alphas, iou, 4).condition / rec.fit_phase(alphas, iou).condition
    return Measured(ratio, "condition of the Fisher information, four parameters over three (paper 135)")


@claim(
    "E29-scaling",
    Expected(0.0365, 0.0065),
    setups=apart,
    uses={"check": "resolution"},
    plot=drawn(curves("resolution", "iou", "size")),
)
def scaling(rows: Sequence[Row]) -> Measured | Verdict:
    """The exponent of the order parameter lies between .030 and .043"""
    sizes = sorted({r["size"] for r in rows if r["check"] == "resolution"})
    facts, exponents = [], []
    for size in sizes:
        alphas, iou = table(rows, "iou", check="resolution", size=size)
        try:
            s = rec.finite_size_exponent(alphas, iou)
        except (ValueError, RuntimeError) as error:
            facts.append(f"{size}²: {error}")
            continue
        facts.append(
            f"{size}²: onset {s.onset:.3g}, exponent {s.exponent:.3g} ± {s.stderr:.2g}"
            + (" (pinned at a bound)" if s.at_bound else "")
        )
        exponents += [] if s.at_bound else [s.exponent]
    if not exponents:
        return not_run("no size has an exponent inside its bounds: " + "; ".join(facts))
    return Measured(float(np.mean(exponents)), "; ".join(facts), ok=all(0.03 <= e <= 0.043 for e in exponents))


@claim(
    "C23", "fall", setups=without_iou, uses={"check": "jacobian"}, plot=drawn(curves("jacobian", "stable_rank", "size"))
)
def jacobian(rows: Sequence[Row]) -> Measured:
    """Smallest singular value and stable rank of the effective Jacobian fall with stiffness"""
    alphas = table(rows, "stable_rank", check="jacobian")[0]
    rank, smallest, null = (table(rows, c, check="jacobian")[1].mean(1) for c in ("stable_rank", "sigma_min", "null"))
    row = some(rows, check="jacobian")[0]
    falls = [stats.spearman(alphas, v).value for v in (rank, smallest)]
    high = smallest[alphas >= 5]
    return Measured(
        float(rank[0] / rank[-1]),
        "stable rank at the first stiffness over that at the last; its Spearman correlation must be below −0.9",
        facts={
            "Spearman of stable rank, σ_min": falls,
            "σ_min first, last": [smallest[0], smallest[-1]],
            "null dimension first, last": [null[0], null[-1]],
            "pixels": row["pixels"],
            "tolerance": row["tolerance"],
            "rank of A": row["rank_a"],
            **by_stiffness(alphas, rank),
        },
        ok=falls[0] < -0.9 and rank[0] > rank[-1] and high[-1] < high[0],
    )


@claim("C24", "fails always", setups=by_recovery, uses={"check": "jacobian"})
def recovery(rows: Sequence[Row]) -> Measured | Verdict:
    """With fewer active pixels than the rank of A, recovery fails

    Every solution with fewer active pixels than the rank of A: did its reconstruction fail?
    """
    few = [
        iou
        for r in some(rows, check="jacobian")
        for active, iou in zip(r["active"], r["iou"])
        if active * r["pixels"] < r["rank_a"]
    ]
    if not few:
        return not_run("no solution has fewer active pixels than the rank of A")
    bar = rows[0]["recovered"]
    recovered = sum(iou > bar for iou in few)
    return Measured(
        recovered / len(few),
        note="share of solutions with F·N < rank(A) that are recovered all the same; the paper does not say what "
        "recovery is",
        facts={"solutions": len(few)},
        ok=not recovered,
    )


@claim("C22", "Adam > oracle, α ≥ 5", setups=apart, uses={"check": "oracle"}, plot=drawn(pictures.oracle))
def momentum(rows: Sequence[Row]) -> Measured:
    """Lemma A.4: momentum, not rescaling, is what helps Adam

    Adam above the oracle at every stiffness from 5 on.
    """
    alphas, adam = table(rows, "iou", check="oracle", method="adam")
    oracle, pgd = (table(rows, "iou", check="oracle", method=m)[1] for m in ("oracle", "pgd"))
    stiff = alphas >= 5
    gap = (adam.mean(1) - oracle.mean(1))[stiff]
    return Measured(
        float(gap.min()),
        "smallest gap of IoU, Adam minus the oracle, over the stiffness values from 5 on",
        facts={
            "mean IoU of Adam, the oracle, PGD": [float(v.mean()) for v in (adam, oracle, pgd)],
            "over seeds": str(stats.wilcoxon(adam[stiff].mean(0), oracle[stiff].mean(0))),
            **{
                f"α = {a:g}: effect in deviations over seeds, Wilcoxon p": paired_effect(x, y)
                for a, x, y in zip(alphas[stiff], adam[stiff], oracle[stiff])
            },
        },
        ok=bool((gap > 0).all()),
    )


@claim("E25-levels", "every number within .05", uses={"check": "oracle"}, obstacle=coarse)
def oracle_anywhere(rows: Sequence[Row]) -> Verdict:
    """Over stiffness Adam has IoU .950, the oracle .794, PGD .811; the oracle's gap to Adam is .332 at 13 and .246 at
    25, its active share 1.12 and 1.64 times that of PGD at 10 and 25

    The printed numbers of the oracle: in one set-up, or number by number within the range of all of them.
    """
    numbers = map(oracle_numbers, apart(rows).values())
    found = within_range(over_setups(oracle_levels, apart)(rows), numbers, ORACLE, ORACLE_NEAR)
    if found.status != "fails":
        return found
    why = "the text does not print the oracle's step; with 0.03, that of Adam, not so"  # and no set-up has it
    return replace(found, status="not-judged", note=f"{why}; {found.note}", span=None)


@claim("N14", "r < 0", setups=apart, uses={"check": "oracle"})
def gap_of_adam_and_closing(rows: Sequence[Row]) -> Measured:
    """Adam's lead over the oracle anticorrelates with |dF/dα| (r = −.799, as the text has of the oracle's over PGD)

    Figure 22's caption has −.799 for Adam − Oracle, the text for Oracle − PGD.
    """
    alphas, adam = table(rows, "iou", check="oracle", method="adam")
    oracle = table(rows, "iou", check="oracle", method="oracle")[1]
    active = table(rows, "active", check="oracle", method="pgd")[1]
    found = stats.pearson(adam.mean(1) - oracle.mean(1), np.abs(np.gradient(active.mean(1), alphas)))
    note = "Pearson correlation over the stiffness values of Adam − Oracle, as in the caption of Fig. 22"
    return Measured(found.value, note, facts={"p": found.p}, ok=found.value < 0 and found.p < 0.05)


@claim("E25-reversal", "by .093 to .183", setups=apart, uses={"check": "oracle"})
def reversal(rows: Sequence[Row]) -> Measured:
    """Between stiffness 10 and 25 the oracle ends below projected gradient

    The oracle below projected gradient at every stiffness from 10 to 25; the facts say where else.
    """
    alphas, oracle = table(rows, "iou", check="oracle", method="oracle")
    pgd = table(rows, "iou", check="oracle", method="pgd")[1]
    below = {float(a) for a, o, p in zip(alphas, oracle.mean(1), pgd.mean(1)) if o < p - 0.005}
    inside = {float(a) for a in alphas if 10 <= a <= 25}
    return Measured(
        len(inside & below) / len(inside),
        "share of the stiffness values from 10 to 25 at which the oracle ends below projected gradient",
        facts={"at": sorted(below) or None},
        ok=inside <= below,
    )


@claim("E25-resolved", "not below", setups=apart, uses={"check": "oracle"})
def resolved(rows: Sequence[Row]) -> Measured | Verdict:
    """Above stiffness 30 the oracle ends below projected gradient no more

    The oracle no longer below projected gradient above a stiffness of 30.
    """
    alphas, oracle = table(rows, "iou", check="oracle", method="oracle")
    pgd = table(rows, "iou", check="oracle", method="pgd")[1]
    above = [o >= p - 0.005 for a, o, p in zip(alphas, oracle.mean(1), pgd.mean(1)) if a > 30]
    if not above:
        return not_run("no stiffness above 30 was run")
    note = "share of the stiffness values above 30 at which the oracle does not end below projected gradient"
    return Measured(sum(above) / len(above), note, ok=all(above))


@claim("E25-closing", "r < 0", setups=apart, uses={"check": "oracle"})
def gap_and_closing(rows: Sequence[Row]) -> Measured:
    """The oracle loses most against projected gradient where gates close fastest

    The correlation of Oracle − PGD with |dF/dα| of PGD over the stiffness values.
    """
    alphas, oracle = table(rows, "iou", check="oracle", method="oracle")
    pgd, active = (table(rows, c, check="oracle", method="pgd")[1] for c in ("iou", "active"))
    found = stats.pearson(oracle.mean(1) - pgd.mean(1), np.abs(np.gradient(active.mean(1), alphas)))
    return Measured(
        found.value,
        "Pearson correlation over the stiffness values; the paper −0.799 (p = 0.0006)",
        facts={"p": found.p, "stiffness values": len(alphas)},
        ok=found.value < 0 and found.p < 0.05,
    )


@claim("E29-difficulty", above(0.9, "AUC > 0.9"), setups=apart, uses={"check": "kernels"})
def difficulty(rows: Sequence[Row]) -> Measured | Verdict:
    """Five features of a problem tell whether it will be solved"""
    cells = [
        (r["alpha"], r["sigma_max"], r["high_pass"], int(i > SUCCESS))
        for r in some(rows, check="kernels")
        for i in r["iou"]
    ]
    alphas, sigmas, high_pass, outcome = (list(values) for values in zip(*cells))
    if min(sum(outcome), len(outcome) - sum(outcome)) < 5:
        return not_run(f"{sum(outcome)} of {len(outcome)} problems succeed: one outcome is too rare for five folds")
    auc = stats.cross_validated_auc(rec.difficulty_features(alphas, sigmas, high_pass), outcome)
    return Measured(
        auc.value,
        "the paper 0.958",
        stderr=auc.stderr,
        facts={"problems": len(cells), f"with IoU > {SUCCESS:g}": sum(outcome)},
    )


@claim(
    "E29-size",
    "small effect",
    setups=apart,
    uses={"check": "resolution"},
    plot=drawn(curves("resolution", "iou", "size")),
)
def size(rows: Sequence[Row]) -> Measured:
    """Resolution matters less than stiffness"""
    by_alpha = [
        [float(np.mean(group[-1]["iou"])) for group in groups(same, "size").values()]
        for _, same in sorted(groups(rows, "alpha", check="resolution").items())
    ]
    over, along = max(map(np.ptp, by_alpha)), np.ptp([np.mean(values) for values in by_alpha])
    note = "largest range of IoU over size at one α"
    return Measured(float(over), note, facts={"over α": float(along)}, ok=bool(over < along))


@claim(
    "E29-noise",
    below(0.063, "< 6.3 %"),
    setups=apart,
    uses={"check": "noise"},
    plot=drawn(curves("noise", "iou", "snr")),
)
def noise(rows: Sequence[Row]) -> Measured:
    """IoU varies by less than about 6 % between 15 and 60 dB"""
    by = {a: [seed_mean(r) for r in group] for a, group in sorted(groups(rows, "alpha", check="noise").items())}
    spans = {a: np.ptp(v) / np.mean(v) for a, v in by.items()}
    worst = float(max(spans.values()))
    note = "largest range of IoU over SNR, relative; the paper at most 0.062"
    return Measured(worst, note, facts=by_stiffness(spans, spans.values()))


@claim("E29-cutoff", Expected(0.5, 0.0), setups=apart, uses={"check": "cutoff"}, plot=drawn(pictures.cutoffs))
def cutoff(rows: Sequence[Row]) -> Measured:
    """Reconstruction is best at the cutoff c = ½"""
    found = groups(sorted(some(rows, check="cutoff"), key=lambda r: r["c"]), "method")
    by = {method: {r["c"]: seed_mean(r) for r in group} for method, group in found.items()}
    best = max(by["adam"], key=lambda c: by["adam"][c])
    # "falls symmetrically": the largest difference of IoU at c and at 1 − c
    uneven = {m: max(abs(v - cs.get(round(1 - c, 6), v)) for c, v in cs.items()) for m, cs in by.items()}
    return Measured(
        best,
        "cutoff with the largest IoU of Adam at α = 10",
        facts={
            **{f"{m} at {', '.join(f'{c:g}' for c in cs)}": list(cs.values()) for m, cs in by.items()},
            **{f"{m}: largest difference of c and 1 − c": v for m, v in uneven.items()},
        },
        ok=best == 0.5,
    )


@claim(
    "E29-success",
    below(0.2, "< 0.2"),
    setups=apart,
    uses={"check": ("transition", "methods")},
    plot=drawn(pictures.successes),
)
def success(rows: Sequence[Row]) -> Measured:
    """Fewer than a fifth of the reconstructions succeed above stiffness 14"""
    alphas, iou = table(rows, "iou", check="transition")
    share = (iou > SUCCESS).mean(1)
    worst = float(share[alphas > 14].max())
    note = f"largest share of IoU > {SUCCESS:g} above α = 14"
    return Measured(worst, note, facts=by_stiffness(alphas, share))


@claim(
    "E29-restarts",
    "input spread > output spread",
    setups=without_iou,
    uses={"check": "restarts"},
    plot=drawn(pictures.spreads),
)
def restarts(rows: Sequence[Row]) -> Measured:
    """Restarts end far apart in the input and close in the output"""
    row = some(rows, check="restarts", alpha=20.0)[0]
    inputs, outputs = row["input_spread"], row["output_spread"]
    return Measured(
        inputs / outputs,
        "how far inputs end apart over outputs at α = 20, root mean square per pixel",
        facts={"restarts": row["seeds"], "inputs": inputs, "outputs": outputs},
        ok=inputs > outputs,
    )


@claim(
    "E29-targets",
    above(0, "easier"),
    setups=apart,
    uses={"check": "targets"},
    plot=drawn(curves("targets", "iou", "target")),
)
def targets(rows: Sequence[Row]) -> Measured:
    """Structured targets are easier than noise"""
    found = groups(rows, "target", check="targets")
    mean = {target: float(np.mean([np.mean(r["iou"]) for r in group])) for target, group in found.items()}
    gap = min(v for t, v in mean.items() if t != "noise") - mean["noise"]
    return Measured(gap, "mean IoU over α of the hardest structured target minus that of noise", facts=mean)


@claim(
    "E29-landscape", "flatter at α = 40", setups=without_iou, uses={"check": "landscape"}, plot=drawn(pictures.slices)
)
def landscape(rows: Sequence[Row]) -> Measured:
    """Stiffness turns slices of the loss into plateaus"""
    soft, stiff = (column(rows, "flat", check="landscape", alpha=a)[-1] for a in (1.0, 40.0))
    note = "share of steps on a slice that change J by less than a thousandth, at α = 40"
    return Measured(stiff, note, facts={"at α = 1": soft}, ok=stiff > soft)
