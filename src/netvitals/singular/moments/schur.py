r"""How much of a unit's activity the other units already explain: $1 - b^\top B^{-1} b / D$ for every unit at once.

With $A = E[x x^\top]$ of a layer's input, the Schur complement of entry i is $1/(A^{-1})_{ii}$, so the ratio is
$1/(A_{ii}\,(A^{-1})_{ii})$: 1 for a unit that says something of its own, 0 for one that repeats the others. At a random
start it is near $1 - c_h$ (dead-directions Lemma 18); training makes units redundant and the ratio collapses. The
reference here is the same network drawn anew, on the same batch. Behind a LayerNorm without shift the units obey one
exact relation, $\gamma^{-1} \cdot x = 0$, whatever was learned (§15's algebraic baseline): it is taken out, and a unit
is compared within the rest, $|Pe_i|^4 / (A_{ii}\,A^+_{ii})$ with P the projection off the kernel.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from netvitals.anatomy import channel_dim, layer_kind
from netvitals.capture import Mode, Only, Result, Several, Task, in_mode, inputs_of, picked, preserved, undisturbed
from netvitals.singular.checkpoint.layernorm import ln_kernel

_DEAD = 1e-12  # second moment, over the mean of the layer, below which a unit is silent
_RELATED = 1e-6  # median ratio below which the units obey an exact linear relation; the number is then rounding
RELATED = "its units obey an exact linear relation: no unit has a share of its own"
_KERNEL = 1e-5  # of the root mean square of a channel, below which rows have no component along a norm's kernel
_FLOOR = 1e-10  # relative eigenvalue that a singular A is lifted to


@dataclass(frozen=True, kw_only=True)
class SchurProfile(Result):
    """Schur ratios of one layer's input units, beside a random start's."""

    layer: str
    median: float
    reference: float  # median at a random start; NaN without one
    reference_stderr: float  # over draws
    ratios: Tensor  # one per unit, NaN for silent ones
    silent: int
    row_count: int  # examples × positions
    note: str = ""

    @property
    def collapse(self) -> float:
        """Median over its reference: 1 as at the start, near 0 where units have become redundant."""
        return self.median / self.reference

    def __str__(self) -> str:
        against = (
            ""
            if math.isnan(self.reference)
            else f", {self.reference:.3g} ± {self.reference_stderr:.1g} at a random start"
        )
        return (
            f"{self.layer}: a unit's own share is {self.median:.3g}{against} ({self.row_count} rows, {self.silent} "
            f"silent units){'; ' + self.note if self.note else ''}"
        )


def schur_ratios(rows: Tensor, kernel: Tensor | None = None) -> Tensor:
    r"""$1/(A_{ii}(A^{-1})_{ii})$ for every column of ``rows`` (examples, units), in float64; NaN for silent columns.

    Rows that have no component along a ``kernel`` by construction are compared within its complement.

    >>> schur_ratios(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
    tensor([0.7500, 0.7500], dtype=torch.float64)
    """
    if rows.ndim != 2 or not rows.numel():
        raise ValueError(
            f"activations must have shape (examples, units) with at least one of each, got {tuple(rows.shape)}"
        )
    x = rows.detach().double()
    if not torch.isfinite(x).all():
        raise ValueError("the activations contain NaN or infinity: check the batch and the parameters")
    a = x.T @ x / len(x)
    power = a.diagonal()
    live = power > _DEAD * power.mean().clamp_min(1e-300)
    if kernel is not None and bool(live.all()):
        v = kernel.double() / kernel.norm()
        rest = torch.linalg.qr(torch.cat([v[:, None], torch.eye(len(v)).to(a)], 1))[0][:, 1:]
        values, vectors = torch.linalg.eigh(rest.T @ a @ rest)
        inverse = ((rest @ vectors).square() / values.clamp_min(_FLOOR * float(values[-1]))).sum(1)
        return ((1 - v.square()).square() / (power * inverse)).clamp(0, 1)
    scale = power[live].rsqrt()
    values, vectors = torch.linalg.eigh(a[live][:, live] * scale[:, None] * scale)
    inverse = (vectors.square() / values.clamp_min(_FLOOR * float(values[-1]) if len(values) else 1.0)).sum(1)
    out = torch.full_like(power, math.nan)
    out[live] = (1 / inverse).clamp(0, 1)
    return out


@undisturbed
def schur_profile(
    model: nn.Module,
    batch: Any,
    *,
    mode: Mode = "eval",
    only: Only = None,
    seed: int = 0,
    references: int = 3,
    rows: int = 8192,
) -> Several[SchurProfile]:
    """Schur ratios at the input of every Linear and convolution that follows another one; no loss is needed.

    Args:
        model: the model, which is left as it was.
        batch: one batch as a data loader yields it; a target is not used.
        mode: "eval", "train" (batch statistics, dropout modules off) or "as_is".
        only: names or patterns of layers, or a function of a name.
        seed: of the networks drawn anew.
        references: networks drawn anew for the reference; 0 for none. Modules need ``reset_parameters``.
        rows: at most so many examples × positions, evenly strided.

    Returns:
        One profile a layer.

    >>> net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))
    >>> [profile.layer for profile in schur_profile(net, torch.randn(64, 4), references=1)]
    ['2']
    """
    task = inputs_of(model, batch)
    if rows < 1 or references < 0 or not task.examples:
        raise ValueError(
            "the batch needs at least one example; rows= must be at least 1 and references= at least 0, got "
            f"rows={rows} and references={references}"
        )
    seen = _inputs(task, rows, mode)
    found = {n: seen[n] for n in picked(seen, only, "hidden layer")}
    if not found:
        raise ValueError(
            f"{type(model).__name__} has no hidden Linear or convolution layer; this measurement needs one"
        )
    drawn = _drawn_anew(task, found, references, rows, mode, seed)
    kernels = {name: _kernel(model, value) for name, value in found.items()}
    return Several(tuple(_profile(name, value, kernels[name], drawn[name]) for name, value in found.items()))


def _kernel(model: nn.Module, rows: Tensor) -> Tensor | None:
    """The kernel of a LayerNorm of the model that these rows have no component along; None where there is none."""
    x = rows.double()
    for module in model.modules():
        if isinstance(module, nn.LayerNorm) and module.normalized_shape[-1] == x.shape[1] > 2:
            gain = module.weight if module.weight is not None else torch.ones(x.shape[1])
            kernel = ln_kernel(gain.detach()).to(x)
            if kernel.shape[1] == 1 and bool((x @ kernel).square().mean() < _KERNEL**2 * x.square().mean()):
                return kernel[:, 0]
    return None


def _drawn_anew(
    task: Task, found: dict[str, Tensor], references: int, rows: int, mode: Mode, seed: int
) -> dict[str, list[float]]:
    """The median ratio of every layer in networks drawn anew."""
    drawn: dict[str, list[float]] = {n: [] for n in found}
    with torch.random.fork_rng(devices=[]):
        for i in range(references):
            torch.manual_seed(seed + i)
            twin = copy.deepcopy(task.model)
            for module in twin.modules():
                reset = getattr(module, "reset_parameters", None)
                if callable(reset):
                    reset()
            values = _inputs(replace(task, model=twin), rows, mode)
            for name in found:
                drawn[name].append(_median(schur_ratios(values[name], _kernel(twin, values[name]))))
    return drawn


def _profile(name: str, value: Tensor, kernel: Tensor | None, drawn: list[float]) -> SchurProfile:
    ratios, ref = schur_ratios(value, kernel), torch.tensor(drawn, dtype=torch.float64)
    note = ""
    if len(value) < 4 * value.shape[1]:
        note = f"only {len(value)} rows for {value.shape[1]} units: every ratio is biased down"
    elif _median(ratios) < _RELATED:
        note = RELATED
    elif kernel is not None:
        note = "without the kernel of the LayerNorm before it"
    return SchurProfile(
        layer=name,
        median=_median(ratios),
        reference=float(ref.mean()) if len(ref) else math.nan,
        reference_stderr=float(ref.std() / len(ref) ** 0.5) if len(ref) > 1 else math.nan,
        ratios=ratios,
        silent=int(ratios.isnan().sum()),
        row_count=len(value),
        note=note,
    )


def _median(ratios: Tensor) -> float:
    live = ratios[~ratios.isnan()]
    return float(live.median()) if len(live) else math.nan


def _inputs(task: Task, rows: int, mode: Mode) -> dict[str, Tensor]:
    """Input rows of every layer but the first, by name; a convolution's input channels count as units."""
    model = task.model
    kept: dict[str, Tensor] = {}
    handles = []

    def hook(name: str) -> Any:
        def note(module: nn.Module, args: tuple[Tensor, ...]) -> None:
            value = args[0].detach()
            value = value.movedim(channel_dim(module), -1)
            value = value.reshape(-1, value.shape[-1])
            kept.setdefault(name, value[:: -(-len(value) // rows)])

        return note

    for name, module in model.named_modules():
        if layer_kind(module) in ("linear", "convolution"):
            handles.append(module.register_forward_pre_hook(hook(name)))
    try:
        with preserved(model), in_mode(model, mode), torch.no_grad():
            task.forward()
    finally:
        for handle in handles:
            handle.remove()
    first = next(iter(kept), None) if not any(isinstance(m, nn.Embedding) for m in model.modules()) else None
    return {n: v for n, v in kept.items() if n != first}
