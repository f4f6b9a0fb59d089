"""Batches in an order of their own, and crop-and-flip on tensors."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from netvitals_lab.data.dataset import Dataset, row_major


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


def batches(
    data: Dataset, size: int, generator: Generator, *, augment: bool | str = False, fresh: bool = False
) -> Iterator[tuple[Tensor, Tensor]]:
    """One epoch of (inputs, targets), row-major, in an order only ``generator`` decides."""
    if fresh:
        if data.draw is None:
            raise ValueError(f"{data.name} is a fixed set of examples and cannot be drawn afresh")
        for _ in range(steps_per_epoch(len(data.train), size)):
            x, y = data.draw(size, generator)
            yield row_major(x), row_major(y)
        return
    for index in order(len(data.train), size, generator):
        x, y = data.train.x[index], data.train.y[index]
        if augment == "resized":
            x = resized_crop_flip(x, generator)
        elif augment:
            x = crop_flip(x, generator, pad=max(4, x.shape[-1] // 8), fill=data.black)
        yield row_major(x), row_major(y)


def crop_flip(x: Tensor, generator: Generator, *, pad: int = 4, fill: Tensor | None = None) -> Tensor:
    """Shift every image by up to ``pad`` pixels and mirror half of them."""
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
    return row_major(wide[one, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2))


def resized_crop_flip(
    x: Tensor, generator: Generator, *, area: tuple[float, float] = (0.7, 1.0), ratio: float = 4 / 3
) -> Tensor:
    """A part of every image, of a share of its area drawn from ``area``, resized to the whole; half are mirrored."""
    if x.ndim != 4:
        raise ValueError(f"crop and flip need images (N, C, H, W), got shape {tuple(x.shape)}")
    if not 0 < area[0] <= area[1] <= 1 or ratio < 1:
        raise ValueError(f"a part has a share of the area in (0, 1] and a ratio of at least 1, got {area} and {ratio}")
    n = len(x)
    share, shape, left, top, mirror = torch.rand(5, n, generator=generator)
    share = area[0] + (area[1] - area[0]) * share
    bend = ratio ** (shape - 0.5)  # √(width over height)
    wide, high = (share.sqrt() * bend).clamp_max(1), (share.sqrt() / bend).clamp_max(1)
    sign = torch.where(mirror < 0.5, -1.0, 1.0)
    place = torch.zeros(n, 2, 3)
    place[:, 0, 0], place[:, 0, 2] = sign * wide, (1 - wide) * (2 * left - 1)
    place[:, 1, 1], place[:, 1, 2] = high, (1 - high) * (2 * top - 1)
    grid = F.affine_grid(place.to(x), list(x.shape), align_corners=False)
    return row_major(F.grid_sample(x, grid, padding_mode="border", align_corners=False))
