r"""Langevin chains on minibatches that the noise of the batches does not heat.

One move is a refreshed momentum p and a leapfrog step along $\dot u = p$, $\dot p = -F$ on the energy of one batch B,
in coordinates $u = w / s$, with a Metropolis test on that energy. Four things take away what a batch does that all the
data would not do:

- Losses and gradients are those of the batch minus what the same batch says at $w^*$, plus what all the data say there:
  $g = \nabla L_B(w) - \nabla L_B(w^*) + \nabla L(w^*)$. The noise of labels is gone; what is left grows with the way
  from $w^*$.
- Its variance is known from the two halves of the batch, $d^2 = (g_1 - g_2)^2/4$ a coordinate, and as much is left out
  of the refreshed momentum: a kick by h g along $p \leftarrow c\,p + \sqrt{1 - c^2}\,\xi$ moves a chain as far as noise
  of variance $((1 + c)/2)^2 h^2 d^2$ in p does. Where that is more than there is, the rest is owed by the next moves.
- h is so small that this variance is at most a tenth of what is refreshed, and nineteen of twenty moves are accepted.
- What heating is left is measured, see :func:`cooled`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from netvitals.anatomy import Replicas
from netvitals.singular.sampling.chains import effective_draws, standard_error
from netvitals.singular.sampling.noise import NoiseSource

THIN = 10  # moves from one draw to the next, unless it is given
BURN = 500  # moves before the first draw at least, unless they are given
_TARGET = 0.95  # acceptance that the step is tuned to
_HEAT = 0.1  # most that minibatches may add to the refreshed variance of p
_FAITHFUL = 0.95  # share of the variance of the loss that the virial must explain to be used
_EXAMPLES = 4096  # pushed through the model in one call for the gradient of all the data


class Langevin:
    r"""Chains that sample $\exp(-n\beta L(w) - \frac{\gamma}{2}\|w - w^*\|^2)$, started at $w^*$."""

    def __init__(
        self,
        copies: Replicas,
        data: tuple[Tensor, Tensor],
        *,
        streams: list[NoiseSource],
        nbeta: float,
        gamma: float,
        batch: int,
    ) -> None:
        self.copies, self.streams, self.nbeta, self.gamma = copies, streams, nbeta, gamma
        self.x, self.y = data
        self.n, self.half = len(self.y), max(1, batch // 2)
        self.work = 0.0  # gradient-equivalents of one full pass over the data
        self.accepted: list[float] = []
        self.slope = self._slope()
        size = (len(streams), copies.size)
        self.w = copies.start.expand(size).clone()
        self.p = self.normal()
        self.owed = torch.zeros_like(self.w)
        self.scales = torch.ones_like(copies.start)
        self.held = torch.zeros_like(copies.start)  # by the well, a share of each coordinate
        self.step = math.nan

    def _slope(self) -> Tensor:
        """The gradient at w* on all the data."""
        total = torch.zeros_like(self.copies.start)[None]
        for rows in torch.arange(self.n, device=self.x.device).split(_EXAMPLES):
            part = torch.zeros_like(total)
            self.copies.add_gradient(
                self.copies.parts(self.copies.start[None]), self.x[rows], self.y[rows], self.copies.parts(part)
            )
            total += part * (len(rows) / self.n)
        self.work += 1
        return total[0]

    # ------------------------------------------------------------------ one batch

    def normal(self) -> Tensor:
        start = self.copies.start
        return torch.stack([s.normal(start.numel(), start.dtype) for s in self.streams]).to(start.device)

    def gradients(self, w: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Losses (chains · 2) and gradients on the two halves of every chain's batch, ``w`` a row a half."""
        out = torch.zeros_like(w)
        loss = self.copies.add_gradient(self.copies.parts(w), self.x[rows], self.y[rows], self.copies.parts(out), True)
        self.work += rows.numel() / self.n
        return loss, out

    def batch(self) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        r"""A new batch a chain: a function from w to $n\beta(L_B(w) - L_B(w^*))$ without its slope's noise, and to the
        forces (chains, 2, D) of its halves.
        """
        rows = torch.stack([s.rows(self.n, 2 * self.half) for s in self.streams]).to(self.x.device)
        rows = rows.view(-1, self.half)
        start = self.copies.start.expand(len(rows), -1)
        loss, at_start = self.gradients(start, rows)
        change = self.slope - at_start

        def energy(w: Tensor) -> tuple[Tensor, Tensor]:
            away = w.repeat_interleave(2, 0) - start
            here, gradient = self.gradients(w.repeat_interleave(2, 0), rows)
            rise = self.nbeta * (here - loss + torch.linalg.vecdot(change, away))
            force = self.nbeta * (gradient + change) + self.gamma * away
            return rise.double().view(-1, 2).mean(1), force.view(len(w), 2, -1)

        return energy

    # ------------------------------------------------------------------ the walk

    def move(self) -> tuple[Tensor, Tensor, Tensor, float]:
        """One move of all chains: nβ(L − L*) before it and its virial, both halves' forces after it, the heat."""
        h, s, energy = self.step, self.scales, self.batch()
        before, forces = energy(self.w)
        away = self.w - self.copies.start
        virial = ((1 - self.held) * (away * forces.mean(1) - 1)).sum(1).double()
        p = self.p - h / 2 * s * forces.mean(1)
        w = self.w + h * s * p
        after, ahead = energy(w)
        p = p - h / 2 * s * ahead.mean(1)
        well = (w - self.copies.start).square().sum(1) - away.square().sum(1)
        kinetic = p.square().sum(1) - self.p.square().sum(1)
        change = after - before + (self.gamma * well + kinetic).double() / 2
        chance = torch.nan_to_num(torch.exp((-change).clamp_max(0)), nan=0.0)
        uniform = torch.cat([stream.uniform(torch.float64) for stream in self.streams]).to(chance.device)
        keep = (uniform < chance)[:, None]
        self.w, p = torch.where(keep, w, self.w), torch.where(keep, p, -self.p)
        c = math.exp(-h)
        halves = s * (ahead[:, 0] - ahead[:, 1])
        heat = torch.where(keep, ((1 + c) / 4 * h * halves).square(), torch.zeros_like(p))
        left = 1 - c * c - heat - self.owed
        self.owed = (-left).clamp_min(0)
        self.p = c * p + left.clamp_min(0).sqrt() * self.normal()
        self.accepted.append(float(chance.mean()))
        return before, virial, ahead, float(heat.mean()) / (1 - c * c)

    def burn(self, moves: int, step: float | str, preconditioned: bool, tick: Callable[[], None]) -> None:
        """Tune the step to its acceptance and its heat, the scales to the mean curvature; nothing else is kept."""
        if step != "auto":
            self.step = float(step)
            for _ in range(moves):
                self.move()
                tick()
            return
        self.scales *= self._curvature() ** -0.5
        self.step, lost, heat, last = 0.1, 1.0 - _TARGET, _HEAT, 0.0
        squares, places, seen = torch.zeros_like(self.held), torch.zeros_like(self.held), 0.0
        for i in range(moves):
            _, _, forces, hot = self.move()
            # both shares as they would be at the present step: they grow like its cube and like itself
            memory = min(0.95, i / (i + 1))
            lost = lost * memory * math.exp(min(3 * last, 0.0)) + (1 - self.accepted[-1]) * (1 - memory)
            heat = heat * memory * math.exp(last) + hot * (1 - memory)
            wanted = min(math.log((1 - _TARGET) / (lost + 1e-4)) / 3, math.log(_HEAT / (heat + 1e-12)))
            # slowly up: a chain that was heated once needs long to cool; never longer than the well is wide
            last = float(np.clip(wanted, -0.7, 0.2)) * (0.5 if i < moves // 2 else 0.15)
            longest = min(1.0, 1 / (math.sqrt(self.gamma) * float(self.scales.max()) + 1e-12))
            last = min(last, math.log(longest / self.step))
            self.step *= math.exp(last)
            self.owed.zero_()  # by another step
            squares = squares * 0.98 + forces.mean(1).square().mean(0)
            places = places * 0.98 + (self.w - self.copies.start).square().mean(0)
            seen = seen * 0.98 + 1.0
            if preconditioned and moves // 4 <= i < 0.85 * moves and i % 10 == 0:
                self._rescale(squares / seen, seen * len(self.w) * min(self.step, 1.0))
            tick()
        if moves:
            self.held = (self.gamma * places / seen).clamp(0, 1)

    def _curvature(self) -> float:
        """The mean one about w*, of nβL and the well."""
        size, toward = 1 / math.sqrt(self.nbeta + self.gamma), self.normal()
        _, force = self.batch()(self.copies.start + size * toward)
        mean = float((force.mean(1) * toward).sum(1).mean()) / size / self.copies.size
        return max(mean, self.gamma, 1e-12)

    def _rescale(self, squares: Tensor, seen: float) -> None:
        r"""Scales from $E[F_i^2] = E[\partial_i F_i]$, drawn towards their mean as far as they are few."""
        level = squares.mean()
        squares = ((seen * squares + 10 * level) / (seen + 10)).clamp_min(max(1e-12 * float(level), self.gamma, 1e-30))
        self.step *= math.exp(float((self.scales.log() - squares.rsqrt().log()).mean()))
        self.scales = squares.rsqrt()

    def sample(
        self, draws: int, thin: int, look: Callable[[Tensor], Tensor], tick: Callable[[], None]
    ) -> tuple[np.ndarray, np.ndarray]:
        """nβ(L − L*) and what ``look`` observes (1 + …, chains, draws), and virials (chains, draws).

        Losses and virials are means over the ``thin`` moves from the draw on.
        """
        self.accepted = []
        places: list[Tensor] = []
        means: list[Tensor] = []
        for _ in range(draws):
            places.append(look(self.w))
            sums = torch.zeros(2, len(self.w), dtype=torch.float64, device=self.w.device)
            for _ in range(thin):
                loss, virial, _, _ = self.move()
                sums += torch.stack([loss, virial])
                tick()
            means.append(sums / thin)
        series = torch.stack(means, -1).cpu().numpy()
        return np.concatenate([series[:1], torch.stack(places, -1).cpu().numpy()]), series[1]


def cooled(loss: np.ndarray, virial: np.ndarray, others: np.ndarray) -> tuple[float, float, float]:
    r"""The mean of nβ(L − L*), its standard error, and what heating was worth as a share of the mean.

    Under the posterior $E[\sum_i m_i ((w - w^*)_i F_i - 1)] = 0$ for any weights m, by parts; here m is what the data
    and not the well hold of a coordinate. In a chain that minibatches heat it is above 0. Where it says
    nearly all of the loss, as it does of a quadratic one (λ̂ = D/2 in every single draw), loss − b · virial has neither
    the heat nor most of the variance; what is left is of second order and goes into the error. Elsewhere the heat
    it shows beyond its own error does.

    >>> rng = np.random.default_rng(0)
    >>> squares = rng.normal(size=(4, 400, 6)) ** 2 * 1.1  # six parameters, ten percent too hot
    >>> mean, error, share = cooled(squares.sum(2) / 2, squares.sum(2) - 6, np.zeros((0, 0, 0)))
    >>> round(mean, 6), round(share, 1)
    (3.0, 0.1)
    """
    if virial.size < 3 or not np.ptp(virial):
        return float(loss.mean()), standard_error(loss, others), 0.0
    slope = float(np.cov(loss.ravel(), virial.ravel())[0, 1] / virial.var(ddof=1))
    rest = loss - slope * virial
    own = abs(slope) * float(virial.std()) / math.sqrt(max(effective_draws(virial), 1.0))
    heat = slope * float(virial.mean())
    beyond = max(abs(heat) - 2 * own, 0.0)
    if rest.var() <= (1 - _FAITHFUL) * loss.var():
        mean = float(rest.mean())
        return mean, math.hypot(standard_error(rest, others), beyond**2 / max(abs(mean), 1e-12)), heat / mean
    mean = float(loss.mean())
    return mean, math.hypot(standard_error(loss, others), beyond), heat / mean if mean else 0.0
