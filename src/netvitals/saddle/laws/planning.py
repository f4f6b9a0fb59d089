r"""Plan a plateau: which (ε, r) gives a wanted length, and how long a given one will last.

On the symmetric chain, balanced inside the bottleneck and with the other layers at scale 1, the escape time is
$\varepsilon^{-(r-2)}/((r-2)K)$ in reduced time; $s=Nt$ and steps are $s/\eta$ for a learning rate η in the first layer
and η/N in the others. With one learning rate for all layers, as optimizers have it, all but the first go N times as
fast: $X_\ell^2=X_\ell(0)^2+\rho_\ell u$ with $\rho_1=1$, $\rho_\ell=N$, $\dot u=2K\prod_\ell X_\ell$.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import Tensor

from netvitals.capture import Result
from netvitals.saddle.laws.drives import drive
from netvitals.saddle.laws.escape import escape_time, leading


@dataclass(frozen=True, kw_only=True)
class PlateauPlan(Result):
    """One bottleneck and the plateau it makes.

    Returned by :func:`plan`.

    Attributes:
        epsilon: scale of the small layers.
        r: how many are small.
        t: length of the plateau in reduced time.
        s: the same in learning rate times steps.
        steps: the same in optimizer steps.
        depth: number of layers.
        width: units of a hidden layer.
        lr: learning rate.
        law: the law that was used, in words.
        threshold: scale of the first layer at which the plateau counts as over.
        method: as for :func:`escape_time`.
        rates: ``layerwise`` (1 and 1/N) or ``uniform``.
    """

    epsilon: float
    r: int
    t: float
    s: float
    steps: float
    depth: int
    width: int
    lr: float
    law: str
    threshold: float
    method: str = "leading"
    rates: str = "layerwise"

    @property
    def _end(self) -> str:
        if self.rates == "uniform":
            return f"the product of the scales is that of small layers at {self.threshold:.3g}"
        return f"the first layer reaches {self.threshold:.3g}"

    def __str__(self) -> str:
        return (
            f"r = {self.r} of {self.depth} layers at eps = {self.epsilon:.4g}: {self.law}, about "
            f"{self.steps:.4g} steps at learning rate {self.lr:g} until {self._end} "
            f"(t = {self.t:.4g}, s = {self.s:.4g})"
        )


def plan(
    f: str | Callable[[Tensor], Tensor],
    depth: int,
    width: int,
    *,
    steps: float | None = None,
    eps: float | None = None,
    r: int | None = None,
    lr: float = 0.01,
    beta: float = 1.0,
    threshold: float | None = None,
    others: float = 1.0,
    exact: bool = False,
    rates: Literal["layerwise", "uniform"] = "layerwise",
) -> list[PlateauPlan]:
    r"""Compute the initial scale ε and number of small layers r for a wanted plateau length, or the length from ε and
    r.

    Args:
        f: activation, by name or callable.
        depth: number of layers L.
        width: hidden width N.
        steps: wanted plateau in optimizer steps; then ε is found for every r from 2 to L (or for ``r``).
        eps: small scale; then the plateau is predicted for every r (or for ``r``).
        r: number of small layers, the first r.
        lr: learning rate η.
        beta: teacher strength.
        threshold: escape when the first layer reaches this; half of the scale where the drive is used up, by default.
        others: scale of the layers that are not small.
        exact: integrate the reduced flow instead of the leading-order quadrature (with ``eps``).
        rates: ``"layerwise"`` is η in the first layer and η/N in the others, the theory's; ``"uniform"`` is η in all.
            Then the escape is where the product of the scales is that of the threshold: the first layer stays behind.

    Returns:
        One plan per r (with ``steps``, for those r that can make it): ε, the plateau in both clocks and in steps, and
        the law.

    >>> for p in plan("tanh", depth=5, width=64, eps=0.01, r=3, lr=0.1):
    ...     print(p.r, p.law, round(p.t, 3))
    3 ~ eps^-1 19.89
    """
    if (steps is None) == (eps is None):
        raise ValueError(
            "give exactly one of steps (the plateau length you want) and eps (the scale of the small layers)"
        )
    if not lr > 0:
        raise ValueError(f"the learning rate must be positive, got {lr}")
    if rates not in ("layerwise", "uniform") or (exact and rates == "uniform"):
        raise ValueError(
            f"rates= must be 'layerwise' or 'uniform', and 'uniform' cannot be combined with exact=True; got {rates!r}"
        )
    d = drive(f, depth, width, beta)
    if r is not None and not 1 <= r <= depth:
        raise ValueError(
            f"r= is the number of small layers and must be at least 1 and at most the depth {depth}, got {r}"
        )
    level = _threshold(threshold, d.resting_scale, others)
    choices = [r] if r is not None else list(range(1, depth + 1))
    if eps is not None:
        if not 0 < eps < level:
            raise ValueError(f"eps= must lie between 0 and the threshold {level:.4g}, got {eps}")
        return [_predict(f, d.k, eps, q, depth, width, lr, beta, level, others, exact, rates) for q in choices]
    if not steps or steps <= 0:
        raise ValueError(f"steps= is the wanted plateau length and must be positive, got {steps}")
    found = [_solve(f, d.k, float(steps), q, depth, width, lr, beta, level, others, rates) for q in choices if q >= 2]
    plans = [p for p in found if p is not None]
    if not plans:
        raise ValueError(
            f"no eps below {level:.3g} gives a plateau of {steps:g} steps at learning rate {lr:g} with r = "
            f"{', '.join(map(str, choices))} small layers. Use a smaller learning rate, or ask for a longer plateau"
        )
    return plans


def _threshold(threshold: float | None, resting: float, others: float) -> float:
    if threshold is not None:
        if not threshold > 0:
            raise ValueError(f"threshold= must be positive, got {threshold}")
        return threshold
    return 0.5 * min(resting, others)


def _scales(eps: float, r: int, depth: int, others: float) -> np.ndarray:
    return np.array([eps] * r + [others] * (depth - r))


def _predict(
    f: str | Callable[[Tensor], Tensor],
    k: float,
    eps: float,
    r: int,
    depth: int,
    width: int,
    lr: float,
    beta: float,
    level: float,
    others: float,
    exact: bool,
    rates: str,
) -> PlateauPlan:
    x0 = _scales(eps, r, depth, others)
    if exact:
        t = float(escape_time(x0, f, width, beta, level))
    else:
        t = _wait(x0, k, level, r, width, rates)
    return PlateauPlan(
        epsilon=eps,
        r=r,
        t=t,
        s=width * t,
        steps=width * t / lr,
        depth=depth,
        width=width,
        lr=lr,
        law=_law(r),
        threshold=level,
        method="ode" if exact else "leading",
        rates=rates,
    )


def _solve(
    f: str | Callable[[Tensor], Tensor],
    k: float,
    steps: float,
    r: int,
    depth: int,
    width: int,
    lr: float,
    beta: float,
    level: float,
    others: float,
    rates: str,
) -> PlateauPlan | None:
    from scipy.optimize import brentq

    wanted = math.log(steps * lr / width)

    def gap(log_eps: float) -> float:
        x0 = _scales(math.exp(log_eps), r, depth, others)
        return math.log(max(_wait(x0, k, level, r, width, rates), 1e-300)) - wanted

    high, low = math.log(0.98 * level), math.log(1e-8)
    if gap(high) > 0 or gap(low) < 0:
        return None
    eps = math.exp(float(brentq(gap, low, high, xtol=1e-10)))
    return _predict(f, k, eps, r, depth, width, lr, beta, level, others, False, rates)


def _wait(x0: np.ndarray, k: float, level: float, r: int, width: int, rates: str) -> float:
    """Escape time t to leading order."""
    if rates == "layerwise":
        return leading(x0, k, level)
    from scipy.integrate import quad
    from scipy.optimize import brentq

    speeds = np.array([1.0, *[float(width)] * (len(x0) - 1)])
    product = lambda u: float(np.prod(np.sqrt(x0**2 + speeds * u)))
    wanted = float(np.prod(x0[r:])) * level**r
    if product(0.0) >= wanted:
        return 0.0
    end = math.exp(brentq(lambda v: math.log(product(math.exp(v)) / wanted), -80.0, 20.0))
    low = min(1e-12 * float((x0**2 / speeds).min()), end)
    integrand = lambda v: math.exp(v) / (2 * k * product(math.exp(v)))
    return low / (2 * k * product(0.0)) + float(quad(integrand, math.log(low), math.log(end), limit=400)[0])


def _law(r: int) -> str:
    return {1: "O(1)", 2: "~ ln(1/eps)"}.get(r, f"~ eps^-{r - 2}")
