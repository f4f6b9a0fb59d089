r"""What moves an escape time: attribution along a homotopy from a simple model to the full one.

$f_\nu=(1-\nu)f_0+\nu f_1$, $T(\nu)$ the first hit of a threshold. With the adjoint $\dot p=-(\partial_xf_\nu)^\top p$,
$p(T)=\nabla h/(\nabla h\cdot f_\nu)$: $T'(\nu)=A(\nu)=-\int_0^Tp\cdot(f_1-f_0)\,dt$, coordinate by coordinate, and
$p\cdot f_\nu\equiv1$ along the way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from netvitals.capture.result import Result

Velocity = Callable[[Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class Slice(Result):
    """The homotopy at one ν: hitting time, its derivative, and the derivative's parts by coordinate."""

    nu: float
    time: float
    rate: float  # A(ν) = dT/dν
    by_coordinate: np.ndarray
    invariant: float  # largest |p·f − 1| along the trajectory


@dataclass(frozen=True, kw_only=True)
class Attribution(Result):
    """Estimate of T(1) − T(0) by quadrature over ν, its parts, and the direct difference."""

    slices: tuple[Slice, ...]
    estimate: float
    channels: Mapping[str, float]
    start: float  # T(0)
    end: float  # T(1)

    @property
    def direct(self) -> float:
        return self.end - self.start

    @property
    def error(self) -> float:
        """Relative error of the estimate against the direct difference."""
        return abs(self.estimate - self.direct) / abs(self.direct)

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {value:+.4g}" for name, value in self.channels.items())
        return (
            f"T(0) = {self.start:.6g}, T(1) = {self.end:.6g}: difference {self.direct:+.6g}, by attribution "
            f"{self.estimate:+.6g} (off by {100 * self.error:.2g} %)" + (f"; {parts}" if parts else "")
        )


def attribute(
    f0: Velocity,
    f1: Velocity,
    x0: Tensor,
    coordinate: int,
    threshold: float,
    *,
    nodes: int = 2,
    channels: Mapping[str, Tensor] | None = None,
    t_max: float = 1e6,
    rtol: float = 1e-9,
) -> Attribution:
    """Attribute the change of a hitting time from flow f0 to flow f1."""
    x, w = np.polynomial.legendre.leggauss(nodes)
    slices = tuple(
        homotopy_slice(f0, f1, x0, coordinate, threshold, float(0.5 + 0.5 * u), t_max=t_max, rtol=rtol) for u in x
    )
    weights = 0.5 * w
    parts = sum(wt * s.by_coordinate for wt, s in zip(weights, slices))
    table = {name: float(np.asarray(parts)[mask.numpy()].sum()) for name, mask in (channels or {}).items()}
    start, end = (hitting_time(f0, f1, x0, coordinate, threshold, nu, t_max=t_max, rtol=rtol) for nu in (0.0, 1.0))
    return Attribution(
        slices=slices,
        estimate=float(sum(wt * s.rate for wt, s in zip(weights, slices))),
        channels=table,
        start=start,
        end=end,
    )


def hitting_time(
    f0: Velocity,
    f1: Velocity,
    x0: Tensor,
    coordinate: int,
    threshold: float,
    nu: float,
    *,
    t_max: float = 1e6,
    rtol: float = 1e-9,
) -> float:
    """T(ν)."""
    return float(_forward(_mixed(f0, f1, nu), x0, coordinate, threshold, t_max, rtol, dense=False).t_events[0][0])


def homotopy_slice(
    f0: Velocity,
    f1: Velocity,
    x0: Tensor,
    coordinate: int,
    threshold: float,
    nu: float,
    *,
    t_max: float = 1e6,
    rtol: float = 1e-9,
) -> Slice:
    """T(ν) and A(ν) by one forward and one adjoint solve."""
    from scipy.integrate import solve_ivp

    mixed = _mixed(f0, f1, nu)
    ahead = _forward(mixed, x0, coordinate, threshold, t_max, rtol, dense=True)
    end = float(ahead.t_events[0][0])
    n = len(x0)
    state_end = torch.from_numpy(ahead.y_events[0][0])
    p_end = np.zeros(n)
    p_end[coordinate] = 1 / float(mixed(state_end)[coordinate])

    def adjoint(tau: float, packed: np.ndarray) -> np.ndarray:
        # backwards in time: tau = T − t
        state = torch.from_numpy(ahead.sol(end - tau))
        p = torch.from_numpy(packed[:n])
        with torch.enable_grad():
            leaf = state.clone().requires_grad_(True)
            pull = torch.autograd.grad((mixed(leaf) * p).sum(), leaf)[0]
        difference = f1(state) - f0(state)
        return np.concatenate([pull.numpy(), -(p * difference).detach().numpy()])

    scale = max(1e-300, float(np.abs(p_end).max()))
    back = solve_ivp(
        adjoint, (0.0, end), np.concatenate([p_end, np.zeros(n)]), method="DOP853", rtol=rtol, atol=rtol * scale
    )
    drift = 0.0
    for tau, packed in zip(back.t, back.y.T):
        v = mixed(torch.from_numpy(ahead.sol(end - tau))).detach().numpy()
        drift = max(drift, abs(float(packed[:n] @ v) - 1))
    by_coordinate = back.y[n:, -1]
    return Slice(nu=nu, time=end, rate=float(by_coordinate.sum()), by_coordinate=by_coordinate, invariant=drift)


def _mixed(f0: Velocity, f1: Velocity, nu: float) -> Velocity:
    return lambda x: (1 - nu) * f0(x) + nu * f1(x)


def _forward(
    mixed: Velocity, x0: Tensor, coordinate: int, threshold: float, t_max: float, rtol: float, dense: bool
) -> Any:
    from scipy.integrate import solve_ivp

    def hit(t: float, x: np.ndarray) -> float:
        return float(x[coordinate]) - threshold

    hit.terminal, hit.direction = True, 1.0  # type: ignore[attr-defined]
    start = x0.detach().double().numpy()
    if start[coordinate] >= threshold:
        raise ValueError(f"coordinate {coordinate} starts at {start[coordinate]:.4g}, already past {threshold}")
    floor = 1e-3 * rtol * float(np.abs(start[start != 0]).min())
    run = solve_ivp(
        lambda t, x: mixed(torch.from_numpy(x)).detach().numpy(),
        (0.0, t_max),
        start,
        method="DOP853",
        rtol=rtol,
        atol=floor,
        events=hit,
        dense_output=dense,
    )
    if not len(run.t_events[0]):
        raise ValueError(
            f"coordinate {coordinate} does not reach {threshold} before t = {t_max:.4g}; "
            f"it ends at {float(run.y[coordinate, -1]):.4g}: choose a lower threshold"
        )
    return run
