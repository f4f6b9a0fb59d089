"""Are the steps of a useful length: not too long, not too short, not clipped away, not undone by decay?"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from netvitals.findings.progress import Progress, progress
from netvitals.findings.rules import Context, percent, rule, short
from netvitals.findings.series import Measurements, Series
from netvitals.findings.statistics import last_stretch, line, noise, smoothed
from netvitals.runs import Evidence, Finding, Remedy

EARLY = 6  # measurements at the start
HEALTHY = 0.15  # the longest early update of healthy networks
HEAVY = 0.95  # a momentum above this is what makes steps long; 0.9 is usual
FIRST = 0.2  # half of the matrices change by this share of themselves in one early step
LONG = 0.06  # … by this share, while the loss climbs
CLIMB = 1.3  # the loss, smoothed, above its start
ABOVE = 6.0  # … and that many times its noise above it
PATH = 0.2  # length of all steps so far over the weights: less cannot have learned much
UNLEARNED = 0.9  # of the cost of guessing
STILL = 1e-7  # an update this small is none
BORN = 1e-5  # a matrix that its first step makes up but for this began at zero
SAME = 1e-3  # relative spread of a gradient norm that is clipped on every step
READINGS = 8
RELAPSING = 0.03  # updates of a run that went back to where it began
LARGE_EPS = 1e-4  # of Adam; 1e-8 is usual
USUAL = 2e-3  # a rate that plain descent can learn with
HARDLY = 0.02  # length of all steps over the weights: so little is too little at any rate
CREEPING = 1e-4  # updates of a tenth of the usual thousandth


def typical_ratio(table: Measurements) -> Series | None:
    """Median over the matrices of a ``table`` of the update ratio, step by step.

    What began at zero (the second factor of an adapter, a branch that is to grow) has at first no size of its own that
    a step could be compared with, and counts from the measurements after the first ones.
    """
    found = [s for s in table.at("gradients", "update_ratio") if table.is_matrix(s.site) and "[" not in s.site]
    if not found:
        return None
    longest = max(found, key=lambda s: len(s.steps))
    same = [s for s in found if len(s.steps) == len(longest.steps)]
    table_of_values = np.array([s.values for s in same])
    born = np.abs(table_of_values[:, 0] - 1) < BORN
    if not born.all():
        table_of_values[born, :EARLY] = np.nan
    known = np.isfinite(table_of_values).any(0)
    values = np.full(table_of_values.shape[1], np.nan)
    values[known] = np.nanmedian(table_of_values[:, known], axis=0)
    return Series("gradients", "model", "update_ratio, median of the matrices", longest.steps, values)


def cost_of_guessing(table: Measurements) -> float | None:
    """What guessing costs, from the labels seen in a ``table``, where the loss is a cross-entropy."""
    chance = next(iter(table.at("outputs", "chance")), None)
    if chance is None:
        return None
    misfit = table.get("outputs", chance.site, "misfit")
    if misfit is None or not (misfit.finite[:3] < 0.05).any():
        return None
    if not len(chance.finite):
        return None
    rows, classes = (table.get("outputs", chance.site, m) for m in ("rows", "classes"))
    if (
        rows is None or classes is None or min(rows.end, 512) < 4 * classes.end
    ):  # too few labels to know how common each is
        return None if classes is None else float(np.log(classes.end))
    return float(np.median(chance.finite))


def rate(table: Measurements) -> float:
    """The learning rate that the optimizers of a ``table`` began with; NaN where it is not known."""
    given = [o.get("lr") for o in table.meta.get("optimizer") or () if isinstance(o, dict)]
    return max((float(r) for r in given if r is not None), default=float("nan"))


def set_rate(table: Measurements, factor: float) -> str:
    """What to set the learning rate of a ``table`` to, as the beginning of a sentence: ``factor`` times its highest."""
    given = [float(s.finite.max()) for s in table.at("optimizer", "lr") if len(s.finite)]
    now = max(given, default=0.0) or rate(table)
    what = f"Divide the learning rate by {1 / factor:.0f}"
    what = what if factor < 1 else f"Multiply the learning rate by {factor:.0f}"
    return f"Set lr={short(now * factor)} (now {now:.3g})" if now > 0 else what


def climbs(loss: Series | None) -> tuple[int, float] | None:
    """The step at which the ``loss`` stood highest above its start, and how many times; None where it never climbed
    surely.

    The start is the median of the first measurements; its noise decides what is a climb.
    """
    if loss is None or len(loss.finite) < READINGS or loss.values[0] <= 0:
        return None
    values = np.where(np.isfinite(loss.values), loss.values, np.nan)
    begin = float(np.nanmedian(values[:3]))
    if begin <= 0:
        return None
    wide = max(1, len(values) // 40) | 1
    smooth = smoothed(np.nan_to_num(values, nan=np.nanmax(values)), len(values) // wide)
    top = int(np.argmax(smooth))
    quiet = noise(values[np.isfinite(values)])
    if smooth[top] > CLIMB * begin and smooth[top] - begin > ABOVE * quiet:
        return int(loss.steps[top]), float(smooth[top] / begin)
    return None


def relapses(loss: Series | None) -> tuple[int, float, float] | None:
    """The step at which the ``loss`` was lowest before it went back to where it began, with both levels; None where it
    did not.
    """
    if loss is None or len(loss.finite) < 2 * READINGS or len(loss.finite) < len(loss.values):
        return None
    smooth = smoothed(loss.values)
    begin, low = float(np.median(loss.values[:3])), int(np.argmin(smooth))
    high = float(smooth[low:].max())
    back = high > max(2.5 * smooth[low], 0.8 * begin) and high - smooth[low] > noise(loss.values)
    if smooth[low] < 0.7 * begin and back:
        return int(loss.steps[low]), float(smooth[low]), high
    return None


@rule(
    "learning rate too high",
    "Are the optimizer steps short enough?",
    "gradients",
    ("gradients", "update_ratio"),
    null="first updates change a weight matrix by 0.1 to 15 %, later ones by about 0.1 %; the loss stays below its "
    "start",
    threshold=f"an update above {percent(FIRST)} in the first {EARLY} measurements; or above {percent(LONG)} while the "
    f"loss rises; or a loss {CLIMB:g} times its start and {ABOVE:g} times its noise above it",
    refuted_by="a third of the learning rate gives no lower loss",
    also=("loss", "stream"),
)
def too_high(context: Context) -> Iterator[Finding]:
    """Steps that throw away what the network is, at the start or until the loss climbs."""
    table = context.table
    ratio = typical_ratio(table)
    if ratio is None or not len(ratio.finite):
        return
    first = float(np.nanmax(ratio.values[:EARLY]))
    longest = float(np.nanmax(ratio.values))
    climb = climbs(table.loss)
    if climb is not None and first <= FIRST and _recovers(table.loss) and climb[0] > ratio.steps[-1] / 4:
        climb = None  # a run that was well before and is well again had a spike
    begun = table.loss is not None and cost_of_guessing(table) is not None and _from_scratch(table)
    reasons: list[str] = []
    evidence: list[Evidence] = []
    since = int(ratio.steps[0])
    if first > FIRST:
        at = int(np.nanargmax(ratio.values[:EARLY]))
        since = int(ratio.steps[at])
        reasons.append(f"The median update/weight ratio at step {since} is {first:.2g} (healthy: at most {HEALTHY:g}).")
        evidence.append(ratio.evidence(value=first, step=since))
    relapse = relapses(table.loss) if climb is None and begun else None
    if relapse is not None and longest > RELAPSING:
        step, low, high = relapse
        assert table.loss is not None
        reasons.append(f"The loss fell to {low:.3g} and rose again to {high:.3g}.")
        evidence.append(table.loss.evidence(change=True))
        since = step if first <= FIRST else since
    if climb is not None and (longest > LONG or (begun and longest > 0.01)):
        step, times = climb
        reasons.append(f"The loss reached {times:.3g} times its first level at step {step}.")
        assert table.loss is not None
        evidence.append(table.loss.evidence(value=float(times * table.loss.values[0]), step=step))
        since = min(since, step) if first > FIRST else step
    if not reasons:
        return
    over = max(first / FIRST, longest / LONG if climb else 0.0, 1.0)
    factor = float(10 ** -np.clip(np.ceil(2 * np.log10(over)) / 2 + 0.5, 0.5, 1.5))
    factor = min(factor, HEALTHY / first) if first > 0 else factor
    change = set_rate(table, factor)
    advice = (
        f"{change} and restart from new weights, or warm up the learning rate over a few hundred steps."
        if first > FIRST
        else f"{change} and restart from new weights. Clip the gradient norm: "
        "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)."
    )
    remedy = Remedy("restart_rate", factor)
    momentum = max((float(s.finite[-1]) for s in table.at("optimizer", "momentum") if len(s.finite)), default=0.0)
    if momentum > HEAVY:
        advice = (
            f"Set momentum=0.9 (now {momentum:g}) and restart from new weights. With momentum={momentum:g} a gradient "
            f"acts for about {1 / max(1 - momentum, 1e-6):.0f} steps."
        )
        remedy = Remedy("restart_momentum", 0.9)
    yield Finding(
        "critical" if climb is not None and not _recovers(table.loss) else "warning",
        "",
        f"The learning rate is too high. {' '.join(reasons)}",
        why="Updates this large overwrite the initial weights and can make the loss rise."
        + (
            " Adam-like optimizers divide each gradient by its size, so the first updates are as large as the learning "
            "rate."
            if table.adaptive
            else ""
        ),
        advice=advice,
        evidence=tuple(evidence),
        since=since,
        until=int(ratio.steps[-1]),
        remedy=remedy,
    )


def _from_scratch(table: Measurements) -> bool:
    """Whether the run began about where guessing is."""
    cost = cost_of_guessing(table)
    return cost is not None and table.loss is not None and table.loss.values[0] > 0.7 * cost


def _recovers(loss: Series | None) -> bool:
    return (
        loss is not None and len(loss.finite) == len(loss.values) and loss.end < 0.8 * float(np.median(loss.values[:3]))
    )


@rule(
    "learning rate too low",
    "Are the optimizer steps long enough to learn anything?",
    "gradients",
    ("gradients", "update_ratio"),
    least=2,
    null="the updates of the first hundred steps add up to at least 10 % of the weights, or the loss is already far "
    "below the loss of guessing",
    threshold=f"all updates so far add up to less than {percent(PATH)} of the weights, and the loss is above "
    f"{percent(UNLEARNED)} of the loss of guessing",
    refuted_by="ten times the learning rate learns no faster",
    also=("loss", "outputs"),
)
def too_low(context: Context) -> Iterator[Finding]:
    """Steps so short that an untrained network stays as it was drawn."""
    table = context.table
    state = progress(table)
    if state.state == "not learning":
        yield from _decayed(table)
    ratio, loss, cost = typical_ratio(table), table.loss, cost_of_guessing(table) or state.constant
    if ratio is None or loss is None or len(ratio.finite) < 2 or not (state.harm or _creeps(loss, ratio, state)):
        return
    good = np.nan_to_num(ratio.values, nan=0.0)
    if good[-1] <= STILL or always_clipped(table) is not None:
        return
    alive = [x for x in table.at("gradients", "grad_norm") if table.is_matrix(x.site)]
    if alive and np.mean([x.end == 0 for x in alive]) > 0.3:  # dead units, not short steps
        return
    path = float(np.trapezoid(good, ratio.steps) + good[0])
    if not table.adaptive and rate(table) > USUAL and path > HARDLY:  # the gradient is small, not the rate: a plateau
        return
    level = float(np.median(loss.finite[-max(3, len(loss.finite) // 10) :]))
    if path > PATH or (level < UNLEARNED * cost and state.harm) or ratio.steps[-1] < 20:
        return
    if not math.isfinite(cost) and level < 0.95 * state.first:
        return  # it may be a fine-tune: where it began says little of where it should end
    level_now = (
        f"The loss is {level:.3g}, and guessing without looking at the input gives {cost:.3g}."
        if math.isfinite(cost) and level >= UNLEARNED * cost
        else f"The loss has moved only from {state.first:.3g} to {level:.3g}."
    )
    factor = float(10 ** np.clip(np.round(2 * np.log10(5e-3 / max(np.median(good), 1e-12))) / 2, 0.5, 6))
    given = [o for o in table.meta.get("optimizer") or () if isinstance(o, dict)]
    eps = max((float(o.get("eps") or 0.0) for o in given), default=0.0)
    yield Finding(
        "warning",
        "",
        f"The {'learning rate is too low' if eps <= LARGE_EPS else 'optimizer epsilon is too large'}: the median "
        f"update/weight ratio is {float(np.median(good)):.1e} (healthy: about 0.001). {level_now}",
        why="Updates this small leave the network close to its initial weights.",
        advice=f"Set eps=1e-8 (now {eps:g}): an epsilon above the size of the gradients shortens every step."
        if eps > LARGE_EPS
        else f"{set_rate(table, factor)}.",
        evidence=(ratio.evidence(), loss.evidence(change=True)),
        since=int(ratio.steps[0]),
        until=int(ratio.steps[-1]),
        remedy=Remedy("epsilon", 1e-8) if eps > LARGE_EPS else Remedy("rate", factor),
    )


def _creeps(loss: Series, ratio: Series, state: Progress) -> bool:
    """Whether a loss that began at the cost of guessing has not halved, and falls as slowly at the end as it began to,
    with updates far below the usual thousandth."""
    if not (state.first > 0.7 * state.constant and state.last > 0.5 * state.first):
        return False
    if len(loss.finite) < 4 * READINGS or float(np.nanmedian(ratio.values)) > CREEPING:
        return False
    half = len(loss.values) // 2
    parts = (slice(half), slice(half, None), slice(None))
    early, late, whole = (line(loss.steps[part], loss.values[part]) for part in parts)
    return whole.t < -4 and late.change < 0.5 * early.change < 0


def _decayed(table: Measurements) -> Iterator[Finding]:
    """A learning rate that a schedule has taken away before anything was learned."""
    for s in table.at("optimizer", "lr"):
        top = float(s.values.max()) if len(s.finite) == len(s.values) and len(s.values) else 0.0
        if len(s.values) < 4 or top <= 0 or s.last > top / 1000:
            continue
        gone = int(s.steps[np.flatnonzero(s.values > top / 1000)[-1]])
        if gone < 0.7 * s.steps[-1]:
            yield Finding(
                "warning",
                "",
                f"The schedule lowered the learning rate from {top:.1e} to {s.last:.1e} before the loss fell.",
                why="A learning rate this small changes nothing, so training stopped too early.",
                advice="If the schedule counts epochs, call scheduler.step() once per epoch instead of once per batch. "
                "Otherwise give the scheduler the full number of training steps.",
                evidence=(s.evidence(change=True),),
                since=gone,
            )
            return


@rule(
    "learning rate at zero",
    "Does the optimizer still change the weights?",
    "gradients",
    ("gradients", "update_ratio"),
    least=READINGS,
    null="the learning rate reaches zero only at the end of the run",
    threshold=f"updates below {STILL:g} of the weights on the last measurements, although gradients are not zero",
    refuted_by="the schedule was meant to end there",
    also=("loss",),
)
def at_zero(context: Context) -> Iterator[Finding]:
    """Gradients, and no steps."""
    table = context.table
    ratio, grads = typical_ratio(table), table.get("gradients", "model", "grad_norm")
    if ratio is None or grads is None or len(ratio.finite) < READINGS:
        return
    still = ratio.values < STILL
    stretch = last_stretch(ratio.steps, still, gap=0)
    least = max(4, len(still) // 20)
    if stretch is None or not still[-least:].all() or not grads.end > 0:
        return
    alive = [s for s in table.at("gradients", "grad_norm") if table.is_matrix(s.site)]
    if not grads.end > 0.02 * grads.start or np.mean([s.end == 0 for s in alive] or [False]) > 0.3:
        return  # nothing is left to learn, or units are dead
    now = max((s.last for s in table.at("optimizer", "lr")), default=0.0)
    top = max((float(s.finite.max()) for s in table.at("optimizer", "lr") if len(s.finite)), default=0.0)
    yield Finding(
        "warning",
        "",
        f"The weights have not changed since step {stretch.since}: the learning rate is "
        + (f"{now:.2g}, so updates are lost in rounding." if now > 0 else "zero."),
        why=f"The gradient norm is still {grads.end:.2g} ({grads.start:.2g} at the start), so there is more to learn.",
        advice=f"Check the number of steps of the schedule: the learning rate was {short(top)} before the schedule "
        f"ended."
        if top > 0 and now < 0.1 * top
        else f"Set lr to about {'1e-3' if table.adaptive else '1e-2'} (now {now:.2g}).",
        evidence=(ratio.evidence(change=True), grads.evidence(change=True)),
        since=stretch.since,
        until=stretch.until,
        remedy=Remedy("constant_rate", 1.0),
    )


def always_clipped(table: Measurements) -> tuple[Series, float] | None:
    """The gradient norm of a ``table`` and its level, where it is the same on nearly every measurement."""
    whole = table.get("gradients", "model", "grad_norm")
    if whole is None or len(whole.finite) < READINGS or len(whole.finite) < len(whole.values):
        return None
    level = float(np.median(whole.values))
    if not level > 0 or (np.abs(whole.values / level - 1) < SAME).mean() < 0.9:
        return None
    inputs = table.at("inputs", "mark")
    if inputs and all(np.ptp(s.finite) == 0 for s in inputs if len(s.finite)):
        return None  # one batch on every step has gradients that hardly change
    return whole, level


RULES = (too_high, too_low, at_zero)
