"""Does the signal keep its size from layer to layer, and does the residual stream over time?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from netvitals.findings.initialisation import REDRAW
from netvitals.findings.rules import Context, Hit, called, crossed, percent, rule, together
from netvitals.findings.series import Measurements, Series
from netvitals.findings.statistics import line
from netvitals.findings.updates import set_rate
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
    "Does the signal of an untrained network reach the last layers?",
    "preactivations",
    ("preactivations", "sigma"),
    null="the standard deviation stays about equal from layer to layer; PyTorch's default loses a factor of 2.5 per "
    "linear layer",
    threshold=f"at the first step, a hidden layer has a standard deviation below {FADED:g} of that of the first, and "
    f"no layer in between has {CUT:.0%} dead units",
    refuted_by="there is a skip connection or norm layer that was not traced",
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
    yield from together(
        hits,
        what=lambda where, worst: (
            f"The signal vanishes with depth: activation inputs have standard deviation {sizes[0]:.2g} in the first "
            f"hidden layer and {-worst.size:.1e} in {called(worst.site)}."
        ),
        why="Deep layers receive the same input for every example, and no gradient reaches the first layers.",
        advice=f"{REDRAW} Norm layers or skip connections also keep the signal.",
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
    "Does the signal of an untrained network keep its size?",
    "preactivations",
    ("preactivations", "sigma"),
    null="the standard deviation stays about equal from layer to layer",
    threshold=f"at the first step, a hidden layer has a standard deviation above {GROWN:g} times that of the first",
    refuted_by="a norm layer follows",
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
            f"The signal explodes with depth: activation inputs have standard deviation {sizes[0]:.2g} in the first "
            f"hidden layer and {worst.size:.3g} in {called(worst.site)}."
        ),
        why="Large values saturate or kill units, and they make the first gradients too large.",
        advice=f"{REDRAW} Norm layers between the layers also limit the signal.",
        remedy=Remedy("reinitialise", 1.0),
    )


@rule(
    "stream growth",
    "Does the residual stream keep its norm?",
    "stream",
    ("stream", "norm"),
    optional=True,
    null=f"the norm grows by at most √2 per block, and by less than {OVER_TIME:g} times over training",
    threshold=f"{OVER_TIME:g} times its initial norm, with a root mean square above {LARGE:g}; or {BY_BLOCK:g} times "
    "per block over four blocks or more at the start",
    refuted_by="the embeddings started near zero, and the stream ends at a usual size",
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
            f"The residual stream grows during training: its norm after {called(worst.site)} is now "
            f"{worst.size:.0f} times the initial value (healthy: below {OVER_TIME:.0f})."
        ),
        why="A large stream makes the output of later blocks negligible, and it can overflow in low precision.",
        advice=f"{set_rate(table, 0.1)} and lengthen the warm-up. Use weight decay on the layers that write to the "
        "stream.",
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
        ground = (last.evidence(value=first[-1], step=int(last.steps[0])),)
        yield from together(
            [Hit(s.site, "warning", ground, float(v), 0, int(s.steps[0])) for s, v in zip(curves[1:], first[1:])],
            what=lambda where, worst, factor=factor: (  # type: ignore[misc]
                f"The residual stream grows with depth: by a factor of {factor:.2g} per block (healthy: at most 1.41)."
            ),
            why="The last blocks dominate the output, and gradients grow by the same factor on the way back.",
            advice="Scale down the last layer of each block at initialisation: weight.mul_((2 * blocks) ** -0.5). "
            "A norm layer at the input of each block also helps.",
            remedy=Remedy("reinitialise", 1.0),
        )
        return


@rule(
    "anisotropy",
    "Do the embeddings of different tokens differ?",
    "stream",
    ("stream", "common"),
    optional=True,
    null="at the start, all tokens share at most half of the squared norm of the stream",
    threshold=f"all tokens share more than {percent(COMMON)} of the squared norm of the stream before training",
    refuted_by="the model still tells the tokens apart well",
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
            f"The embeddings of all tokens are nearly equal: their common mean has {percent(worst.size)} of their "
            f"squared norm after {called(worst.site)} (healthy: below 50 %)."
        ),
        why="Attention scores depend on the shared part of the embeddings instead of on the token.",
        advice="Initialise the embeddings with mean zero, or subtract their mean: emb.weight.data -= "
        "emb.weight.data.mean(0).",
        remedy=Remedy("centre_embeddings"),
    )


RULES = (vanishes, explodes, grows, anisotropic)
