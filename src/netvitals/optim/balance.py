r"""The balanced representative of an orbit: where a network sits once every rescaling is undone.

A potential ψ holds, per gauge and channel, the logarithm of the factor that leads from the balanced network to this
one: $W = e^{\psi} \tilde W$, where the blocks of $\tilde W$ have equal norms (the shortest network on the orbit). Along
an orbit ψ moves by exactly the group element and $\tilde W$ stays, also where several gauges share a parameter: the
rows of a matrix belong to one, its columns to another. Then ψ is found by balancing the gauges in turns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from netvitals.optim.gauges import Rescale, Shift

_SWEEPS = 500  # until the potentials do not move any more; gauges that share nothing need one
_STEP = 0.05  # most that a potential is corrected by while training goes on


class Balance:
    """Potentials of the rescalings of one optimiser, and the factors that they make for every parameter."""

    def __init__(self, gauges: Sequence[Rescale], shifts: Mapping[Any, Shift]) -> None:
        self.gauges = list(gauges)
        self.shifts: dict[Tensor, Shift] = dict(shifts)
        self.potentials: list[Tensor] = []
        self._factors: dict[Tensor, dict[tuple[int, int], Tensor]] = {}  # parameter → (gauge, block) → factor

    def centred(self, p: Tensor) -> Tensor:
        """The parameter without what its logit shift moves."""
        value = p.detach()
        return value - value.mean(0, keepdim=True) if p in self.shifts else value

    def factors(self, p: Tensor, but: int = -1) -> list[Tensor]:
        """What the balanced parameter is multiplied with, one factor a gauge; ``but`` leaves one gauge out."""
        return [f for (gauge, _), f in self._factors.get(p, {}).items() if gauge != but]

    def find(self) -> None:
        """Balance from scratch, until nothing moves."""
        like = [g.params[0] for g in self.gauges]
        self.potentials = [torch.zeros(len(g.blocks), g.channels).to(p) for g, p in zip(self.gauges, like)]
        self.spread()
        done = max((float(torch.finfo(p.dtype).eps) for p in like), default=0.0) * 8
        for _ in range(_SWEEPS):
            if self.correct(math.inf) <= done:
                break

    def correct(self, most: float = _STEP) -> float:
        """Let the potentials follow the weights, one round over all gauges; how far a potential was from balance."""
        worst = 0.0
        for k in range(len(self.gauges)):
            move = self._off(k, most)
            worst = max(worst, float(move.abs().max()))
            self.potentials[k] += move
            self.spread([k])
        return worst

    def retract(self, most: float = _STEP) -> None:
        """Put the weights back to where on their orbits the potentials say, one round; the function stays."""
        for k, gauge in enumerate(self.gauges):
            move = self._off(k, most)
            for block, mine in zip(gauge.blocks, torch.expm1(-move)):
                for i, p in enumerate(block.params):
                    p.addcmul_(self.centred(p), block.spread(mine, i, missing=0.0))
            for p, layer in gauge.followers:
                p.mul_(torch.exp(-move[: layer + 1].sum()))

    def _off(self, k: int, most: float) -> Tensor:
        """How far the potentials of gauge k are from those of the weights, (blocks, channels)."""
        gauge, squares = self.gauges[k], self.squares(k)
        logs = squares.clamp_min(torch.finfo(squares.dtype).tiny).log() / 2
        if len(gauge.blocks) == 2:
            q = gauge.degree
            s = (logs[0] - logs[1] - math.log(q) / 2) / (1 + q)
            move = torch.stack([s, -q * s])
        else:
            move = logs - logs.mean(0)
        return torch.where((squares > 0).all(0), move, torch.zeros_like(move)).clamp(-most, most)

    def squares(self, k: int) -> Tensor:
        """Squared norms of the balanced blocks of gauge k, (blocks, channels)."""
        out = []
        for block in self.gauges[k].blocks:
            held = []
            for p in block.params:
                value = self.centred(p)
                for factor in self.factors(p):
                    value = value / factor
                held.append(value)
            out.append(block.inner(held, held))
        return torch.stack(out)

    def spread(self, which: Sequence[int] | None = None) -> None:
        """Make the factors of the potentials; of some gauges only, where the others did not move."""
        which = range(len(self.gauges)) if which is None else which
        for k in which:
            gauge, scale = self.gauges[k], self.potentials[k].exp()
            for b, (block, mine) in enumerate(zip(gauge.blocks, scale)):
                for i, p in enumerate(block.params):
                    self._factors.setdefault(p, {})[k, b] = block.spread(mine, i)
            for p, layer in gauge.followers:
                self._factors.setdefault(p, {})[k, layer] = scale[: layer + 1].prod(0).reshape(())
