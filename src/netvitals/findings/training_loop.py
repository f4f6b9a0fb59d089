"""Is the training loop written as it should be: gradients cleared, modes set, every parameter trained?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from netvitals.findings.rules import Context, names, percent, rule
from netvitals.findings.series import Measurements, Series
from netvitals.findings.statistics import last_stretch
from netvitals.runs import Finding, Remedy

CARRIED = 0.05  # what is left of old gradients, over the new one; exactly 0 after zero_grad
MOST = 0.8  # share of the measurements that must show it
SHARE = 0.3  # of the weights outside the optimizer: more than a head or an embedding that was left out on purpose
UNIFORM = (1.60, 1.85)  # max |w| over the spread of a tensor as torch draws it (√3 for a uniform one)


@rule(
    "eval mode",
    "Do batch norms and dropouts stand in training mode?",
    "training",
    ("training", "eval_norms"),
    null="while parameters are trained, batch norms use the batch; only those with trained statistics may rest",
    threshold="a batch norm in eval mode that never saw a batch, or one that was in training mode before",
    source="an identity: num_batches_tracked counts the batches a norm has seen",
    refuted_by="statistics that were trained before and are frozen on purpose",
)
def eval_mode(context: Context) -> Iterator[Finding]:
    """Batch norms or dropouts that are switched to eval mode while parameters move."""
    table = context.table
    shut, unused, drops = (
        table.get("training", "model", m) for m in ("eval_norms", "unused_statistics", "eval_dropouts")
    )
    if shut is None or unused is None or drops is None or table.meta.get("probe"):
        return
    fresh = unused.values > 0
    switched = [s for s in (shut, drops) if s.last > 0 and s.values[0] < s.last and (s.values[-2:] > 0).all()]
    if not fresh.any() and not switched:
        return
    worst = unused if fresh.any() else switched[0]
    since = last_stretch(worst.steps, worst.values > worst.values.min() if switched else fresh)
    count = int(worst.last)
    what = f"{count} batch norm{'s' if count != 1 else ''}" if worst is not drops else f"{count} dropouts"
    stated = "have never seen a batch" if worst is unused else "were in training mode before"
    yield Finding(
        "critical" if worst is unused else "warning",
        "",
        f"{what.capitalize()} stand in eval mode while the model trains, and {stated}.",
        why="In eval mode a batch norm divides by its running statistics. They do not follow the weights, so it "
        "normalises nothing; dropout does nothing.",
        advice="Call model.train() before the training loop, and again after each evaluation.",
        evidence=(worst.evidence(change=True),),
        since=since.since if since else None,
        until=since.until if since else None,
        remedy=Remedy("train_mode"),
    )


@rule(
    "cut off from the loss",
    "Does a gradient reach every parameter of the optimizer?",
    "gradients",
    ("gradients", "update_norm"),
    null="a layer that ran in the forward pass gets a gradient in the backward pass",
    threshold="a layer that ran and whose gradient was never there, and all layers before it (for a warning)",
    source="an identity: autograd leaves None where no path leads to the loss",
    refuted_by="a gradient at these parameters on some step",
)
def cut_off(context: Context) -> Iterator[Finding]:
    """Layers that ran, are in the optimizer, and got no gradient on any measured step."""
    table = context.table
    moved = table.at("gradients", "update_norm")
    graded = {s.site for s in table.at("gradients", "grad_norm", finite=False)}
    ran = {str(s.get("module", "")) for s in table.meta.get("sites", ()) if s.get("kind") in ("linear", "norm")}
    lost = [s for s in moved if s.site not in graded and s.site.partition("[")[0].rpartition(".")[0] in ran]
    if not lost or not graded:
        return
    sites = tuple(s.site for s in lost)
    # a cut takes everything before it; a branch whose output nobody uses (a pooler) leaves the layers before it a
    # gradient
    order = [str(s.get("module", "")) for s in table.meta.get("sites", ()) if s.get("kind") in ("linear", "norm")]
    owners = {name.rpartition(".")[0] for name in sites}
    whole = bool(order) and order[0] in owners
    yield Finding(
        "critical" if whole else "note",
        sites[0],
        f"{names(sites)} {'is' if len(sites) == 1 else 'are'} cut off from the loss: no gradient was ever there."
        + ("" if whole else " Layers before have one, so that it may be a branch whose output is not used."),
        why="These layers ran, but between them and the loss the graph is broken: a detach(), a .data, a numpy call "
        "or a "
        "no_grad() on the way.",
        advice="Look at what comes right after the last of them, and take the detach() or no_grad() out.",
        evidence=tuple(s.evidence() for s in lost[:3]),
        sites=sites,
        since=int(lost[0].steps[0]),
        until=int(lost[0].steps[-1]),
        remedy=Remedy("attach", None, sites),
    )


@rule(
    "frozen",
    "Is what is frozen trained already?",
    "drift",
    ("drift", "max"),
    null="what is frozen was trained before, so that its weights are no longer as torch draws them",
    threshold="frozen matrices whose entries fill a uniform interval as nn.Linear and nn.Conv2d draw it",
    source=f"max |w| / std is √3 of a uniform draw; between {UNIFORM[0]:g} and {UNIFORM[1]:g} counts as one",
    refuted_by="weights that were trained elsewhere, or random features that are wanted",
)
def frozen(context: Context) -> Iterator[Finding]:
    """Frozen layers that still are as they were drawn."""
    table = context.table
    stated = table.meta.get("untrained")
    if not isinstance(stated, dict):
        return
    still = [
        n
        for n, why in stated.items()
        if why == "frozen" and table.shape(n) and _as_drawn(table, n) and not _is_copy(table, n, stated)
    ]
    if not still:
        return
    share = _share(table, [n for n, why in stated.items() if why == "frozen"])
    yield Finding(
        "warning",
        still[0],
        f"{names(still)} {'is' if len(still) == 1 else 'are'} frozen and untrained: {percent(share)} of the weights do "
        "not learn, and their entries are spread as torch draws them.",
        why="Freezing keeps what was learned; here nothing was. Random layers pass on random features.",
        advice="Set requires_grad = True again and give them to the optimizer, or load the weights they should have.",
        evidence=tuple(s.evidence() for n in still[:3] if (s := table.get("drift", n, "max")) is not None),
        sites=tuple(still),
        since=0,
        until=table.steps[-1] if table.steps else None,
        remedy=Remedy("unfreeze", None, tuple(still)),
    )


def _share(table: Measurements, left: list[str]) -> float:
    """The share of the model's weights that some tensors hold, by their sizes, else by their number."""
    shapes = {n: float(np.prod(s)) for n, s in (table.meta.get("shapes") or {}).items()}
    total = sum(shapes.values())
    return sum(shapes.get(n, 0.0) for n in left) / total if total else 0.0


def _is_copy(table: Measurements, name: str, untrained: Mapping[str, str]) -> bool:
    """Whether a trained network has the same tensor: a target network, or an average of the weights."""
    place = name.partition(".")[2]
    shapes = table.meta.get("shapes") or {}
    return any(
        other not in untrained and other.partition(".")[2] == place and shape == shapes.get(name)
        for other, shape in shapes.items()
        if place
    )


def _as_drawn(table: Measurements, name: str) -> bool:
    """Whether the entries of a tensor fill a uniform interval around zero."""
    curves = [table.get("drift", name, m) for m in ("min", "max", "weight_std")]
    if any(c is None or not len(c.finite) for c in curves):
        return False
    low, high, std = (c.end for c in curves if isinstance(c, Series))
    if std <= 0:
        return False
    return all(UNIFORM[0] < side / std < UNIFORM[1] for side in (-low, high))


RULES = (eval_mode, cut_off, frozen)
