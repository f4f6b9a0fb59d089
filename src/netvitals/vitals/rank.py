"""Effective rank: how many directions the weights and the last features really use, while a model trains.

The four definitions are those of :func:`netvitals.stats.effective_rank`. Effective rank does not tell activations
apart; it is here to be measured, not to decide.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from netvitals.anatomy import layer_kind
from netvitals.capture import LinearView, Metric, ParameterView, Recorder, TensorView, Vital
from netvitals.stats import DEFINITIONS, spectrum_ranks, squared_spectrum

ROWS = 512  # features: rows behind the number, evenly strided
WIDEST = 1024  # weights whose smaller side is longer are left out: the cost is cubic


class Rank(Vital):
    """Effective rank of every weight matrix and of the centred features that enter the last layer (site ``features``).

    A convolution's kernel counts as (out, in × kernel). Each matrix costs an eigendecomposition, and rank changes
    slowly, so it is read on measured steps at least ``min_steps`` training steps apart.

    Args:
        min_steps: training steps between looks, at least.

    >>> import netvitals, torch
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> seen = netvitals.checkup(net, nn.MSELoss(), (torch.randn(16, 4), torch.randn(16, 1)),
    ...                          vitals=["rank"], curvature=False)
    >>> [r.value <= 4 for r in seen.measurements if r.site == "0.weight" and r.metric == "entropy"]  # an 8×4 matrix
    [True]
    """

    name = "rank"
    title = "Effective rank"
    meaning = "Effective rank of each matrix: how many directions it really uses."
    metrics: ClassVar = {
        "entropy": Metric("effective rank: exp of the entropy of the normalised singular values", "directions"),
        "energy": Metric("effective rank: exp of the entropy of the normalised squared singular values", "directions"),
        "stable": Metric("stable rank: sum of squared singular values divided by the largest", "directions"),
        "participation": Metric("participation ratio: (Σ σ²)² / Σ σ⁴ of the singular values σ", "directions"),
    }
    absent = "no layer with two examples or more was met"
    headline = ("entropy",)
    default = True
    min_steps = 2000
    tensors_of = ("norm", "output")

    def __init__(self, min_steps: int = 2000) -> None:
        if min_steps < 1:
            raise ValueError(f"min_steps= is a number of training steps and must be at least 1, got {min_steps}")
        self.min_steps = min_steps
        self._read_at: int | None = None
        self._features: Tensor | None = None

    def linear(self, recorder: Recorder, view: LinearView) -> None:
        x = view.x
        self._features = x.reshape(-1, x.shape[-1]) if layer_kind(view.module) == "linear" else None

    def tensor(self, recorder: Recorder, view: TensorView) -> None:
        if view.site.kind == "norm":
            # a head that shares its weights with the embedding is no module: the last norm is what it reads
            value = view.value
            last = view.site.channel_dim in (-1, value.ndim - 1)
            self._features = value.reshape(-1, value.shape[-1]) if last else None
        elif view.site.kind == "output":
            features, self._features = self._features, None
            if features is not None and self._due(recorder) and features.shape[0] > 1 and min(features.shape) <= WIDEST:
                rows = features[:: -(-features.shape[0] // ROWS)]
                recorder.write("features", DEFINITIONS, spectrum_ranks(squared_spectrum(rows, centred=True)))

    def parameters(self, recorder: Recorder, view: ParameterView) -> None:
        self._features = None
        if not self._due(recorder):
            return
        self._read_at = recorder.step
        shapes: dict[tuple[object, ...], list[str]] = {}
        for name, p in view.params.items():
            if p.is_complex() and p.ndim >= 2:
                recorder.skipped[f"{name} (rank)"] = "a complex matrix: only ranks of real matrices are measured"
            if p.ndim >= 2 and p.is_floating_point() and 1 < min(p.shape[0], p[0].numel()) <= WIDEST:
                shapes.setdefault((p.shape[0], p[0].numel(), p.device), []).append(name)
        for names in shapes.values():
            batch = torch.stack([view.params[n].detach().flatten(1) for n in names])
            recorder.write(names, DEFINITIONS, spectrum_ranks(squared_spectrum(batch)))

    def _due(self, recorder: Recorder) -> bool:
        return self._read_at is None or not 0 < recorder.step - self._read_at < self.min_steps
