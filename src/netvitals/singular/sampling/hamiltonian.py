r"""Hamiltonian chains on all the data: exact, preconditioned, and on a ladder of temperatures where that helps.

A move draws $p \sim N(0, I)$ and follows $\dot w = s p$, $\dot p = -s F$ for a random number of leapfrog steps, with
the force $F = n\beta \nabla L(w) + \gamma (w - w^*)$; a Metropolis test makes it exact. The scales s of the coordinates
come from the identity $E[F_i^2] = E[\partial_i F_i]$ under the posterior: the mean square of a force is the mean
curvature. Scales, step sizes and rungs are tuned during burn-in and frozen after it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from netvitals.anatomy import Replicas
from netvitals.singular.sampling import ladder
from netvitals.singular.sampling.noise import NoiseSource

_TARGET = 0.75  # acceptance that step sizes are tuned to
_LONG = 0.3  # share of moves of any length, at one temperature
_SWEEPS = 3  # over the ladder after every move
_EXAMPLES = 200_000  # pushed through the copies in one call


@dataclass
class Tuning:
    """What burn-in found, one row a rung; the next checkpoint may start from it."""

    rungs: np.ndarray  # nβ from cold to hot
    steps: np.ndarray  # ε in units of the scales
    scales: Tensor  # (rungs, parameters)
    away: Tensor | None = None  # w − w* of the last draw, (rungs, chains, parameters)
    refused: np.ndarray = field(default_factory=lambda: np.zeros(0))


class Hamiltonian:
    r"""Chains that sample $\exp(-n\beta L(w) - \frac{\gamma}{2}\|w - w^*\|^2)$, started at $w^*$."""

    def __init__(
        self,
        copies: Replicas,
        data: tuple[Tensor, Tensor],
        *,
        chains: int,
        nbeta: float,
        gamma: float,
        preconditioned: bool,
        leapfrog: int,
        seed: int,
    ) -> None:
        self.copies, self.chains, self.nbeta, self.gamma = copies, chains, nbeta, gamma
        self.x, self.y = data
        self.preconditioned, self.leapfrog = preconditioned, leapfrog
        self.streams = [NoiseSource(seed, c) for c in range(chains)]
        self.common = np.random.default_rng((seed % 2**64, 7))  # what all chains share: lengths of moves
        self.work = 0.0  # gradient-equivalents of one full pass over the data
        self.accepted: list[float] = []

    # ------------------------------------------------------------------ the posterior

    def energies(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Losses and gradients of the rows of ``w``, on all the data."""
        gradient = torch.zeros_like(w)
        size = max(1, _EXAMPLES // len(self.y))
        losses = [
            self.copies.add_gradient(self.copies.parts(rows), self.x, self.y, self.copies.parts(out))
            for rows, out in zip(w.split(size), gradient.split(size))
        ]
        self.work += len(w)
        return torch.cat(losses), gradient

    def tuning(self, rungs: int | None) -> Tuning:
        """A ladder of ``rungs`` temperatures, or as many as seem right, before any burn-in."""
        start, found = self.copies.start, np.array([self.nbeta])
        wanted = self.copies.size <= ladder.LARGEST if rungs is None else rungs > 1
        if wanted and self.gamma > 0:
            draws = torch.stack([s.normal(start.numel(), start.dtype) for s in self.streams for _ in range(8)])
            with torch.no_grad():
                losses = self.copies.losses(start + draws.to(start.device) / math.sqrt(self.gamma), self.x, self.y)
                rises = losses - self.copies.losses(start[None], self.x, self.y)
            self.work += len(draws) / 3
            hottest = ladder.top(self.nbeta, rises.double().cpu().numpy())
            found = ladder.first(self.nbeta, hottest, start.numel())
            if rungs is not None:
                found = np.geomspace(self.nbeta, min(hottest, self.nbeta / 1.1), rungs)
        scales = torch.ones(len(found), start.numel(), dtype=start.dtype, device=start.device)
        # narrower where the loss weighs more: halfway between the well and a regular model of unit curvature
        steps = 1 / np.sqrt(max(self.gamma, 1e-6) + np.sqrt(found))
        return Tuning(found, steps, scales)

    # ------------------------------------------------------------------ moves

    def start(self, tuning: Tuning) -> None:
        self.tuned = tuning
        rows = len(tuning.rungs) * self.chains
        self.w = self.copies.start.expand(rows, -1).clone()
        if tuning.away is not None and tuning.away.shape[1] == self.chains:
            self.w += tuning.away.reshape(rows, -1).to(self.w)
        self.loss, self.gradient = self.energies(self.w)
        self.chance = np.zeros(len(tuning.rungs) - 1)
        self.counts = np.zeros(len(tuning.rungs) - 1)

    def per_row(self, values: np.ndarray) -> Tensor:
        found = torch.as_tensor(np.repeat(values, self.chains), dtype=self.w.dtype, device=self.w.device)
        return found[:, None]

    def drawn(self, kind: str) -> Tensor:
        """Random numbers (rungs × chains, …) of the chains' own streams."""
        rungs, rows = len(self.tuned.rungs), self.w.shape[1]
        if kind == "normal":
            each = [s.normal(rungs * rows, self.w.dtype).view(rungs, rows) for s in self.streams]
        else:
            each = [s.uniform(torch.float64, rungs)[:, None] for s in self.streams]
        return torch.stack(each, 1).flatten(0, 1).to(self.w.device)

    def force(self, w: Tensor, gradient: Tensor) -> Tensor:
        return self.per_row(self.tuned.rungs) * gradient + self.gamma * (w - self.copies.start)

    def potential(self, w: Tensor, loss: Tensor) -> Tensor:
        well = (w - self.copies.start).square().sum(1).double()
        return self.per_row(self.tuned.rungs)[:, 0].double() * loss.double() + self.gamma / 2 * well

    def move(self, jitter: float) -> np.ndarray:
        """One Hamiltonian move of every replica; the mean acceptance by rung."""
        scales = self.tuned.scales.repeat_interleave(self.chains, 0)
        step = self.per_row(self.tuned.steps) * jitter * scales
        momentum = self.drawn("normal")
        before = self.potential(self.w, self.loss) + momentum.square().sum(1).double() / 2
        w, loss, gradient = self.w, self.loss, self.gradient
        for _ in range(self.length()):
            momentum = momentum - step / 2 * self.force(w, gradient)
            w = w + step * momentum
            loss, gradient = self.energies(w)
            momentum = momentum - step / 2 * self.force(w, gradient)
        after = self.potential(w, loss) + momentum.square().sum(1).double() / 2
        chance = torch.nan_to_num(torch.exp((before - after).clamp_max(0)), nan=0.0)
        keep = self.drawn("uniform")[:, 0] < chance
        self.w = torch.where(keep[:, None], w, self.w)
        self.gradient = torch.where(keep[:, None], gradient, self.gradient)
        self.loss = torch.where(keep, loss, self.loss)
        return np.asarray(chance.view(-1, self.chains).mean(1).cpu().numpy())

    def length(self) -> int:
        """Leapfrog steps of the next move: a quarter period forgets a normal posterior, others need longer."""
        if len(self.tuned.rungs) > 1 or self.common.uniform() < _LONG:
            return int(self.common.integers(1, self.leapfrog + 1))
        quarter = self.common.uniform(0.8, 1.2) * math.pi / 2 / float(self.tuned.steps[0])
        return int(np.clip(round(quarter), 1, 2 * self.leapfrog))

    def exchange(self) -> None:
        """Even and odd pairs of neighbours on the ladder in turn; a look at the table costs nothing beside a move."""
        rungs = self.tuned.rungs
        if len(rungs) < 2:
            return
        losses = self.loss.view(-1, self.chains).double().cpu().numpy()
        rows = np.arange(losses.size).reshape(losses.shape)
        for odd in (False, True) * _SWEEPS:
            uniforms = self.drawn("uniform").view(-1, self.chains).cpu().numpy()
            places, lower, chance = ladder.exchanges(rungs, losses, odd, uniforms)
            losses, rows = (np.take_along_axis(t, places, 0) for t in (losses, rows))
            self.chance[lower] += chance
            self.counts[lower] += 1
        order = torch.as_tensor(rows.ravel(), device=self.w.device)
        self.w, self.loss, self.gradient = self.w[order], self.loss[order], self.gradient[order]

    # ------------------------------------------------------------------ the walk

    def burn(self, moves: int, tick: Callable[[], None], *, free: bool, tuned: bool = True) -> None:
        """Tune steps and scales where ``tuned``, the rungs where ``free``; nothing is kept of it but the tuning."""
        squares, seen = torch.zeros_like(self.tuned.scales), 0.0
        stages = {round(moves * part) for part in (0.25, 0.5)} if free and len(self.tuned.rungs) > 1 else set()
        for i in range(moves):
            if i in stages and i:
                squares, seen = self.respace(), 0.0
            chance = self.move(float(self.common.uniform(0.6, 1.0)))
            gain = (max(2.0 * 0.9**i, 0.15) if i < moves // 2 else 0.1) if tuned else 0.0
            self.tuned.steps = self.tuned.steps * np.exp(gain * (chance - _TARGET))
            self.exchange()
            if self.preconditioned and tuned:
                fresh = self.force(self.w, self.gradient).square().view(-1, self.chains, self.w.shape[1]).mean(1)
                squares, seen = squares * 0.98 + fresh, seen * 0.98 + 1.0
                if i >= moves // 4 and i % 10 == 0 and i < 0.85 * moves:
                    self.rescale(squares / seen, seen * self.chains)
            tick()

    def rescale(self, squares: Tensor, seen: float) -> None:
        """Scales from the mean squares of the forces, drawn towards their mean as far as they are few."""
        level = squares.mean(1, keepdim=True)
        squares = (seen * squares + 10 * level) / (seen + 10)
        scales = (squares.clamp_min(1e-12 * level.clamp_min(1e-30))).rsqrt()
        old, new = (s.log().mean(1).double().cpu().numpy() for s in (self.tuned.scales, scales))
        self.tuned.steps = self.tuned.steps * np.exp(old - new)  # the same step on the mean
        self.tuned.scales = scales

    def respace(self) -> Tensor:
        """Put the rungs where exchanges are refused equally often; give the ladder up where it would be too long."""
        old = self.tuned
        refused = 1 - self.chance / np.maximum(self.counts, 1)
        if refused.mean() > 0.9 and len(old.rungs) == ladder.LONGEST:
            rungs = old.rungs[:1]
        else:
            rungs = ladder.respaced(old.rungs, refused)
        where = np.interp(-np.log(rungs), -np.log(old.rungs), np.arange(len(old.rungs)))
        nearest = torch.as_tensor(np.rint(where).astype(int))
        steps = np.exp(np.interp(where, np.arange(len(old.rungs)), np.log(old.steps)))
        shape = (-1, self.chains)
        w = self.w.view(*shape, self.w.shape[1])[nearest].flatten(0, 1)
        self.tuned = Tuning(rungs, steps, old.scales[nearest])
        self.w = w
        self.loss, self.gradient = self.energies(w)
        self.chance, self.counts = np.zeros(len(rungs) - 1), np.zeros(len(rungs) - 1)
        return torch.zeros_like(self.tuned.scales)

    def sample(self, draws: int, thin: int, look: Callable[[Tensor], Tensor], tick: Callable[[], None]) -> np.ndarray:
        """Observables of the coldest rung (1 + …, chains, draws), the loss first."""
        kept = []
        self.accepted = []
        self.chance, self.counts = np.zeros_like(self.chance), np.zeros_like(self.counts)
        for i in range((draws - 1) * thin + 1):
            if i:
                self.accepted.append(float(self.move(float(self.common.uniform(0.6, 1.0)))[0]))
                self.exchange()
            if i % thin == 0:
                cold = self.w[: self.chains]
                kept.append(torch.cat([self.loss[None, : self.chains].double(), look(cold)]))
            tick()
        self.tuned.away = (self.w - self.copies.start).view(-1, self.chains, self.w.shape[1])
        self.tuned.refused = 1 - self.chance / np.maximum(self.counts, 1)
        return torch.stack(kept, -1).cpu().numpy()
