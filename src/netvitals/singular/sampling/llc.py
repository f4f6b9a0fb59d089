r"""The local learning coefficient of any model: $\hat\lambda = n\beta\,(E_{w \sim p_\beta}[L_n(w)] - L_n(w^*))$.

The tempered, localised posterior is $p_\beta(w) \propto \exp(-n\beta L_n(w) - \frac{\gamma}{2}\|w - w^*\|^2)$. It is
sampled by Langevin moves $w \leftarrow w - \frac{\epsilon}{2} F + \sqrt{\epsilon}\,\xi$,
$F = n\beta \nabla L(w) + \gamma (w - w^*)$, all chains in one batched program, one stream of random numbers each.
With all data in every step a Metropolis test makes them exact; on minibatches it is plain SGLD, whose bias falls with
the step size. The baseline $L_n(w^*)$ is the loss on all the data. Where the multiplicity m is above 1 the expectation
itself is about $(m-1)/\log(n\beta)$ below λ at finite n.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from netvitals.anatomy.copies.replicas import Replicas
from netvitals.capture import preserved, undisturbed
from netvitals.capture.loss import LossFn
from netvitals.capture.result import Result
from netvitals.capture.selection import Only
from netvitals.singular.sampling.chains import ChainHealth, examine
from netvitals.singular.sampling.data import gathered
from netvitals.singular.sampling.langevin import Langevin
from netvitals.singular.sampling.noise import LAWS

_MOVES = 20  # so many refusals in a row are no accident
_RUNAWAY = 1e3  # a chain whose nβ(L − L*) exceeds this many times the parameter count has left the basin


@dataclass(frozen=True, kw_only=True)
class LLC(Result):
    """Learning coefficient with its uncertainty and the chains behind it."""

    mean: float
    stderr: float  # from effective draws within chains and spread between them, the larger
    per_chain: tuple[float, ...]  # healthy chains only
    trace: np.ndarray  # (chains, draws) of nβ(L − L*), diverged chains included
    health: ChainHealth
    baseline: float  # L_n(w*)
    n: int
    nbeta: float
    step_size: float
    localization: float
    parameters: int  # how many took part
    cost: float  # gradient-equivalents of one full pass over the data
    acceptance: float = math.nan  # share of Metropolis moves accepted; NaN for minibatch SGLD
    searched: tuple[tuple[float, float], ...] = ()  # step sizes tried and their acceptance
    note: str = ""

    def __str__(self) -> str:
        return (
            f"λ = {self.mean:.4g} ± {self.stderr:.2g} over {self.parameters} parameters "
            f"({len(self.per_chain)} chains × {self.trace.shape[1]} draws, step {self.step_size:.2g}, "
            f"nβ {self.nbeta:.4g}; {self.health}){'; ' + self.note if self.note else ''}"
        )


@undisturbed
def learning_coefficient(
    model: nn.Module,
    loss_fn: LossFn,
    batch: Any,
    *,
    only: Only = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    chains: int = 4,
    draws: int = 400,
    burn_in: int | None = None,
    thin: int = 1,
    step_size: float | str = "auto",
    localization: float = 1.0,
    nbeta: float | None = None,
    batch_size: int | None = None,
    preconditioned: bool = False,
    noise: str = "three-point",
) -> LLC:
    r"""Estimate λ at the parameters the model has now.

    Args:
        model: run in eval mode (dropout off, running statistics) and left as it was.
        loss_fn: ``loss_fn(model(inputs), targets)``, averaged over examples; or a name.
        batch: all the data: a DataLoader, which is read once, or one batch of any kind that a loader yields.
        only: names or patterns of parameters, or a function of a name; the others stay fixed (the refined coefficient
            of a layer).
        seed: of the chains, each with a stream of its own.
        progress: called with (steps done, all).
        chains: how many run together.
        draws: kept per chain, after ``burn_in`` steps (default: half the draws), every ``thin``-th step.
        burn_in: steps before the first draw.
        thin: steps from one draw to the next.
        step_size: ε, or "auto": the largest of a short geometric search with enough Metropolis acceptance, adapted
            during burn-in and then frozen.
        localization: γ, the pull back to w*.
        nbeta: n·β; default n/log n.
        batch_size: None uses all data in every step (no minibatch noise).
        preconditioned: scale steps by a running RMS of the gradient, frozen after burn-in.
        noise: on minibatches, "three-point" (0 or ±√3, the first five moments of the normal, three times cheaper) or
            "normal". With all data in every step, or preconditioned, noise is normal.

    Returns:
        The coefficient with its standard error and the health of its chains.
    """
    data = gathered(model, loss_fn, batch)
    x, y, n = data.x, data.y, len(data.y)
    nbeta = n / math.log(n) if nbeta is None else nbeta
    if chains < 1 or draws < 2 or thin < 1:
        raise ValueError(f"at least 1 chain, 2 draws and thin 1 are needed, got {chains}, {draws}, {thin}")
    if not (nbeta > 0 and math.isfinite(nbeta) and localization >= 0):
        raise ValueError(f"nbeta must be positive and localization not negative, got {nbeta} and {localization}")
    if step_size != "auto" and not (isinstance(step_size, int | float) and 0 < step_size < math.inf):
        raise ValueError(f"step_size is a positive number or 'auto', got {step_size!r}")
    if (batch_size is not None and batch_size < 1) or (burn_in is not None and burn_in < 0):
        raise ValueError(f"batch_size must be 1 or more and burn_in 0 or more, got {batch_size} and {burn_in}")
    if noise not in LAWS:
        raise ValueError(f"noise is one of {', '.join(LAWS)}, got {noise!r}")
    burn = draws // 2 if burn_in is None else burn_in
    with preserved(model, train=False):
        copies = Replicas(data.model, data.loss_fn, data.names(only))
        if copies.note:  # half precision is promoted, and the data with it
            x, y = (t.float() if t.dtype in (torch.float16, torch.bfloat16) else t for t in (x, y))
        with torch.no_grad():
            first = copies.losses(copies.start[None], x, y)
        if first.numel() != 1:
            raise ValueError(
                f"loss_fn must return one number, the mean over examples, got shape "
                f"{tuple(first.shape[1:])}: use reduction='mean'"
            )
        baseline = float(first)
        if not math.isfinite(baseline):
            raise ValueError(f"the loss at the given parameters is {baseline}: look for NaN in the data or the model")
        sampler = Langevin(
            copies,
            (x, y),
            chains=chains,
            nbeta=nbeta,
            gamma=localization,
            batch=batch_size,
            preconditioned=preconditioned,
            law=noise,
            seed=seed,
        )
        searched: list[tuple[float, float]] = []
        if step_size == "auto":
            step, searched = sampler.search()
        else:
            step = float(step_size)
        trace, step, acceptance = sampler.run(step, burn, draws, thin, step_size == "auto", progress)
    scaled = nbeta * (trace - baseline)
    health, good = examine(scaled, _RUNAWAY * max(copies.size, 1))
    stuck = acceptance == 0 and chains * ((draws - 1) * thin + 1) >= _MOVES
    mean, stderr, per_chain, note = _averaged(good, health, stuck)
    return LLC(
        mean=mean,
        stderr=stderr,
        per_chain=per_chain,
        trace=scaled,
        health=health,
        baseline=baseline,
        n=n,
        nbeta=nbeta,
        step_size=step,
        localization=localization,
        parameters=copies.size,
        cost=sampler.work,
        acceptance=acceptance,
        searched=tuple(searched),
        note="; ".join(filter(None, (copies.note, note))),
    )


def _averaged(good: np.ndarray, health: ChainHealth, stuck: bool) -> tuple[float, float, tuple[float, ...], str]:
    """Mean, standard error, the mean of each chain, and what is to be said of them."""
    if good.size == 0:
        return math.nan, math.nan, (), "every chain diverged: use a smaller step size"
    if stuck:
        return math.nan, math.nan, (), "no move was accepted: use a smaller step size"
    per_chain = good.mean(1)
    within = float(good.std() / math.sqrt(max(health.effective_draws, 1.0)))
    between = float(per_chain.std(ddof=1) / math.sqrt(len(per_chain))) if len(per_chain) > 1 else 0.0
    lower = good.mean() < -2 * max(within, between)
    note = "not a minimum: the chains found lower loss; raise localization" if lower else ""
    return float(good.mean()), max(within, between), tuple(per_chain.tolist()), note
