r"""Sparsity: how much of an activation's output is zero, or as good as zero.

``hard`` = share of exact zeros; ``soft`` = share of $|a| \le \tau \max|a|$ (τ = 0.01); ``soft_abs`` = share of
$|a| \le 10^{-3}$ (GELU and its kin have no exact zeros); ``neg_preact`` = share of $p \le 0$, comparable across
activations; ``dead_units`` and ``always_on`` = shares of units that are zero on everything, and on nothing, looked at.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch

from netvitals.capture import ActivationView, Metric, Recorder, Vital
from netvitals.drift import SOFT_ABSOLUTE, SOFT_RELATIVE, unit_shares
from netvitals.vitals._pooling import Pool, PooledTable, Rows

METRICS = ("hard", "neg_preact", "dead_units", "always_on")
SOFT_METRICS = ("soft", "soft_abs")
SOFT_EVERY = 5  # the two that need passes of their own are read on every fifth look


class Sparsity(Vital):
    """The six shares at every activation on the measured batch, and pooled for the model.

    ``dead_units`` here means dead on this batch; over a data set use :func:`netvitals.drift.sparsity`. ``soft`` and
    ``soft_abs`` are read on every fifth look.

    Args:
        tau: soft sparsity counts |a| up to this share of the largest |a|.
        tau_abs: and, as ``soft_abs``, up to this value.

    >>> import netvitals, torch
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> seen = netvitals.checkup(net, nn.MSELoss(), (torch.randn(16, 4), torch.randn(16, 1)),
    ...                          vitals=["sparsity"], curvature=False)
    >>> sorted({r.metric for r in seen.measurements if r.site == "1"})
    ['always_on', 'dead_units', 'hard', 'neg_preact', 'soft', 'soft_abs']
    """

    name = "sparsity"
    title = "Sparsity"
    meaning = (
        "What fraction of an activation's output is zero or almost zero. Short runs lose accuracy above about 70 % "
        "sparsity. Longer training recovers part of the lost accuracy; how much depends on the network."
    )
    metrics: ClassVar = {
        "hard": Metric("fraction of outputs that are exactly zero", "share"),
        "soft": Metric("fraction of outputs below 1 % of the largest output", "share"),
        "soft_abs": Metric("fraction of outputs whose absolute value is below 0.001", "share"),
        "neg_preact": Metric("fraction of inputs that are zero or negative", "share"),
        "dead_units": Metric("fraction of units that are zero for the whole batch", "share"),
        "always_on": Metric("fraction of units that are never zero on the batch", "share"),
    }
    absent = "no activation function was met"
    headline = ("hard", "soft")
    default = True

    def __init__(self, tau: float = SOFT_RELATIVE, tau_abs: float = SOFT_ABSOLUTE) -> None:
        if not 0 <= tau < 1:
            raise ValueError(f"tau= is a fraction of the largest activation and must lie in [0, 1), got {tau}")
        self.tau, self.tau_abs = tau, tau_abs
        self._pool, self._soft_pool = Pool(METRICS), Pool(SOFT_METRICS)
        self._table, self._soft_table = PooledTable(self._finish), PooledTable(self._finish_soft)
        self._recorder: Recorder | None = None
        self._observations = 0

    def activation(self, recorder: Recorder, view: ActivationView) -> None:
        if view.elements == 0:
            return
        # a ReLU is zero exactly where its input is not positive
        positive = view.by_channel(recorder).positive
        on = positive if view.is_relu else torch.ne(view.size, 0, out=view.scratch).mean(view.over)
        self._table.add(recorder, view.layout, (on, positive), ("mean", "mean"))
        if self._recorder is not recorder:
            self._recorder, self._observations = recorder, self._observations + 1
        if self._observations % SOFT_EVERY == 1:
            soft = torch.le(view.size, view.channel_max.amax() * self.tau, out=view.scratch).mean()
            soft_abs = torch.le(view.size, self.tau_abs, out=view.scratch).mean()
            self._soft_table.add(recorder, view.layout, (soft, soft_abs), ("alone", "mean"), alone="soft")

    def _finish(self, recorder: Recorder, rows: Rows, on: np.ndarray, positive: np.ndarray) -> None:
        shares = unit_shares(on, total=lambda v: np.add.reduceat(v, rows.starts), units=rows.channels)
        values = np.array([shares.hard, 1 - rows.mean(positive), shares.dead, shares.always_on]).T
        recorder.put(rows.sites, METRICS, values)
        self._pool.add(recorder, rows, values)

    def _finish_soft(self, recorder: Recorder, rows: Rows, *shares: np.ndarray) -> None:
        values = np.array(shares).T
        recorder.put(rows.sites, SOFT_METRICS, values)
        self._soft_pool.add(recorder, rows, values)
