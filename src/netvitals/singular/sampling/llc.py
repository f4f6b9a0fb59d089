r"""The local learning coefficient of any model: $\hat\lambda = n\beta\,(E_{w \sim p_\beta}[L_n(w)] - L_n(w^*))$.

The tempered, localised posterior is $p_\beta(w) \propto \exp(-n\beta L_n(w) - \frac{\gamma}{2}\|w - w^*\|^2)$.
With all data in every step Hamiltonian moves sample it exactly, small models on a ladder of temperatures; minibatches
have Langevin moves whose noise is taken out again. The baseline $L_n(w^*)$ is the loss on all the data. Where the
multiplicity m is above 1 the expectation itself is about $(m-1)/\log(n\beta)$ below λ at finite n.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from netvitals.anatomy import Replicas, plain_kernels
from netvitals.capture import LossFn, Only, preserved, undisturbed
from netvitals.singular.sampling.chains import examine, standard_error
from netvitals.singular.sampling.coefficient import LLC
from netvitals.singular.sampling.data import gathered
from netvitals.singular.sampling.hamiltonian import Hamiltonian, Tuning
from netvitals.singular.sampling.langevin import BURN, THIN, Langevin, cooled
from netvitals.singular.sampling.minimum import FEW_STEPS, STEPS, Minimum, descended, judged
from netvitals.singular.sampling.noise import NoiseSource
from netvitals.singular.sampling.observables import Basin, names, observer, well

_MOVES = 20  # so many refusals in a row are no accident
_RUNAWAY = 1e3  # a chain whose nβ(L − L*) exceeds this many times the parameter count has left the basin
_FEW = 8  # parameters, among which a short move goes far


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
    thin: int | None = None,
    step_size: float | str = "auto",
    localization: float = 1.0,
    nbeta: float | None = None,
    batch_size: int | None = None,
    preconditioned: bool = True,
    rungs: int | None = None,
    leapfrog: int | None = None,
    after: LLC | None = None,
) -> LLC:
    r"""Estimate the local learning coefficient λ at the model's parameters, by Hamiltonian or Langevin sampling.

    Args:
        model: a model; it is run in eval mode (dropout off, running statistics) and not changed.
        loss_fn: ``loss_fn(model(inputs), targets)``, averaged over examples; or a name.
        batch: all the data: a DataLoader, which is read once, or one batch of any kind that a loader yields.
        only: names or patterns of parameters, or a function of a name; the others stay fixed (the refined coefficient
            of a layer).
        seed: seed of the chains, each of which has its own random stream.
        progress: called with (steps done, all).
        chains: how many run together.
        draws: kept per chain, after ``burn_in`` moves, every ``thin``-th move.
        burn_in: moves before the first draw, in which steps, scales and rungs are tuned; half the draws by default, on
            minibatches a quarter of all moves and at least 500.
        thin: moves from one draw to the next; by default 1 with all the data, 10 on minibatches.
        step_size: ε of the moves, or "auto": tuned during burn-in and then frozen.
        localization: γ, the pull back to w*.
        nbeta: n·β; default n/log n.
        batch_size: None uses all data in every step (no minibatch noise, exact).
        preconditioned: coordinates have scales of their own.
        rungs: temperatures of the ladder; 1 is none. By default as many as exchange well, for up to 50 parameters.
        leapfrog: most steps of one Hamiltonian move; by default 4 for up to 8 parameters, 8 above.
        after: the result at an earlier checkpoint of the same model, whose tuning and places the chains start from.

    Returns:
        The coefficient with its standard error and the health of its chains.

    >>> x = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
    >>> net = nn.Linear(3, 1, bias=False)
    >>> found = learning_coefficient(net, "mse", (x, net(x).detach()), draws=200)
    >>> bool(abs(found.mean - 1.5) < 4 * found.stderr)  # half the parameters
    True
    """
    data = gathered(model, loss_fn, batch)
    x, y, n = data.x, data.y, len(data.y)
    nbeta = n / math.log(n) if nbeta is None else nbeta
    exact = batch_size is None or batch_size >= n
    if thin is None:
        thin = 1 if exact else THIN
    if chains < 1 or draws < 2 or thin < 1 or (leapfrog or 1) < 1:
        raise ValueError(
            f"chains, thin and leapfrog must be at least 1 and draws at least 2; got chains {chains}, draws {draws}, "
            f"thin {thin}, leapfrog {leapfrog}"
        )
    if not (nbeta > 0 and math.isfinite(nbeta) and localization >= 0):
        raise ValueError(
            f"nbeta= must be positive and localization= must not be negative, got {nbeta} and {localization}"
        )
    if step_size != "auto" and not (isinstance(step_size, int | float) and 0 < step_size < math.inf):
        raise ValueError(f"step_size= must be a positive number or 'auto', got {step_size!r}")
    if (batch_size is not None and batch_size < 1) or (burn_in is not None and burn_in < 0):
        raise ValueError(f"batch_size= must be at least 1 and burn_in= at least 0, got {batch_size} and {burn_in}")
    if rungs is not None and (rungs < 1 or (rungs > 1 and not localization)):
        raise ValueError(
            "rungs= (number of temperatures) must be at least 1; with more than 1, localization= must be positive; "
            f"got rungs={rungs} and localization={localization}"
        )
    burn = (draws // 2 if exact else max(draws * thin // 4, BURN)) if burn_in is None else burn_in
    # the fused kernels of attention have no batched form: torch would loop over the copies
    with preserved(model, train=False), plain_kernels():
        copies = Replicas(data.model, data.loss_fn, data.names(only))
        if copies.note:  # half precision is promoted, and the data with it
            x, y = (t.float() if t.dtype in (torch.float16, torch.bfloat16) else t for t in (x, y))
        baseline = _baseline(copies, x, y)
        gain, gradient, passes = descended(copies, (x, y), nbeta, localization, STEPS if exact else FEW_STEPS)
        look = observer(copies.start, seed)
        total = burn + (draws - 1) * thin + 1 if exact else burn + draws * thin
        tick = _ticker(total, progress)
        if exact:
            walk = Hamiltonian(
                copies,
                (x, y),
                chains=chains,
                nbeta=nbeta,
                gamma=localization,
                preconditioned=preconditioned,
                leapfrog=leapfrog or (4 if copies.size <= _FEW else 8),
                seed=seed,
            )
            found = _exact(walk, after, rungs, step_size, burn, draws, thin, look, tick)
        else:
            assert batch_size is not None
            chain = Langevin(
                copies,
                (x, y),
                streams=[NoiseSource(seed, c) for c in range(chains)],
                nbeta=nbeta,
                gamma=localization,
                batch=batch_size,
            )
            found = _minibatch(chain, baseline, step_size, preconditioned, (burn, draws, thin), look, tick)
    scaled = {**found.traces, "loss": nbeta * (found.traces["loss"] - baseline)}
    health, good = examine(scaled, _RUNAWAY * max(copies.size, 1))
    stuck = found.acceptance == 0 and chains * ((draws - 1) * thin + 1) >= _MOVES
    kept = {name: trace[good] for name, trace in scaled.items()}
    mean, stderr, heat, note = _averaged(kept, found.virial[good] if found.virial is not None else None, stuck)
    rounding = max(1e-4, 8 * nbeta * abs(baseline) * torch.finfo(copies.start.dtype).eps)
    return LLC(
        mean=mean,
        stderr=stderr,
        per_chain=() if math.isnan(mean) else tuple(kept["loss"].mean(1).tolist()),
        trace=scaled["loss"],
        health=health,
        well=well(kept["loss"], kept["distance"], localization, copies.size)
        if good.any()
        else Basin(math.nan, math.nan, math.nan, math.nan),
        minimum=judged(gain, gradient, kept["loss"], stderr, noisy=not exact, rounding=rounding)
        if good.any()
        else Minimum(gain, math.nan, gradient, True),
        baseline=baseline,
        n=n,
        nbeta=nbeta,
        step_size=found.step,
        localization=localization,
        parameters=copies.size,
        cost=found.work + passes,
        acceptance=found.acceptance,
        rungs=found.rungs,
        heat=heat,
        note="; ".join(filter(None, (copies.note, note))),
        _tuning=found.tuning,
    )


@dataclass(frozen=True, kw_only=True)
class _Chains:
    traces: dict[str, np.ndarray]  # the loss, not yet scaled, and observables
    step: float
    work: float
    acceptance: float
    rungs: tuple[float, ...] = ()
    virial: np.ndarray | None = None  # on minibatches
    tuning: Tuning | None = None


def _exact(
    walk: Hamiltonian,
    after: LLC | None,
    rungs: int | None,
    step_size: float | str,
    burn: int,
    draws: int,
    thin: int,
    look: Callable[[Tensor], Tensor],
    tick: Callable[[], None],
) -> _Chains:
    tuning = walk.tuning(rungs)
    warm = after._tuning if after is not None else None
    if warm is not None and warm.scales.shape[1] == walk.copies.size and warm.rungs[0] == walk.nbeta:
        tuning = replace(warm)
    if step_size != "auto":
        tuning = Tuning(tuning.rungs[:1], np.array([float(step_size)]), torch.ones_like(tuning.scales[:1]))
        walk.preconditioned = False
    walk.start(tuning)
    walk.burn(burn, tick, free=rungs is None and warm is None, tuned=step_size == "auto")
    seen = walk.sample(draws, thin, look, tick)
    return _Chains(
        traces=dict(zip(names(), seen)),
        step=float(walk.tuned.steps[0]),
        work=walk.work,
        acceptance=float(np.mean(walk.accepted)),
        rungs=tuple(walk.tuned.rungs.tolist()),
        tuning=walk.tuned,
    )


def _minibatch(
    chain: Langevin,
    baseline: float,
    step_size: float | str,
    preconditioned: bool,
    plan: tuple[int, int, int],
    look: Callable[[Tensor], Tensor],
    tick: Callable[[], None],
) -> _Chains:
    burn, draws, thin = plan
    chain.burn(burn, step_size, preconditioned, tick)
    seen, virial = chain.sample(draws, thin, look, tick)
    seen[0] = baseline + seen[0] / chain.nbeta
    return _Chains(
        traces=dict(zip(names(), seen)),
        step=chain.step,
        work=chain.work,
        acceptance=float(np.mean(chain.accepted)),
        virial=virial,
    )


def _averaged(kept: dict[str, np.ndarray], virial: np.ndarray | None, stuck: bool) -> tuple[float, float, float, str]:
    """Mean, standard error, what heating was worth, and what is to be said of them."""
    loss = kept["loss"]
    if loss.size == 0:
        return math.nan, math.nan, math.nan, "every chain diverged: use a smaller step size"
    if stuck:
        return math.nan, math.nan, math.nan, "no move was accepted: use a smaller step size"
    others = np.array([trace for name, trace in kept.items() if name != "loss"])
    if virial is None:
        return float(loss.mean()), standard_error(loss, others), math.nan, ""
    return *cooled(loss, virial, others), ""


def _baseline(copies: Replicas, x: Tensor, y: Tensor) -> float:
    with torch.no_grad():
        first = copies.losses(copies.start[None], x, y)
    if first.numel() != 1:
        raise ValueError(
            f"loss_fn must return one number, the mean over examples, got shape {tuple(first.shape[1:])}: use "
            "reduction='mean'"
        )
    if not math.isfinite(float(first)):
        raise ValueError(
            f"the loss at the given parameters is {float(first)}: check the data and the model for NaN or infinity"
        )
    return float(first)


def _ticker(total: int, progress: Callable[[int, int], None] | None) -> Callable[[], None]:
    done = 0

    def tick() -> None:
        nonlocal done
        done += 1
        if progress is not None and (done % 20 == 1 or done == total):
            progress(done, total)

    return tick
