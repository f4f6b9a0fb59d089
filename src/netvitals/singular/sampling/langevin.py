r"""Langevin chains on minibatches: $w \leftarrow w - \frac{\epsilon}{2} F + \sqrt{\epsilon}\,\xi$ with the force
$F = n\beta \nabla L(w) + \gamma (w - w^*)$ of a batch drawn anew by every chain.

No test corrects them: their mean is off by $c\,\epsilon + O(\epsilon^2)$, from the step and from the noise of the
batches alike. Half of the chains walk at ε and half at ε/2, and the line through the two means is read at 0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from netvitals.anatomy import Replicas
from netvitals.singular.sampling.noise import NoiseSource

_TARGET = 0.97  # acceptance that the search settles on, had the moves been tested: the bias shrinks as it nears 1
_LOOKS = 50  # draws at most whose place is measured


class Langevin:
    r"""Chains that sample $\exp(-n\beta L(w) - \frac{\gamma}{2}\|w - w^*\|^2)$ but for a bias, started at $w^*$."""

    def __init__(
        self,
        copies: Replicas,
        data: tuple[Tensor, Tensor],
        *,
        streams: list[NoiseSource],
        nbeta: float,
        gamma: float,
        batch: int,
        preconditioned: bool,
        law: str,
    ) -> None:
        self.copies, self.streams, self.nbeta, self.gamma, self.batch = copies, streams, nbeta, gamma, batch
        self.x, self.y = data
        self.n = len(self.y)
        self.preconditioned, self.law = preconditioned, law
        self.work = 0.0  # gradient-equivalents of one full pass over the data

    def run(
        self,
        steps: list[float],
        burn: int,
        draws: int,
        thin: int,
        look: Callable[[Tensor], Tensor],
        tick: Callable[[], None],
    ) -> tuple[np.ndarray, np.ndarray]:
        """Losses (chains, draws), each on a batch, and observables (…, chains, some of the draws); one step a chain."""
        self.steps = steps
        losses: list[Tensor] = []
        seen: list[Tensor] = []
        every = -(-draws // _LOOKS)
        for i, (loss, w) in zip(range(burn + (draws - 1) * thin + 1), self.walk(burn)):
            if i >= burn and (i - burn) % thin == 0:
                if len(losses) % every == 0:
                    seen.append(look(w))
                losses.append(loss)
            tick()
        return torch.stack(losses, 1).double().cpu().numpy(), torch.stack(seen, -1).cpu().numpy()

    def walk(self, burn: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The loss of every chain before each move, and where the chains are after it."""
        size = self.copies.size
        padded = self.copies.start.new_zeros(len(self.streams), -(-size // 16) * 16)  # rows on lines of the cache
        w = padded[:, :size].copy_(self.copies.start)
        parts, rows = self.copies.parts(w), list(zip(w.unbind(), self.streams))
        second, metric = torch.zeros_like(w), torch.ones_like(w)
        steps = torch.as_tensor(self.steps, dtype=w.dtype, device=w.device)
        pulls = [step / 2 * self.gamma for step in self.steps]
        scale = -self.nbeta * steps / 2 / (1 - steps / 2 * self.gamma)
        for i in itertools.count():
            x, y = self.minibatch()
            if not self.preconditioned and max(pulls) < 0.5:
                # in place; the pull comes after the descent here and shrinks it, which the scale makes good
                loss = self.copies.add_gradient(parts, x, y, parts, scale, each=True)
                for (row, stream), step, pull in zip(rows, self.steps, pulls):  # while a row is in the cache
                    row.lerp_(self.copies.start, pull)
                    stream.add(row, math.sqrt(step), self.law)
                yield loss, w
                continue
            force = (w - self.copies.start).mul_(self.gamma)
            loss = self.copies.add_gradient(self.copies.parts(w), x, y, self.copies.parts(force), self.nbeta, True)
            if self.preconditioned and i < burn:
                metric = _metric(second, force)
            scaled = steps[:, None] * metric
            noise = torch.stack([stream.normal(w.shape[1], w.dtype) for stream in self.streams]).to(w.device)
            w = w - scaled / 2 * force + scaled.sqrt() * noise
            yield loss, w

    def minibatch(self) -> tuple[Tensor, Tensor]:
        """Inputs and targets (chains, batch, ...), every chain's own."""
        rows = torch.stack([stream.rows(self.n, self.batch) for stream in self.streams]).to(self.x.device)
        self.work += len(self.streams) * self.batch / self.n
        return self.x[rows], self.y[rows]

    def search(self) -> tuple[float, list[tuple[float, float]]]:
        """Largest ε of a geometric grid whose Metropolis acceptance would meet the target."""
        tried: list[tuple[float, float]] = []
        step = 4.0 / self.nbeta
        for _ in range(24):
            rate = self.acceptance(step)
            tried.append((step, rate))
            if rate >= _TARGET:
                break
            step /= 2.0
        return step, tried

    def acceptance(self, step: float, moves: int = 12) -> float:
        r"""Mean of $\min(1, e^{-\Delta})$ over a few moves of the uncorrected chain, on all the data."""
        w = self.copies.start.expand(len(self.streams), -1).clone()
        u, force = self._energy(w)
        rates = []
        for _ in range(moves):
            noise = torch.stack([stream.normal(w.shape[1], w.dtype) for stream in self.streams]).to(w.device)
            proposal = w - step / 2 * force + math.sqrt(step) * noise
            u_new, force_new = self._energy(proposal)
            back = ((w - proposal + step / 2 * force_new).square() / (2 * step)).sum(1) - noise.square().sum(1) / 2
            rates.append(float(torch.nan_to_num(torch.exp(-(u_new - u + back).clamp_min(0)), nan=0.0).mean()))
            if rates[-1] < 0.01:
                return rates[-1]
            w, u, force = proposal, u_new, force_new
        return float(np.mean(rates[moves // 3 :]))

    def _energy(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Negative log posterior and its gradient, per chain, on all the data."""
        away = w - self.copies.start
        force = away * self.gamma
        loss = self.copies.add_gradient(self.copies.parts(w), self.x, self.y, self.copies.parts(force), self.nbeta)
        self.work += len(w)
        return self.nbeta * loss + self.gamma / 2 * away.square().sum(1), force


def extrapolated(coarse: float, fine: float, errors: tuple[float, float]) -> tuple[float, float, float]:
    r"""The mean at ε = 0 from those at ε and ε/2: $2\,m_{\epsilon/2} - m_\epsilon$.

    What is left is of second order: for a correction that is the share r of the result, about 2r² of it, as for a
    quadratic loss. It is added to the standard error.

    >>> mean, error, share = extrapolated(1 / (1 - 0.2), 1 / (1 - 0.1), (0.0, 0.0))  # bias of a quadratic loss
    >>> round(mean, 3), bool(abs(mean - 1) < error), round(share, 3)
    (0.972, True, 0.143)
    """
    mean = 2 * fine - coarse
    share = abs(fine - coarse) / abs(mean) if mean else math.inf
    return mean, math.hypot(errors[0], 2 * errors[1], 2 * share**2 * abs(mean)), share


def _metric(second: Tensor, force: Tensor) -> Tensor:
    """The running second moment of the force, updated in place, as a scale of the steps with mean near 1."""
    rms = second.mul_(0.99).addcmul_(force, force, value=0.01).sqrt() + 1e-8
    return rms.mean(1, keepdim=True) / rms
