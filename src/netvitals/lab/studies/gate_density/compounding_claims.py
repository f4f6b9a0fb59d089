"""Claims on depth, activations, learned kernels, deep networks, and the bounds of the appendix."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from netvitals import stats
from netvitals.lab.studies import Claim, Config, Expected, Plot, Row, Series, Verdict, decide, not_run
from netvitals.lab.studies.gate_density import bound_judges as bounds
from netvitals.lab.studies.gate_density import reconstruction as rec
from netvitals.lab.studies.gate_density import transition_pictures as pictures
from netvitals.lab.studies.gate_density.transition import table

STUDY = "gate-density-compounding"
SELF_GATED = ("gelu", "silu", "mish")
TABLE_8 = {16.0: 0.031, 20.0: 0.029, 25.0: 0.026, 40.0: 0.017, 60.0: 0.012}  # c by stiffness


def _depth(rows: Sequence[Row]) -> Verdict:
    facts, ok = [], True
    for second in dict.fromkeys(r["second"] for r in rows):
        alphas, one = table(rows, "one", second=second)
        two = table(rows, "effective", second=second)[1].mean(1)
        stiff = alphas >= 20
        ok &= bool((two[stiff] < one.mean(1)[stiff]).all())
        facts.append(
            f"{second}: "
            + ", ".join(f"{a:g}: {f:.3f} → {t:.3f}" for a, f, t in zip(alphas[stiff], one.mean(1)[stiff], two[stiff]))
        )
    return decide(ok, note="F of one layer → of two, by stiffness; " + "; ".join(facts))


def _bootstrapped(rows: Sequence[Row], resamples: int = 1000) -> str:
    """95 % interval of R² over resampled seeds, with Sobel on top."""
    alphas, one = table(rows, "one", second="sobel_x")
    two, keep, rng = table(rows, "effective", second="sobel_x")[1], alphas >= 10, np.random.default_rng(0)
    found = []
    for _ in range(resamples):
        seeds = rng.integers(0, one.shape[1], one.shape[1])
        try:
            found.append(
                rec.depth_law(
                    alphas[keep].tolist(), one[:, seeds].mean(1)[keep].tolist(), two[:, seeds].mean(1)[keep].tolist()
                ).r2
            )
        except ValueError:
            continue
    if len(found) < resamples / 2:
        return f"; only {len(found)} of {resamples} resamples of the seeds can be fitted"
    low, high = np.percentile(found, [2.5, 97.5])
    return f"; R² over resampled seeds {low:.3f} to {high:.3f}"


def _law(rows: Sequence[Row]) -> Verdict:
    laws = {}
    for second in dict.fromkeys(r["second"] for r in rows):
        alphas, one = table(rows, "one", second=second)
        try:
            keep = alphas >= 10
            laws[second] = rec.depth_law(
                alphas[keep].tolist(),
                one.mean(1)[keep].tolist(),
                table(rows, "effective", second=second)[1].mean(1)[keep].tolist(),
            )
        except ValueError as error:
            return not_run(f"{second}: {error}")
    first = laws["sobel_x"]
    facts = _bootstrapped(rows)
    alphas, one = table(rows, "one", second="sobel_x")
    by = pictures.collapse_rate(alphas, one.mean(1), table(rows, "effective", second="sobel_x")[1].mean(1))
    cells = {f"c at α = {a:g}, printed": [float(c), TABLE_8[a]] for a, c in zip(alphas, by) if a in TABLE_8 and c == c}
    return decide(
        abs(first.exponent + 0.674) < 0.1 and first.r2 > 0.9,
        first.exponent,
        first.exponent_stderr,
        note="the paper 0.211 α^(−0.674); " + "; ".join(f"{k}: {v}" for k, v in laws.items()) + facts,
        facts=cells,
    )


def _independence(rows: Sequence[Row]) -> Verdict:
    values = np.abs(np.concatenate([r["correlation"] for r in rows]))
    return decide(
        bool(values.max() < 0.5),
        float(values.mean()),
        note=f"mean |corr(Γ¹, A₂ᵀΓ²)| over {values.size} "
        f"solutions; the largest is {values.max():.3f} (the paper: mean .201, below .50 always)",
    )


def _points(rows: Sequence[Row]) -> tuple[list[str], np.ndarray]:
    acts = list(dict.fromkeys(r["act"] for r in rows))
    return acts, np.array(
        [np.r_[table(rows, "active", act=a)[1].mean(1), table(rows, "iou", act=a)[1].mean(1)] for a in acts]
    )


def _three_clusters(rows: Sequence[Row]) -> Verdict:
    acts, points = _points(rows)
    found = rec.clusters(points)
    groups = [[a for a, g in zip(acts, found.labels) if g == k] for k in sorted(set(found.labels))]
    same = {frozenset(g) for g in groups} == {
        frozenset(("sigmoid", "tanh")),
        frozenset(SELF_GATED),
        frozenset(("relu",)),
    }
    return decide(
        found.best == 3 and same,
        found.silhouettes.get(3, float("-inf")),
        note="silhouettes "
        + ", ".join(f"k = {k}: {v:.3f}" for k, v in found.silhouettes.items())
        + f" (paper .722 at k = 3); "
        f"groups at the best k: {groups}",
    )


def _self_gated(rows: Sequence[Row]) -> Verdict:
    lowest = {a: float(table(rows, "active", act=a)[1].mean(1).min()) for a in SELF_GATED}
    return decide(
        min(lowest.values()) > 0.95,
        min(lowest.values()),
        note=f"smallest active share over α: {lowest}; with f(α(z − c))/α, which is ReLU in the limit of large α",
    )


def _saturating(rows: Sequence[Row]) -> Verdict:
    shares = {a: table(rows, "active", act=a) for a in ("sigmoid", "tanh")}
    ok = all(v.mean(1)[list(x).index(40.0)] < v.mean(1)[list(x).index(20.0)] for x, v in shares.values())
    return decide(
        ok,
        note="; ".join(
            f"{a}: " + ", ".join(f"{s:g}: {f:.3f}" for s, f in zip(x, v.mean(1))) for a, (x, v) in shares.items()
        ),
    )


def _joint(rows: Sequence[Row]) -> Verdict:
    alphas, fixed = table(rows, "fixed_iou")
    joint = table(rows, "joint_iou")[1]
    harder = int((joint.mean(1) < fixed.mean(1)).sum())
    ratio = table(rows, "joint_active")[1].mean(1) / np.maximum(table(rows, "fixed_active")[1].mean(1), 1e-9)
    test = stats.wilcoxon(fixed.mean(0), joint.mean(0))
    inputs = [table(rows, c)[1].mean(1) for c in ("fixed_input", "joint_input")]
    lower = int((inputs[1] < inputs[0]).sum())
    return decide(
        harder == len(alphas),
        harder / len(alphas),
        note=f"share of {len(alphas)} stiffness values where "
        f"the learned kernel ends lower; IoU fixed/learned "
        + ", ".join(f"{a:g}: {f:.2f}/{j:.2f}" for a, f, j in zip(alphas, fixed.mean(1), joint.mean(1)))
        + f"; active ratio {ratio.min():.2f}–{ratio.max():.2f}; over seeds {test}; "
        f"comparing x itself with the target, the learned kernel is lower at {lower} of {len(alphas)} "
        f"(mean {inputs[0].mean():.2f} fixed, {inputs[1].mean():.2f} learned)",
    )


def _front(rows: Sequence[Row]) -> Verdict:
    def late(network: str, norm: str, alpha: float) -> float:
        (row,) = [r for r in rows if (r["network"], r["norm"], r["alpha"]) == (network, norm, alpha)]
        return float(np.mean(row["shares"][-6:]))

    facts, shown = [], False
    for network in ("resnet18", "vgg11"):
        for norm in ("batch", "none"):
            soft, stiff = late(network, norm, 10.0), late(network, norm, 20.0)
            shown |= soft > 0.5 and stiff < 0.02
            facts.append(f"{network}, norm {norm}: {soft:.3f} → {stiff:.3f}")
    return decide(
        shown,
        note="mean active share of the last six layers from α = 10 to 20, untrained networks: " + "; ".join(facts),
    )


def _deep_law(rows: Sequence[Row]) -> Verdict:
    fits = {(r["network"], r["norm"], r["alpha"]): r for r in rows}
    good = [r["r2"] for r in rows if r["alpha"] >= 20 and r["r2"] is not None]
    if not good:
        return not_run("every profile is constant: there is nothing to fit")
    ok = all(v > 0.5 for v in good) and len(good) == sum(r["alpha"] >= 20 for r in rows)
    return decide(
        ok,
        max(good),
        note="R² of F₁/(1 + cα)^l: "
        + ", ".join(
            f"{n} {m} α = {a:g}: {'constant' if r['r2'] is None else format(r['r2'], '.2f')} (c = {r['rate']:.2g})"
            for (n, m, a), r in fits.items()
            if a >= 20
        ),
    )


def _profiles(rows: Sequence[Row]) -> Plot:
    return Plot(
        "layer",
        "active share",
        [
            Series(f"{r['network']}, α = {r['alpha']:g}", list(range(r["layers"])), r["shares"], line=True)
            for r in rows
            if r["norm"] == "none"
        ][:8],
    )


def _by(column: str, key: str) -> Callable[[Sequence[Row]], Plot]:
    def plot(rows: Sequence[Row]) -> Plot:
        series = []
        for value in dict.fromkeys(r[key] for r in rows):
            alphas, values = table(rows, column, **{key: value})
            series.append(Series(str(value), alphas.tolist(), values.mean(1).tolist(), line=True))
        return Plot("stiffness", column, series, log_x=True)

    return plot


def _claim(
    name: str,
    statement: str,
    expected: str,
    judge: Callable[[Sequence[Row]], Verdict],
    check: str,
    plot: Callable[[Sequence[Row]], Plot] | None = None,
) -> Claim:
    def uses(config: Config) -> bool:
        return config["check"] == check

    return Claim(
        id=f"gate-density/{name}",
        study=STUDY,
        statement=statement,
        expected=Expected(direction=expected),
        judge=judge,
        section="A.9",
        uses=uses,
        plot=plot,
    )


CLAIMS = (
    _claim(
        "C19",
        "Lemma A.1: the gradient is at most (α/2)‖Aᵀ(h − y)‖",
        "never violated",
        bounds.lemma_a1,
        "gradient bound",
    ),
    _claim(
        "C20",
        "Theorem A.2: the mean active share is at most 1 − 2ε/α, and tends to 0",
        "never violated",
        bounds.theorem_a2,
        "active bound",
    ),
    _claim(
        "C21",
        "Theorem A.3: a second layer leaves at most 1/(1 + c₂α) of the active share",
        "never violated",
        bounds.theorem_a3,
        "depth",
        _by("effective", "second"),
    ),
    _claim("E26", "Two layers have fewer active pixels than one at large stiffness", "F² < F¹", _depth, "depth"),
    _claim(
        "E26-law",
        "The rate of the depth law falls as 0.211 α^(−0.674)",
        "exponent −0.674",
        _law,
        "depth",
        pictures.rates,
    ),
    _claim(
        "E26-independence",
        "The gates of the two layers are nearly independent",
        "|corr| < 0.5",
        _independence,
        "depth",
        pictures.independence,
    ),
    _claim(
        "E27",
        "Six activations fall into three clusters: saturating, self-gated, ReLU",
        "k = 3",
        _three_clusters,
        "activations",
        _by("active", "act"),
    ),
    _claim(
        "E27-self-gated",
        "GELU, SiLU and Mish keep more than 95 % of the pixels active at any stiffness",
        "> 0.95",
        _self_gated,
        "activations",
    ),
    _claim(
        "E27-saturating",
        "Sigmoid and tanh lose active pixels from stiffness 20 to 40",
        "falls",
        _saturating,
        "activations",
    ),
    _claim(
        "E30",
        "Learning the kernel too is harder at every stiffness",
        "lower IoU everywhere",
        _joint,
        "joint",
        pictures.learned,
    ),
    _claim(
        "E31",
        "Deep networks of stiff sigmoids: late layers open at stiffness 10, shut at 20",
        "late layers > 0.5, then < 0.02",
        _front,
        "deep",
        _profiles,
    ),
    _claim("E31-law", "From stiffness 20 on the depth law fits deep networks", "R² > 0.5", _deep_law, "deep"),
)
