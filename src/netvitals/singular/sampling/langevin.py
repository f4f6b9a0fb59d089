r"""Langevin chains: $w \leftarrow w - \frac{\epsilon}{2} F + \sqrt{\epsilon}\,\xi$ with the force
$F = n\beta \nabla L(w) + \gamma (w - w^*)$, all chains in one batched program, one stream of random numbers each.

With all data in every step a Metropolis test makes the chains exact; on minibatches it is plain SGLD, whose bias falls
with the step size.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from netvitals.anatomy.copies.replicas import Replicas
from netvitals.singular.sampling.noise import NoiseSource

_TARGET_EXACT = 0.6  # acceptance the step-size search settles on where moves are Metropolis-corrected
_TARGET_MINIBATCH = 0.97  # and where they are not: the discretisation bias shrinks as acceptance nears 1


class Langevin:
    r"""Chains that sample $\exp(-n\beta L(w) - \frac{\gamma}{2}\|w - w^*\|^2)$, started at $w^*$.

    Args:
        data: all inputs and targets.
        batch: samples a step, drawn anew by every chain; None takes all of them.
        preconditioned: scale steps by a running RMS of the force, frozen after burn-in so that the chain stays exact.
        law: of the noise on minibatches without preconditioning; elsewhere it is normal.
    """

    def __init__(
        self,
        copies: Replicas,
        data: tuple[Tensor, Tensor],
        chains: int,
        nbeta: float,
        gamma: float,
        batch: int | None,
        preconditioned: bool,
        law: str,
        seed: int,
    ) -> None:
        self.copies, self.chains, self.nbeta, self.gamma, self.seed = copies, chains, nbeta, gamma, seed
        self.x, self.y = data
        self.n = len(self.y)
        self.batch = None if batch is None or batch >= self.n else batch
        self.preconditioned, self.law = preconditioned, law
        self.work = 0.0  # gradient-equivalents of one full pass over the data

    def run(
        self,
        step: float,
        burn: int,
        draws: int,
        thin: int,
        adapt: bool,
        progress: Callable[[int, int], None] | None = None,
    ) -> tuple[np.ndarray, float, float]:
        """Losses (chains, draws), the step size after burn-in, and the share of moves accepted from then on."""
        self.step = step
        self.shares: list[float] = []
        walk = self.corrected(burn, adapt) if self.batch is None else self.plain(burn)
        total = burn + (draws - 1) * thin + 1
        losses = []
        for i, loss in zip(range(total), walk):
            if i >= burn and (i - burn) % thin == 0:
                losses.append(loss)
            if progress is not None and (i % 20 == 0 or i == total - 1):
                progress(i + 1, total)
        rate = float(np.mean(self.shares)) if self.shares else math.nan
        return torch.stack(losses, 1).double().cpu().numpy(), self.step, rate

    def plain(self, burn: int) -> Iterator[Tensor]:
        """SGLD on minibatches: the loss of every chain before each move."""
        w, streams = self.start()
        parts, rows = self.copies.parts(w), list(zip(w.unbind(), streams))
        second, metric = torch.zeros_like(w), torch.ones_like(w)
        pull = self.step / 2 * self.gamma
        for i in itertools.count():
            x, y = self.minibatch(streams)
            if not self.preconditioned and pull < 0.5:
                # in place; the pull comes after the descent here and shrinks it, which the scale makes good
                yield self.copies.add_gradient(parts, x, y, parts, -self.step / 2 * self.nbeta / (1 - pull), each=True)
                for row, stream in rows:  # row by row, while a row is in the cache
                    row.lerp_(self.copies.start, pull)
                    stream.add(row, math.sqrt(self.step), self.law)
                continue
            loss, force = self.force(w, x, y, each=True)
            yield loss
            if self.preconditioned and i < burn:
                metric = _metric(second, force)
            w, _ = self.propose(w, force, self.step * metric, streams)

    def corrected(self, burn: int, adapt: bool) -> Iterator[Tensor]:
        """Metropolis-corrected moves on all the data: the loss of every chain before each of them."""
        w, streams = self.start()
        second = torch.zeros_like(w) if self.preconditioned else None
        metric = torch.ones((self.chains, 1), dtype=w.dtype, device=w.device)
        loss, u, force = self.energy(w)
        for i in itertools.count():
            yield loss
            if second is not None and i < burn:
                metric = _metric(second, force)
            step = self.step * metric
            proposal, back = self.propose(w, force, step, streams)
            loss_new, u_new, force_new = self.energy(proposal)
            uniform = torch.cat([stream.uniform(w.dtype) for stream in streams]).to(w.device)
            keep = torch.log(uniform) < -(u_new - u + self.reverse(w, proposal, force_new, step) - back)
            share = float(keep.double().mean())
            if i >= burn:
                self.shares.append(share)
            elif adapt:  # away from w* the posterior may be steeper; frozen after burn-in, so exact
                self.step *= math.exp(0.1 * (share - _TARGET_EXACT))
            w, force = torch.where(keep[:, None], proposal, w), torch.where(keep[:, None], force_new, force)
            loss, u = torch.where(keep, loss_new, loss), torch.where(keep, u_new, u)

    def start(self) -> tuple[Tensor, list[NoiseSource]]:
        return self.copies.start.expand(self.chains, -1).clone(), [
            NoiseSource(self.seed, c) for c in range(self.chains)
        ]

    def minibatch(self, streams: list[NoiseSource]) -> tuple[Tensor, Tensor]:
        """Inputs and targets (chains, batch, ...), every chain's own."""
        assert self.batch is not None
        rows = torch.stack([stream.rows(self.n, self.batch) for stream in streams]).to(self.x.device)
        self.work += self.chains * self.batch / self.n
        return self.x[rows], self.y[rows]

    def force(self, w: Tensor, x: Tensor, y: Tensor, each: bool = False) -> tuple[Tensor, Tensor]:
        """Loss and F, per chain."""
        force = (w - self.copies.start).mul_(self.gamma)
        parts, out = self.copies.parts(w), self.copies.parts(force)
        return self.copies.add_gradient(parts, x, y, out, self.nbeta, each), force

    def energy(self, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Loss, negative log posterior and its gradient, per chain, on all the data."""
        loss, force = self.force(w, self.x, self.y)
        self.work += self.chains
        well = (w - self.copies.start).square().sum(1)
        return loss, self.nbeta * loss + self.gamma / 2 * well, force

    def propose(self, w: Tensor, force: Tensor, step: Tensor, streams: list[NoiseSource]) -> tuple[Tensor, Tensor]:
        """One Langevin move, and minus the log density of having made it."""
        noise = torch.stack([stream.normal(w.shape[1], w.dtype) for stream in streams]).to(w.device)
        return w - step / 2 * force + step.sqrt() * noise, noise.square().sum(1) / 2

    def reverse(self, w: Tensor, proposal: Tensor, force: Tensor, step: Tensor | float) -> Tensor:
        """Minus the log density of moving back."""
        return ((w - proposal + step / 2 * force).square() / (2 * step)).sum(1)

    def search(self) -> tuple[float, list[tuple[float, float]]]:
        """Largest ε of a geometric grid whose Metropolis acceptance meets the target."""
        target = _TARGET_EXACT if self.batch is None else _TARGET_MINIBATCH
        tried: list[tuple[float, float]] = []
        step = 4.0 / self.nbeta
        for _ in range(24):
            rate = self.acceptance(step)
            tried.append((step, rate))
            if rate >= target:
                break
            step /= 2.0
        return step, tried

    def acceptance(self, step: float, moves: int = 12) -> float:
        r"""Mean of $\min(1, e^{-\Delta})$ over a few moves of the uncorrected chain, on all the data."""
        w, streams = self.start()
        scale = torch.full((self.chains, 1), step, dtype=w.dtype, device=w.device)
        _, u, force = self.energy(w)
        rates = []
        for _ in range(moves):
            proposal, back = self.propose(w, force, scale, streams)
            _, u_new, force_new = self.energy(proposal)
            rate = torch.exp(-(u_new - u + self.reverse(w, proposal, force_new, step) - back).clamp_min(0))
            rates.append(float(torch.nan_to_num(rate, nan=0.0).mean()))
            if rates[-1] < 0.01:
                return rates[-1]
            w, u, force = proposal, u_new, force_new
        return float(np.mean(rates[moves // 3 :]))


def _metric(second: Tensor, force: Tensor) -> Tensor:
    """The running second moment of the force, updated in place, as a scale of the steps with mean near 1."""
    rms = second.mul_(0.99).addcmul_(force, force, value=0.01).sqrt() + 1e-8
    return rms.mean(1, keepdim=True) / rms
