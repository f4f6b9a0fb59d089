"""Are the data fit to be learned from: finite, of a sane scale, not all the same, not the same again and again?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from netvitals.findings.rules import Context, called, rule
from netvitals.findings.series import Measurements
from netvitals.findings.statistics import last_stretch
from netvitals.runs import Evidence, Finding, Remedy

LARGE = 8.0  # root mean square of the inputs: data that were normalised have 1, pixels from 0 to 255 have about 100
CONSTANT = 0.02  # spread of a feature over the examples, over the spread of everything
ODD = 5.0  # times the usual scale of a batch
REPEATED = 4  # batches in a row that are equal


@rule(
    "input not finite",
    "Are the inputs finite numbers?",
    "inputs",
    ("inputs", "mean"),
    optional=True,
    null="data are finite",
    threshold="one value of the batch is NaN or infinite; where the batch itself was not measured, the first hidden "
    "layer broke on a step whose weights were finite",
    source="arithmetic: finite weights make no NaN of ordinary numbers",
    refuted_by="a batch that is finite when looked at by hand",
)
def not_finite(context: Context) -> Iterator[Finding]:
    """A batch that holds NaN or infinity."""
    for s in context.table.at("inputs", "max_abs", finite=False):
        broken = ~np.isfinite(s.values)
        if broken.any():
            first = int(s.steps[broken][0])
            yield Finding(
                "critical",
                s.site,
                f"The data hold NaN or infinity: the batch of step {first}, as {called(s.site)} got it.",
                why="One such value makes the loss and every gradient NaN, and with them every weight.",
                advice="Look at that batch; skip or repair rows that are not finite in the loader (a missing value, a "
                "division by a spread of zero, a logarithm of zero). Go on from a checkpoint before that step.",
                evidence=(s.evidence(value=float(s.values[broken][0]), step=first),),
                since=first,
                until=int(s.steps[broken][-1]),
                remedy=Remedy("drop_not_finite"),
            )
            return
    yield from _came_in(context.table)


def _came_in(table: Measurements) -> Iterator[Finding]:
    """The same, of a batch that was not measured: what the first layer gave broke though its weights had not."""
    layers = [str(s.get("name")) for s in table.meta.get("sites", ()) if s.get("follows") == "input"]
    site = next(iter(table.at("preactivations", "mean", finite=False)), None)
    loss, read = table.loss, {s.site: s for s in table.at("inputs", "max_abs", finite=False)}
    if site is None or loss is None or not layers or not any(n in read for n in layers):
        return  # tokens and the like are always finite
    broken = np.flatnonzero(~np.isfinite(site.values))
    if not len(broken) or broken[0] == 0:
        return
    step = int(site.steps[broken[0]])
    before = loss.values[loss.steps < step]
    if not np.isfinite(before).all() or any((s.steps == step).any() for s in read.values()):
        return  # it had broken before, or the batch was measured and was finite
    ground = _weights_at(table, step)
    if ground is None:
        return
    yield Finding(
        "critical",
        layers[0],
        f"The data hold NaN or infinity: at step {step} {called(site.site)} broke first, and the weights were finite "
        "still.",
        why="Finite weights make no NaN of ordinary numbers, so that it came in with the batch. One such value makes "
        "the loss and every gradient NaN, and with them every weight.",
        advice="Look at that batch; skip or repair rows that are not finite in the loader (a missing value, a division "
        "by a spread of zero, a logarithm of zero). Go on from a checkpoint before that step.",
        evidence=(site.evidence(value=float(site.values[broken[0]]), step=step), ground),
        sites=tuple(layers),
        since=step,
        until=step,
        remedy=Remedy("drop_not_finite"),
    )


def _weights_at(table: Measurements, step: int) -> Evidence | None:
    """What shows that all weights were finite when a step began: their norm then, or that of the update before it."""
    for metric, at in (("weight_norm", step), ("update_norm", step - 1)):
        s = table.get("gradients", "model", metric)
        found = s.values[s.steps == at] if s is not None else np.empty(0)
        if s is not None and len(found) and np.isfinite(found[0]):
            return s.evidence(value=float(found[0]), step=at)
    return None


@rule(
    "unnormalised input",
    "Have the inputs a scale that default weights are made for?",
    "inputs",
    ("inputs", "std"),
    optional=True,
    null="initialisations assume inputs of mean 0 and variance 1; normalised data have a root mean square near 1",
    threshold=f"a root mean square above {LARGE:g}",
    source="variance-preserving initialisations; the number is a choice of this project",
    refuted_by="a norm right behind the first layer and an optimizer that does not care, so that the loss falls as "
    "usual",
)
def unnormalised(context: Context) -> Iterator[Finding]:
    """Inputs far larger than those that weights are drawn for."""
    table = context.table
    for s in table.at("inputs", "std"):
        mean = table.get("inputs", s.site, "mean")
        if mean is None or len(mean.values) != len(s.values):
            continue
        size = np.hypot(s.values, mean.values)
        good = size[np.isfinite(size)]
        if not len(good) or np.median(good) <= LARGE:
            continue
        stretch = last_stretch(s.steps, size > LARGE)
        yield Finding(
            "warning",
            s.site,
            f"The inputs are not normalised: {called(s.site)} gets numbers of mean {mean.end:.3g} and standard "
            f"deviation {s.end:.3g}.",
            why="Weights are drawn for inputs of variance 1. Larger ones make the first outputs, the loss and the "
            "first "
            "gradients larger by as much, and a common offset makes the loss steep in one direction and flat in "
            "others.",
            advice="Subtract the mean of the training data and divide by its standard deviation, feature by feature.",
            evidence=(s.evidence(), mean.evidence()),
            since=stretch.since if stretch else None,
            until=stretch.until if stretch else None,
            remedy=Remedy("normalise_input"),
        )
        return


@rule(
    "constant input",
    "Do the examples of a batch differ?",
    "inputs",
    ("inputs", "varying"),
    optional=True,
    null="features differ from example to example about as much as from each other",
    threshold=f"a spread over the examples below {CONSTANT:g} of the spread of everything, on most measurements",
    source="choice of this project; usual data have 0.3 to 1",
    refuted_by="batches that differ when looked at by hand",
)
def constant(context: Context) -> Iterator[Finding]:
    """Batches whose examples are all alike."""
    for s in context.table.at("inputs", "varying", finite=False):
        v = np.nan_to_num(s.values, nan=0.0)
        seen = v < CONSTANT
        spread = context.table.get("inputs", s.site, "std")
        if seen.mean() < 0.8 or (spread is not None and not np.isfinite(spread.values).any()):
            continue
        stretch = last_stretch(s.steps, seen)
        yield Finding(
            "critical",
            s.site,
            f"All examples of a batch are nearly the same: what {called(s.site)} gets varies by {np.median(v):.2g} of "
            "its spread.",
            why="From inputs that do not differ only the mean label can be learned.",
            advice="Look at the loader: an index that does not move, a transform that erases the image, a feature file "
            "that was not read, a normalisation with the wrong numbers.",
            evidence=(s.evidence(),),
            since=stretch.since if stretch else None,
            until=stretch.until if stretch else None,
            remedy=Remedy("repair_data"),
        )
        return


@rule(
    "same batch",
    "Do the batches differ from step to step?",
    "inputs",
    ("inputs", "mark"),
    least=REPEATED + 1,
    optional=True,
    null="a loader gives another batch on every step; sums over two batches are never equal to the last digit",
    threshold=f"{REPEATED} batches in a row with the very same sum",
    source="arithmetic",
    refuted_by="a full batch on purpose: then all batches are equal from the first step on",
)
def same_batch(context: Context) -> Iterator[Finding]:
    """One batch again and again."""
    if context.table.meta.get("probe"):
        return  # what is measured is a fixed batch, not the loop's
    for s in context.table.at("inputs", "mark"):
        again = np.concatenate([[False], np.diff(s.values) == 0])
        stretch = last_stretch(s.steps, again, gap=0)
        if stretch is None or not stretch.lasting or again[-REPEATED:].sum() < REPEATED:
            continue
        whole = bool(again[1:].all())
        yield Finding(
            "info" if whole else "warning",
            s.site,
            "Every step has the same batch."
            if whole
            else f"The loader is stuck: every batch since step {stretch.since} is the same one.",
            why="The network learns this one batch by heart; its loss says nothing about other data."
            + (" That is as it should be where the batch is all the data there are." if whole else ""),
            advice="Nothing, if this is meant. Otherwise look at the loader: an iterator that is made anew on every "
            "step, "
            "a fixed seed, a cached batch.",
            evidence=(s.evidence(),),
            since=stretch.since,
            until=stretch.until,
            remedy=None if whole else Remedy("repair_data"),
        )
        return


@rule(
    "odd batches",
    "Have all batches the same scale?",
    "inputs",
    ("inputs", "std"),
    least=10,
    optional=True,
    null="the spread of a batch stays within a few percent of that of the others",
    threshold=f"{ODD:g} times the median spread on single steps",
    source="choice of this project; in healthy runs the largest seen is 1.2",
    refuted_by="a change of the data that is wanted and stays",
)
def odd(context: Context) -> Iterator[Finding]:
    """Single batches whose inputs are far larger than all others."""
    for s in context.table.at("inputs", "std"):
        usual = float(np.median(s.finite)) if len(s.finite) else 0.0
        high = s.values > ODD * usual
        if not usual or not 0 < high.sum() <= len(high) / 3:
            continue
        at = np.flatnonzero(high)
        worst = int(np.nanargmax(s.values))
        count = f"{len(at)} batches are" if len(at) > 1 else "One batch is"
        yield Finding(
            "warning",
            s.site,
            f"{count} {s.values[worst] / usual:.0f} times as large as the others, the largest at step "
            f"{int(s.steps[worst])}.",
            why="Such a batch makes a gradient of its own size; one step along it can undo many.",
            advice="Look at these batches: a wrong unit, a row that escaped the normalisation, an outlier. Clip the "
            "inputs at a few standard deviations, or the gradient norm at a few times its median.",
            evidence=(s.evidence(value=float(s.values[worst]), step=int(s.steps[worst])),),
            since=int(s.steps[at[0]]),
            until=int(s.steps[at[-1]]),
            remedy=Remedy("clip_input", 5.0),
        )
        return


RULES = (not_finite, unnormalised, constant, same_batch, odd)
