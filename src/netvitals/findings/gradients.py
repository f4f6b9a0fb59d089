"""Does every layer get a gradient of a useful size, and are the steps of a useful length?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from netvitals.findings.rules import Context, Hit, called, crossed, hit, names, rule, together
from netvitals.findings.series import Measurements, Series
from netvitals.runs import Finding, Remedy

# Choices of this project; the five papers give no thresholds for these. The range of the update ratio brackets the
# common rule of thumb of 1e-3 by two orders of magnitude on each side.
VANISHED = 1e-5  # gradient of a weight against the largest of the model, both per root-element; healthy runs have 1e-4
EXPLODED = 100.0  # growth of the model's gradient norm over the run
BURST = 30.0  # one step's gradient norm against the median of the measurements around it
BURST_OVER_START = 3.0  # … and against the norm at the start of the run
NEIGHBOURS = 5  # measurements on each side
EARLY = 5  # measurements at the start
RATIO = (1e-5, 1e-1)  # update length against weight length


@rule(
    "vanishing gradients",
    "Does gradient reach every layer?",
    "gradients",
    ("gradients", "grad_norm"),
    null="the smallest gradient of a healthy network, per root-element, is above 1e-4 of its largest",
    threshold=f"below {VANISHED:g} of the largest on the first {EARLY} measurements or the last, or exactly zero",
    refuted_by="weights that reach a low loss all the same",
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
        what=lambda where, worst: f"No gradient reaches {where}: its norm is exactly zero.",
        why="A parameter without gradient does not learn: everything above it is dead, it is cut off from the loss, or "
        "it is not used.",
        advice="Check for a detach() or no_grad() on the way, for layers that are never called, and for dead units "
        "above.",
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
    normalised = table.adaptive
    yield from together(
        faint,
        what=lambda where, worst: (
            f"Gradients vanish in {where}: in {called(worst.site)} an entry is "
            f"{worst.evidence[0].value:.2g} on average, {_times(worst.size)} times below the model's "
            "largest."
        ),
        why="The signal is lost on the way back. "
        + (
            f"{names(list(table.optimizers))} makes steps of the same length of it all the same, but of a gradient "
            f"that is "
            "mostly noise."
            if normalised
            else "Such layers barely move while others train."
        ),
        advice="Where units are dead or inputs hardly vary, mend that first. Otherwise use a norm or residual "
        "connections, or an initialisation matched to the activation"
        + ("." if normalised else "; an optimizer that normalises updates per tensor (AdamW, Muon) hides it."),
        remedy=Remedy("reinitialise", 1.0, tuple(h.site for h in faint)),
    )


@rule(
    "exploding gradients",
    "Does the gradient norm stay in bounds?",
    "gradients",
    ("gradients", "grad_norm"),
    least=3,
    null="the gradient norm of a healthy run stays within a factor of ten of where it began",
    threshold=f"{EXPLODED:g} times its start, or one measurement {BURST:g} times those around it, or one that is not "
    f"finite",
    refuted_by="a loss that falls undisturbed",
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
            f"The gradient norm is not a finite number at step {first}.",
            why="One such step ruins every parameter it reaches.",
            advice="Skip steps with a gradient that is not finite, lower the learning rate, check "
            "mixed-precision scaling.",
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
            f"Gradients explode: the norm grew from {begin:.2g} to {whole.end:.2g}; "
            f"it is largest in {called(worst.site)}.",
            why="Growing gradients make steps that overshoot, until the loss diverges.",
            advice="Clip the gradient norm, lower the learning rate, or add a norm before that layer.",
            evidence=(whole.evidence(change=True), worst.evidence(change=True)),
            since=int(whole.steps[np.argmax(whole.values > 10 * begin)]),
            until=int(whole.steps[-1]),
            remedy=Remedy("clip", 1.0),
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
            f"The gradient burst once: at step {step} its norm was "
            f"{whole.values[peak] / usual[peak]:.0f} times that of the steps around it, "
            f"mostly in {called(worst.site)}.",
            why="A single burst can undo many steps; it often comes from one odd batch or from a spike.",
            advice="Clip the gradient norm at a few times its median.",
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
    "Are updates neither too long nor too short for the weights?",
    "gradients",
    ("gradients", "update_ratio"),
    null="updates of a tensor are about a thousandth of it, from 1e-5 to a tenth",
    threshold=f"above {RATIO[1]:g} or below {RATIO[0]:g} on the last measurements",
    source="rule of thumb of 1e-3, two orders of magnitude on each side",
    refuted_by="tensors that are meant to move so",
)
def update_ratio(context: Context) -> Iterator[Finding]:
    """Steps that are too long or too short for the weights they move."""
    table = context.table
    weights = _weights(table, "update_ratio")
    long = [hit(s, "warning", s.end, beyond=RATIO[1]) for s in weights if s.end > RATIO[1] and len(s.finite) > 1]
    yield from together(
        long,
        what=lambda where, worst: (
            f"Updates are too long in {where}: one step changes {called(worst.site)} by {worst.size:.0%} of its norm."
        ),
        why="Steps of that length throw away what was learned; healthy training moves weights by about a thousandth.",
        advice="Lower the learning rate of these tensors or lengthen the warm-up.",
        remedy=Remedy("rate", 0.1),
    )
    short = [hit(s, "note", 1 / s.end, beyond=RATIO[0], above=False) for s in weights if 0 < s.end < RATIO[0]]
    # a schedule that ends at zero makes short steps on purpose, and so does a fine-tune: then all tensors have them
    ended = bool(short) and all(s.start > 10 * s.end for s in weights if s.site in {h.site for h in short})
    if not ended and len(short) < 0.5 * len(weights):
        yield from together(
            short,
            what=lambda where, worst: (
                f"Updates are very short in {where}: {worst.evidence[0].value:.1e} of the "
                f"weights in {called(worst.site)}, while others move."
            ),
            why="At that pace a weight needs a hundred thousand steps to change by its own size.",
            advice="Look at why these tensors get so little gradient, unless they are meant to rest.",
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
