"""Dead directions: do blocks keep the stream, did the task grow, which phase, which order, how far along the gauges?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from netvitals.findings.rules import Context, Hit, called, hit, in_worst, rule, together
from netvitals.runs import Finding

# dead-directions Cor. 58: with identity skips σ_r(X_l)/σ_r(X_0) stays of order one. How small is small is our choice.
LOST = 0.01
# dead-directions Alg. 1 leaves the multiple open; in the reference runs κ(G) of the head rose 7 to 40 times.
JUMP = 5.0
# In our own runs (5 to 10 classes, 8 seeds) κ(G) was no witness once the head had learned; λ_max rose 2.6 to 14 times.
RISE = 2.5
# X27: 2,000 steps of Adam moved the mean logit bias by 0.37 while SGD moved it by 1e-7.
ORBIT = 0.1
SPECTRUM = (
    "The smallest eigenvalue of the gradient covariance rises while a network memorises and falls while it compresses."
)


@rule(
    "stream floor",
    "Does the residual stream keep its full rank?",
    "stream_floor",
    ("stream_floor", "ratio"),
    optional=True,
)
def stream_floor(context: Context) -> Iterator[Finding]:
    """Blocks after which the weakest active direction of the residual stream is all but gone."""
    hits = [hit(s, "warning", 1 / max(s.end, 1e-12)) for s in context.table.at("stream_floor", "ratio") if s.end < LOST]
    yield from together(
        hits,
        what=lambda where, worst: (
            f"The residual stream loses its weakest direction in {where}: the stream along this direction "
            f"shrinks to {worst.evidence[0].value:.1e} of its initial size{in_worst(where, worst)}."
        ),
        why="A block whose output cancels a direction of the stream removes it for all later blocks.",
        advice="Initialise the last layer of the first block listed in this finding with smaller weights, or lower its "
        "learning rate. "
        "In a post-norm model one lost direction is harmless.",
    )


@rule(
    "task expansion",
    "Are the gradients of each layer free of sudden jumps?",
    "kfac_floor",
    ("kfac_floor", "condition"),
    least=4,
    optional=True,
)
def task_expansion(context: Context) -> Iterator[Finding]:
    """Layers whose gradient spectrum jumped, as it does when the task grows."""
    from netvitals.singular import condition_jumps

    hits = []
    for s in context.table.at("kfac_floor", "condition"):
        top = context.table.get("kfac_floor", s.site, "lambda_max")
        same = top is not None and len(top.values) == len(s.values)
        jumps = condition_jumps(
            s.steps.tolist(), s.values, top.values if top is not None and same else None, factor=JUMP, rise=RISE
        )
        for jump in jumps[-1:]:
            ground = [
                x.evidence(value=float(x.values[x.steps.tolist().index(jump.step)]), step=jump.step, change=True)
                for x in (s, top)
                if x is not None
            ]
            hits.append(Hit(s.site, "note", tuple(ground), max(jump.condition, jump.largest)))
    yield from together(
        hits,
        what=lambda where, worst: (
            f"The gradient covariance of {where} grew {worst.size:.0f}-fold at step {worst.evidence[0].step}, starting "
            f"in {called(hits[-1].site)}."
        ),
        why="The gradients of some outputs became much larger than those of others. Typical causes are new classes, a "
        "new head, and unfamiliar data.",
        advice="If the task grew, first train the new outputs with all other layers frozen. Otherwise look at the "
        "data of the step with the jump.",
    )


@rule(
    "phase",
    "Does the smallest eigenvalue of the gradient covariance grow (memorising) or shrink (compressing)?",
    "kfac_floor",
    ("kfac_floor", "lambda_min"),
    least=6,
    optional=True,
)
def compression(context: Context) -> Iterator[Finding]:
    """Layers whose weakest gradient direction rises (accumulation) or falls (compression)."""
    from netvitals.singular import phase

    named: dict[str, list[Hit]] = {"accumulation": [], "compression": []}
    for s in context.table.at("kfac_floor", "lambda_min"):
        if (s.finite > 0).sum() >= 6:
            found = phase(s.steps.tolist(), s.values.tolist())
            if found.name in named:
                named[found.name].append(hit(s, "info", abs(found.trend), change=True))
    yield from together(
        named["accumulation"],
        what=lambda where, worst: (
            f"The smallest eigenvalue of the gradient covariance grows in {where}: the network memorises."
        ),
        why=SPECTRUM,
        advice="No change is needed. Directions of weight space that do not affect the loss can be measured "
        "later, when the network compresses.",
    )
    yield from together(
        named["compression"],
        what=lambda where, worst: (
            f"The smallest eigenvalue of the gradient covariance shrinks in {where}: the network compresses."
        ),
        why=SPECTRUM,
        advice="No change is needed. netvitals.singular.readout can now measure which directions of weight space "
        "hardly affect the loss.",
    )


@rule(
    "order change",
    "Does the KL order of the parameters stay constant (1: regular, 2 or more: degenerate)?",
    "orders",
    ("orders", "order"),
    least=3,
    optional=True,
)
def order_change(context: Context) -> Iterator[Finding]:
    """The last change of the order of the nearest singular direction."""
    from netvitals.singular import change_points

    for s in context.table.at("orders", "order", pooled=True):
        points = change_points(s.steps.tolist(), s.values.tolist())
        if points:
            last = points[-1]
            ground = replace(s.evidence(step=last.step, value=last.after), before=last.before)
            yield Finding(
                "note",
                s.site,
                f"The KL order of the parameters changed from {last.before} to {last.after} at step {last.step} "
                "(order 1 is regular, a higher order is degenerate).",
                why="A change of this order means that a unit has died or has become active.",
                advice="Compare checkpoints before and after with netvitals.singular.readout, which names the unit.",
                evidence=(ground,),
            )


@rule(
    "gauge drift",
    "Does the optimizer avoid moving along directions that do not change the loss?",
    "gauge_charges",
    ("gauge_charges", "orbit_moved"),
    least=2,
    optional=True,
)
def gauge_drift(context: Context) -> Iterator[Finding]:
    """Movement along directions that leave the loss as it is."""
    hits = [
        hit(s, "info", s.end, change=True) for s in context.table.at("gauge_charges", "orbit_moved") if s.end > ORBIT
    ]
    yield from together(
        hits,
        what=lambda where, worst: (
            f"Since the start, the optimizer has moved the weights of {where} along directions that do not change the "
            f"loss. The shift is {worst.size:.2g} (log of a scale factor, or change of the mean logit)."
        ),
        why="The gradient is zero along such symmetry directions, but Adam's normalisation moves weights there anyway.",
        advice="No change is needed in float32. In low precision, netvitals.optim.BalancedAdam avoids this drift.",
    )


RULES = (stream_floor, task_expansion, compression, order_change, gauge_drift)
