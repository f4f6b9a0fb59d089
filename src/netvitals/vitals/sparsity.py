r"""Sparsity: how much of an activation's output is zero, or as good as zero.

``hard`` = share of exact zeros; ``soft`` = share of $|a| \le \tau \max|a|$ (τ = 0.01); ``soft_abs`` = share of
$|a| \le 10^{-3}$ (GELU and its kin have no exact zeros); ``neg_preact`` = share of $p \le 0$, comparable across
activations; ``dead_units`` and ``always_on`` = shares of units that are zero on everything, and on nothing, looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from netvitals.capture import ActivationStack, ActivationView, Recorder, Vital
from netvitals.drift.reductions import unit_shares
from netvitals.drift.sparsity_meter import (
    SOFT_ABSOLUTE,
    SOFT_RELATIVE,
    LayerFlops,
    SiteSparsity,
    SparsityReport,
    measure,
)
from netvitals.vitals._pooling import Pool, Rows, Table

__all__ = ["LayerFlops", "SiteSparsity", "Sparsity", "SparsityReport", "TensorSparsity", "measure", "tensor_sparsity"]

METRICS = ("hard", "neg_preact", "dead_units", "always_on")
SOFT_METRICS = ("soft", "soft_abs")
SOFT_EVERY = 5  # the two that need passes of their own are read on every fifth look


@dataclass(frozen=True)
class TensorSparsity:
    """Sparsity of one activation tensor; shares in [0, 1]."""

    hard: float
    soft: float
    soft_abs: float
    neg_preact: float
    dead_units: float
    always_on: float
    elements: int

    def __str__(self) -> str:
        return (
            f"{self.hard:.1%} zero, {self.soft:.1%} near zero, {self.dead_units:.1%} of units dead, "
            f"{self.always_on:.1%} always on ({self.elements} elements)"
        )


def tensor_sparsity(
    p: Tensor, a: Tensor, *, channel_dim: int = 1, tau: float = SOFT_RELATIVE, tau_abs: float = SOFT_ABSOLUTE
) -> TensorSparsity:
    """All shares for one tensor of pre-activations ``p`` and its activations ``a``.

    >>> p = torch.tensor([[1.0, -1.0], [2.0, -2.0]])
    >>> print(tensor_sparsity(p, p.relu()))
    50.0% zero, 50.0% near zero, 50.0% of units dead, 50.0% always on (4 elements)
    """
    if p.shape != a.shape or a.numel() == 0:
        raise ValueError(f"p and a must have one shape with elements, got {tuple(p.shape)} and {tuple(a.shape)}")
    if not 0 <= tau < 1:
        raise ValueError(f"tau is a share of the largest activation and must lie in [0, 1), got {tau}")
    size = a.detach().abs()
    zero = (size == 0).movedim(channel_dim, -1).reshape(-1, a.shape[channel_dim] if a.ndim > 1 else 1)

    def share(mask: Tensor) -> float:
        return float(mask.double().mean())

    return TensorSparsity(
        share(zero),
        share(size <= tau * size.max()),
        share(size <= tau_abs),
        share(p <= 0),
        share(zero.all(0)),
        share(~zero.any(0)),
        a.numel(),
    )


class Sparsity(Vital):
    """The six shares at every activation on the measured batch, and pooled for the model.

    ``dead_units`` here means dead on this batch; over a whole data set use :func:`measure`. ``soft`` and ``soft_abs``
    are read on every fifth look.

    Args:
        tau: soft sparsity counts |a| up to this share of the largest |a|.
        tau_abs: and, as ``soft_abs``, up to this value.
    """

    name = "sparsity"
    takes_stacks = True

    def __init__(self, tau: float = SOFT_RELATIVE, tau_abs: float = SOFT_ABSOLUTE) -> None:
        if not 0 <= tau < 1:
            raise ValueError(f"tau is a share of the largest activation and must lie in [0, 1), got {tau}")
        self.tau, self.tau_abs = tau, tau_abs
        self._pool, self._soft_pool = Pool(METRICS), Pool(SOFT_METRICS)
        self._table, self._soft_table = Table(self._finish), Table(self._finish_soft)
        self._recorder: Recorder | None = None
        self._observations = 0

    def activation(self, recorder: Recorder, view: ActivationView | ActivationStack) -> None:
        stack = view.stack
        if stack.elements == 0:
            return
        # a ReLU is zero exactly where its input is not positive
        on = stack.positive_share if stack.is_relu else torch.ne(stack.size, 0, out=stack.scratch).mean(stack.over)
        self._table.add(recorder, stack.outline, (on, stack.positive_share))
        if self._recorder is not recorder:
            self._recorder, self._observations = recorder, self._observations + 1
        if self._observations % SOFT_EVERY == 1:
            flat, scratch = (t.reshape(len(stack.sites), -1) for t in (stack.size, stack.scratch))
            soft = torch.le(flat, (stack.max * self.tau)[:, None], out=scratch).mean(1)
            soft_abs = torch.le(flat, self.tau_abs, out=scratch).mean(1)
            self._soft_table.add(recorder, stack.outline, (soft, soft_abs))

    def _finish(self, recorder: Recorder, rows: Rows, on: np.ndarray, positive: np.ndarray) -> None:
        shares = unit_shares(on, total=lambda v: np.add.reduceat(v, rows.starts), units=rows.channels)
        values = np.array([shares.hard, 1 - rows.mean(positive), shares.dead, shares.always_on]).T
        recorder.put(rows.sites, METRICS, values)
        self._pool.add(recorder, rows, values)

    def _finish_soft(self, recorder: Recorder, rows: Rows, *shares: np.ndarray) -> None:
        values = np.array(shares).T
        recorder.put(rows.sites, SOFT_METRICS, values)
        self._soft_pool.add(recorder, rows, values)
