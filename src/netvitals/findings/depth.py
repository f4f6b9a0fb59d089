"""Does the signal keep its size from layer to layer, and does the residual stream over time?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from netvitals.findings.rules import Context, Hit, called, crossed, rule, together
from netvitals.findings.series import Measurements, Series
from netvitals.findings.statistics import line
from netvitals.runs import Finding, Remedy

FADED = 3e-5  # spread of the last hidden inputs over that of the first; torch's default loses 0.4 a layer
GROWN = 20.0
LEAST = 3  # layers in a row
CUT = 0.9  # share of dead units at which a layer lets nothing through
OVER_TIME = 25.0  # the stream's length over that at the start; small embeddings of healthy language models give 20
LARGE = 4.0  # root mean square of an entry of the stream
BY_BLOCK = 1.45  # growth a block, geometric mean; blocks that write as much as they read give 1.41
COMMON = 0.9  # share of the stream's square that all rows have in common


def _first_spreads(table: Measurements) -> list[tuple[Series, float]]:
    """σ of the inputs of hidden units at the first measurement, in the order of depth."""
    first = table.steps[0] if table.steps else 0
    return [
        (s, float(s.values[0]))
        for s in table.units("preactivations", "sigma")
        if s.steps[0] <= first + 2 and np.isfinite(s.values[0])
    ]


@rule(
    "vanishing signal",
    "Does the signal reach the last layers of an untrained network?",
    "preactivations",
    ("preactivations", "sigma"),
    null="initialisations that keep variance keep it from layer to layer; torch's default for linear layers loses a "
    "factor "
    "of 2.5 at each",
    threshold=f"the spread of the last hidden inputs below {FADED:g} of that of the first, at the first step, and no "
    f"layer on the way {CUT:.0%} of whose units are shut on every row: that one cuts it off",
    refuted_by="a skip or a norm on the way that was not seen",
)
def vanishes(context: Context) -> Iterator[Finding]:
    """Inputs that vary less and less with depth, before any training."""
    found = _first_spreads(context.table)
    if len(found) < LEAST or context.table.steps[0] != 0:
        return
    sizes = np.array([v for _, v in found])
    if not sizes[0] > 0 or sizes.min() > FADED * sizes[0] or int(np.argmin(sizes)) == 0:
        return
    if _is_cut(context.table, found):
        return
    hits = [
        Hit(s.site, "warning", (s.evidence(value=v, step=int(s.steps[0])),), -v, 0, 0)
        for s, v in found
        if v < FADED**0.5 * sizes[0]
    ]
    share = float((sizes[int(np.argmin(sizes))] / sizes[0]) ** (1 / int(np.argmin(sizes))))
    yield from together(
        hits,
        what=lambda where, worst: (
            f"The signal vanishes with depth: in {called(worst.site)} inputs vary by {-worst.size:.1e}, in the first "
            f"hidden "
            f"layer by {sizes[0]:.2g}; each layer hands on {share:.2g} of it."
        ),
        why="What does not differ between examples cannot be told apart further on, and gradients fade by the same "
        "factor "
        "on their way back: the first layers learn nothing.",
        advice="Draw the weights with a variance of 1/fan-in (2/fan-in for ReLU), or put norms or skips between the "
        "layers.",
        remedy=Remedy("reinitialise", 1.0),
    )


def _is_cut(table: Measurements, found: list[tuple[Series, float]]) -> bool:
    """Whether the signal ends at one layer whose units are dead, and was there before it: nothing fades, it is cut."""
    limit = FADED**0.5 * found[0][1]
    last = next(i for i, (_, v) in enumerate(found) if v < limit) - 1 if found[0][1] >= limit else -1
    shut = table.get("sparsity", found[last][0].site, "dead_units") if last >= 0 else None
    return shut is not None and len(shut.values) > 0 and float(shut.values[0]) >= CUT


@rule(
    "exploding signal",
    "Does the signal of an untrained network stay in bounds?",
    "preactivations",
    ("preactivations", "sigma"),
    null="initialisations that keep variance keep it from layer to layer",
    threshold=f"the spread of the last hidden inputs above {GROWN:g} times that of the first, at the first step",
    refuted_by="a norm behind these layers that divides it out",
    also=("outputs",),
)
def explodes(context: Context) -> Iterator[Finding]:
    """Inputs that grow from layer to layer, before any training."""
    found = _first_spreads(context.table)
    if len(found) < LEAST or context.table.steps[0] != 0:
        return
    sizes = np.array([v for _, v in found])
    if not sizes[0] > 0 or sizes.max() < GROWN * sizes[0] or sizes.max() < 5:
        return
    hits = [
        Hit(s.site, "warning", (s.evidence(value=v, step=int(s.steps[0])),), v, 0, 0)
        for s, v in found
        if v > GROWN**0.5 * sizes[0]
    ]
    yield from together(
        hits,
        what=lambda where, worst: (
            f"The signal explodes with depth: in {called(worst.site)} inputs vary by {worst.size:.3g}, in the first "
            f"hidden "
            f"layer by {sizes[0]:.2g}."
        ),
        why="Each layer multiplies what it gets. The outputs are larger than any evidence allows, the first gradients "
        "as "
        "much too large, and units saturate or die.",
        advice="Draw the weights with a variance of 1/fan-in (2/fan-in for ReLU), or put a norm between the layers.",
        remedy=Remedy("reinitialise", 1.0),
    )


@rule(
    "stream growth",
    "Does the residual stream keep its size?",
    "stream",
    ("stream", "norm"),
    optional=True,
    null="the stream of a healthy run grows with depth like a random walk (√2 a block at most) and over training by "
    f"less than {OVER_TIME:g}",
    threshold=f"{OVER_TIME:g} times its length at the start and entries of {LARGE:g} on average; or {BY_BLOCK:g} a "
    f"block "
    "over four blocks or more at the start",
    refuted_by="embeddings that began near zero and a stream that is no larger than others in the end",
)
def grows(context: Context) -> Iterator[Finding]:
    """A residual stream that grows over the steps, or from block to block."""
    table = context.table
    hits = []
    for s in table.at("stream", "norm"):
        rms = table.get("stream", s.site, "rms")
        if rms is None or len(s.finite) < 3 or not s.values[0] > 0:
            continue
        growth = float(np.nanmax(s.values)) / float(s.values[0])
        if growth > OVER_TIME and float(np.nanmax(rms.values)) > LARGE:
            found = Hit(s.site, "warning", (s.evidence(change=True), rms.evidence(change=True)), growth)
            hits.append(crossed(found, s, OVER_TIME * float(s.values[0])))
    yield from together(
        hits,
        what=lambda where, worst: (
            f"The residual stream grows: to {worst.size:.0f} times its length at the start after {called(worst.site)}."
        ),
        why="What is added later weighs ever less beside it, so that later blocks lose their say; norms hide it until "
        "low "
        "precision or a spike ends the run.",
        advice="Lower the learning rate or lengthen the warm-up; decay the weights that write to the stream.",
        remedy=Remedy("restart_rate", 0.1),
    )
    if not hits:
        yield from _with_depth(table)


def _with_depth(table: Measurements) -> Iterator[Finding]:
    by_level: dict[int, list[Series]] = {}
    for s in table.at("stream", "norm"):
        by_level.setdefault(s.site.count("."), []).append(s)
    for curves in by_level.values():
        first = np.array([float(s.values[0]) for s in curves])
        if len(curves) < 4 or not (first > 0).all() or not np.isfinite(first).all():
            continue
        fitted = line(np.arange(len(first)), np.log(first))
        if np.exp(fitted.slope) < BY_BLOCK or fitted.t < 4:
            continue
        last, factor = curves[-1], float(np.exp(fitted.slope))
        stated = f"by {factor:.2g} a block, from {first[0]:.3g} to {first[-1]:.3g}"
        ground = (last.evidence(value=first[-1], step=int(last.steps[0])),)
        yield from together(
            [Hit(s.site, "warning", ground, float(v), 0, int(s.steps[0])) for s, v in zip(curves[1:], first[1:])],
            what=lambda where, worst, stated=stated: f"The residual stream grows with depth: {stated}.",  # type: ignore[misc]
            why="Each block writes more than it reads. The first blocks are drowned by the last, and gradients grow "
            "by the "
            "same factor on their way back.",
            advice="Begin the last layer of each block smaller (by 1/√(2·blocks), or at zero), or normalise what a "
            "block "
            "reads.",
            remedy=Remedy("reinitialise", 1.0),
        )
        return


@rule(
    "anisotropy",
    "Do the rows of the stream differ?",
    "stream",
    ("stream", "common"),
    optional=True,
    null="embeddings that are drawn by themselves have little in common: at the start up to half of the stream's "
    "square "
    "is shared",
    threshold=f"{COMMON:g} of the square of an untrained language model's stream is shared by all tokens",
    refuted_by="tokens that are told apart well by what is left",
)
def anisotropic(context: Context) -> Iterator[Finding]:
    """Embeddings that all point one way."""
    table = context.table
    known = [*(table.meta.get("shapes") or {}), *(f"embed {n}" for n in table.meta.get("embeddings") or ())]
    tokens = any("embed" in n or ".wte" in n for n in known)
    if not tokens or not table.steps or table.steps[0] != 0:
        return
    curves = table.at("stream", "common")
    level = min((s.site.count(".") for s in curves), default=0)
    hits = []
    for s in curves:
        if s.site.count(".") <= level + 1 and float(np.median(s.finite[:2])) > COMMON:
            found = Hit(s.site, "warning", (s.evidence(change=True),), float(np.median(s.finite[:2])))
            hits.append(crossed(found, s, COMMON))
    yield from together(
        hits,
        what=lambda where, worst: (
            f"The embeddings point one way: {worst.size:.1%} of the stream's square after {called(worst.site)} is the "
            f"same "
            "for all tokens."
        ),
        why="Tokens differ by the little that is left; attention scores and norms are ruled by the common direction.",
        advice="Draw the embeddings with mean zero, or subtract their mean; tied embeddings drift this way under a "
        "softmax with many rare tokens.",
        remedy=Remedy("centre_embeddings"),
    )


RULES = (vanishes, explodes, grows, anisotropic)
