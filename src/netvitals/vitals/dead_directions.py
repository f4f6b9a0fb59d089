r"""Vital signs of dead directions for :func:`netvitals.watch`, by what they cost (dead-directions §4.12).

- every measured step: :class:`StreamFloor`, $\sigma_r$ of the residual stream;
- periodic: :class:`KFACFloor`, $\lambda_{\min}$ and κ of the gradient covariance G of every layer;
- at checkpoints: :class:`Orders`, the readout of the model, a few dozen forward-mode passes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from netvitals.capture import LinearView, ParameterView, Recorder, Site, TensorView, Vital
from netvitals.singular.checkpoint.one_checkpoint import check_task, distance, readout
from netvitals.singular.checkpoint.stream import inside

ROWS = 2048  # rows of the stream behind the number, evenly strided
WIDEST = 1024  # wider layers are left out: the cost is cubic
_RANK = 1e-6  # of the largest singular value, for activations in float32
_FLOOR = 1e-10  # of the largest eigenvalue of G; float32 gradients leave a softmax head's zero at about 1e-14


class StreamFloor(Vital):
    """``sigma_r`` (r the rank of the first node on the first look), ``sigma_1``, ``rank`` and ``ratio`` to the first
    node, at every node of the residual stream."""

    name = "stream_floor"
    tensors_of = ("stream",)
    metrics = ("sigma_r", "sigma_1", "rank", "ratio")

    def __init__(self) -> None:
        self._recorder: Recorder | None = None
        self._nodes: list[tuple[Site, Tensor]] = []
        self._rank: int | None = None

    def tensor(self, recorder: Recorder, view: TensorView) -> None:
        x = view.channels
        if x.shape[1] > WIDEST or not len(x):
            return
        if recorder is not self._recorder:
            self._recorder, self._nodes = recorder, []
            recorder.later(lambda: self._hand_over(recorder))
        x = x[:: -(-len(x) // ROWS)].double()
        self._nodes.append((view.site, torch.linalg.eigvalsh(x.T @ x / len(x))))

    def _hand_over(self, recorder: Recorder) -> None:
        owners = {site.module for site, _ in self._nodes}
        nodes = [(site, values) for site, values in self._nodes if not inside(site.module, owners)]
        self._recorder, self._nodes = None, []

        def finish(*spectra: np.ndarray) -> None:
            sigmas = [np.sqrt(np.maximum(s[::-1], 0)) for s in spectra]
            ranks = [int((s > _RANK * s[0]).sum()) for s in sigmas]
            if self._rank is None:
                self._rank = max(ranks[0], 1)
            floor = [s[self._rank - 1] if len(s) >= self._rank else 0.0 for s in sigmas]
            start = floor[0] if floor[0] > 0 else math.nan
            recorder.put(
                [site for site, _ in nodes],
                self.metrics,
                np.array([[f, s[0], k, f / start] for f, s, k in zip(floor, sigmas, ranks)]),
            )

        if nodes:
            recorder.on_host([values for _, values in nodes], finish)


class KFACFloor(Vital):
    """``lambda_min`` (above rounding), ``lambda_max``, ``condition``, ``trace`` and ``zeros`` of each layer's G.

    G is the empirical one, from the gradients of the training loss: good for detection, not for rates. A layer with
    fewer rows than outputs is left out.

    Args:
        spacing: training steps between looks, at least.
    """

    name = "kfac"
    gradients_of = ("linear",)
    metrics = ("lambda_min", "lambda_max", "condition", "trace", "zeros")

    def __init__(self, min_steps: int = 200) -> None:
        if min_steps < 1:
            raise ValueError(f"spacing counts training steps and must be 1 or more, got {min_steps}")
        self.min_steps = min_steps

    def gradient(self, recorder: Recorder, view: LinearView, g: Tensor) -> None:
        rows = g.reshape(-1, g.shape[-1]) if isinstance(view.module, nn.Linear) else g.movedim(1, -1).flatten(0, -2)
        if not rows.shape[1] <= min(len(rows), WIDEST) or rows.shape[1] < 2:
            return
        rows = rows.double() * math.sqrt(len(g))  # the loss is a mean over samples, G is of one sample
        spectrum = torch.linalg.eigvalsh(rows.T @ rows)

        def finish(values: np.ndarray) -> None:
            live = values[values > _FLOOR * max(values[-1], 1e-300)]
            low = live[0] if len(live) else math.nan
            recorder.put(
                view.site,
                self.metrics,
                np.array([low, values[-1], values[-1] / low, values.sum(), len(values) - len(live)]),
            )

        recorder.on_host([spectrum], finish)


class Orders(Vital):
    """The readout of the model at checkpoints: ``order`` (the largest found, 1 where nothing is singular), ``singular``
    directions, ``lambda`` (their contribution) and ``distance`` to the nearest, at site ``"model"``.

    Args:
        model, loss_fn, batch: as for :func:`netvitals.singular.readout`; a fixed batch.
        spacing: training steps between readouts, at least.
        units: hidden units per pair of layers, the weakest first.
    """

    name = "orders"
    metrics = ("order", "singular", "lambda", "distance")

    def __init__(
        self, model: nn.Module, loss_fn: Any, batch: tuple[Tensor, Tensor], *, min_steps: int = 1000, units: int = 2
    ) -> None:
        if min_steps < 1:
            raise ValueError(f"spacing counts training steps and must be 1 or more, got {min_steps}")
        check_task(model, loss_fn, batch)  # now, and not at the first checkpoint of a run
        self.model, self.loss_fn, self.batch, self.units, self.min_steps = model, loss_fn, batch, units, min_steps

    def parameters(self, recorder: Recorder, view: ParameterView) -> None:
        found = readout(self.model, self.loss_fn, self.batch, units=self.units)
        singular = found.of("singular")
        order = max((c.scan.order or 1 for c in singular), default=1)
        nearest = min((distance(c) for c in singular), default=math.nan)
        lam = found.triple.lam if found.triple is not None else 0.0
        recorder.write("model", self.metrics, torch.tensor([order, len(singular), lam, nearest], dtype=torch.float64))
