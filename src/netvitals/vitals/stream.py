r"""The residual stream: what each block hands on.

Of a stream $h$ with rows $h_r$ (tokens, or positions of an image): the mean row norm $\overline{\|h_r\|}$, the standard
deviation $\sigma$ over all elements, the root mean square, and the growth of the norm over the block before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from netvitals.capture import Recorder, Site, TensorView, Vital

METRICS = ("norm", "sigma", "rms", "growth")


@dataclass(frozen=True)
class StreamProfile:
    """Row norm and standard deviation of the stream after each block, in order of depth."""

    norm: tuple[float, ...]
    sigma: tuple[float, ...]

    @property
    def growth(self) -> tuple[float, ...]:
        """Norm of each block over the norm of the block before."""
        return tuple(b / a if a else float("nan") for a, b in zip(self.norm, self.norm[1:]))

    def __str__(self) -> str:
        return "norm by block: " + " → ".join(f"{n:.3g}" for n in self.norm)


def profile(streams: Sequence[Tensor], channel_dim: int = -1) -> StreamProfile:
    """The profile of streams that were captured block by block.

    >>> print(profile([torch.ones(2, 4), 2 * torch.ones(2, 4)]))
    norm by block: 2 → 4
    """
    if not streams:
        raise ValueError("expected the stream after at least one block, got none")
    rows = [s.detach().double().movedim(channel_dim, -1) for s in streams]
    return StreamProfile(
        tuple(float(r.norm(dim=-1).mean()) for r in rows), tuple(float(r.std(correction=0)) for r in rows)
    )


class Stream(Vital):
    """``norm`` (mean over rows), ``sigma``, ``rms`` and ``growth`` (over the block before; 1 for the first)."""

    name = "stream"
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
        else:  # over columns a product and a sum are far quicker than a norm
            squares = (h * h).sum(1)
        recorder.on_host(
            (squares.sqrt().mean(), squares.sum(), h.mean()), partial(self._finish, recorder, view.site, h.numel())
        )

    def _finish(
        self, recorder: Recorder, site: Site, n: int, norm: np.ndarray, square: np.ndarray, mean: np.ndarray
    ) -> None:
        before = self._norm if self._recorder is recorder and self._norm is not None else norm
        self._recorder, self._norm = recorder, norm
        energy = square / n
        recorder.put(
            site,
            METRICS,
            np.array([norm, np.sqrt(np.maximum(energy - mean * mean, 0)), np.sqrt(energy), norm / before]),
        )
