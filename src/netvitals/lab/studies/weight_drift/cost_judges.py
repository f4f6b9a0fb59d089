"""How rows decide the claims on sparsity, its cost, squares and their spikes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from netvitals import stats
from netvitals.drift import amplification, intermediate_peak
from netvitals.lab.engine.judges import some
from netvitals.lab.studies import Plot, Row, Series, Verdict, decide, fails, holds, not_run
from netvitals.lab.studies.weight_drift._cliff import cliff, picture
from netvitals.lab.studies.weight_drift._grid import REFERENCE
from netvitals.lab.studies.weight_drift.cliff import CLASSIFIERS
from netvitals.lab.studies.weight_drift.steering import TOOLS, predicted_sparsity

NEAR = (0.60, 0.85)  # a breakpoint in this range is "about 70 %"
ENOUGH = 200  # steps of a language model that claims may rest on
GAIN = 0.1  # zeros that ReLUfication must bring to be worth its name
COST = 0.01  # accuracy that ReLUfication may cost


def mean(rows: Sequence[Row], key: str) -> float:
    return float(np.mean([r[key] for r in rows]))


def ended_losses(rows: Sequence[Row]) -> dict[str, dict[int, float]]:
    """Validation loss by activation and seed, of the runs that ended."""
    found: dict[str, dict[int, float]] = {}
    for r in some(rows, quantity="run"):
        if not r["stopped"]:
            found.setdefault(r["act"], {})[r["seed"]] = r["val_loss"]
    return found


def grown(judge: Callable[[Sequence[Row]], Verdict]) -> Callable[[Sequence[Row]], Verdict]:
    """A judge that says nothing about runs too short to show anything."""

    def judged(rows: Sequence[Row]) -> Verdict:
        steps = max(r["steps"] for r in rows)
        if steps < ENOUGH:
            return not_run(f"{steps} steps are too few for this claim; run it at a larger scale")
        return judge(rows)

    return judged


def noted(losses: dict[str, dict[int, float]]) -> str:
    return ", ".join(f"{act} {'/'.join(f'{v:.3f}' for v in of.values())}" for act, of in losses.items())


def growth(rows: Sequence[Row]) -> Verdict:
    layers = some(rows, quantity="layer", act="relu")
    start, end = (some(layers, step=s) for s in (min(r["step"] for r in layers), max(r["step"] for r in layers)))
    after = [r["hard"] for r in end]
    return decide(
        mean(end, "hard") > mean(start, "hard") + 0.05 and mean(end, "preact_drift") < 0,
        mean(end, "hard"),
        note=f"hard sparsity of ReLU layers after {end[0]['step']} steps, from "
        f"{mean(start, 'hard'):.2f}; by layer {min(after):.2f}–{max(after):.2f}, inputs at "
        f"{mean(end, 'preact_drift'):+.2f} σ. 90 % is the figure of a long run of a large model",
    )


def growth_plot(rows: Sequence[Row]) -> Plot:
    series = []
    for act in dict.fromkeys(r["act"] for r in rows):
        mine = some(rows, quantity="layer", act=act)
        steps = sorted({r["step"] for r in mine})
        series.append(Series(act, steps, [mean(some(mine, step=s), "neg_preact") for s in steps], line=True))
    return Plot("training step", "share of negative inputs", series)


def controllable(rows: Sequence[Row]) -> Verdict:
    levels = {
        r["level"]: mean([q for q in rows if q["level"] == r["level"]], "sparsity")
        for r in some(rows, mechanism="quantile norm", architecture="mlp")
    }
    ordered = [levels[q] for q in sorted(levels)]
    gap = max(abs(s - q) for q, s in levels.items())
    return decide(
        ordered == sorted(ordered) and gap < 0.1,
        gap,
        note="largest |measured − q| of quantile norms "
        "directly before ReLU: " + ", ".join(f"{q:g} → {s:.2f}" for q, s in sorted(levels.items())),
    )


def cliff_verdict(rows: Sequence[Row]) -> Verdict:
    """The breakpoint over all architectures and the two estimators; by mechanism in the note."""
    found = cliff(rows, REFERENCE)
    if found.fit is None or found.onset is None:
        return not_run(f"{len(found.points)} configurations are too few for a fit; run it at a larger scale")
    classes = cliff([r for r in rows if r["architecture"] in CLASSIFIERS], REFERENCE)
    chosen = classes.fit or found.fit
    onset = classes.onset or found.onset
    steep = chosen.right < min(chosen.left, 0) and chosen.rss < chosen.rss_line
    quantile, topk = (
        ([p for p in found.points if p.mechanism == m and p.sparsity > NEAR[0]]) for m in ("quantile norm", "top-k")
    )
    sparse = "; ".join(
        f"{name} beyond {NEAR[0]:.0%}: "
        + ", ".join(f"{p.architecture} {p.relative:.3f} at {p.sparsity:.2f}" for p in points)
        for name, points in (("quantile norm", quantile), ("top-k", topk))
        if points
    )
    lost = "never" if onset.sparsity is None else f"{onset.sparsity:.2f} [{onset.low:.2f}, {onset.high:.2f}]"
    return decide(
        steep and NEAR[0] <= chosen.breakpoint <= NEAR[1],
        chosen.breakpoint,
        note=f"accuracy of classifiers against measured sparsity, two segments [{chosen.low:.2f}, "
        f"{chosen.high:.2f}], slope {chosen.left:+.3f} before and {chosen.right:+.2f} after; 1 % lost at "
        f"{lost}; all architectures with losses {found.fit.breakpoint:.2f} [{found.fit.low:.2f}, "
        f"{found.fit.high:.2f}]; {len(found.points)} configurations, {len(found.excluded)} runs excluded. " + sparse,
    )


def cliff_plot(rows: Sequence[Row]) -> Plot:
    return picture(cliff(rows, REFERENCE))


def relufication(rows: Sequence[Row]) -> Verdict:
    facts, worst, sparse = [], 0.0, 1.0
    for act in dict.fromkeys(r["act"] for r in rows):
        mine = some(rows, act=act)
        stages = {
            s: (mean(some(mine, stage=s), "accuracy"), mean(some(mine, stage=s), "hard"))
            for s in dict.fromkeys(r["stage"] for r in mine)
        }
        first = stages["trained"][0] - stages["relu from the start"][0]
        worst, sparse = max(worst, first), min(sparse, stages["relu from the start"][1])
        facts.append(f"{act}: " + ", ".join(f"{s} {a:.3f} at {h:.2f} zeros" for s, (a, h) in stages.items()))
    return decide(
        worst <= COST and sparse > GAIN,
        worst,
        note="accuracy lost by training with ReLU instead; " + "; ".join(facts),
        seeds=len({r["seed"] for r in rows}),
    )


def relufied_gpt(rows: Sequence[Row]) -> Verdict:
    stages = {r["stage"]: (r["val_loss"], r["hard"]) for r in some(rows, quantity="relufied")}
    relu, gelu = (float(np.mean(list(ended_losses(rows)[a].values()))) for a in ("relu", "gelu"))
    cost = stages["tuned"][0] / stages["trained"][0] - 1
    return decide(
        cost < 0.02 and stages["tuned"][1] > GAIN,
        cost,
        note="relative loss added by ReLU after fine-tuning "
        "for 5 % of the steps: "
        + ", ".join(f"{s} {v:.3f} at {h:.2f} zeros" for s, (v, h) in stages.items())
        + f"; trained with ReLU from the start {relu:.3f} against {gelu:.3f}",
    )


def squared_ratio(rows: Sequence[Row]) -> Verdict:
    losses = ended_losses(rows)
    plain, squared = (float(np.mean(list(losses[a].values()))) for a in ("relu", "relu2"))
    sparse = {a: mean(some(rows, quantity="final", act=a), "hard") for a in ("relu", "relu2")}
    better = squared <= 1.01 * plain and sparse["relu2"] >= sparse["relu"]
    return decide(
        better,
        squared - plain,
        note=f"loss of ReLU² minus ReLU ({noted({a: losses[a] for a in sparse})}); "
        f"zeros {sparse['relu2']:.2f} against {sparse['relu']:.2f}. At micro scale; the paper's model is "
        "a hundred times larger",
    )


def profiles(rows: Sequence[Row], act: str, key: str) -> dict[int, list[float]]:
    mine = sorted(some(rows, quantity="final", act=act), key=lambda r: r["layer"])
    return {seed: [r[key] for r in mine if r["seed"] == seed] for seed in dict.fromkeys(r["seed"] for r in mine)}


def spikes(rows: Sequence[Row]) -> Verdict:
    plain, squared = (profiles(rows, a, "max_abs") for a in ("relu", "relu2"))
    ratios = [amplification(squared[s], plain[s]) for s in squared if s in plain]
    relative = profiles(rows, "relu2", "max_over_mean")
    raw_inside, relative_inside = ([intermediate_peak(p) for p in of.values()] for of in (squared, relative))
    value = float(np.mean(ratios))
    spread = float(np.std(ratios, ddof=1) / len(ratios) ** 0.5) if len(ratios) > 1 else None
    return decide(
        value > 10,
        value,
        spread,
        note="mean layer maximum of ReLU² over that of ReLU, by seed "
        + ", ".join(f"{r:.0f}" for r in ratios)
        + f"; the peak is in an intermediate layer for the raw "
        f"maximum in {sum(raw_inside)} of {len(raw_inside)} runs and for max/mean in {sum(relative_inside)}; "
        "raw " + "/".join(f"{v:.0f}" for v in next(iter(squared.values()))),
        seeds=len(ratios),
    )


def spike_plot(rows: Sequence[Row]) -> Plot:
    acts = dict.fromkeys(r["act"] for r in some(rows, quantity="final"))
    first = {act: next(iter(profiles(rows, act, "max_abs").values())) for act in acts}
    return Plot(
        "layer",
        "largest activation",
        [Series(act, list(range(1, len(p) + 1)), p, line=True) for act, p in first.items()],
        log_y=True,
    )


def clipping(rows: Sequence[Row]) -> Verdict:
    losses = ended_losses(rows)
    free, clipped = losses["relu2"], losses["relu2:15"]
    gains = [free[s] - clipped[s] for s in clipped if s in free]
    height = max(v for p in profiles(rows, "relu2:15", "max_abs").values() for v in p)
    share = mean(some(rows, quantity="final", act="relu2:15"), "clipped")
    others = {a: v for a, v in losses.items() if a.startswith("gelu2")}
    return decide(
        min(gains) > 0 and height <= 15,
        float(np.mean(gains)),
        note="loss saved by the clip, by seed "
        + ", ".join(f"{g:+.3f}" for g in gains)
        + f"; largest activation {height:.3g}, {share:.2%} of the "
        f"entries at the clip; {noted(others)}",
        seeds=len(gains),
    )


def lowest(rows: Sequence[Row]) -> Verdict:
    losses = ended_losses(rows)
    means = {a: float(np.mean(list(v.values()))) for a, v in losses.items()}
    best = min(means, key=lambda a: means[a])
    verdict = holds if best == "gelu2" else fails
    return verdict(means["gelu2"] - means[best], note=f"loss of GELU² above the best, {best}: {noted(losses)}")


def dial_verdict(rows: Sequence[Row]) -> Verdict:
    dial = [r for r in rows if r["scale"] is not None]
    scales = sorted(dict.fromkeys(r["scale"] for r in dial))
    points = [
        (
            mean(some(dial, scale=a), "push"),
            mean(some(dial, scale=a), "sparsity"),
            mean(some(dial, scale=a), "drift_z"),
            mean(some(dial, scale=a), "accuracy"),
        )
        for a in scales
    ]
    text = predicted_sparsity(rows)
    worst = max((abs(s - m) for _, s, m in text), default=float("nan"))
    order = stats.spearman([p for p, *_ in points], [s for _, s, *_ in points]).value
    return decide(
        order > 0.9 and worst < 0.05,
        worst,
        note="largest gap between predicted and measured sparsity; push "
        "→ sparsity (drift_z, accuracy): "
        + ", ".join(f"{p:.2g} → {s:.2f} ({z:+.3f}, {a:.3f})" for p, s, z, a in points)
        + "; predicted/measured "
        + ", ".join(f"{s:.2f}/{m:.2f} at {t:g}" for t, s, m in text),
    )


def dial_plot(rows: Sequence[Row]) -> Plot:
    dial = [r for r in rows if r["scale"] is not None]
    aimed = [r for r in rows if r["target"] is not None]
    return Plot(
        "⟨o, ∇ℓ⟩ at the start",
        "hard sparsity of layers 2–4 after training",
        [
            Series("readout scaled", [r["push"] for r in dial], [r["sparsity"] for r in dial]),
            Series("push set by the dial", [r["push"] for r in aimed], [r["sparsity"] for r in aimed]),
        ],
    )


def suppression(rows: Sequence[Row]) -> Verdict:
    drift, facts = {}, []
    for tool in TOOLS:
        mine = some(rows, tool=tool)
        drift[tool] = mean(some(mine, data="fresh", optimizer="sgd"), "drift_z")
        zeros, score = (mean(some(mine, data="digits"), k) for k in ("sparsity", "accuracy"))
        facts.append(
            f"{tool}: drift_z {drift[tool]:+.4f} (SGD), "
            f"{mean(some(mine, data='fresh', optimizer='adam'), 'drift_z'):+.4f} (Adam), negative inputs "
            f"{mean(some(mine, data='fresh', optimizer='sgd'), 'neg_preact'):.2f}; digits {score:.3f} at "
            f"{zeros:.2f} zeros"
        )
    left = max(abs(drift[t] / drift["none"]) for t in TOOLS[1:])
    return decide(
        left < 0.25, left, note="largest share of the drift that is left, random data, SGD. " + "; ".join(facts)
    )
