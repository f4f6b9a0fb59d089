r"""Stage law for several teacher modes: when each mode escapes, were it alone.

Mode k starts with first-layer amplitude 0 and the other L − 1 layers at $\rho_k$. With $u=c_k/\rho_k$,
$\dot u=\Gamma_k(1+u^2)^{(L-1)/2}$, so $t_k(\theta)=I_L(\theta)/\Gamma_k$ with $\Gamma_k=K_k\rho_k^{L-2}$.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from netvitals.capture.result import Result
from netvitals.saddle.laws.chain import ScalarChain, _with_slope
from netvitals.saddle.laws.drives import drive
from netvitals_lab.theory.saddle.blocks import BlockChain


def transfer(f: str | Callable[[Tensor], Tensor], depth: int, rho: float, nodes: int = 128) -> float:
    r"""$T_L(\rho)=E_g\prod_{j=1}^{L-1}\sigma'(c_j)$, $c_1=\rho g$, $c_j=\rho\sigma(c_{j-1})$; $T_L(0)=\alpha^{L-1}$."""
    chain = ScalarChain(f, 1, 1.0, nodes)
    c, product = rho * chain.g, torch.ones_like(chain.g)
    for _ in range(depth - 1):
        value, slope = _with_slope(chain.f, c)
        product, c = product * slope, rho * value
    return float((product * chain.w).sum())


def stage_integral(depth: int, theta: float | np.ndarray) -> float | np.ndarray:
    r"""$I_L(\theta)=\int_0^\theta(1+s^2)^{-(L-1)/2}ds=\theta\,{}_2F_1(\tfrac12,\tfrac{L-1}2;\tfrac32;-\theta^2)$.

    arcsinh θ, arctan θ and θ/√(1+θ²) for L = 2, 3, 4.

    >>> round(float(stage_integral(3, 1.0)), 12) == round(np.pi / 4, 12)
    True
    """
    from scipy.special import hyp2f1

    if depth < 2:
        raise ValueError(f"the stage law needs depth at least 2, got {depth}")
    theta = np.asarray(theta, float)
    value = theta * hyp2f1(0.5, (depth - 1) / 2, 1.5, -(theta**2))
    return float(value) if value.ndim == 0 else value


@dataclass(frozen=True, kw_only=True)
class Stages(Result):
    """Escape times of teacher modes under the stage law, clock t; ``order`` lists modes from first to last.

    Returned by :func:`stage_law`.

    Attributes:
        betas: strengths of the teacher's modes.
        rhos: initial scale of the other L − 1 layers, for each mode.
        rates: Γ_k.
        times: escape time of each mode.
        order: modes, first to last.
        width: units of a hidden layer.
    """

    betas: tuple[float, ...]
    rhos: tuple[float, ...]
    rates: tuple[float, ...]
    times: tuple[float, ...]
    order: tuple[int, ...]
    width: int

    def ratio(self, later: int, earlier: int) -> float:
        """t of mode ``later`` over that of mode ``earlier``: (β_e/β_l)(ρ_e/ρ_l)^{L−2} up to the transfer factors."""
        return self.times[later] / self.times[earlier]

    def __str__(self) -> str:
        rows = [
            f"mode {k + 1}: beta {self.betas[k]:.4g}, rho {self.rhos[k]:.4g}, escapes at t = {self.times[k]:.5g} "
            f"(s = {self.times[k] * self.width:.5g})"
            for k in self.order
        ]
        return "\n".join(rows)


def stage_law(
    f: str | Callable[[Tensor], Tensor],
    depth: int,
    width: int,
    betas: Sequence[float],
    rhos: Sequence[float],
    theta: float = 3.0,
) -> Stages:
    r"""When each mode's amplitude reaches θρ_k, and in which order.

    $\Gamma_k=\sqrt N\beta_kh_\sigma T_L(\rho_k)\rho_k^{L-2}$ in the clock t (the printed 1/√N belongs to s, E1).

    Args:
        f: activation, by name or callable.
        depth: number of layers L, at least 2.
        width: hidden width N.
        betas: teacher strength of each mode.
        rhos: initial scale of the other L − 1 layers, for each mode.
        theta: a mode has escaped when its first-layer amplitude is θ times its ρ.

    Returns:
        Rates Γ_k and escape times in the clock t, and the modes from first to last.

    >>> stage_law("tanh", 4, 64, betas=[1.0, 0.3], rhos=[0.01, 0.1]).order
    (1, 0)
    """
    if len(betas) != len(rhos):
        raise ValueError(f"one rho per mode: got {len(betas)} betas and {len(rhos)} rhos")
    rates = []
    for beta, rho in zip(betas, rhos):
        d = drive(f, depth, width, beta)
        rates.append(d.k * transfer(f, depth, rho) / d.slope ** (depth - 1) * rho ** (depth - 2))
    times = [float(stage_integral(depth, theta)) / g for g in rates]
    order = tuple(int(i) for i in np.argsort(times))
    return Stages(
        betas=tuple(betas), rhos=tuple(rhos), rates=tuple(rates), times=tuple(times), order=order, width=width
    )


