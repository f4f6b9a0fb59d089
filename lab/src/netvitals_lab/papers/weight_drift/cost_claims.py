"""Claims 16–18 and the tools: where sparsity costs accuracy, the dial, and what suppresses drift."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netvitals_lab import Claims, Expected, Measured, Plot, Row, Series, Verdict, below, not_run, stats
from netvitals_lab.engine.claim import PAIRS
from netvitals_lab.engine.judges import compared, groups, means, paired, some
from netvitals_lab.engine.verdict import Fact, fails, holds, underspecified
from netvitals_lab.papers.weight_drift._cliff import Cliff, falls, picture
from netvitals_lab.papers.weight_drift._grid import REFERENCE
from netvitals_lab.papers.weight_drift.steering import TOOLS, predicted_sparsity

NEAR = (0.60, 0.85)  # a breakpoint in this range is "about 70 %"
SET = 0.1  # |measured − q| below which sparsity counts as set
GAIN = 0.1  # zeros that ReLUfication must bring to be worth its name
COST = 0.01  # accuracy that ReLUfication may cost


def _worded(found: Cliff) -> str:
    lost = f"sparsest lost {found.lost:.1%}"
    if found.fit is None or not found.falls:
        return f"no fall, {lost}"
    return f"break at {found.fit.breakpoint:.2f} [{found.fit.low:.2f}, {found.fit.high:.2f}], {lost}"


def cliff_plot(rows: Sequence[Row]) -> Plot:
    return picture(rows, REFERENCE)


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


CLIFF, STEERING = "weight-drift-cliff", "weight-drift-steering"


claim = Claims("weight-drift", study=STEERING, seeds=PAIRS)


@claim(
    "C16",
    Expected(0.0, tolerance=0.1),
    study=CLIFF,
    uses={"mechanism": "quantile norm"},
    effect="largest |measured − q| over architectures, data and budgets",
    choices=(
        "that a miss at some budgets is underspecified and not a failure was decided after the fact",
        "norms with a trained shift directly before every activation",
        "0.1 as tolerance; the paper has none",
    ),
    seeds=0,
)
def controllable(rows: Sequence[Row]) -> Verdict:
    """Sparsity can be set by the point a norm centres on

    Measured sparsity against q, by architecture, data and budget: the norm's own shift is trained and moves it.
    """
    facts: dict[str, Fact] = {}
    gaps, ordered = [], True
    for (a, d, budget), mine in groups(rows, "architecture", "data", "budget", mechanism="quantile norm").items():
        levels = dict(sorted(means([r for r in mine if r["sparsity"] is not None], "sparsity", "level").items()))
        gaps.append(max(abs(s - q) for q, s in levels.items()))
        ordered = ordered and list(levels.values()) == sorted(levels.values())
        asked = ", ".join(f"{q:g}" for q in levels)
        facts[f"{a}, {d}, budget ×{budget:g}: sparsity at q = {asked}"] = list(levels.values())
    note = "largest |measured − q| of quantile norms directly before ReLU, over architectures, data and budgets"
    if ordered and max(gaps) < SET:
        return holds(max(gaps), note=note, facts=facts)
    if ordered and min(gaps) < SET:
        return underspecified((min(gaps), max(gaps)), max(gaps), note=note, facts=facts)
    return fails(max(gaps), note=note, facts=facts)


@claim(
    "C17",
    f"breakpoint in {NEAR[0]:g}–{NEAR[1]:g}",
    study=CLIFF,
    plot=cliff_plot,
    effect="breakpoint of two segments through (sparsity, relative metric)",
    choices=(
        "an MLP and a plain convolutional network, digits and, where they are at hand, photographs",
        "quantile norms and top-k",
        "budgets of 1, 3 and 10 times a short run",
        "0.60 to 0.85 counts as about 70 %",
        "a group without a fall counts against it: in the judge from the start, in the text only afterwards",
        "top-k at 0.95 and longer runs of the convolutional network were left out midway, for lack of computing",
    ),
    question="How long was each configuration trained, and does the cliff stay when they train longer?",
)
def cliff(rows: Sequence[Row]) -> Verdict:
    """Accuracy is flat up to about 70 % sparsity and falls off a cliff beyond

    As preregistered in the study's docstring: by group, and pooled at the longest budget.
    """
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


@claim(
    "C18",
    f"at most {COST:g} of accuracy lost",
    uses={"check": "relufication"},
    effect="accuracy lost by training with ReLU instead",
    choices=("digits, an MLP", "0.01 as negligible; the paper has no number"),
)
def relufication(rows: Sequence[Row]) -> Verdict:
    """ReLUfication recovers sparsity at negligible cost (digits)

    Accuracy that ReLU from the start loses against the smooth activation, paired by seed: below ``COST`` with its whole
    interval, for the activation that loses most.
    """
    facts: dict[str, Fact] = {}
    lost: dict[str, list[float]] = {}
    sparse = 1.0
    for act in dict.fromkeys(r["act"] for r in rows):
        accuracy, zeros = (means(rows, column, "stage", act=act) for column in ("accuracy", "hard"))
        smooth, relu = (
            means(rows, "accuracy", "seed", act=act, stage=stage) for stage in ("trained", "relu from the start")
        )
        lost[act] = paired(smooth, relu)
        sparse = min(sparse, zeros["relu from the start"])
        facts |= {f"{act} {stage}: accuracy, zeros": [accuracy[stage], zeros[stage]] for stage in accuracy}
    worst = max(lost, key=lambda act: sum(lost[act]))
    note = f"accuracy lost by training with ReLU instead of {worst}"
    if sparse <= GAIN:
        return fails(sparse, note="zeros that ReLU brings", facts=facts, seeds=len(lost[worst]))
    return compared(lost[worst], -1, margin=COST, note=note, facts=facts)


@claim(
    "F23",
    Expected(0.0, tolerance=0.05),
    uses={"check": "dial"},
    plot=dial_plot,
    effect="largest gap between the sparsity that the curve of scales foretells and the measured one",
    choices=("digits, a bias-free MLP of four hidden layers, Adam at 0.001, 400 steps", "0.05 as tolerance"),
)
def dial(rows: Sequence[Row]) -> Measured:
    """The readout's scale sets ⟨o, ∇ℓ⟩ and with it the sparsity that follows"""
    dial = sorted((r for r in rows if r["scale"] is not None), key=lambda r: r["scale"])
    push, sparsity, drift, accuracy = (
        means(dial, column, "scale") for column in ("push", "sparsity", "drift_z", "accuracy")
    )
    forecast = predicted_sparsity(rows)
    worst = max((abs(s - m) for _, s, m in forecast), default=float("nan"))
    order = stats.spearman(list(push.values()), list(sparsity.values())).value
    return Measured(
        worst,
        "largest gap between predicted and measured sparsity",
        facts={
            **{
                f"sparsity, drift_z, accuracy at push {push[a]:.2g}": [sparsity[a], drift[a], accuracy[a]] for a in push
            },
            **{f"predicted, measured at {target:g}": [text, got] for target, text, got in forecast},
        },
        ok=order > 0.9 and worst < 0.05,
    )


