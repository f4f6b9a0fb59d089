r"""The V–O diagnostic on a real attention layer: $R_V - R_O = 2$ (dead-directions Proposition 54).

Let one singular value of a head's output projection go to t. The gradient that reaches the values along its right
singular vector carries exactly one factor t more than the gradient at the output along the left one, so the second
moments' exponents differ by two, whatever surrounds the layer: masks, other heads, norms, skips. A layer that
deviates has something between its values and its output projection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from netvitals.capture import (
    LossFn,
    Result,
    Several,
    Task,
    in_double,
    inputs_of,
    likelihood_of,
    output_tensor,
    resolve_loss,
    undisturbed,
)
from netvitals.singular.orders.rates import RateFit, rate_fit

OUTPUTS = ("out", "out_proj", "o_proj", "wo", "proj", "c_proj", "to_out")
VALUES = ("v", "v_proj", "wv", "value", "to_v", "qkv", "c_attn", "in_proj", "to_qkv")
_TS = tuple(np.geomspace(1e-4, 1e-2, 5).tolist())


@dataclass(frozen=True, kw_only=True)
class ValueOutput(Result):
    """One head of one attention layer."""

    layer: str
    head: int
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
    progress: Callable[[int, int], None] | None = None,
    heads: int | None = None,
    layers: Sequence[tuple[str, str]] | None = None,
    ts: Sequence[float] = _TS,
) -> Several[ValueOutput]:
    """Scan every head's weakest output direction of every attention layer.

    Args:
        model: the model; a copy of it in float64 is run, in eval mode.
        loss_fn: "ce" (over the last dimension), "mse", or torch's losses of that kind.
        batch: what a loader yields, with a target.
        progress: called with (heads scanned, all).
        heads: heads per layer; by default the attribute ``heads`` or ``num_heads`` of the attention module, else 1.
        layers: pairs (value projection, output projection) by name; by default found by their usual names. A fused
            projection of 3d rows is read from its last third.
        ts: sizes of the weakest singular value, over the largest.

    Returns:
        One reading a head.

    >>> class Attention(nn.Module):
    ...     heads = 2
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.q, self.k, self.v, self.o = (nn.Linear(4, 4) for _ in range(4))
    ...     def forward(self, x):
    ...         q, k, v = (part(x).unflatten(-1, (2, 2)).transpose(1, 2) for part in (self.q, self.k, self.v))
    ...         return self.o(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
    >>> batch = torch.randn(4, 3, 4), torch.randn(4, 3, 4)
    >>> len(value_output(Attention(), "mse", batch, layers=[("v", "o")]))  # one measurement a head
    2
    """
    resolve_loss(loss_fn)
    given = inputs_of(model, batch)
    if not given.targets or not isinstance(given.targets[0], Tensor):
        raise ValueError("the loss needs a target: give the batch as a pair (inputs, targets) or a dict with labels")
    loss = likelihood_of(loss_fn, given.targets[0])
    if not given.examples:
        raise ValueError("the batch is empty: a gradient needs at least one example")
    task = in_double(given)
    twin = task.model.eval()
    pairs = list(layers) if layers is not None else _find(twin)
    if not pairs:
        raise ValueError(
            f"no attention layer with separate value and output projections was found in "
            f"{type(model).__name__}; name them with layers=[(value, output), ...]"
        )
    counts = [heads or _heads(twin, output) for _, output in pairs]
    out: list[ValueOutput] = []
    for (value, output), count in zip(pairs, counts):
        for head in range(count):
            out.append(_scan(task, loss, value, output, head, count, ts))
            if progress is not None:
                progress(len(out), sum(counts))
    return Several(tuple(out))


def _heads(model: nn.Module, output: str) -> int:
    parent = model.get_submodule(output.rpartition(".")[0])
    return int(getattr(parent, "heads", None) or getattr(parent, "num_heads", None) or 1)


def _find(model: nn.Module) -> list[tuple[str, str]]:
    pairs = []
    for name, module in model.named_modules():
        parts = {n: m for n, m in module.named_children() if isinstance(m, nn.Linear)}
        value = next((n for n in VALUES if n in parts), None)
        output = next((n for n in OUTPUTS if n in parts), None)
        if value is not None and output is not None:
            prefix = f"{name}." if name else ""
            pairs.append((prefix + value, prefix + output))
    return pairs


def _scan(task: Task, loss: str, value: str, output: str, head: int, heads: int, ts: Sequence[float]) -> ValueOutput:
    projection = task.model.get_submodule(output).get_parameter("weight")
    width = projection.shape[1]
    if width % heads:
        raise ValueError(f"{output} reads {width} channels, which do not divide into {heads} heads")
    mine = slice(head * width // heads, (head + 1) * width // heads)
    kept = projection.detach().clone()
    u, s, vh = torch.linalg.svd(kept[:, mine], full_matrices=False)
    moments: list[tuple[float, float]] = []
    try:
        for t in ts:
            with torch.no_grad():
                projection[:, mine] = kept[:, mine] + torch.outer(u[:, -1], vh[-1]) * (t * s[0] - s[-1])
            dv, do = _gradients(task, loss, (value, output))
            at = dv.shape[-1] - width + mine.start  # the values are the last rows of a fused projection
            along = dv[..., at : at + vh.shape[1]] @ vh[-1]
            moments.append((float(along.square().mean()), float((do @ u[:, -1]).square().mean())))
    finally:
        with torch.no_grad():
            projection.copy_(kept)
    v_fit, o_fit = (rate_fit(ts, [m[i] for m in moments], floor=0.0) for i in (0, 1))
    gap = v_fit.slope - o_fit.slope
    return ValueOutput(
        layer=output.rpartition(".")[0] or output,
        head=head,
        difference=gap,
        value=v_fit,
        output=o_fit,
        weakest=float(s[-1] / s[0]),
        passes=abs(gap - 2) < 0.05,
    )


def _gradients(task: Task, loss: str, names: tuple[str, str]) -> list[Tensor]:
    kept: dict[str, Tensor] = {}
    model, y = task.model, task.targets[0]
    handles = [model.get_submodule(n).register_forward_hook(lambda m, a, o, n=n: kept.__setitem__(n, o)) for n in names]
    try:
        with torch.enable_grad():
            out = output_tensor(task.forward(), model)
            value = (
                F.cross_entropy(out.flatten(0, -2), y.flatten(), reduction="sum")
                if loss == "ce"
                else 0.5 * (out - y).square().sum()
            )
            return list(torch.autograd.grad(value, [kept[n] for n in names]))
    finally:
        for handle in handles:
            handle.remove()