def forecast_rank(betas: Sequence[float], eps: float, necks: Sequence[int]) -> tuple[int, ...]:
    r"""Order of escape when mode k has $r_k$ small layers: $t_k\propto\varepsilon^{-(r_k-2)}/\beta_k$, so fewer small
    layers can beat a stronger teacher mode.
    """
    times = [eps ** -(max(r, 2) - 2) / b for b, r in zip(betas, necks)]
    return tuple(int(i) for i in np.argsort(times))


def printed_stage_integral(depth: int, theta: float) -> float:
    r"""$\int_0^\theta du/(1+u^{L-1})$: the stage ODE (65) with forcing and self-drive added up, as printed.

    It is $I_L(\theta)$ for L = 3 only: along a chain $\dot c\propto(\rho^2+c^2)^{(L-1)/2}$, which is not
    $\rho^{L-1}+c^{L-1}$.

    >>> round(printed_stage_integral(3, 1.0) - stage_integral(3, 1.0), 12)
    0.0
    """
    from scipy.integrate import quad

    return float(quad(lambda u: 1 / (1 + u ** (depth - 1)), 0, theta, epsrel=1e-11)[0])


@dataclass(frozen=True, kw_only=True)
class StageForces(Result):
    """Forces on mode k where the modes before it are fitted and its own block is at ρ, with first-layer amplitude 0.

    Returned by :func:`stage_forces`.

    Attributes:
        forcing: F_k, velocity of the amplitude.
        drag: H_k, minus its derivative.
        forcing_law: √N_B β_k h α^{L−1} ρ^{L−1}.
        drag_law: N_B α^{2(L−1)} ρ^{2(L−1)}.
        rho: scale that the measured forcing stands for.
        fastest: largest velocity of any scalar in that state; where it is far above the forcing this is no saddle.
    """

    forcing: float
    drag: float
    forcing_law: float
    drag_law: float
    rho: float
    fastest: float

    def __str__(self) -> str:
        return (
            f"forcing {self.forcing:.4g} ({self.forcing / self.forcing_law:.4f} of the law), drag {self.drag:.4g}, "
            f"fastest scalar {self.fastest:.4g}"
        )


def stage_forces(chain: BlockChain, mode: int, rho: float) -> StageForces:
    r"""$F_k$ and $H_k$ of the stage ODE (65) at the state where mode ``mode`` (from 0) should begin.

    >>> from netvitals_lab.theory.saddle.blocks import BlockChain
    >>> found = stage_forces(BlockChain("tanh", (1.0, 0.3), 4, 8, nodes=16), 1, 0.05)
    >>> round(found.forcing / found.forcing_law, 3), found.fastest > 100 * found.forcing
    (1.0, True)
    """
    if not 0 < mode < chain.modes:
        raise ValueError(f"a later mode is one of 1..{chain.modes - 1}, got {mode}")
    scales = torch.full((chain.depth, chain.modes), float(rho), dtype=torch.float64)
    scales[0, mode] = 0
    for k in range(mode):
        scales[:, k] = _fitted(ScalarChain(chain.f, chain.block, float(chain.betas[k])), chain.depth)
    theta = chain.aligned(scales)
    velocity, at = chain.velocity(theta), mode * chain.modes + mode
    d = drive(chain.f, chain.depth, chain.block, float(chain.betas[mode]))
    forcing = float(velocity[at])
    return StageForces(
        forcing=forcing,
        drag=-float(chain.jacobian(theta)[at, at]),
        forcing_law=d.k * rho ** (chain.depth - 1),
        drag_law=chain.block * (d.slope * rho) ** (2 * (chain.depth - 1)),
        rho=(forcing / d.k) ** (1 / (chain.depth - 1)),
        fastest=float(velocity.abs().max()),
    )


def _fitted(alone: ScalarChain, depth: int) -> Tensor:
    """Scales of a chain that has learnt its mode."""
    from netvitals.saddle.laws.integration import integrate

    start = torch.full((1, depth), 0.4, dtype=torch.float64)
    return integrate(lambda x, _: alone.velocity(x), start, t_max=300.0, rtol=1e-8, atol=1e-10).x[-1, 0]
