r"""The local learning coefficient of any model: $\hat\lambda = n\beta\,(E_{w \sim p_\beta}[L_n(w)] - L_n(w^*))$.

The tempered, localised posterior is $p_\beta(w) \propto \exp(-n\beta L_n(w) - \frac{\gamma}{2}\|w - w^*\|^2)$. It is
sampled by Langevin moves $w \leftarrow w - \frac{\epsilon}{2} F + \sqrt{\epsilon}\,\xi$,
$F = n\beta \nabla L(w) + \gamma (w - w^*)$, all chains in one batched program (``vmap``), one random generator each.
With all data in every step a Metropolis test makes them exact; on minibatches it is plain SGLD, whose bias falls with
the step size. The baseline $L_n(w^*)$ is the loss on all the data. Where the multiplicity m is above 1 the expectation
itself is about $(m-1)/\log(n\beta)$ below λ at finite n.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from netvitals.capture import preserved
from netvitals.singular.chains import ChainHealth, examine

LossFn = Callable[[Any, Any], Tensor]
_RUNAWAY = 1e3          # a chain whose nβ(L − L*) exceeds this many times the parameter count has left the basin
_TARGET_EXACT = 0.6     # acceptance the step-size search settles on where moves are Metropolis-corrected
_TARGET_MINIBATCH = 0.97    # and where they are not: the discretisation bias shrinks as acceptance nears 1


@dataclass(frozen=True)
class LLC:
    """Learning coefficient with its uncertainty and the chains behind it."""

    mean: float
    stderr: float                   # from effective draws within chains and spread between them, the larger
    per_chain: tuple[float, ...]    # healthy chains only
    trace: np.ndarray               # (chains, draws) of nβ(L − L*), diverged chains included
    health: ChainHealth
    baseline: float                 # L_n(w*)
    n: int
    nbeta: float
    step_size: float
    localization: float
    parameters: int                 # how many took part
    cost: float                     # gradient-equivalents of one full pass over the data
    acceptance: float = math.nan    # share of Metropolis moves accepted; NaN for minibatch SGLD
    searched: tuple[tuple[float, float], ...] = ()      # step sizes tried and their acceptance
    note: str = ""

    def __str__(self) -> str:
        return (f"λ = {self.mean:.4g} ± {self.stderr:.2g} over {self.parameters} parameters "
                f"({len(self.per_chain)} chains × {self.trace.shape[1]} draws, step {self.step_size:.2g}, "
                f"nβ {self.nbeta:.4g}; {self.health}){'; ' + self.note if self.note else ''}")


def learning_coefficient(model: nn.Module, loss_fn: LossFn, loader: Iterable[Any] | tuple[Any, Any], *,
                         chains: int = 4, draws: int = 400, burn_in: int | None = None, thin: int = 1,
                         step_size: float | str = "auto", localization: float = 1.0, nbeta: float | None = None,
                         batch_size: int | None = None, preconditioned: bool = False,
                         only: str | Sequence[str] | None = None, seed: int = 0,
                         progress: Callable[[int, int], None] | None = None) -> LLC:
    r"""Estimate λ at the parameters the model has now.

    Args:
        loader: a DataLoader of (inputs, targets), or the two tensors themselves. It is read once.
        loss_fn: ``loss_fn(model(inputs), targets)``, averaged over samples.
        draws: samples kept per chain, after ``burn_in`` steps (default: half the draws), every ``thin``-th step.
        step_size: ε, or "auto": the largest of a short geometric search with enough Metropolis acceptance, adapted
            during burn-in and then frozen.
        localization: γ, the pull back to w*.
        nbeta: n·β; default n/log n.
        batch_size: None uses all data in every step (no minibatch noise).
        preconditioned: scale steps by a running RMS of the gradient, frozen after burn-in.
        only: globs of parameter names; the others stay fixed (the refined coefficient of a layer).

    The model is run in eval mode (dropout off, running statistics) and is left as it was.
    """
    x, y = _collect(loader)
    n = len(y)
    nbeta = n / math.log(n) if nbeta is None else nbeta
    if chains < 1 or draws < 2 or thin < 1:
        raise ValueError(f"at least 1 chain, 2 draws and thin 1 are needed, got {chains}, {draws}, {thin}")
    burn = draws // 2 if burn_in is None else burn_in
    with preserved(model, train=False):
        problem = _Problem(model, loss_fn, x, y, only)
        with torch.no_grad():
            baseline = float(problem.loss(problem.start, x, y))
        if not math.isfinite(baseline):
            raise ValueError(f"the loss at the given parameters is {baseline}: look for NaN in the data or the model")
        sampler = _Sampler(problem, chains, nbeta, localization, batch_size, preconditioned, seed)
        searched: list[tuple[float, float]] = []
        if step_size == "auto":
            step, searched = sampler.search()
        else:
            step = float(step_size)
        trace, step, acceptance = sampler.run(step, burn, draws, thin, step_size == "auto", progress)
    scaled = nbeta * (trace - baseline)
    health, good = examine(scaled, _RUNAWAY * max(problem.size, 1))
    note = problem.note
    if good.size == 0:
        return LLC(math.nan, math.nan, (), scaled, health, baseline, n, nbeta, step, localization, problem.size,
                   sampler.work, acceptance, tuple(searched), "every chain diverged: use a smaller step size")
    per_chain = good.mean(1)
    within = float(good.std() / math.sqrt(max(health.effective_draws, 1.0)))
    between = float(per_chain.std(ddof=1) / math.sqrt(len(per_chain))) if len(per_chain) > 1 else 0.0
    return LLC(float(good.mean()), max(within, between), tuple(per_chain.tolist()), scaled, health, baseline, n, nbeta,
               step, localization, problem.size, sampler.work, acceptance, tuple(searched), note)


class _Problem:
    """The loss as a function of one flat vector of the parameters that take part."""

    def __init__(self, model: nn.Module, loss_fn: LossFn, x: Any, y: Any, only: str | Sequence[str] | None) -> None:
        self.x, self.y, self.model, self.loss_fn = x, y, model, loss_fn
        globs = [only] if isinstance(only, str) else only
        named = dict(model.named_parameters())
        chosen = {k: p for k, p in named.items() if globs is None or any(fnmatch.fnmatch(k, g) for g in globs)}
        if not chosen:
            raise ValueError(f"no parameter matches {globs}; the model has {', '.join(list(named)[:12])}, …")
        half = any(p.dtype in (torch.float16, torch.bfloat16) for p in named.values())
        self.note = "half precision promoted to float32" if half else ""
        cast = (lambda t: t.float() if t.dtype in (torch.float16, torch.bfloat16) else t) if half else (lambda t: t)
        self.fixed = {k: cast(p.detach()) for k, p in named.items() if k not in chosen}
        self.buffers = {k: cast(b.detach()) for k, b in model.named_buffers()}
        self.shapes = [(k, p.shape, p.numel()) for k, p in chosen.items()]
        self.start = torch.cat([cast(p.detach()).reshape(-1) for p in chosen.values()])
        self.size = self.start.numel()

    def loss(self, flat: Tensor, x: Any, y: Any) -> Tensor:
        params, i = {}, 0
        for name, shape, count in self.shapes:
            params[name] = flat[i:i + count].view(shape)
            i += count
        return self.loss_fn(functional_call(self.model, {**params, **self.fixed, **self.buffers}, (x,)), y)


class _Sampler:
    """Langevin chains in one batch. With all data in every step each move is Metropolis-corrected, hence unbiased."""

    def __init__(self, problem: _Problem, chains: int, nbeta: float, gamma: float, batch: int | None,
                 preconditioned: bool, seed: int) -> None:
        self.problem, self.chains, self.nbeta, self.gamma, self.seed = problem, chains, nbeta, gamma, seed
        self.n = len(problem.y)
        self.batch = None if batch is None or batch >= self.n else batch
        self.preconditioned = preconditioned
        self.full = vmap(grad_and_value(problem.loss), in_dims=(0, None, None))
        self.mini = vmap(grad_and_value(problem.loss), in_dims=(0, 0, 0))
        self.work = 0.0

    def start(self) -> tuple[Tensor, list[torch.Generator]]:
        generators = [torch.Generator().manual_seed(self.seed * 100_003 + c) for c in range(self.chains)]
        return self.problem.start.expand(self.chains, -1).clone(), generators

    def energy(self, w: Tensor, generators: list[torch.Generator] | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Loss, negative log posterior and its gradient, per chain; on a minibatch where generators are given."""
        x, y = self.problem.x, self.problem.y
        if generators is None or self.batch is None:
            grad, loss = self.full(w, x, y)
            self.work += self.chains
        else:
            rows = torch.stack([torch.randint(self.n, (self.batch,), generator=g) for g in generators]).to(w.device)
            grad, loss = self.mini(w, x[rows], y[rows])
            self.work += self.chains * self.batch / self.n
        shift = w - self.problem.start
        force = grad.detach().mul_(self.nbeta).add_(shift, alpha=self.gamma)
        loss = loss.detach()
        return loss, self.nbeta * loss + self.gamma / 2 * shift.square().sum(1), force

    def run(self, step: float, burn: int, draws: int, thin: int, adapt: bool,
            progress: Callable[[int, int], None] | None = None) -> tuple[np.ndarray, float, float]:
        """Losses (chains, draws), the step size after burn-in, and the share of moves accepted from then on."""
        w, generators = self.start()
        second, metric = torch.zeros_like(w), torch.ones((self.chains, 1), dtype=w.dtype, device=w.device)
        losses = torch.empty(draws, self.chains, dtype=w.dtype, device=w.device)
        total, accepted = burn + draws * thin, 0.0
        loss, u, force = self.energy(w, generators)
        for i in range(total):
            if i >= burn and (i - burn) % thin == 0:
                losses[(i - burn) // thin] = loss
            if self.preconditioned and i < burn:
                second.mul_(0.99).addcmul_(force, force, value=0.01)
                rms = second.sqrt() + 1e-8
                metric = rms.mean(1, keepdim=True) / rms        # frozen after burn-in, so that the chain stays exact
            proposal, back = self.propose(w, force, step * metric, generators)
            loss_new, u_new, force_new = self.energy(proposal, generators)
            if self.batch is None:
                keep = self.accept(u_new - u, proposal, w, force_new, step * metric, back, generators)
                share = float(keep.double().mean())
                if i >= burn:
                    accepted += share
                elif adapt:         # away from w* the posterior may be steeper; frozen after burn-in, so exact
                    step *= math.exp(0.1 * (share - _TARGET_EXACT))
                w, force = torch.where(keep[:, None], proposal, w), torch.where(keep[:, None], force_new, force)
                loss, u = torch.where(keep, loss_new, loss), torch.where(keep, u_new, u)
            else:
                w, loss, u, force = proposal, loss_new, u_new, force_new
            if progress is not None and (i % 20 == 0 or i == total - 1):
                progress(i + 1, total)
        rate = accepted / (total - burn) if self.batch is None else math.nan
        return losses.T.double().cpu().numpy(), step, rate

    def propose(self, w: Tensor, force: Tensor, step: Tensor,
                generators: list[torch.Generator]) -> tuple[Tensor, Tensor]:
        """One Langevin move, and minus the log density of having made it."""
        noise = torch.stack([torch.randn(w.shape[1], generator=g, dtype=w.dtype) for g in generators]).to(w.device)
        return w - step / 2 * force + step.sqrt() * noise, noise.square().sum(1) / 2

    def accept(self, rise: Tensor, proposal: Tensor, w: Tensor, force: Tensor, step: Tensor, back: Tensor,
               generators: list[torch.Generator]) -> Tensor:
        reverse = ((w - proposal + step / 2 * force).square() / (2 * step)).sum(1)
        uniform = torch.cat([torch.rand(1, generator=g, dtype=w.dtype) for g in generators]).to(w.device)
        return torch.log(uniform) < -(rise + reverse - back)

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
        w, generators = self.start()
        scale = torch.full((self.chains, 1), step, dtype=w.dtype, device=w.device)
        _, u, force = self.energy(w)
        rates = []
        for _ in range(moves):
            proposal, back = self.propose(w, force, scale, generators)
            _, u_new, force_new = self.energy(proposal)
            reverse = ((w - proposal + step / 2 * force_new).square() / (2 * step)).sum(1)
            rate = torch.exp(-(u_new - u + reverse - back).clamp_min(0))
            rates.append(float(torch.nan_to_num(rate, nan=0.0).mean()))
            if rates[-1] < 0.01:
                return rates[-1]
            w, u, force = proposal, u_new, force_new
        return float(np.mean(rates[moves // 3:]))


def _collect(loader: Iterable[Any] | tuple[Any, Any]) -> tuple[Tensor, Tensor]:
    if isinstance(loader, tuple | list) and len(loader) == 2 and all(isinstance(t, Tensor) for t in loader):
        x, y = loader
    else:
        pairs = [(b[0], b[1]) for b in loader]
        if not pairs:
            raise ValueError("the loader gave no batch: there is nothing to estimate from")
        x, y = torch.cat([p[0] for p in pairs]), torch.cat([p[1] for p in pairs])
    if len(x) != len(y) or len(y) < 3:
        raise ValueError(f"inputs and targets must be equally many, at least 3: got {len(x)} and {len(y)}")
    if x.is_floating_point() and not torch.isfinite(x).all():
        raise ValueError("the inputs hold NaN or infinity: clean the data first")
    return x, y
