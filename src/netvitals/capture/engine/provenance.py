"""The trail of one forward pass: what produced each tensor, and where its channels are."""

from __future__ import annotations

import weakref
from typing import NamedTuple

from torch import Tensor

from netvitals.capture.site import Follows


class Origin(NamedTuple):
    """What produced a tensor, and its dimension of channels where that is known."""

    follows: Follows = "other"
    channel_dim: int | None = None


UNKNOWN = Origin()


class Provenance:
    """Remembers the origin of live tensors without keeping them alive.

    >>> import torch
    >>> provenance, x = Provenance(), torch.zeros(2, 3)
    >>> provenance.mark(x, "input")
    >>> provenance.origin(x).follows, provenance.origin(torch.zeros(1)).follows
    ('input', 'other')
    """

    def __init__(self) -> None:
        self._marks: dict[int, tuple[weakref.ref[Tensor], Origin]] = {}

    def mark(self, tensor: Tensor, follows: Follows, channel_dim: int | None = None) -> None:
        self._marks[id(tensor)] = (weakref.ref(tensor), Origin(follows, channel_dim))

    def origin(self, tensor: Tensor) -> Origin:
        mark = self._marks.get(id(tensor))
        # the id of a tensor that is gone may belong to another one by now
        return mark[1] if mark is not None and mark[0]() is tensor else UNKNOWN

    def clear(self) -> None:
        self._marks.clear()


def channel_dim(tensor: Tensor, known: int | None) -> int:
    """The dimension of channels: as the producing layer says, else 1 for 2-D and images, the last for (B, T, F)."""
    if tensor.ndim <= 2:
        return min(1, tensor.ndim - 1) if tensor.ndim else 0
    if known is not None:
        return known
    return -1 if tensor.ndim == 3 else 1
