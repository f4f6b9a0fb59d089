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
    "Are batch norm and dropout in train mode during training?",
    "training",
    ("training", "eval_norms"),
    null="batch norm uses the statistics of the batch while its model is trained",
    threshold="a batch norm in eval mode that has never processed a batch in train mode, or that was in train mode "
    "before",
    source="exact: num_batches_tracked counts the batches",
    refuted_by="the statistics were trained before and are frozen on purpose",
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
    kind = "dropout" if worst is drops else "batch norm"
    yield Finding(
        "critical" if worst is unused else "warning",
        "",
        f"Training runs with {kind} in eval mode ({count} layer{'s' if count != 1 else ''}). "
        + (
            "The running statistics of batch norm were never updated."
            if worst is unused
            else "Earlier steps ran in train mode."
        ),
        why="In eval mode dropout does nothing, and batch norm uses stored statistics that do not follow the weights.",
        advice="Call model.train() before the training loop and after each evaluation.",
        evidence=(worst.evidence(change=True),),
        since=since.since if since else None,
        until=since.until if since else None,
        remedy=Remedy("train_mode"),
    )


@rule(
    "cut off from the loss",
    "Does every parameter in the optimizer get a gradient?",
    "gradients",
    ("gradients", "update_norm"),
    null="every layer that runs in the forward pass gets a gradient",
    threshold="a layer that runs and never gets a gradient; critical if this includes the first layer",
    source="exact: autograd leaves .grad at None where no path leads to the loss",
    refuted_by="these parameters get a gradient on other steps",
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
        f"{names(sites)} never {'get' if len(sites) > 1 else 'gets'} a gradient, although the forward pass uses "
        f"{'them' if len(sites) > 1 else 'it'}."
        + (
            ""
            if whole
            else f" Earlier layers do get a gradient, so {names(sites)} may belong to a branch whose output is "
            "not used."
        ),
        why="Without a gradient these layers keep their initial weights. The autograd graph is cut between these "
        "layers and the loss.",
        advice="Remove the detach(), .data, numpy call or no_grad() between these layers and the loss.",
        evidence=tuple(s.evidence() for s in lost[:3]),
        sites=sites,
        since=int(lost[0].steps[0]),
        until=int(lost[0].steps[-1]),
        remedy=Remedy("attach", None, sites),
    )


@rule(
    "frozen",
    "Have the frozen layers been trained before?",
    "drift",
    ("drift", "max"),
    null="frozen layers have pretrained weights",
    threshold="the entries of frozen weights are uniform, as nn.Linear and nn.Conv2d initialise them",
    source=f"max |w| / std is √3 for uniform values; {UNIFORM[0]:g} to {UNIFORM[1]:g} counts as uniform",
    refuted_by="random features are intended",
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
        f"{names(still)} {'are' if len(still) > 1 else 'is'} frozen with PyTorch's initial random weights. "
        f"Frozen layers hold {percent(share)} of all weights.",
        why="Frozen layers with random weights give random features and cannot improve.",
        advice="Load pretrained weights before freezing: model.load_state_dict(...). Otherwise set requires_grad = "
        "True on these layers and pass them to the optimizer.",
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
