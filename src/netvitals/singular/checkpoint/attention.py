r"""The V–O diagnostic on a real attention layer: $R_V - R_O = 2$ (dead-directions Proposition 54).

Let one singular value of a head's output projection go to t. The gradient that reaches the values along its right
singular vector carries exactly one factor t more than the gradient at the output along the left one, so the second
moments' exponents differ by two, whatever surrounds the layer: masks, other heads, norms, skips. A layer that
deviates has something between its values and its output projection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from netvitals.anatomy import Anatomy, Heads, Layer, chart, plain_kernels
from netvitals.capture import (
    LossFn,
    Only,
    Result,
    Several,
    Task,
    in_double,
    inputs_of,
    likelihood_of,
    output_tensor,
    picked,
    resolve_loss,
    undisturbed,
)
from netvitals.singular.checkpoint.candidates import positions
from netvitals.singular.checkpoint.pairs import Side
from netvitals.singular.orders.rates import RateFit, rate_fit

_TS = tuple(np.geomspace(1e-4, 1e-2, 5).tolist())


@dataclass(frozen=True, kw_only=True)
class ValueOutput(Result):
    """One head of one attention layer, or the heads that share its values."""

    layer: str
    head: int  # of the values
    difference: float  # R_V − R_O, 2 where nothing lies between
    value: RateFit
    output: RateFit
    weakest: float  # the head's smallest singular value of the output projection, over its largest
    passes: bool  # |difference − 2| < 0.05

    def __str__(self) -> str:
        return (
            f"{self.layer}, head {self.head}: R_V − R_O = {self.difference:.3f}"
            f"{'' if self.passes else ' (expected 2)'}; smallest singular value {self.weakest:.2g} of the largest"
        )


@undisturbed
def value_output(
    model: nn.Module,
    loss_fn: LossFn,
    batch: Any,
    *,
    only: Only = None,
    progress: Callable[[int, int], None] | None = None,
    ts: Sequence[float] = _TS,
) -> Several[ValueOutput]:
    """Scan every head's weakest output direction of every attention layer.

    The heads, and the rows and columns that belong to them, are those of the anatomy of one pass. Heads that share
    their values are read together.

    Args:
        model: the model; a copy of it in float64 is run, in eval mode.
        loss_fn: "ce" (over the last dimension), "mse", or torch's losses of that kind.
        batch: one batch as a data loader yields it, with a target.
        only: names or patterns of output projections, or a function of a name.
        progress: called with (heads scanned, all).
        ts: sizes of the weakest singular value, over the largest.

    Returns:
        One reading a head of the values; ``skipped`` has the attention layers that could not be read.

    >>> class Attention(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.q, self.k, self.v, self.o = (nn.Linear(4, 4) for _ in range(4))
    ...     def forward(self, x):
    ...         q, k, v = (part(x).unflatten(-1, (2, 2)).transpose(1, 2) for part in (self.q, self.k, self.v))
    ...         return self.o(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
    >>> batch = torch.randn(4, 3, 4), torch.randn(4, 3, 4)
    >>> len(value_output(Attention(), "mse", batch))  # one measurement a head
    2
    """
    resolve_loss(loss_fn)
    given = inputs_of(model, batch)
    if not given.targets or not isinstance(given.targets[0], Tensor):
        raise ValueError("the loss needs a target: give the batch as a pair (inputs, targets) or a dict with labels")
    loss = likelihood_of(loss_fn, given.targets[0])
    if not given.examples:
        raise ValueError("the batch is empty: give at least one example")
    task = in_double(given)
    task.model.eval()
    with plain_kernels():
        args = (task.args, dict(task.kwargs))
        anatomy = chart(task.model, args, forward=lambda twin, parts: twin(*parts[0], **parts[1]))
    if not anatomy.heads:
        raise ValueError(
            f"no attention was found in {type(model).__name__} on this batch: nowhere is a softmax of q·k "
            "multiplied by a third tensor"
        )
    skipped: dict[str, str] = {}
    groups: list[_Group] = []
    runs = _runs(task)
    chosen = picked([_place(block) for block in anatomy.heads], only, "output projection")
    for block in anatomy.heads:
        if _place(block) in chosen:
            found = _groups(block, anatomy, task.model, runs)
            if isinstance(found, str):
                skipped[_place(block)] = found
            else:
                groups += found
    out: list[ValueOutput] = []
    for group in groups:
        reading = _scan(task, loss, group, ts)
        if reading is None:
            skipped[f"{group.place}, head {group.head}"] = "its output projection is zero: it has no weakest direction"
        else:
            out.append(reading)
        if progress is not None:
            progress(len(out), len(groups))
    if not out:
        raise ValueError(
            "none of the attention layers could be measured: " + "; ".join(f"{n}: {why}" for n, why in skipped.items())
        )
    return Several(tuple(out), skipped)


@dataclass(frozen=True, kw_only=True)
class _Group:
    """The heads that read the same values, with the layers that make the values and the output."""

    place: str
    head: int
    value: Layer
    rows: Tensor  # of the value layer's outputs, (channels,)
    output: Layer
    columns: tuple[Side, ...]  # of the output projection, one a head


def _place(block: Heads) -> str:
    return block.o.layer if block.o is not None else block.name


def _runs(task: Task) -> Counter[str]:
    """How often each module's own forward runs in a pass."""
    runs: Counter[str] = Counter()
    names = [n for n, _ in task.model.named_modules()]
    count = lambda name: lambda *_: runs.update([name])
    handles = [task.model.get_submodule(n).register_forward_hook(count(n)) for n in names]
    try:
        with torch.no_grad():
            task.forward()
    finally:
        for handle in handles:
            handle.remove()
    return runs


def _groups(block: Heads, anatomy: Anatomy, model: nn.Module, runs: Counter[str]) -> list[_Group] | str:
    """The heads of a block by the values that they read, or why they are not known."""
    v, o = block.v, block.o
    if v is None or o is None or v.also:
        return "its values, or what they enter, are not made by one layer"
    if not v.heads or not o.heads or len(o.heads) % len(v.heads):
        return "which rows and columns belong to which head could not be told"
    made = {layer.operation: layer for layer in anatomy.layers}
    value, output = made[v.operation], made[o.operation]
    known: dict[str, Tensor] = dict(model.named_parameters(remove_duplicate=False))
    for layer in (value, output):
        if runs[layer.name] > 1:
            return f"{layer.name} runs {runs[layer.name]} times per forward pass"
        if layer.reparametrised or layer.weight not in known or layer.part.index:
            return f"the weight of {layer.name} is made of others"
        if not runs[layer.name]:
            return f"{layer.name} does not run as a module of its own: the gradient at its output is out of reach"
    shared = len(o.heads) // len(v.heads)
    found = []
    for head, part in enumerate(v.heads):
        rows = positions(part, value.out_dim, known)
        some = [positions(x, 1 - output.out_dim, known) for x in o.heads[head * shared : (head + 1) * shared]]
        if any(len(at) != len(rows) for at in some):
            return "rows and columns could not be matched"
        columns = tuple(Side(parameter=output.weight, dim=1 - output.out_dim, at=at[:, None]) for at in some)
        found.append(_Group(place=o.layer, head=head, value=value, rows=rows, output=output, columns=columns))
    return found


def _scan(task: Task, loss: str, group: _Group, ts: Sequence[float]) -> ValueOutput | None:
    """Rates along the weakest direction of a group; None where its output projection is zero."""
    projection = task.model.get_parameter(group.output.weight)
    kept = projection.detach().clone()
    blocks = [side.read(kept).T for side in group.columns]  # (outputs, channels) of every head
    u, s, vh = torch.linalg.svd(torch.cat(blocks), full_matrices=False)
    if float(s[0]) == 0:
        return None
    lefts = u[:, -1].reshape(len(blocks), -1)
    moments: list[tuple[float, float]] = []
    try:
        for t in ts:
            with torch.no_grad():
                projection.copy_(kept)
                for side, left in zip(group.columns, lefts):
                    projection.add_(side.written(kept, torch.outer(vh[-1], left) * (t * s[0] - s[-1])))
            dv, do = _gradients(task, loss, (group.value, group.output))
            along = dv.index_select(-1, group.rows.to(dv.device)) @ vh[-1]
            moments.append((float(along.square().mean()), float((do @ lefts.T).square().mean())))
    finally:
        with torch.no_grad():
            projection.copy_(kept)
    v_fit, o_fit = (rate_fit(ts, [m[i] for m in moments], floor=0.0) for i in (0, 1))
    gap = v_fit.slope - o_fit.slope
    return ValueOutput(
        layer=group.place.rpartition(".")[0] or group.place,
        head=group.head,
        difference=gap,
        value=v_fit,
        output=o_fit,
        weakest=float(s[-1] / s[0]),
        passes=abs(gap - 2) < 0.05,
    )


def _gradients(task: Task, loss: str, layers: tuple[Layer, Layer]) -> list[Tensor]:
    """Gradients at the outputs of two layers, channels last."""
    kept: dict[str, Tensor] = {}
    model, y = task.model, task.targets[0]
    names = [layer.name for layer in layers]
    handles = [model.get_submodule(n).register_forward_hook(lambda m, a, o, n=n: kept.__setitem__(n, o)) for n in names]
    try:
        with torch.enable_grad():
            out = output_tensor(task.forward(), model)
            value = (
                F.cross_entropy(out.flatten(0, -2), y.flatten(), reduction="sum")
                if loss == "ce"
                else 0.5 * (out - y).square().sum()
            )
            found = torch.autograd.grad(value, [kept[n] for n in names])
            return [g.movedim(layer.channel_dim, -1) for g, layer in zip(found, layers)]
    finally:
        for handle in handles:
            handle.remove()
