r"""The residual stream: what each block hands on.

Of a stream $h$ with rows $h_r$ (tokens, or positions of an image): the mean row norm $\overline{\|h_r\|}$, the standard
deviation $\sigma$ over all elements, the root mean square, the growth of the norm over the block before, and the
fraction of the mean square that is common to all tokens, $\|\bar h\|^2 / \overline{\|h_r\|^2}$.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import numpy as np
import torch

from netvitals.capture import Metric, Recorder, ReduceOverRanks, Site, TensorView, Vital


class StreamVital(Vital):
    """``norm`` (mean over rows), ``sigma``, ``rms``, ``growth`` (over the block before; 1 for the first),
    ``common``.

    >>> import netvitals, torch
    >>> from torch import nn
    >>> net = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), 2)
    >>> seen = netvitals.checkup(net, nn.MSELoss(), (torch.randn(4, 6, 8), torch.randn(4, 6, 8)),
    ...                          vitals=["stream"], curvature=False)
    >>> sorted({r.metric for r in seen.measurements if r.vital == "stream"})
    ['common', 'growth', 'norm', 'rms', 'sigma']
    """

    name = "stream"
    title = "Residual stream"
    meaning = "Size of the residual stream after each block."
    metrics: ClassVar = {
        "norm": Metric("mean Euclidean norm of a token's vector", "activation"),
        "sigma": Metric("standard deviation over all entries", "activation"),
        "rms": Metric("root mean square over all entries", "activation"),
        "growth": Metric("mean norm after this block, divided by the mean norm after the previous block"),
        "common": Metric("fraction of the mean square that is common to all tokens", "share"),
    }
    absent = "no residual stream was found"
    headline = ("norm",)
    default = True
    every = 2
    tensors_of = ("stream",)

    def __init__(self) -> None:
        self._recorder: Recorder | None = None
        self._norm: np.ndarray | None = None

    def tensor(self, recorder: Recorder, view: TensorView) -> None:
        if view.site.kind != "stream" or view.value.numel() == 0:
            return
        h = view.view
        if h.ndim == 2:
            squares = torch.linalg.vector_norm(h, dim=1).square()
            middle = h.mean(0)
        else:  # over columns a product and a sum are far quicker than a norm
            squares = (h * h).sum(1)
            middle = h.mean((0, 2))
        recorder.on_host(
            (squares.sqrt().mean(), squares.sum(), middle),
            partial(self._finish, recorder, view.site, h.numel()),
            ReduceOverRanks(("mean", "sum", "mean"), h.numel()),
        )

    def _finish(
        self,
        recorder: Recorder,
        site: Site,
        n: int,
        norm: np.ndarray,
        square: np.ndarray,
        middle: np.ndarray,
    ) -> None:
        before = self._norm if self._recorder is recorder and self._norm is not None else norm
        self._recorder, self._norm = recorder, norm
        energy = square / (n * recorder.growth.elements)
        mean, common = middle.mean(), (middle * middle).mean() / energy
        recorder.put(
            site,
            tuple(self.metrics),
            np.array([norm, np.sqrt(np.maximum(energy - mean * mean, 0)), np.sqrt(energy), norm / before, common]),
        )
