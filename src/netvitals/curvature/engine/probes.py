"""Random probes: signs or Gaussians, from an explicit generator, shaped like the leaves they multiply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

Distribution = Literal["rademacher", "gaussian"]


def generator(seed: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator of its own, so that measuring never moves the user's."""
    return torch.Generator(device=device).manual_seed(seed)


def draw(
    count: int, leaves: Sequence[Tensor], source: torch.Generator, distribution: Distribution = "rademacher"
) -> list[Tensor]:
    """``count`` probes per leaf, each with identity covariance.

    >>> z, = draw(2, [torch.zeros(3)], generator(0))
    >>> z.shape, z.abs().unique().tolist()
    (torch.Size([2, 3]), [1.0])
    """
    if distribution not in ("rademacher", "gaussian"):
        raise ValueError(f"distribution= must be 'rademacher' or 'gaussian', got {distribution!r}")
    sizes = [leaf.numel() for leaf in leaves]
    device, dtype = leaves[0].device, leaves[0].dtype
    if distribution == "gaussian":
        flat = torch.randn(count, sum(sizes), generator=source, device=device, dtype=dtype)
    else:
        flat = signs(count, sum(sizes), source, device).to(dtype)
    return [p.reshape(count, *leaf.shape) for p, leaf in zip(flat.split(sizes, 1), leaves)]


class ProbeSeries:
    """Probes one batch after another; the seed alone decides them, not how they are cut into batches.

    >>> whole, = ProbeSeries([torch.zeros(3)], seed=1).take(4)
    >>> parts = ProbeSeries([torch.zeros(3)], seed=1)
    >>> torch.equal(whole, torch.cat([parts.take(1)[0], parts.take(3)[0]]))
    True
    """

    def __init__(self, leaves: Sequence[Tensor], seed: int, distribution: Distribution = "rademacher") -> None:
        self.leaves, self.distribution = leaves, distribution
        self.source = generator(seed, leaves[0].device)
        # signs come from a stream of words, a whole number to each probe; other draws are vectorised across probes
        self.streams = distribution == "rademacher" and leaves[0].device.type == "cpu"

    def take(self, count: int) -> list[Tensor]:
        if self.streams:
            return draw(count, self.leaves, self.source, self.distribution)
        rows = [draw(1, self.leaves, self.source, self.distribution) for _ in range(count)]
        return [torch.cat(column) for column in zip(*rows)]


def signs(count: int, size: int, source: torch.Generator, device: torch.device | str = "cpu") -> Tensor:
    """(count, size) values ±1 as int8, 32 to each drawn number: the draw costs little beside a product."""
    words = torch.randint(-(2**31), 2**31, (count, -(-size // 32)), generator=source, device=device, dtype=torch.int32)
    bits = (words[..., None] >> torch.arange(32, device=device, dtype=torch.int32)) & 1
    return (bits.reshape(count, -1)[:, :size].to(torch.int8) << 1) - 1


def identity(leaves: Sequence[Tensor], start: int, stop: int) -> list[Tensor]:
    """Rows start..stop of the identity over the concatenated leaves, as pieces."""
    total = sum(leaf.numel() for leaf in leaves)
    first = leaves[0]
    eye = torch.zeros(stop - start, total, dtype=first.dtype, device=first.device)
    eye[torch.arange(stop - start), torch.arange(start, stop)] = 1
    parts = eye.split([leaf.numel() for leaf in leaves], 1)
    return [p.reshape(stop - start, *leaf.shape) for p, leaf in zip(parts, leaves)]


def flattened(pieces: list[Tensor]) -> Tensor:
    """(m, d) from pieces (m, ...)."""
    rows = [p.reshape(p.shape[0], -1) for p in pieces]
    return rows[0] if len(rows) == 1 else torch.cat(rows, 1)


def pieces_of(rows: Tensor, leaves: Sequence[Tensor]) -> list[Tensor]:
    """Rows (m, d) as pieces (m, ...) like the leaves."""
    split = rows.split([leaf.numel() for leaf in leaves], 1)
    return [p.reshape(rows.shape[0], *leaf.shape) for p, leaf in zip(split, leaves)]
