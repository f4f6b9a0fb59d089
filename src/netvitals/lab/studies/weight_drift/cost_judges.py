"""How rows decide the claims on sparsity, its cost, squares and their spikes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from netvitals import stats
from netvitals.drift import amplification, intermediate_peak
from netvitals.lab.engine.judges import means, some
from netvitals.lab.engine.verdict import Fact, fails, holds, underspecified
from netvitals.lab.studies import Plot, Row, Series, Verdict, decide, not_run
from netvitals.lab.studies.weight_drift._cliff import Cliff, falls, picture
from netvitals.lab.studies.weight_drift._grid import REFERENCE
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


def by_seed(losses: dict[str, dict[int, float]]) -> dict[str, list[float]]:
    """The losses as facts of a verdict."""
    return {f"loss of {act} by seed": list(of.values()) for act, of in losses.items()}


def growth(rows: Sequence[Row]) -> Verdict:
    layers = some(rows, quantity="layer", act="relu")
    start, end = (some(layers, step=s) for s in (min(r["step"] for r in layers), max(r["step"] for r in layers)))
    before, after, sunk = mean(start, "hard"), mean(end, "hard"), mean(end, "preact_drift")
    by_layer = [r["hard"] for r in end]
    return decide(
        after > before + 0.05 and sunk < 0,
        after,
        note="hard sparsity of ReLU layers at the end; 90 % is the figure of a long run of a large model",
        facts={
            "steps": end[0]["step"],
            "at the start": before,
            "least and most by layer": [min(by_layer), max(by_layer)],
            "mean input in σ": sunk,
        },
    )


def growth_plot(rows: Sequence[Row]) -> Plot:
    series = []
    for act in dict.fromkeys(r["act"] for r in rows):
        mine = some(rows, quantity="layer", act=act)
        steps = sorted({r["step"] for r in mine})
        series.append(Series(act, steps, [mean(some(mine, step=s), "neg_preact") for s in steps], line=True))
    return Plot("training step", "share of negative inputs", series)


def controllable(rows: Sequence[Row]) -> Verdict:
    levels = dict(sorted(means(rows, "sparsity", "level", mechanism="quantile norm", architecture="mlp").items()))
    measured = list(levels.values())
    gap = max(abs(s - q) for q, s in levels.items())
    return decide(
        measured == sorted(measured) and gap < 0.1,
        gap,
        note="largest |measured − q| of quantile norms directly before ReLU",
        facts={f"sparsity at q = {q:g}": s for q, s in levels.items()},
    )


def cliff_verdict(rows: Sequence[Row]) -> Verdict:
    """As preregistered in the study's docstring: by group, and pooled at the longest budget."""
    found = list(falls(rows, REFERENCE))
    longest = max(c.where.budget for c in found)
    groups = [c for c in found if c.where.architecture]
    pooled = next(c for c in found if not c.where.architecture and c.where.budget == longest)
    if not groups or pooled.fit is None:
        return not_run(f"{len(pooled.points)} runs are too few for a fit; run it at a larger scale")
    last = [c for c in groups if c.where.budget == longest]
    fallen = [c for c in last if c.falls and c.fit is not None]
    breaks = [c.fit.breakpoint for c in fallen if c.fit is not None]
    inside = [NEAR[0] <= b <= NEAR[1] for b in [*breaks, *([pooled.fit.breakpoint] if pooled.falls else [])]]
    facts: dict[str, Fact] = {str(c.where): _worded(c) for c in found}
    facts["runs at chance, kept as points"] = sum(
        not p.learned for c in found if not c.where.architecture for p in c.points
    )
    more: dict[str, Any] = {
        "note": f"breakpoint over all at budget ×{longest:g}; {len(fallen)} of {len(last)} groups fall there",
        "facts": facts,
        "seeds": len({r["seed"] for r in rows}),
    }
    if pooled.falls and all(inside) and len(fallen) == len(last):
        return holds(pooled.fit.breakpoint, interval=(pooled.fit.low, pooled.fit.high), **more)
    if not any(inside) and fallen:
        return fails(pooled.fit.breakpoint, interval=(pooled.fit.low, pooled.fit.high), **more)
    spread = [b for c in groups if c.falls and c.fit is not None for b in (c.fit.breakpoint,)] or [
        pooled.fit.breakpoint
    ]
    return underspecified(
        (min(spread), max(spread)), pooled.fit.breakpoint, interval=(pooled.fit.low, pooled.fit.high), **more
    )


def _worded(found: Cliff) -> str:
    lost = f"sparsest lost {found.lost:.1%}"
    if found.fit is None or not found.falls:
        return f"no fall, {lost}"
    return f"break at {found.fit.breakpoint:.2f} [{found.fit.low:.2f}, {found.fit.high:.2f}], {lost}"


def cliff_plot(rows: Sequence[Row]) -> Plot:
    return picture(rows, REFERENCE)


