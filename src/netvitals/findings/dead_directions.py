"""Dead directions: do blocks keep the stream, did the task grow, which phase, which order, how far along the gauges?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from netvitals.findings.rules import Context, Hit, called, hit, rule, together
from netvitals.runs import Finding

# dead-directions Cor. 58: with identity skips σ_r(X_l)/σ_r(X_0) stays of order one. How small is small is our choice.
LOST = 0.01
# dead-directions Alg. 1 leaves the multiple open; in the reference runs κ(G) of the head rose 7 to 40 times.
JUMP = 5.0
# In our own runs (5 to 10 classes, 8 seeds) κ(G) was no witness once the head had learned; λ_max rose 2.6 to 14 times.
RISE = 2.5
# X27: 2,000 steps of Adam moved the mean logit bias by 0.37 while SGD moved it by 1e-7.
ORBIT = 0.1


@rule(
    "stream floor",
    "Does every active direction reach the end of the residual stream?",
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
            f"The residual stream loses its weakest active direction at {where}: "
            f"{worst.evidence[0].value:.1e} of it is left after {called(worst.site)}."
        ),
        why="A skip connection carries every direction through unless a block's output cancels it; then later blocks "
        "cannot get it back.",
        advice="Look at the first block in the list: a smaller initialisation of its last layer, or a smaller learning "
        "rate for it, keeps the identity. If the stream is normalised at its end (post-norm), one lost "
        "direction is the norm's own and harmless.",
    )


@rule(
    "task expansion",
    "Did the gradients of a layer jump?",
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
            f"The gradients of {where} jumped {worst.size:.0f}-fold at step "
            f"{worst.evidence[0].step} (largest eigenvalue or condition of G); it began in the "
            f"layer nearest the output, {called(hits[-1].site)}."
        ),
        why="Gradients of some outputs have become much larger than those of others: new classes, a new head, or data "
        "the model has not seen. Below the head the jump is only passed on.",
        advice="If the task grew, warm the new outputs up with the rest frozen. If it did not, look at that step's "
        "data.",
    )


@rule(
    "phase",
    "Is the network accumulating or compressing?",
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
    words = {
        "accumulation": (
            "accumulate: their weakest direction gains gradient",
            "There is no rate to read yet: a dead direction shows only while the network compresses.",
        ),
        "compression": (
            "compress: their weakest direction loses gradient",
            "Rates can be read now: netvitals.singular.readout on a checkpoint says of which order.",
        ),
    }
    for name, hits in named.items():
        yield from together(
            hits,
            what=lambda where, worst, name=name: f"The gradients of {where} {words[name][0]}.",  # type: ignore[misc]
            why="λ_min(G) rises while a network memorises and falls while it compresses.",
            advice=words[name][1],
        )


@rule(
    "order change",
    "Did the order of the nearest singular direction change?",
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
                f"The order of the nearest singular direction changed at step {last.step}: "
                f"from {last.before} to {last.after}.",
                why="A direction has begun or ceased to be degenerate: a unit has died or come to life.",
                advice="Compare the two checkpoints with netvitals.singular.readout; it names the unit.",
                evidence=(ground,),
            )


@rule(
    "gauge drift",
    "Does the optimiser drift along directions that change nothing?",
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
            f"The optimiser drifts along gauge directions at {where}: by {worst.size:.2g} since the start."
        ),
        why="These directions do not change the loss, so no gradient points along them; Adam's normalisation moves the "
        "weights there all the same.",
        advice="It costs nothing by itself, but logits can leave the range of low precision and rescaled layers get "
        "unequal learning rates. netvitals.optim.BalancedAdam does not drift; a z-loss pins the logits.",
    )


RULES = (stream_floor, task_expansion, compression, order_change, gauge_drift)
