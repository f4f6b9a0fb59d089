"""How reconstructions decide the claims on stiffness, methods and set-ups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from netvitals import stats
from netvitals.lab.studies import Plot, Row, Series, Verdict, decide, not_run
from netvitals.lab.studies.gate_density import reconstruction as rec
from netvitals.lab.studies.gate_density.transition import SETUPS, SUCCESS, table

METHODS = ("adam", "lbfgsb", "momentum", "nesterov", "pgd")
TABLE_6 = {"adam": 0.947, "lbfgsb": 0.883, "momentum": 0.784, "nesterov": 0.754, "pgd": 0.787}
TABLE_7 = {1.0: 1.0, 5.0: 1.0, 10.0: 1.0, 20.0: 0.947, 40.0: 0.830, 60.0: 0.771}
LEVEL = 0.02  # a level of IoU counts as reproduced within this


def value_at(rows: Sequence[Row], alpha: float, column: str = "iou", **where: Any) -> float:
    alphas, values = table(rows, column, **where)
    return float(values.mean(1)[list(alphas).index(alpha)])


def best_at_20(rows: Sequence[Row]) -> Verdict:
    iou = {m: value_at(rows, 20.0, check="methods", method=m) for m in METHODS}
    best = max(iou, key=lambda m: iou[m])
    facts = ", ".join(f"{m} {v:.3f}" for m, v in sorted(iou.items(), key=lambda e: -e[1]))
    gap = iou["adam"] - max(v for m, v in iou.items() if m != "adam")
    return decide(best == "adam", gap, note=f"IoU of Adam over the next best at α = 20; {facts}")


def levels_by_method(rows: Sequence[Row]) -> Verdict:
    iou = {m: value_at(rows, 20.0, check="methods", method=m) for m in METHODS}
    worst = max(abs(iou[m] - v) for m, v in TABLE_6.items())
    return decide(
        worst <= LEVEL,
        worst,
        note="largest gap to the printed IoU at α = 20; measured "
        + ", ".join(f"{m} {iou[m]:.3f} (paper {v:.3f})" for m, v in TABLE_6.items()),
    )


def loss_minimum(rows: Sequence[Row]) -> Verdict:
    alphas, loss = table(rows, "loss", check="transition")
    iou = table(rows, "iou", check="transition")[1].mean(1)
    at = float(alphas[loss.mean(1).argmin()])
    falling = bool((np.diff(iou[alphas >= 10]) <= 0.005).all())
    return decide(
        2 < at <= 7 and falling,
        at,
        note=f"stiffness of the smallest loss ({loss.mean(1).min():.0f}); IoU "
        f"from α = 10 on {'falls' if falling else 'does not fall'} throughout: "
        + ", ".join(f"{a:g}: {v:.3f}" for a, v in zip(alphas, iou) if a >= 10),
    )


def levels_by_stiffness(rows: Sequence[Row]) -> Verdict:
    gaps: dict[str, float] = {}
    for padding, block, scale in SETUPS:
        where = {"check": "set-ups", "method": "adam", "padding": padding, "block": block, "scale": scale}
        alphas, iou = table(rows, "iou", **where)
        gaps[f"{padding} padding, block {block}, Sobel × {scale:g}"] = max(
            abs(float(v) - TABLE_7[a]) for a, v in zip(alphas, iou.mean(1)) if a in TABLE_7
        )
    best = min(gaps, key=lambda k: gaps[k])
    return decide(
        gaps[best] <= LEVEL,
        gaps[best],
        note=f"largest gap to the printed IoU in the best of {len(gaps)} "
        f"set-ups ({best}); the others: " + ", ".join(f"{v:.2f}" for k, v in gaps.items() if k != best),
    )


def transition(rows: Sequence[Row]) -> Verdict:
    alphas, iou = table(rows, "iou", check="transition")
    three, four = rec.fit_phase(alphas, iou), rec.fit_phase(alphas, iou, 4)
    bands = rec.bands(alphas, iou)
    facts = (
        f"{three}; four parameters {four}; bands "
        + ", ".join(f"{k} {v}" for k, v in bands.items())
        + f"; α*–δ correlation {three.correlation[1, 2]:.2f}"
    )
    try:
        mid, (low, high) = rec.bootstrap_midpoint(alphas, iou, resamples=200)
        facts += f"; bootstrap over seeds {mid:.3g} [{low:.3g}, {high:.3g}]"
    except ValueError as error:
        facts += f"; bootstrap: {error}"
    printed = 27.92 <= three.midpoint <= 29.78 and not three.at_bound
    return decide(printed, three.midpoint, float(three.crlb[1]), note=f"paper 28.97; {facts}")


def collinear(rows: Sequence[Row]) -> Verdict:
    alphas, iou = table(rows, "iou", check="transition")
    ratio = rec.fit_phase(alphas, iou, 4).condition / rec.fit_phase(alphas, iou).condition
    return decide(ratio > 10, ratio, note="condition of the Fisher information, four parameters over three (paper 135)")


def scaling(rows: Sequence[Row]) -> Verdict:
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
    return decide(all(0.03 <= e <= 0.043 for e in exponents), float(np.mean(exponents)), note="; ".join(facts))


def jacobian(rows: Sequence[Row]) -> Verdict:
    alphas, rank = table(rows, "stable_rank", check="jacobian")
    smallest = table(rows, "sigma_min", check="jacobian")[1].mean(1)
    null = table(rows, "null", check="jacobian")[1].mean(1)
    row = next(r for r in rows if r["check"] == "jacobian")
    falls = [stats.spearman(alphas, v).value for v in (rank.mean(1), smallest)]
    high = smallest[alphas >= 5]
    ok = falls[0] < -0.9 and rank.mean(1)[0] > rank.mean(1)[-1] and high[-1] < high[0]
    by = ", ".join(f"{a:g}: {v:.1f}" for a, v in zip(alphas, rank.mean(1)))
    return decide(
        ok,
        float(rank.mean(1)[0] / rank.mean(1)[-1]),
        note="stable rank at the first stiffness over that "
        f"at the last; stable rank {by} (Spearman {falls[0]:+.2f}, needed below −0.9); σ_min "
        f"{smallest[0]:.2g} → {smallest[-1]:.2g} ({falls[1]:+.2f}); null dimension {null[0]:.0f} → "
        f"{null[-1]:.0f} of {row['pixels']} at tolerance {row['tolerance']:g}, rank of A itself "
        f"{row['rank_a']}",
    )


def recovery(rows: Sequence[Row]) -> Verdict:
    """Every solution with fewer active pixels than the rank of A: did its reconstruction fail?"""
    few = [
        (i, r["alpha"])
        for r in rows
        if r["check"] == "jacobian"
        for f, i in zip(r["active"], r["iou"])
        if f * r["pixels"] < r["rank_a"]
    ]
    if not few:
        return not_run("no solution has fewer active pixels than the rank of A")
    recovered = [i for i, _ in few if i > SUCCESS]
    exact = [i for i, _ in few if i == 1]
    return decide(
        not recovered,
        len(recovered) / len(few),
        note=f"share of {len(few)} solutions with F·N < rank(A) "
        f"that reach IoU > {SUCCESS:g} all the same ({len(exact)} reach 1): the condition takes local "
        "uniqueness of x away, not the picture",
    )


def oracle_setups(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [
        {"check": "oracle", "padding": p, "block": b}
        for p, b in dict.fromkeys((r["padding"], r["block"]) for r in rows if r["check"] == "oracle")
    ]


def momentum(rows: Sequence[Row]) -> Verdict:
    """Adam above the oracle at every stiffness from 5 on, in every set-up."""
    facts, gaps, ok = [], [], True
    for where in oracle_setups(rows):
        alphas, adam = table(rows, "iou", method="adam", **where)
        oracle, pgd = (table(rows, "iou", method=m, **where)[1] for m in ("oracle", "pgd"))
        stiff = alphas >= 5
        gap = adam.mean(1) - oracle.mean(1)
        ok &= bool((gap[stiff] > 0).all())
        gaps.append(float(gap.mean()))
        facts.append(
            f"{where['padding']} padding, block {where['block']}: mean IoU Adam {adam.mean():.3f}, oracle "
            f"{oracle.mean():.3f}, PGD {pgd.mean():.3f}; Adam minus oracle "
            + ", ".join(f"{a:g}: {g:+.3f}" for a, g in zip(alphas[stiff], gap[stiff]))
            + f"; over seeds {stats.wilcoxon(adam[stiff].mean(0), oracle[stiff].mean(0))}"
        )
    return decide(ok, float(np.mean(gaps)), note="; ".join(facts))


def reversal(rows: Sequence[Row]) -> Verdict:
    found: dict[str, list[float]] = {}
    for where in oracle_setups(rows):
        alphas, oracle = table(rows, "iou", method="oracle", **where)
        pgd = table(rows, "iou", method="pgd", **where)[1]
        found[f"{where['padding']} padding, block {where['block']}"] = [
            float(a) for a, o, p in zip(alphas, oracle.mean(1), pgd.mean(1)) if o < p - 0.005
        ]
    inside = {float(r["alpha"]) for r in rows if 10 <= r["alpha"] <= 25}
    ok = any(inside <= set(below) and not any(a > 30 for a in below) for below in found.values())
    return decide(
        ok, str(found), note="stiffness values where the oracle ends below projected gradient; the paper: 10 to 25"
    )


def gap_and_closing(rows: Sequence[Row]) -> Verdict:
    """The correlation of Oracle − PGD with |dF/dα| of PGD over the stiffness values, in the default set-up."""
    facts = []
    for where in oracle_setups(rows):
        alphas, oracle = table(rows, "iou", method="oracle", **where)
        pgd, active = (table(rows, c, method="pgd", **where)[1] for c in ("iou", "active"))
        closing = np.abs(np.gradient(active.mean(1), alphas))
        facts.append((where, stats.pearson(oracle.mean(1) - pgd.mean(1), closing)))
    first = facts[0][1]
    return decide(
        first.value < 0 and first.p < 0.05,
        first.value,
        note="; ".join(f"{w['padding']} padding, block {w['block']}: {r}" for w, r in facts)
        + "; the paper −0.799 (p = 0.0006)",
    )


def kernels(rows: Sequence[Row]) -> Verdict:
    last = {k: value_at(rows, 40.0, check="kernels", kernel=k) for k in rec.KERNELS}
    ok = min(last["identity"], last["avg_blur"]) > 0.99 and min(last, key=lambda k: last[k]) == "laplacian"
    return decide(ok, last["laplacian"], note="IoU at α = 40: " + ", ".join(f"{k} {v:.3f}" for k, v in last.items()))


def difficulty(rows: Sequence[Row]) -> Verdict:
    cells = [
        (r["alpha"], r["sigma_max"], r["high_pass"], i > SUCCESS)
        for r in rows
        if r["check"] == "kernels"
        for i in r["iou"]
    ]
    outcome = [int(c[3]) for c in cells]
    if min(sum(outcome), len(outcome) - sum(outcome)) < 5:
        return not_run(f"{sum(outcome)} of {len(outcome)} problems succeed: one outcome is too rare for five folds")
    auc = stats.cross_validated_auc(
        rec.difficulty_features([c[0] for c in cells], [c[1] for c in cells], [c[2] for c in cells]), outcome
    )
    return decide(
        auc.value > 0.9,
        auc.value,
        auc.stderr,
        note=f"{len(cells)} problems, {sum(outcome)} with IoU > {SUCCESS:g}; the paper 0.958",
    )


def small_effect(check: str, column: str) -> Callable[[Sequence[Row]], Verdict]:
    def judge(rows: Sequence[Row]) -> Verdict:
        chosen = [r for r in rows if r["check"] == check]
        values = {(r["alpha"], r[column]): float(np.mean(r["iou"])) for r in chosen}
        alphas = sorted({a for a, _ in values})
        over = max(
            max(v for (b, _), v in values.items() if b == a) - min(v for (b, _), v in values.items() if b == a)
            for a in alphas
        )
        by_alpha = [np.mean([v for (b, _), v in values.items() if b == a]) for a in alphas]
        return decide(
            bool(over < max(by_alpha) - min(by_alpha)),
            over,
            note=f"largest range of IoU over {column} at one α; over α it is {max(by_alpha) - min(by_alpha):.3f}",
        )

    return judge


def noise(rows: Sequence[Row]) -> Verdict:
    chosen = [r for r in rows if r["check"] == "noise"]
    spans = {
        a: np.ptp(v) / np.mean(v)
        for a in sorted({r["alpha"] for r in chosen})
        if (v := [float(np.mean(r["iou"])) for r in chosen if r["alpha"] == a])
    }
    worst = float(max(spans.values()))
    return decide(
        worst < 0.063,
        worst,
        note="range of IoU over SNR, relative: "
        + ", ".join(f"α = {a:g}: {s:.1%}" for a, s in spans.items())
        + "; the paper at most 6.2 %",
    )


def cutoff(rows: Sequence[Row]) -> Verdict:
    chosen = [r for r in rows if r["check"] == "cutoff"]
    by = {
        m: {r["c"]: float(np.mean(r["iou"])) for r in chosen if r["method"] == m} for m in ("adam", "momentum", "pgd")
    }
    best = max(by["adam"], key=lambda c: by["adam"][c])
    facts = "; ".join(
        f"{m} " + ", ".join(f"{c:g}: {v:.3f}" for c, v in sorted(values.items())) for m, values in by.items()
    )
    return decide(best == 0.5, best, note=f"cutoff with the largest IoU of Adam at α = 10; {facts}")


def success(rows: Sequence[Row]) -> Verdict:
    alphas, iou = table(rows, "iou", check="transition")
    share = (iou > SUCCESS).mean(1)
    high = share[alphas > 14]
    return decide(
        bool((high < 0.2).all()),
        float(high.max()),
        note=f"largest share of IoU > {SUCCESS:g} above α = 14; "
        + ", ".join(f"{a:g}: {s:.2f}" for a, s in zip(alphas, share)),
    )


def restarts(rows: Sequence[Row]) -> Verdict:
    row = next(r for r in rows if r["check"] == "restarts" and r["alpha"] == 20.0)
    ratio = row["input_spread"] / row["output_spread"]
    return decide(
        ratio > 1,
        ratio,
        note=f"{row['seeds']} restarts at α = 20: inputs {row['input_spread']:.3f} apart, "
        f"outputs {row['output_spread']:.3f} (root mean square per pixel)",
    )


def targets(rows: Sequence[Row]) -> Verdict:
    mean = {
        t: float(np.mean([np.mean(r["iou"]) for r in rows if r["check"] == "targets" and r["target"] == t]))
        for t in dict.fromkeys(r["target"] for r in rows if r["check"] == "targets")
    }
    return decide(
        min(v for t, v in mean.items() if t != "noise") > mean["noise"],
        mean["noise"],
        note="mean IoU over α: " + ", ".join(f"{t} {v:.3f}" for t, v in mean.items()),
    )


def landscape(rows: Sequence[Row]) -> Verdict:
    flat = {r["alpha"]: r["flat"] for r in rows if r["check"] == "landscape"}
    return decide(
        flat[40.0] > flat[1.0],
        flat[40.0],
        note=f"share of steps on a slice that change J by less than a "
        f"thousandth: {flat[1.0]:.2f} at α = 1, {flat[40.0]:.2f} at α = 40",
    )


def curves(check: str, column: str, by: str) -> Callable[[Sequence[Row]], Plot]:
    def plot(rows: Sequence[Row]) -> Plot:
        keys = list(dict.fromkeys(r[by] for r in rows if r["check"] == check))
        series = []
        for key in keys:
            alphas, values = table(rows, column, check=check, **{by: key})
            series.append(Series(str(key), alphas.tolist(), values.mean(1).tolist(), line=True))
        return Plot("stiffness", column, series, log_x=True)

    return plot