@claim(
    "F24",
    below(0.25, "less than a quarter is left"),
    uses={"check": "suppression"},
    effect="largest share of the hidden drift that is left, random data, SGD",
    choices=("random data and digits, a bias-free MLP of four hidden layers, 300 steps", "a quarter as removed"),
)
def suppression(rows: Sequence[Row]) -> Measured:
    """Centred weights, projected gradients and centred activations each remove the drift of hidden weights"""
    fresh, digits = some(rows, data="fresh"), some(rows, data="digits")
    sgd, adam = (means(fresh, "drift_z", "tool", optimizer=o) for o in ("sgd", "adam"))
    negative = means(fresh, "neg_preact", "tool", optimizer="sgd")
    accuracy, zeros = (means(digits, column, "tool") for column in ("accuracy", "sparsity"))
    left = max(abs(sgd[t] / sgd["none"]) for t in TOOLS[1:])
    facts: dict[str, list[float]] = {}
    for tool in TOOLS:
        facts[f"{tool}: drift_z with SGD, Adam"] = [sgd[tool], adam[tool]]
        facts[f"{tool}: negative inputs; accuracy and zeros on digits"] = [negative[tool], accuracy[tool], zeros[tool]]
    return Measured(left, "largest share of the drift that is left, random data, SGD", facts=facts)