def relufication(rows: Sequence[Row]) -> Verdict:
    facts: dict[str, list[float]] = {}
    worst, sparse = 0.0, 1.0
    for act in dict.fromkeys(r["act"] for r in rows):
        accuracy, zeros = (means(rows, column, "stage", act=act) for column in ("accuracy", "hard"))
        worst = max(worst, accuracy["trained"] - accuracy["relu from the start"])
        sparse = min(sparse, zeros["relu from the start"])
        facts |= {f"{act} {stage}: accuracy, zeros": [accuracy[stage], zeros[stage]] for stage in accuracy}
    return decide(
        worst <= COST and sparse > GAIN,
        worst,
        note="accuracy lost by training with ReLU instead",
        facts=facts,
        seeds=len({r["seed"] for r in rows}),
    )


def relufied_gpt(rows: Sequence[Row]) -> Verdict:
    stages = {r["stage"]: [r["val_loss"], r["hard"]] for r in some(rows, quantity="relufied")}
    relu, gelu = (float(np.mean(list(ended_losses(rows)[a].values()))) for a in ("relu", "gelu"))
    cost = stages["tuned"][0] / stages["trained"][0] - 1
    return decide(
        cost < 0.02 and stages["tuned"][1] > GAIN,
        cost,
        note="relative loss added by ReLU after fine-tuning for 5 % of the steps",
        facts={
            **{f"{stage}: loss, zeros": both for stage, both in stages.items()},
            "trained from the start with ReLU, GELU": [relu, gelu],
        },
    )


def squared_ratio(rows: Sequence[Row]) -> Verdict:
    losses = {a: of for a, of in ended_losses(rows).items() if a in ("relu", "relu2")}
    plain, squared = (float(np.mean(list(losses[a].values()))) for a in ("relu", "relu2"))
    zeros = means(rows, "hard", "act", quantity="final", act=("relu", "relu2"))
    return decide(
        squared <= 1.01 * plain and zeros["relu2"] >= zeros["relu"],
        squared - plain,
        note="loss of ReLU² minus ReLU, at micro scale; the paper's model is a hundred times larger",
        facts={**by_seed(losses), "zeros of ReLU², ReLU": [zeros["relu2"], zeros["relu"]]},
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
        note="mean layer maximum of ReLU² over that of ReLU",
        facts={
            "by seed": ratios,
            "runs": len(raw_inside),
            "with the raw peak in an intermediate layer": sum(raw_inside),
            "with the peak of max/mean there": sum(relative_inside),
            "raw by layer": next(iter(squared.values())),
        },
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
        note="loss saved by the clip",
        facts={"by seed": gains, "largest activation": height, "share at the clip": share, **by_seed(others)},
        seeds=len(gains),
    )


def lowest(rows: Sequence[Row]) -> Verdict:
    losses = ended_losses(rows)
    mean_loss = {a: float(np.mean(list(v.values()))) for a, v in losses.items()}
    best = min(mean_loss, key=lambda a: mean_loss[a])
    above = mean_loss["gelu2"] - mean_loss[best]
    return decide(best == "gelu2", above, note=f"loss of GELU² above the best, {best}", facts=by_seed(losses))


def dial_verdict(rows: Sequence[Row]) -> Verdict:
    dial = sorted((r for r in rows if r["scale"] is not None), key=lambda r: r["scale"])
    push, sparsity, drift, accuracy = (
        means(dial, column, "scale") for column in ("push", "sparsity", "drift_z", "accuracy")
    )
    forecast = predicted_sparsity(rows)
    worst = max((abs(s - m) for _, s, m in forecast), default=float("nan"))
    order = stats.spearman(list(push.values()), list(sparsity.values())).value
    return decide(
        order > 0.9 and worst < 0.05,
        worst,
        note="largest gap between predicted and measured sparsity",
        facts={
            **{
                f"sparsity, drift_z, accuracy at push {push[a]:.2g}": [sparsity[a], drift[a], accuracy[a]] for a in push
            },
            **{f"predicted, measured at {target:g}": [text, got] for target, text, got in forecast},
        },
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
    fresh, digits = some(rows, data="fresh"), some(rows, data="digits")
    sgd, adam = (means(fresh, "drift_z", "tool", optimizer=o) for o in ("sgd", "adam"))
    negative = means(fresh, "neg_preact", "tool", optimizer="sgd")
    accuracy, zeros = (means(digits, column, "tool") for column in ("accuracy", "sparsity"))
    left = max(abs(sgd[t] / sgd["none"]) for t in TOOLS[1:])
    facts: dict[str, list[float]] = {}
    for tool in TOOLS:
        facts[f"{tool}: drift_z with SGD, Adam"] = [sgd[tool], adam[tool]]
        facts[f"{tool}: negative inputs; accuracy and zeros on digits"] = [negative[tool], accuracy[tool], zeros[tool]]
    return decide(left < 0.25, left, note="largest share of the drift that is left, random data, SGD", facts=facts)
