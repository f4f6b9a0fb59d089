r"""Reduced flow: trajectories of the scalar chain for one or thousands of initial conditions, with escape events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from netvitals._plot import Plot, Series
from netvitals.capture import Result
from netvitals.saddle.laws.chain import ScalarChain
from netvitals.saddle.laws.integration import OUT_OF_STEPS, OUT_OF_TIME, REACHED, SATURATED, Field, Margins, integrate


@dataclass(frozen=True, kw_only=True)
class ReducedFlow(Result):
    """Trajectories of the scalar chain.

    For a batch the shapes are ``t`` (steps, B), ``x`` (steps, B, L), ``escape_t`` (B,), ``final`` (B, L); for a single
    initial condition the axis B is absent. ``t`` is reduced time, ``s`` = N t the optimizer's clock (learning rate
    times steps). ``escape_t`` is NaN where the threshold was not reached; ``status`` says why.

    Returned by :func:`reduced_flow`.

    Attributes:
        t: reduced times of the stored states.
        x: scales of the layers at these times.
        escape_t: when the threshold was passed; NaN where it was not.
        final: scales at the end.
        status: why each trajectory ended.
        threshold: scale that counts as escape; None where none was asked for.
        chain: the chain that was integrated.
        evaluations: of the velocity.
    """

    t: np.ndarray
    x: np.ndarray
    escape_t: np.ndarray | float
    final: np.ndarray
    status: tuple[str, ...] | str
    threshold: float | None
    chain: ScalarChain
    evaluations: int

    @property
    def s(self) -> np.ndarray:
        return self.t * self.chain.width

    def plot(self) -> Plot:
        """Scales of the layers over time (the paper's first figure); of a batch the largest scale of each chain."""
        single = self.x.ndim == 2
        t, x = (self.t, self.x) if single else (self.t, self.x.max(-1))
        series = [
            Series(
                f"layer {i + 1}" if single else f"chain {i + 1}",
                (t if single else t[:, i]).tolist(),
                x[:, i].tolist(),
                line=True,
            )
            for i in range(min(x.shape[1], 8))
        ]
        return Plot("reduced time t", "scale of a layer", series, log_y=bool((x > 0).all()))

    @property
    def escape_s(self) -> np.ndarray | float:
        return self.escape_t * self.chain.width

    @cached_property
    def loss(self) -> np.ndarray:
        """Loss at every stored state."""
        return self.chain.loss(torch.from_numpy(self.x)).numpy()

    @property
    def gaps(self) -> np.ndarray:
        r"""$D_\ell = X_\ell^2 - X_1^2$, almost conserved before escape."""
        return self.x**2 - self.x[..., :1] ** 2

    def at(self, t: float | Sequence[float]) -> np.ndarray:
        """States of a single trajectory at times ``t``, by integrating again to each of them: (times, L)."""
        if self.x.ndim != 2:
            raise ValueError("at() works for a single initial condition only: integrate the rows of a batch one by one")
        times = torch.atleast_1d(torch.as_tensor(t, dtype=torch.float64))
        start = torch.from_numpy(self.x[0]).expand(len(times), -1).contiguous()
        paths = integrate(
            lambda x, rows: self.chain.velocity(x),
            start,
            t_max=times,
            rtol=1e-11,
            atol=1e-11 * float(start.abs().min().clamp_min(1e-12)),
            keep=False,
        )
        return paths.x[-1].numpy()

    def __str__(self) -> str:
        words = [self.status] if isinstance(self.status, str) else list(self.status)
        done = words.count(REACHED)
        head = f"reduced flow of {len(words)} chain(s), depth {self.x.shape[-1]}, width {self.chain.width}"
        if self.threshold is None:
            return f"{head}, to t = {float(self.t.max()):.6g}"
        times = np.atleast_1d(np.asarray(self.escape_t))
        reached = times[np.isfinite(times)]
        span = f"t = {reached.min():.6g} to {reached.max():.6g}" if len(reached) else "none"
        text = f"{head}: {done} reached X = {self.threshold} ({span})"
        if done < len(words):
            rest = np.atleast_2d(self.final)[[w != REACHED for w in words]]
            text += f"; {len(words) - done} not reached, largest first-layer scale {rest[:, 0].max():.4g}"
        return text


def reduced_flow(
    x0: Sequence[float] | np.ndarray | Tensor,
    f: str | Callable[[Tensor], Tensor],
    width: int,
    beta: float = 1.0,
    threshold: float | None = None,
    *,
    layer: int = 0,
    t_max: float | None = None,
    rtol: float = 1e-10,
    atol: float | None = None,
    nodes: int = 128,
    max_steps: int = 8_000,
    keep: bool = True,
) -> ReducedFlow:
    r"""Integrate the reduced gradient flow $\dot X = -\nabla\mathcal L$ until the scale of ``layer`` reaches
    ``threshold``.

    Args:
        x0: initial scales, (L,) for one chain or (B, L) for B chains that are integrated together.
        f: activation, by name or callable.
        width: hidden width N.
        beta: teacher strength.
        threshold: scale at which the chain counts as escaped. The theory's value 1 is out of reach for wide nets
            (erratum E6): then the status is "saturated" and ``final`` tells where.
        layer: index of the layer whose scale is compared with the threshold, from 0.
        t_max: end of time in the clock t; needed when there is no threshold.
        rtol: relative local error per step.
        atol: absolute local error; by default a small part of the smallest initial scale of each row.
        nodes: Gauss–Hermite nodes of the expectations over the input.
        max_steps: integration steps tried before it gives up.
        keep: store every accepted state; otherwise only the first and the last.

    Returns:
        Reduced times, scales, escape times and how each chain ended.

    >>> flow = reduced_flow([0.03, 0.05, 0.07, 0.09], "tanh", width=64, threshold=0.3)
    >>> round(float(flow.escape_t), 4)
    29.4949
    """
    start = torch.as_tensor(np.asarray(x0), dtype=torch.float64)
    single = start.ndim == 1
    start = torch.atleast_2d(start)
    if start.ndim != 2 or start.shape[1] < 2:
        raise ValueError(f"x0= must have shape (L,) or (B, L) with L at least 2, got {tuple(np.shape(x0))}")
    if not bool(start.isfinite().all()):
        raise ValueError("x0= contains NaN or infinite entries; all initial scales must be finite")
    if threshold is None and t_max is None:
        raise ValueError("reduced_flow needs threshold= or t_max=, so that the integration ends; got neither")
    if threshold is not None and not threshold > 0:
        raise ValueError(f"threshold= must be positive, got {threshold}")
    chain = ScalarChain(f, width, beta, nodes)
    smallest = torch.where(start > 0, start, torch.inf).min(1).values
    floor = torch.where(smallest.isfinite(), smallest, 1e-3) * (1e-4 * rtol) if atol is None else atol
    field, margins = _own_clock(chain, start, threshold, layer, t_max)
    paths = integrate(
        field,
        torch.cat([start, torch.zeros(len(start), 1, dtype=start.dtype)], 1),
        events=margins,
        rtol=rtol,
        atol=floor,
        keep=keep,
        stall=1e-4 if threshold is not None else 0.0,
        clock=-1,
        max_steps=max_steps,
    )
    hits, ends = paths.event_x[:, 0].numpy(), paths.x[-1].numpy()
    done = np.isfinite(hits[:, -1])
    final = np.where(done[:, None], hits, ends)
    escape = np.where(done, hits[:, -1], np.nan) if threshold is not None else np.full(len(start), np.nan)
    t, x = paths.x[..., -1].numpy(), paths.x[..., :-1].numpy()
    status = paths.status
    if t_max is not None:
        late = final[:, -1] >= t_max * (1 - 1e-12)
        escape = np.where(late, np.nan, escape)
        status = tuple(OUT_OF_TIME if out else word for out, word in zip(late, status))
        t, x = _cut(t, x, final, done)
    final = final[:, :-1]
    if single:
        return ReducedFlow(
            t=t[:, 0],
            x=x[:, 0],
            escape_t=float(escape[0]),
            final=final[0],
            status=status[0],
            threshold=threshold,
            chain=chain,
            evaluations=paths.evaluations,
        )
    return ReducedFlow(
        t=t,
        x=x,
        escape_t=escape,
        final=final,
        status=status,
        threshold=threshold,
        chain=chain,
        evaluations=paths.evaluations,
    )


def _own_clock(
    chain: ScalarChain, start: Tensor, threshold: float | None, layer: int, t_max: float | None
) -> tuple[Field, Margins]:
    r"""The flow in a clock $\tau$ that ticks once per e-fold of the fastest scale, with $t$ as an extra coordinate.

    $dt/d\tau=(\sum_\ell\dot X_\ell^2/(X_\ell^2+\delta^2))^{-1/2}$: on a plateau, where $\dot X\propto X^{L-1}$, equal
    steps in τ keep the local error equal, and the plateau is crossed in a few of them whatever its length.
    """
    slowest = 0.0 if t_max is None else (10 / t_max) ** 2  # where the flow rests, time must still pass in steps
    delta = 0.1 * torch.where(start > 0, start, torch.inf).min(1).values.clamp(1e-12, 1.0)

    def field(state: Tensor, rows: Tensor) -> Tensor:
        x = state[:, :-1]
        v = chain.velocity(x)
        pace = (v.square() / (x.square() + delta[rows, None].square())).sum(1, keepdim=True)
        tick = (pace + slowest).clamp_min(1e-300).rsqrt()
        return torch.cat([v * tick, tick], 1)

    def margins(state: Tensor, rows: Tensor) -> Tensor:
        reach = state[:, layer] - threshold if threshold is not None else torch.full_like(state[:, 0], -torch.inf)
        late = state[:, -1] / t_max - 1 if t_max is not None else torch.full_like(state[:, 0], -torch.inf)
        return torch.maximum(reach, late)[:, None]

    return field, margins


def _cut(t: np.ndarray, x: np.ndarray, final: np.ndarray, done: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """End stored paths at their event instead of the step that passed it."""
    past = done & (t >= final[:, -1])
    return np.where(past, final[:, -1], t), np.where(past[..., None], final[:, :-1], x)


__all__ = ["OUT_OF_STEPS", "OUT_OF_TIME", "REACHED", "SATURATED", "ReducedFlow", "reduced_flow"]
