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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from netvitals.anatomy.replicas import LossFn, Replicas
from netvitals.capture import preserved
from netvitals.singular.sampling.chains import ChainHealth, examine
from netvitals.singular.sampling.langevin import Langevin
from netvitals.singular.sampling.noise import LAWS

_MOVES = 20  # so many refusals in a row are no accident
_RUNAWAY = 1e3  # a chain whose nβ(L − L*) exceeds this many times the parameter count has left the basin


@dataclass(frozen=True)
class LLC:
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


def learning_coefficient(
    model: nn.Module,
    loss_fn: LossFn,
    loader: Iterable[Any] | tuple[Any, Any],
    *,
    chains: int = 4,
    draws: int = 400,
    burn_in: int | None = None,
    thin: int = 1,
    step_size: float | str = "auto",
    localization: float = 1.0,
    nbeta: float | None = None,
    batch_size: int | None = None,
    preconditioned: bool = False,
    only: str | Sequence[str] | None = None,
    noise: str = "three-point",
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> LLC:
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
        noise: on minibatches, "three-point" (0 or ±√3, the first five moments of the normal, three times cheaper) or
            "normal". With all data in every step, or preconditioned, noise is normal.

    The model is run in eval mode (dropout off, running statistics) and is left as it was.
    """
    x, y = _collect(loader)
    n = len(y)
    nbeta = n / math.log(n) if nbeta is None else nbeta
    if chains < 1 or draws < 2 or thin < 1:
        raise ValueError(f"at least 1 chain, 2 draws and thin 1 are needed, got {chains}, {draws}, {thin}")
    if not (nbeta > 0 and math.isfinite(nbeta) and localization >= 0):
        raise ValueError(f"nbeta must be positive and localization not negative, got {nbeta} and {localization}")
    if step_size != "auto" and not (isinstance(step_size, int | float) and 0 < step_size < math.inf):
        raise ValueError(f"step_size is a positive number or 'auto', got {step_size!r}")
    if (batch_size is not None and batch_size < 1) or (burn_in is not None and burn_in < 0):
        raise ValueError(f"batch_size must be 1 or more and burn_in 0 or more, got {batch_size} and {burn_in}")
    if not callable(loss_fn):
        raise TypeError(f"loss_fn(model(inputs), targets) must be a function, got {type(loss_fn).__name__}")
    if noise not in LAWS:
        raise ValueError(f"noise is one of {', '.join(LAWS)}, got {noise!r}")
    burn = draws // 2 if burn_in is None else burn_in
    with preserved(model, train=False):
        copies = Replicas(model, loss_fn, only)
        if copies.note:  # half precision is promoted, and the data with it
            x, y = (t.float() if t.dtype in (torch.float16, torch.bfloat16) else t for t in (x, y))
        with torch.no_grad():
            first = copies.losses(copies.start[None], x, y)
        if first.numel() != 1:
            raise ValueError(
                f"loss_fn must return one number, the mean over samples, got shape "
                f"{tuple(first.shape[1:])}: use reduction='mean'"
            )
        baseline = float(first)
        if not math.isfinite(baseline):
            raise ValueError(f"the loss at the given parameters is {baseline}: look for NaN in the data or the model")
        sampler = Langevin(copies, (x, y), chains, nbeta, localization, batch_size, preconditioned, noise, seed)
        searched: list[tuple[float, float]] = []
        if step_size == "auto":
            step, searched = sampler.search()
        else:
            step = float(step_size)
        trace, step, acceptance = sampler.run(step, burn, draws, thin, step_size == "auto", progress)
    scaled = nbeta * (trace - baseline)
    health, good = examine(scaled, _RUNAWAY * max(copies.size, 1))
    note = copies.note
    if good.size == 0:
        return LLC(
            math.nan,
            math.nan,
            (),
            scaled,
            health,
            baseline,
            n,
            nbeta,
            step,
            localization,
            copies.size,
            sampler.work,
            acceptance,
            tuple(searched),
            "every chain diverged: use a smaller step size",
        )
    if acceptance == 0 and chains * ((draws - 1) * thin + 1) >= _MOVES:
        return LLC(
            math.nan,
            math.nan,
            (),
            scaled,
            health,
            baseline,
            n,
            nbeta,
            step,
            localization,
            copies.size,
            sampler.work,
            acceptance,
            tuple(searched),
            "no move was accepted: use a smaller step size",
        )
    per_chain = good.mean(1)
    within = float(good.std() / math.sqrt(max(health.effective_draws, 1.0)))
    between = float(per_chain.std(ddof=1) / math.sqrt(len(per_chain))) if len(per_chain) > 1 else 0.0
    if good.mean() < -2 * max(within, between):
        note = "; ".join(filter(None, (note, "not a minimum: the chains found lower loss; raise localization")))
    return LLC(
        float(good.mean()),
        max(within, between),
        tuple(per_chain.tolist()),
        scaled,
        health,
        baseline,
        n,
        nbeta,
        step,
        localization,
        copies.size,
        sampler.work,
        acceptance,
        tuple(searched),
        note,
    )


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
