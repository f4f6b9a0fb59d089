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
REPAIR = (
    "Drop or repair rows with NaN or infinity: keep = torch.isfinite(x).all(dim=1). "
    "Typical causes are missing values, and a division by a standard deviation of zero."
)
REPEATED = 4  # batches in a row that are equal


@rule(
    "input not finite",
    "Are all inputs finite?",
    "inputs",
    ("inputs", "mean"),
    optional=True,
    null="all inputs are finite",
    threshold="one value of a batch is NaN or infinite; or, if the batch was not measured, the first hidden layer "
    "became NaN while its weights were finite",
    source="arithmetic: finite weights and inputs do not give NaN",
    refuted_by="the batch is finite when printed",
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
                f"The batch of step {first} contains NaN or infinite values, at the input of {called(s.site)}.",
                why="One NaN input makes the loss, every gradient and then every weight NaN.",
                advice=REPAIR,
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
        f"The batch of step {step} contains NaN or infinite values: the output of {called(site.site)} became NaN "
        "although all weights were finite.",
        why="One NaN input makes the loss, every gradient and then every weight NaN.",
        advice=REPAIR,
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
    "Are the inputs scaled for the default initialisation?",
    "inputs",
    ("inputs", "std"),
    optional=True,
    null="normalised inputs have mean 0 and standard deviation 1, as initialisations assume",
    threshold=f"a root mean square above {LARGE:g}",
    source="variance-preserving initialisations; the number is a choice of this project",
    refuted_by="a norm layer follows the first layer, and the loss falls as usual",
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
            f"The inputs are not normalised: {called(s.site)} receives values with mean {mean.end:.3g} and standard "
            f"deviation {s.end:.3g} (healthy: 0 and 1).",
            why="The default initialisation assumes inputs with standard deviation 1. "
            "Larger inputs make the first outputs and gradients too large.",
            advice=f"Normalise the inputs: x = (x - {mean.end:.3g}) / {max(s.end, 1e-12):.3g}. "
            "If features have different scales, normalise each feature with its own mean and standard deviation.",
            evidence=(s.evidence(), mean.evidence()),
            since=stretch.since if stretch else None,
            until=stretch.until if stretch else None,
            remedy=Remedy("normalise_input"),
        )
        return


@rule(
    "constant input",
    "Do the examples of a batch differ from each other?",
    "inputs",
    ("inputs", "varying"),
    optional=True,
    null="the spread over the examples is 0.3 to 1 of the spread of all values",
    threshold=f"the spread over the examples is below {CONSTANT:g} of the spread of all values, on most measurements",
    source="choice of this project",
    refuted_by="the examples differ when printed",
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
            f"All examples of a batch are nearly equal: at {called(s.site)} differences between examples "
            f"make up a fraction {np.median(v):.2g} of the total standard deviation (healthy: 0.3 to 1).",
            why="From equal inputs the model can only learn the mean label.",
            advice="Print two examples from the data loader. Typical causes are an index that never changes, a wrong "
            "normalisation, and a transform that erases the input.",
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
    null="each step uses a different batch",
    threshold=f"{REPEATED} consecutive batches with exactly the same sum",
    source="arithmetic",
    refuted_by="training on the full data set in one batch is intended",
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
            "Every step uses the same batch."
            if whole
            else f"Since step {stretch.since} the data loader has returned the same batch on every step.",
            why="The network memorises this batch, so the loss says nothing about other data."
            + (" Training on one batch is fine if it is the whole data set." if whole else ""),
            advice="Call iter(loader) once per epoch, not on every step. Also check for a fixed seed or a cached batch."
            + (" Change nothing if one batch is intended." if whole else ""),
            evidence=(s.evidence(),),
            since=stretch.since,
            until=stretch.until,
            remedy=None if whole else Remedy("repair_data"),
        )
        return


@rule(
    "odd batches",
    "Do all batches have the same scale?",
    "inputs",
    ("inputs", "std"),
    least=10,
    optional=True,
    null="the spread of every batch is within a few percent of the median",
    threshold=f"{ODD:g} times the median spread on single steps",
    source="choice of this project; the largest value in healthy runs is 1.2",
    refuted_by="the data changed on purpose",
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
        factor, step = s.values[worst] / usual, int(s.steps[worst])
        count = f"{len(at)} batches have" if len(at) > 1 else "One batch has"
        yield Finding(
            "warning",
            s.site,
            f"{count} far larger inputs than the others: up to {factor:.0f} times the median, at step {step}.",
            why="A batch with large inputs gives a large gradient, and one such step can undo many others.",
            advice="Look for rows with a wrong unit or without normalisation. "
            "To limit the effect of outliers, clip the normalised inputs: x = x.clamp(-5, 5).",
            evidence=(s.evidence(value=float(s.values[worst]), step=int(s.steps[worst])),),
            since=int(s.steps[at[0]]),
            until=int(s.steps[at[-1]]),
            remedy=Remedy("clip_input", 5.0),
        )
        return


RULES = (not_finite, unnormalised, constant, same_batch, odd)
