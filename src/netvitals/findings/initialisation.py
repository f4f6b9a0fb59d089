"""Did the weights begin well: neither too large nor too small, in balance, and not all the same?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from netvitals.findings.progress import mostly_frozen
from netvitals.findings.rules import Context, Hit, called, names, percent, rule, together
from netvitals.findings.series import Measurements, Series
from netvitals.findings.updates import cost_of_guessing
from netvitals.runs import Evidence, Finding, Remedy

GUESS = 1.6  # the first loss over the cost of guessing
GAIN = (0.1, 2.6)  # spread of a weight's entries times √fan-in; initialisations in use have 0.1 to 1.5
TAIL = 7.5  # the largest entry over the spread; √3 of a uniform draw, and of a normal one below 6 for any size in use
FADED = 2e-4  # spread of the inputs of the last hidden activation over that of the first
GROWN = 30.0
ALIKE = 0.15  # effective rank of a matrix over its smaller side, at the start; a random one has 0.6 and more
REDRAW = (
    "Initialise each weight to match its activation: nn.init.kaiming_normal_(weight) for ReLU, "
    "nn.init.xavier_normal_(weight) for tanh or sigmoid."
)
APART = 0.9  # |share|: one of two neighbouring layers holds 95 % of their squared weight


def _at_the_start(table: Measurements, vital: str, metric: str) -> list[tuple[Series, float]]:
    """First measurements, where they are from the very first steps."""
    first = table.steps[0] if table.steps else 0
    return [(s, float(s.values[0])) for s in table.at(vital, metric) if len(s.values) and s.steps[0] <= first + 2]


def is_embedding(table: Measurements, parameter: str) -> bool:
    """Whether a matrix is a table of rows to look up: such rows are not summed over. By its module where the run tells
    it, else by its name.
    """
    if parameter in table.meta.get("embeddings", ()):
        return True
    return (any(word in parameter for word in ("embed", ".wte", ".wpe")) and parameter != "embed.weight") or (
        parameter == "embed.weight" and not any(s.get("module") == "embed" for s in table.meta.get("sites", ()))
    )


def gains(table: Measurements) -> list[tuple[str, float]]:
    """Spread of the entries of every matrix times the root of its inputs, at the start; one entry a name.

    Embeddings are left out: their rows are looked up, not summed.
    """
    out = []
    for s, norm in _at_the_start(table, "gradients", "weight_norm"):
        shape = table.shape(s.site)
        if len(shape) < 2 or is_embedding(table, s.site):
            continue
        fan_in = int(np.prod(shape[1:]))
        out.append((s.site, norm / float(np.prod(shape)) ** 0.5 * fan_in**0.5))
    return out


def was_trained(table: Measurements, parameter: str) -> bool:
    """Whether a matrix had, at the start, entries that no draw has: training makes tails."""
    found = [table.get("drift", parameter, metric) for metric in ("min", "max", "weight_std")]
    if any(s is None or not len(s.values) for s in found):
        return False
    low, high, std = (float(s.values[0]) for s in found if s is not None)
    return max(-low, high) > TAIL * std


@rule(
    "initialisation too large",
    "Are the initial weights and first outputs small enough?",
    "outputs",
    ("outputs", "chance"),
    ("gradients", "weight_norm"),
    null="the first loss is the loss of guessing, within a few percent",
    threshold=f"a first loss above {GUESS:g} times the loss of guessing, or untrained weights with a standard "
    f"deviation above {GAIN[1]:g}/√fan_in",
    source="common initialisations have 0.6/√fan_in (PyTorch's default) to 1.4/√fan_in (He); the limits are choices",
    refuted_by="the network was trained before on other labels",
    also=("loss", "gradients"),
)
def too_large(context: Context) -> Iterator[Finding]:
    """An untrained network that is sure of itself, and wrong; or weights far larger than any recipe draws."""
    table = context.table
    loss, cost = table.loss, cost_of_guessing(table)
    first = float(loss.values[0]) if loss is not None and len(loss.values) else float("nan")
    begun = bool(table.steps) and table.steps[0] == 0 and not mostly_frozen(table)
    labels = next(iter(table.at("outputs", "chance")), None)
    # what was trained before may have any size: then the first loss is below the cost of guessing, or the head is new
    fresh = begun and labels is not None and first > 0.7 * float(labels.finite[0])
    wide = [(n, g) for n, g in gains(table) if g > GAIN[1] and not was_trained(table, n)] if fresh else []
    sure = cost is not None and first > GUESS * cost + 0.5 and begun
    if not sure and not wide:
        return
    spread = next(iter(table.at("outputs", "spread")), None)
    evidence: list[Evidence] = []
    if loss is not None and sure:
        evidence.append(loss.evidence(value=first, step=int(loss.steps[0])))
    if spread is not None:
        evidence.append(spread.evidence(value=float(spread.values[0]), step=int(spread.steps[0])))
    for name, _ in wide[:2]:
        if (norm := table.get("gradients", name, "weight_norm")) is not None:
            evidence.append(norm.evidence(value=float(norm.values[0]), step=int(norm.steps[0])))
    parts = []
    if sure:
        parts.append(f"The first loss is {first:.3g}, while guessing without looking at the input gives {cost:.3g}.")
    if wide:
        parts.append(
            f"The weights of {names([n for n, _ in wide])} have standard deviation "
            f"{max(g for _, g in wide):.1f}/√fan_in "
            "(healthy: 0.6 to 1.4)."
        )
    places = tuple(n for n, _ in wide)
    yield Finding(
        "warning",
        places[0] if places else "",
        f"The initial weights are too large. {' '.join(parts)}",
        why="The network starts with confident wrong outputs. Large first updates saturate or kill units.",
        advice=REDRAW,
        evidence=tuple(evidence),
        sites=places,
        since=0,
        until=0,
        remedy=Remedy("reinitialise", 1.0, places),
    )


@rule(
    "initialisation too small",
    "Are the initial weights large enough?",
    "preactivations",
    ("preactivations", "sigma"),
    ("gradients", "weight_norm"),
    null="initial weights have a standard deviation of 0.6/√fan_in to 1.4/√fan_in",
    threshold=f"a standard deviation below {GAIN[0]:g}/√fan_in in half of the layers",
    source="choice of this project, below every common initialisation",
    refuted_by="small weights are intended, with skip connections around these layers",
    also=("gradients",),
)
def too_small(context: Context) -> Iterator[Finding]:
    """Weights far smaller than any recipe draws, so that the signal is gone after some layers."""
    table = context.table
    if not table.steps or table.steps[0] != 0:
        return
    head = _head(table)
    found = [(n, g) for n, g in gains(table) if n.rpartition(".")[0] != head]
    thin = [(n, g) for n, g in found if 0 < g < GAIN[0]]
    if not thin or len(thin) < 0.5 * len(found) or _has_skips(table):
        return
    sigmas = _at_the_start(table, "preactivations", "sigma")
    evidence = [s.evidence(value=v, step=int(s.steps[0])) for s, v in sigmas[-2:]]
    for name, _ in thin[:2]:
        if (norm := table.get("gradients", name, "weight_norm")) is not None:
            evidence.append(norm.evidence(value=float(norm.values[0]), step=int(norm.steps[0])))
    places = tuple(n for n, _ in thin)
    least = min(g for _, g in thin)
    yield Finding(
        "warning",
        places[0],
        f"The initial weights of {names(places)} are too small: their standard deviation is only {least:.2g}/√fan_in "
        "(healthy: 0.6 to 1.4).",
        why="Signals and gradients shrink in every layer, so the loss stays on a plateau.",
        advice=REDRAW,
        evidence=tuple(evidence),
        sites=places,
        since=0,
        until=0,
        remedy=Remedy("reinitialise", 1.0, places),
    )


def _head(table: Measurements) -> str:
    return next((str(s.get("module")) for s in table.meta.get("sites", ()) if s.get("role") == "readout"), "")


def _has_skips(table: Measurements) -> bool:
    """Whether there is a residual stream; the state of a recurrent layer, which owns parameters itself, is none."""
    owners = {n.rpartition(".")[0] for n in table.meta.get("shapes") or {}}
    return any(s.get("kind") == "stream" and s.get("module") not in owners for s in table.meta.get("sites", ()))


@rule(
    "identical units",
    "Do the units of a layer start with different weights?",
    "rank",
    ("rank", "entropy"),
    null="the effective rank of a random matrix is 60 % of its smaller side or more",
    threshold=f"an effective rank below {percent(ALIKE)} of the smaller side at the start",
    source="Marchenko–Pastur: the entropy rank of a square Gaussian matrix is 0.7 n",
    refuted_by="the weights have low rank on purpose",
)
def identical(context: Context) -> Iterator[Finding]:
    """Layers whose units begin alike, and stay alike because they get the same gradients."""
    table = context.table
    if not table.steps or table.steps[0] != 0:
        return
    hits = []
    for s, rank in _at_the_start(table, "rank", "entropy"):
        shape = table.shape(s.site)
        if len(shape) < 2 or is_embedding(table, s.site):
            continue
        side = min(shape[0], int(np.prod(shape[1:])))
        if side >= 8 and rank < ALIKE * side:
            ground = s.evidence(value=rank, step=int(s.steps[0]))
            hits.append(Hit(s.site, "warning", (ground,), 1 - rank / side, 0, int(s.steps[0])))
    yield from together(
        hits,
        what=lambda where, worst: (
            f"The units of {where} start with nearly equal weights: the effective rank of {called(worst.site)} is "
            f"{worst.evidence[0].value:.1f}."
        ),
        why="Units with equal weights get equal gradients and stay equal, so a wide layer works like a single unit.",
        advice="Initialise every weight independently at random: nn.init.kaiming_normal_(weight).",
        remedy=Remedy("reinitialise", 1.0),
    )


@rule(
    "unbalanced layers",
    "Do neighbouring layers start with weights of similar scale?",
    "imbalance",
    ("imbalance", "relative"),
    null="neighbouring layers have weights of similar scale",
    threshold="weight standard deviations (times √fan_in) that differ by a factor of 25 or more, and a relative "
    f"imbalance above {APART:g} at the start",
    source="gradient flow conserves the difference of squared norms, so unbalanced layers stay unbalanced",
    refuted_by="a norm layer between the two removes the scale",
    also=("gradients",),
)
def unbalanced(context: Context) -> Iterator[Finding]:
    """Neighbours of which one holds nearly all the squared weight before any training."""
    table = context.table
    if not table.steps or table.steps[0] != 0:
        return
    gain = dict(gains(table))
    hits = []
    for s, share in _at_the_start(table, "imbalance", "relative"):
        first, _, second = s.site.partition("→")
        a, b = (gain.get(f"{n}.weight", gain.get(n, 0.0)) for n in (first, second))
        if abs(share) > APART and a > 0 and b > 0 and max(a / b, b / a) > 25:
            hits.append(Hit(s.site, "warning", (s.evidence(value=share, step=0),), abs(share), 0, 0))
    pairs = [h.site for h in hits]
    places = tuple(f"{n}.weight" for p in pairs for n in p.split("→"))
    yield from together(
        hits,
        what=lambda where, worst: (
            f"Neighbouring layers start out of balance at {where}: one of the two layers has "
            f"{50 * (1 + worst.size):.1f} % of the sum of their squared weight norms."
        ),
        why="A layer with small weights gets large gradients, and its neighbour gets small gradients. "
        "One learning rate cannot suit both layers.",
        advice="Initialise both layers in the same way. If the layers are already trained, divide the larger "
        "weights and multiply the smaller weights by the same factor: the output stays the same.",
        remedy=Remedy("balance", None, places),
    )


RULES = (too_large, too_small, identical, unbalanced)
