"""Does every layer get a gradient of a useful size, and are the steps of a useful length?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from netvitals.findings.rules import Context, Hit, called, crossed, hit, in_worst, names, rule, short, together
from netvitals.findings.series import Measurements, Series
from netvitals.findings.updates import set_rate
from netvitals.runs import Finding, Remedy

# Choices of this project; the five papers give no thresholds for these. The range of the update ratio brackets the
# common rule of thumb of 1e-3 by two orders of magnitude on each side.
VANISHED = 1e-5  # gradient of a weight against the largest of the model, both per root-element; healthy runs have 1e-4
EXPLODED = 100.0  # growth of the model's gradient norm over the run
BURST = 30.0  # one step's gradient norm against the median of the measurements around it
BURST_OVER_START = 3.0  # … and against the norm at the start of the run
NEIGHBOURS = 5  # measurements on each side
EARLY = 5  # measurements at the start
AIM = 1e-2  # update length that a lower rate is to give
RATIO = (1e-5, 1e-1)  # update length against weight length


@rule(
    "vanishing gradients",
    "Do gradients reach every layer?",
    "gradients",
    ("gradients", "grad_norm"),
    null="the gradient entries of every layer are above 1e-4 of those of the largest layer (root mean square)",
    threshold=f"below {VANISHED:g} of the largest on the first or last {EARLY} measurements, or exactly zero",
    refuted_by="the network reaches a low loss nevertheless",
)
def vanishing(context: Context) -> Iterator[Finding]:
    """Weights without any gradient, and weights whose gradient is tiny beside the largest."""
    table = context.table
    weights = _weights(table, "grad_norm")
    # an expert without tokens has no gradient on that step: rules of experts speak of it
    silent = [
        hit(s, "critical", 1.0, change=False, beyond=1e-300, above=False)
        for s in weights
        if s.end == 0 and not (s.finite[-3:] > 0).any()
    ]
    yield from together(
        silent,
        what=lambda where, worst: f"No gradient reaches {where}: the gradient norm is exactly zero.",
        why="Weights without a gradient do not learn.",
        advice="After these layers, look for detach(), torch.no_grad() and dead units. "
        "Also check that forward() uses the output of these layers.",
        remedy=Remedy("revive_units"),
    )
    rms = [s for s in _weights(table, "grad_rms") if len(s.finite)] or [s for s in weights if len(s.finite)]
    faint: list[Hit] = []
    for window, name in ((slice(None, EARLY), "start"), (slice(-EARLY, None), "end")):
        levels = {s.site: float(np.median(s.finite[window])) for s in rms}
        largest = max(levels.values(), default=0.0)
        for s in rms:
            level = levels[s.site]
            if 0 < level < VANISHED * largest and s.site not in {h.site for h in faint}:
                ground = s.evidence(value=level, step=int(s.steps[0] if name == "start" else s.steps[-1]))
                found = Hit(s.site, "warning", (ground,), largest / level)
                faint.append(crossed(found, s, VANISHED * largest, above=False))
    normalised, optimizer = table.adaptive, names(list(table.optimizers)) if table.optimizers else ""
    yield from together(
        faint,
        what=lambda where, worst: (
            f"Gradients vanish in {where}: gradient entries{in_worst(where, worst)} are {_times(worst.size)} times "
            "smaller than the largest in the model (healthy: at most 10,000 times)."
        ),
        why="The gradient shrinks on its way back through the network. "
        + (
            f"With {optimizer} the updates keep their full size, but they come from gradients that are mostly noise."
            if normalised
            else "Layers with such small gradients hardly change while others train."
        ),
        advice="Fix dead units and constant activation inputs first, if there are any. Otherwise add norm layers or "
        "residual connections, or initialise with nn.init.kaiming_normal_(weight).",
        remedy=Remedy("reinitialise", 1.0, tuple(h.site for h in faint)),
    )


@rule(
    "exploding gradients",
    "Does the gradient norm stay about constant?",
    "gradients",
    ("gradients", "grad_norm"),
    least=3,
    null="the gradient norm stays within a factor of ten of its first value",
    threshold=f"{EXPLODED:g} times its first value; or one measurement {BURST:g} times those around it; or NaN or "
    "infinity",
    refuted_by="the loss falls without disturbance",
)
def exploding(context: Context) -> Iterator[Finding]:
    """A gradient norm that is not finite, that grew over the run, or that burst once."""
    whole = context.table.get("gradients", "model", "grad_norm")
    if whole is None or len(whole.values) < 3:
        return
    if len(whole.finite) < len(whole.values):
        first = int(whole.steps[~np.isfinite(whole.values)][0])
        loss = context.table.loss
        if loss is not None and not np.isfinite(loss.values[loss.steps <= first]).all():
            return  # the loss broke no later, and its own rule says where
        yield Finding(
            "critical",
            "",
            f"The gradient norm is infinite or NaN at step {first}.",
            why="One step with an infinite gradient makes the weights NaN.",
            advice=f"{set_rate(context.table, 0.1)} and restart from an earlier checkpoint. "
            "In mixed precision use torch.amp.GradScaler, which skips such steps.",
            evidence=(whole.evidence(value=float("inf"), step=first),),
            since=first,
            until=int(whole.steps[-1]),
            remedy=Remedy("restart_rate", 0.1),
        )
        return
    # a layer that begins at zero has at first no gradient behind it
    begin = whole.start if whole.values[0] > 0 else float(whole.values[whole.values > 0][:1].sum())
    if begin and whole.end > EXPLODED * begin:
        worst = max(_weights(context.table, "grad_norm"), key=lambda s: s.end, default=whole)
        yield Finding(
            "warning",
            worst.site,
            f"Gradients explode: the gradient norm grew from {begin:.2g} to {whole.end:.2g}. "
            f"The gradient of {called(worst.site)} is the largest.",
            why="Large gradients make updates that overshoot until the loss diverges.",
            advice="Clip the gradient before optimizer.step(): "
            f"torch.nn.utils.clip_grad_norm_(model.parameters(), {short(3 * begin)}).",
            evidence=(whole.evidence(change=True), worst.evidence(change=True)),
            since=int(whole.steps[np.argmax(whole.values > 10 * begin)]),
            until=int(whole.steps[-1]),
            remedy=Remedy("clip", 3 * begin),
        )
        return
    usual = _surroundings(whole.values)
    peak = int(np.argmax(whole.values / usual))
    # near the end of training single batches stand out without harm: a burst also tops the first gradients
    if whole.values[peak] > max(BURST * usual[peak], BURST_OVER_START * whole.start):
        step = int(whole.steps[peak])
        at_peak = [
            (float(s.values[hit][0]), s) for s in _weights(context.table, "grad_norm") if (hit := s.steps == step).any()
        ]
        size, worst = max(at_peak, key=lambda pair: pair[0], default=(0.0, whole))
        yield Finding(
            "note",
            worst.site,
            f"The gradient norm at step {step} was {whole.values[peak] / usual[peak]:.0f} times that of the steps "
            f"around it, mostly because of {called(worst.site)}.",
            why="One step with a very large gradient can undo many others. A common cause is an unusual batch.",
            advice="Clip the gradient before optimizer.step(): "
            f"torch.nn.utils.clip_grad_norm_(model.parameters(), {short(3 * usual[peak])}).",
            evidence=(
                whole.evidence(value=float(whole.values[peak]), step=step),
                worst.evidence(value=size, step=step),
            ),
            since=step,
            until=step,
            remedy=Remedy("clip", float(3 * usual[peak])),
        )


@rule(
    "update ratio",
    "Do updates have a suitable size for each weight?",
    "gradients",
    ("gradients", "update_ratio"),
    null="the update/weight ratio is about 1e-3",
    threshold=f"an update/weight ratio above {RATIO[1]:g} or below {RATIO[0]:g} on the last measurements",
    source="rule of thumb of 1e-3, two orders of magnitude on each side",
    refuted_by="these weights should change at this rate",
)
def update_ratio(context: Context) -> Iterator[Finding]:
    """Steps that are too long or too short for the weights they move."""
    table = context.table
    weights = _weights(table, "update_ratio")
    long = [hit(s, "warning", s.end, beyond=RATIO[1]) for s in weights if s.end > RATIO[1] and len(s.finite) > 1]
    yield from together(
        long,
        what=lambda where, worst: (
            f"Updates are too large in {where}: the update/weight ratio{in_worst(where, worst)} is {worst.size:.2g} "
            "(healthy: about 0.001)."
        ),
        why="Updates this large overwrite what these layers have learned.",
        advice=f"{set_rate(table, AIM / max((h.size for h in long), default=1.0))} for these layers: put them in a "
        "parameter group of their own. A longer warm-up also helps.",
        remedy=Remedy("rate", AIM / max((h.size for h in long), default=1.0)),
    )
    short = [hit(s, "note", 1 / s.end, beyond=RATIO[0], above=False) for s in weights if 0 < s.end < RATIO[0]]
    # a schedule that ends at zero makes short steps on purpose, and so does a fine-tune: then all tensors have them
    ended = bool(short) and all(s.start > 10 * s.end for s in weights if s.site in {h.site for h in short})
    if not ended and len(short) < 0.5 * len(weights):
        yield from together(
            short,
            what=lambda where, worst: (
                f"Updates are very small in {where}: the update/weight ratio{in_worst(where, worst)} is "
                f"{worst.evidence[0].value:.1e} (healthy: about 0.001)."
            ),
            why="With a ratio below 1e-5 a weight needs 100,000 steps or more to change by its own size.",
            advice="Find out why these layers get such small gradients. If these layers should stay nearly fixed, "
            "change nothing.",
        )


def _times(factor: float) -> str:
    """
    >>> _times(138526.4), _times(8.7e20)
    ('138,526', '8.7e+20')
    """
    return f"{factor:,.0f}" if factor < 1e9 else f"{factor:.2g}"


def _surroundings(values: np.ndarray) -> np.ndarray:
    """Median of the neighbours of each value, itself left out."""
    out = np.empty_like(values)
    for i in range(len(values)):
        near = np.concatenate([values[max(0, i - NEIGHBOURS) : i], values[i + 1 : i + 1 + NEIGHBOURS]])
        out[i] = max(float(np.median(near)), 1e-300)
    return out


def _weights(table: Measurements, metric: str) -> list[Series]:
    """Tensors with two or more dimensions, whatever their names; all, where there are none."""
    found = [s for s in table.at("gradients", metric) if "expert" not in s.site and not s.site.endswith("]")]
    return [s for s in found if table.is_matrix(s.site)] or found


RULES = (vanishing, exploding, update_ratio)
