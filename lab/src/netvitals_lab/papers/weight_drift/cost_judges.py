"""How rows decide the claims on sparsity, where it costs accuracy, the dial and suppression."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netvitals_lab import Plot, Row, Series, Verdict, decide, not_run, stats
from netvitals_lab.engine.judges import compared, groups, means, paired, some
from netvitals_lab.engine.verdict import Fact, fails, holds, underspecified
from netvitals_lab.papers.weight_drift._cliff import Cliff, falls, picture
from netvitals_lab.papers.weight_drift._grid import REFERENCE
from netvitals_lab.papers.weight_drift.steering import TOOLS, predicted_sparsity

NEAR = (0.60, 0.85)  # a breakpoint in this range is "about 70 %"
SET = 0.1  # |measured − q| below which sparsity counts as set
GAIN = 0.1  # zeros that ReLUfication must bring to be worth its name
COST = 0.01  # accuracy that ReLUfication may cost


def controllable(rows: Sequence[Row]) -> Verdict:
    """Measured sparsity against q, by architecture, data and budget: the norm's own shift is trained and moves it."""
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
    """Accuracy that ReLU from the start loses against the smooth activation, paired by seed: below ``COST`` with its
    whole interval, for the activation that loses most."""
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
