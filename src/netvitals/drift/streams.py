"""The residual stream by depth: what each block hands on, from streams that were captured block by block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor


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


def stream_profile(streams: Sequence[Tensor], channel_dim: int = -1) -> StreamProfile:
    """The profile of streams that were captured block by block.

    >>> print(stream_profile([torch.ones(2, 4), 2 * torch.ones(2, 4)]))
    norm by block: 2 → 4
    """
    if not streams:
        raise ValueError("expected the stream after at least one block, got none")
    rows = [s.detach().double().movedim(channel_dim, -1) for s in streams]
    return StreamProfile(
        tuple(float(r.norm(dim=-1).mean()) for r in rows), tuple(float(r.std(correction=0)) for r in rows)
    )
