r"""Drift of parameters of which each rank holds a piece: sums over the pieces first, the numbers of the whole after.

With $n$ entries in all, $\bar w = \frac1n \sum w$ and $\mathrm{std}^2 = \frac{1}{n-1} (\sum w^2 - n \bar w^2)$, in
float64; so for the change since the start, $\Delta = w - w_0$. A quantile of |w| cannot be told from those of pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from netvitals.capture import ParameterView, Recorder
from netvitals.drift.weights import DRIFT_METRICS, ROLES, STD_FLOOR, WEIGHT_METRICS, role

LOST = "extreme_threshold"


def write_drift(recorder: Recorder, view: ParameterView) -> None:
    """Note the drift of every parameter of the view, and by role."""
    names = [n for n, p in view.params.items() if p.is_floating_point() and view.pieces[n].numel]
    if not names:
        return
    rows, least, most = zip(*(_sums(view, n) for n in names))
    recorder.skipped[f"drift: {LOST}"] = "quantiles of a sharded tensor cannot be computed from its parts"
    recorder.on_host(
        (torch.stack(rows), torch.stack(least), torch.stack(most)),
        partial(_finish, recorder, names, view),
        view.over(("sum", "min", "max"), names),
    )


def _sums(view: ParameterView, name: str) -> tuple[Tensor, Tensor, Tensor]:
    """Ten sums over the piece of one parameter, and its extremes."""
    w = view.params[name].detach().double().reshape(-1)
    nothing = w.new_zeros(())
    first = view.initial[name].double().reshape(-1) if name in view.initial else None
    grad = view.grads[name].double().reshape(-1) if name in view.grads else None
    change = None if first is None else w - first
    columns = [
        w.sum(),
        w.square().sum(),
        (w < 0).sum(),
        (w > 0).sum(),
        *((change.sum(), change.square().sum()) if change is not None else (nothing, nothing)),
        *((first.sum(), first.square().sum()) if first is not None else (nothing, nothing)),
        *((grad.abs().sum(), grad.square().sum()) if grad is not None else (nothing, nothing)),
    ]
    empty = w.numel() == 0
    least, most = (w.new_tensor(torch.inf), w.new_tensor(-torch.inf)) if empty else (w.min(), w.max())
    return torch.stack([c.double() for c in columns]), least, most


def _finish(
    recorder: Recorder, names: Sequence[str], view: ParameterView, sums: np.ndarray, least: np.ndarray, most: np.ndarray
) -> None:
    n = np.array([view.pieces[name].numel for name in names], dtype=float)
    s = sums.T
    mean, std = s[0] / n, _std(s[0], s[1], n)
    z, t = drift_of_sums(s[4], s[5], std, _std(s[6], s[7], n), n)
    found = {
        "weight_mean": mean,
        "weight_std": std,
        "min": least,
        "max": most,
        "norm": np.sqrt(s[1]),
        "neg_fraction": s[2] / n,
        "pos_fraction": s[3] / n,
        "drift_z": z,
        "drift_t": t,
        "grad_mean_abs": s[8] / n,
        "grad_norm": np.sqrt(s[9]),
    }
    kept = [m for m in WEIGHT_METRICS if m != LOST]
    for i, name in enumerate(names):
        metrics = [
            *kept,
            *(DRIFT_METRICS if name in view.initial else ()),
            *(("grad_mean_abs", "grad_norm") if name in view.grads else ()),
        ]
        recorder.put(name, metrics, np.array([found[m][i] for m in metrics]))
    roles = np.array([role(name, view.params[name], view.modules, len(view.shape(name))) for name in names])
    known = (n > 1) & np.array([name in view.initial for name in names])
    table = np.nan_to_num(np.stack([mean, s[2] / n, z], axis=1), nan=0.0)
    for one in ROLES:
        if (chosen := known & (roles == one)).any():
            recorder.put(f"model/{one}", ("weight_mean", "neg_fraction", "drift_z"), table[chosen].mean(0))


def drift_of_sums(
    total: np.ndarray, squares: np.ndarray, std: np.ndarray, std0: np.ndarray, n: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(drift_z, drift_t) from the sums of the change and of its squares; NaN for a single entry.

    >>> z, t = drift_of_sums(*(np.array([v]) for v in (4.0, 7.0, 1.0, 1.0, 4.0)))
    >>> round(float(z[0]), 6), round(float(t[0]), 6)
    (1.0, 2.0)
    """
    mean, spread = total / n, _std(total, squares, n)
    with np.errstate(all="ignore"):
        z = mean / ((std0 + std + STD_FLOOR) * 0.5)
        z = np.where((std0 + std > 0) | (mean == 0), z, np.nan)
        t = mean * np.sqrt(n) / spread
    return np.where(n > 1, z, np.nan), np.where(n > 1, t, np.nan)


def _std(total: np.ndarray, squares: np.ndarray, n: np.ndarray) -> np.ndarray:
    return np.sqrt(np.maximum(squares - total * total / n, 0.0) / np.maximum(1.0, n - 1))
