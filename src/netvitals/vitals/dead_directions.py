r"""Vital signs of dead directions for :func:`netvitals.watch`, by what they cost (dead-directions §4.12).

- every measured step: :class:`StreamFloor`, $\sigma_r$ of the residual stream;
- periodic: :class:`KFACFloor`, $\lambda_{\min}$ and κ of the gradient covariance G of every layer;
- at checkpoints: :class:`Orders`, the readout of the model, a few dozen forward-mode passes.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from netvitals._help import hint
from netvitals.anatomy import channel_dim
from netvitals.capture import LinearView, Metric, ParameterView, Recorder, Site, TensorView, Vital, WatchContext

ROWS = 2048  # rows of the stream behind the number, evenly strided
WIDEST = 1024  # wider layers are left out: the cost is cubic
_RANK = 1e-6  # of the largest singular value, for activations in float32
_FLOOR = 1e-10  # of the largest eigenvalue of G; float32 gradients leave a softmax head's zero at about 1e-14


class StreamFloor(Vital):
    """``sigma_r`` (r the rank of the first node on the first look), ``sigma_1``, ``rank`` and ``ratio`` to the first
    node, at every node of the residual stream.

    >>> import netvitals, torch
    >>> from torch import nn
    >>> net = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), 2)
    >>> seen = netvitals.checkup(net, nn.MSELoss(), (torch.randn(4, 6, 8), torch.randn(4, 6, 8)),
    ...                          vitals=["stream_floor"], curvature=False)
    >>> sorted({r.metric for r in seen.measurements if r.vital == "stream_floor"})
    ['rank', 'ratio', 'sigma_1', 'sigma_r']
    """

    name = "stream_floor"
    title = "Floor of the stream"
    meaning = (
        "Smallest non-zero singular value of the residual stream. Skip connections preserve it. If it becomes zero "
        "at a block, the block cancels a direction."
    )
    metrics: ClassVar = {
        "sigma_r": Metric("smallest singular value among the active directions", "activation"),
        "sigma_1": Metric("largest singular value of the residual stream", "activation"),
        "rank": Metric("number of active directions", "directions"),
        "ratio": Metric("smallest active singular value, divided by that at the first block"),
    }
    headline = ("ratio", "sigma_r")
    tensors_of = ("stream",)

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
        from netvitals.singular import inside

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
                tuple(self.metrics),
                np.array([[f, s[0], k, f / start] for f, s, k in zip(floor, sigmas, ranks)]),
            )

        if nodes:
            recorder.on_host([values for _, values in nodes], finish)


class KFACFloor(Vital):
    """``lambda_min`` (above rounding), ``lambda_max``, ``condition``, ``trace`` and ``zeros`` of each layer's G.

    G is the empirical one, from the gradients of the training loss: good for detection, not for rates. A layer with
    fewer rows than outputs is left out.

    Args:
        min_steps: training steps between looks, at least.

    >>> import netvitals, torch
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> seen = netvitals.checkup(net, nn.MSELoss(), (torch.randn(16, 4), torch.randn(16, 1)),
    ...                          vitals=["kfac_floor"], curvature=False)
    >>> sorted({r.metric for r in seen.measurements if r.site == "0"})
    ['condition', 'lambda_max', 'lambda_min', 'trace', 'zeros']
    """

    name = "kfac_floor"
    title = "Gradient covariance"
    meaning = (
        "Eigenvalues of G, the covariance of a layer's output gradients over examples. If the smallest one falls, "
        "the layer uses fewer directions. A jump up means new ones."
    )
    metrics: ClassVar = {
        "lambda_min": Metric(
            "smallest eigenvalue of the output-gradient covariance G that is above rounding error", "gradient²"
        ),
        "lambda_max": Metric("largest eigenvalue of G", "gradient²"),
        "condition": Metric("condition number: largest divided by smallest eigenvalue of G"),
        "trace": Metric("trace: sum of the eigenvalues of G", "gradient²"),
        "zeros": Metric(
            "number of zero eigenvalues of G, caused by symmetries and by outputs without gradient", "directions"
        ),
    }
    headline = ("condition", "lambda_min")
    min_steps = 200
    gradients_of = ("linear",)

    def __init__(self, min_steps: int = 200) -> None:
        if min_steps < 1:
            raise ValueError(f"min_steps= is a number of training steps and must be at least 1, got {min_steps}")
        self.min_steps = min_steps

    def gradient(self, recorder: Recorder, view: LinearView, g: Tensor) -> None:
        rows = g.movedim(channel_dim(view.module), -1).flatten(0, -2)
        if not rows.shape[1] <= min(len(rows), WIDEST) or rows.shape[1] < 2:
            return
        rows = rows.double() * math.sqrt(len(g))  # the loss is a mean over examples, G is of one
        spectrum = torch.linalg.eigvalsh(rows.T @ rows)

        def finish(values: np.ndarray) -> None:
            live = values[values > _FLOOR * max(values[-1], 1e-300)]
            low = live[0] if len(live) else math.nan
            recorder.put(
                view.site,
                tuple(self.metrics),
                np.array([low, values[-1], values[-1] / low, values.sum(), len(values) - len(live)]),
            )

        recorder.on_host([spectrum], finish)


class Orders(Vital):
    """The readout of the model at checkpoints: ``order`` (the largest found, 1 where nothing is singular), ``singular``
    directions, ``limit`` (λ for ever more samples, NaN where not determined) and ``distance`` to the nearest, at site
    ``"model"``.

    Args:
        model: left out, the watch gives its own.
        loss_fn: as for :func:`netvitals.singular.readout`; left out, that of the watch's probe.
        batch: a fixed one (inputs, targets); left out, that of the watch's probe.
        min_steps: training steps between readouts, at least.
        units: hidden units per pair of layers, the weakest first.

    >>> import netvitals, torch
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    >>> seen = netvitals.checkup(net, nn.MSELoss(), (torch.randn(64, 2), torch.randn(64, 1)),
    ...                          vitals=["orders"], curvature=False)
    >>> sorted(r.metric for r in seen.measurements if r.vital == "orders")
    ['distance', 'limit', 'order', 'singular']
    """

    name = "orders"
    title = "Order"
    meaning = (
        "How degenerate the parameters are: the KL order of the nearest singular direction. Order 1 is regular, and "
        "order 2 or more is degenerate."
    )
    metrics: ClassVar = {
        "order": Metric("largest KL order among the measured directions"),
        "singular": Metric("number of singular directions among the measured ones", "directions"),
        "limit": Metric("learning coefficient in the limit of many samples, if it could be determined"),
        "distance": Metric("distance of the parameters to the nearest singular point", "weight"),
    }
    headline = ("order",)
    needs = "probe=(x, y, loss_fn), with torch's cross_entropy or mse_loss"
    min_steps = 1000

    def __init__(
        self,
        model: nn.Module | None = None,
        loss_fn: Any = None,
        batch: tuple[Tensor, Tensor] | None = None,
        *,
        min_steps: int = 1000,
        units: int = 2,
    ) -> None:
        if min_steps < 1:
            raise ValueError(f"min_steps= is a number of training steps and must be at least 1, got {min_steps}")
        self.model, self.loss_fn, self.batch, self.units, self.min_steps = model, loss_fn, batch, units, min_steps
        self._given = model is not None
        if self._given:
            self._check()

    def begin(self, context: WatchContext) -> None:
        if not self._given:
            self.loss_fn, self.batch = context.fixed_batch(self.name)
            self.model = context.model
            self._check()

    def _check(self) -> None:
        """Now, and not at the first checkpoint of a run."""
        from netvitals.singular import check_task

        assert self.model is not None
        check_task(self.model, self.loss_fn, self.batch)

    def parameters(self, recorder: Recorder, view: ParameterView) -> None:
        from netvitals.singular import distance, readout

        if self.model is None or self.batch is None:
            raise ValueError(
                "the vital sign 'orders' needs a model: pass it to watch(vitals=[...]), or give model, loss_fn and "
                f"batch {hint('needs-probe')}"
            )
        found = readout(self.model, self.loss_fn, self.batch, units=self.units, chains=0)
        singular = found.of("singular")
        order = max((c.scan.order or 1 for c in singular), default=1)
        nearest = min((distance(c) for c in singular), default=math.nan)
        lam = found.limit.lam if found.limit.lam is not None else math.nan
        values = torch.tensor([order, len(singular), lam, nearest], dtype=torch.float64)
        recorder.write("model", tuple(self.metrics), values)
