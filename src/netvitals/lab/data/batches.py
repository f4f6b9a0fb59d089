"""Batches in an order of their own, and crop-and-flip on tensors."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from netvitals.lab.data.dataset import Dataset


def order(count: int, size: int, generator: Generator) -> list[Tensor]:
    """One epoch of index batches: a random permutation cut into pieces of ``size``.

    A last piece of a single example is left out, because batch statistics need two.

    >>> [len(i) for i in order(10, 4, torch.Generator().manual_seed(0))]
    [4, 4, 2]
    """
    if size < 1:
        raise ValueError(f"a batch holds at least one example, got size {size}")
    pieces = list(torch.randperm(count, generator=generator).split(size))
    return pieces[:-1] if len(pieces) > 1 and len(pieces[-1]) == 1 < size else pieces


def steps_per_epoch(count: int, size: int) -> int:
    """How many pieces :func:`order` gives.

    >>> steps_per_epoch(50_000, 128), steps_per_epoch(129, 128)
    (391, 1)
    """
    full, rest = divmod(count, size)
    return max(1, full + (rest > (1 if size > 1 else 0)))


def batches(data: Dataset, size: int, generator: Generator, *, augment: bool = False,
            fresh: bool = False) -> Iterator[tuple[Tensor, Tensor]]:
    """One epoch of (inputs, targets), in an order only ``generator`` decides.

    Args:
        data: the dataset; its training split is used.
        size: examples in a batch.
        generator: the only source of randomness.
        augment: crop (padding 4) and flip the images.
        fresh: draw new synthetic examples for every batch instead of going through the training split.
    """
    if fresh:
        if data.draw is None:
            raise ValueError(f"{data.name} is a fixed set of examples and cannot be drawn afresh")
        for _ in range(steps_per_epoch(len(data.train), size)):
            yield data.draw(size, generator)
        return
    for index in order(len(data.train), size, generator):
        x, y = data.train.x[index], data.train.y[index]
        yield (crop_flip(x, generator, fill=data.black) if augment else x), y


def crop_flip(x: Tensor, generator: Generator, *, pad: int = 4, fill: Tensor | None = None) -> Tensor:
    """Shift every image by up to ``pad`` pixels and mirror half of them.

    Args:
        x: images (N, C, H, W).
        generator: decides shifts and mirrors.
        pad: largest shift in pixels.
        fill: value per channel of the pixels that come in from outside (zero when None).
    """
    if x.ndim != 4:
        raise ValueError(f"crop and flip need images (N, C, H, W), got shape {tuple(x.shape)}")
    n, c, h, w = x.shape
    border = torch.zeros(c) if fill is None else fill.expand(c)
    border = border.to(x).view(1, c, 1, 1)
    wide = F.pad(x - border, (pad,) * 4) + border
    dy, dx = torch.randint(0, 2 * pad + 1, (2, n, 1), generator=generator)
    mirror = torch.rand(n, 1, generator=generator) < 0.5
    columns = torch.arange(w).expand(n, w)
    columns = torch.where(mirror, columns.flip(1), columns) + dx
    rows = torch.arange(h).expand(n, h) + dy
    one = torch.arange(n)[:, None, None]
    cut = wide[one, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
    # contiguous() would leave one channel with the strides of channels-last, and convolutions would follow them
    return cut.clone(memory_format=torch.contiguous_format)
