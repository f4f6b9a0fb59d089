r"""What enters a norm, along the direction that the norm's outputs never have: $1 - b^\top B^{-1} b / D$ at $v_{LN}$.

D is the second moment of the inputs along $v_{LN} = \gamma^{-1}/\|\gamma^{-1}\|$, B that of the rest and b what joins
them: the share of the component that the other channels do not tell. It is one for inputs without correlations and near
zero where the component is redundant (dead-directions §15: the Schur ratio at the kernel's direction).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from netvitals.capture import Mode, Only, Result, Several, in_mode, inputs_of, picked, preserved, undisturbed
from netvitals.singular.checkpoint.layernorm import NORMS, ln_kernel


@dataclass(frozen=True, kw_only=True)
class KernelShare(Result):
    """The share of one norm.

    Returned by :func:`kernel_shares`.

    Attributes:
        norm: name of the module.
        ratio: share of the component along the kernel's direction that the other channels do not tell.
        size: second moment along that direction over the mean of a channel.
        row_count: examples × positions; with no more than channels the ratio is zero for that reason alone.
    """

    norm: str
    ratio: float
    size: float
    row_count: int

    def __str__(self) -> str:
        return f"{self.norm}: {self.ratio:.3g} of the component is its own ({self.row_count} rows)"


@undisturbed
def kernel_shares(model: nn.Module, batch: Any, *, mode: Mode = "eval", only: Only = None) -> Several[KernelShare]:
    """The Schur ratio of every norm's inputs at the direction of its kernel; no loss is needed.

    >>> net = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6))
    >>> [share.norm for share in kernel_shares(net, torch.randn(50, 4))]
    ['1']
    """
    task = inputs_of(model, batch)
    norms = {n: m for n, m in model.named_modules() if isinstance(m, NORMS)}
    seen: dict[str, list[Tensor]] = {n: [] for n in picked(norms, only, "norm")}
    if not seen:
        raise ValueError(f"{type(model).__name__} has no LayerNorm or RMSNorm; this measurement needs one")
    handles = [norms[n].register_forward_pre_hook(lambda m, a, n=n: seen[n].append(a[0].detach())) for n in seen]
    try:
        with preserved(model), in_mode(model, mode), torch.no_grad():
            task.forward()
    finally:
        for handle in handles:
            handle.remove()
    skipped = {n: "never called on this batch" for n, found in seen.items() if not found}
    shares = []
    for name, found in seen.items():
        gain = getattr(norms[name], "weight", None)
        width = found[0].shape[-1] if found else 0
        kernel = ln_kernel(gain if isinstance(gain, Tensor) else torch.ones(width))
        if found and kernel.shape[1] > 1:
            skipped[name] = f"{kernel.shape[1]} of its gains are zero: the kernel is no single direction"
        elif found:
            rows = torch.cat([o.reshape(-1, width) for o in found]).double()
            shares.append(_share(name, rows, kernel[:, 0].to(rows)))
    return Several(tuple(shares), skipped)


def _share(name: str, rows: Tensor, v: Tensor) -> KernelShare:
    """By regression of the component on the rest, which loses no digits to a moment matrix."""
    component = rows @ v
    rest = torch.linalg.qr(torch.cat([v[:, None], torch.eye(len(v)).to(rows)], 1))[0][:, 1:]
    u, s, _ = torch.linalg.svd(rows @ rest, full_matrices=False)
    u = u[:, s > 1e-12 * s[0]] if len(s) and s[0] > 0 else u[:, :0]
    left = component - u @ (u.T @ component)
    total, mean = component.square().mean(), rows.square().mean()
    ratio = float(left.square().mean() / total) if total > 0 else 0.0
    return KernelShare(norm=name, ratio=ratio, size=float(total / mean) if mean > 0 else 0.0, row_count=len(rows))
