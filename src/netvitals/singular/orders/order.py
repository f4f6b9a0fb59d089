r"""The KL order of a direction: $K(\theta_0 + t v) \approx C t^{2k}$, from the Fisher decay $F_v \sim t^{2(k-1)}$.

One forward-mode product at $\theta_0 + t v$ gives the output and its tangent, hence both F and K. The two must agree:
$F_v(t)\,t^2 / K(t) \to 2k^2$ (dead-directions §2.1; not the Hessian's guess 2k(2k−1)).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.func import jvp

from netvitals.capture import Result
from netvitals.singular.orders import likelihood as likelihoods
from netvitals.singular.orders.likelihood import Likelihood
from netvitals.singular.orders.rates import RateFit, rate_fit

Outputs = Callable[[Tensor], Tensor]
DEFAULT_TS = tuple(np.geomspace(10**-3, 10**-1.3, 10).tolist())
_WHOLE = 0.15  # how far the estimate may be from a whole number (spec §4.4)
_RATIO = 0.05  # relative deviation of F t²/K from 2k² that is called consistent, at the smallest t
_NEARBY = 0.15  # the same for the next places further out
_BEYOND = 5.0  # distances to the singular set after which the ratio is read


@dataclass(frozen=True)
class KLOrder(Result):
    """Order of one direction, with the two measurements it rests on.

    Returned by :func:`kl_order`.

    Attributes:
        order: the whole number, or None with the reason in ``note``.
        estimate: 1 + slope/2.
        slope: of the directional Fisher form.
        stderr: of the slope.
        ratio: F t²/K at the smallest usable t, to be compared with 2k²; t and K from the singular set.
        kl_slope: to be compared with 2k.
        estimator: which Fisher was used.
        passes: forward-mode products used.
        fisher_fit: how the Fisher form grows.
        ts: distances along the direction.
        fisher: directional Fisher form at each of them.
        kl: divergence from the start at each of them.
        note: why there is no order, or what to keep in mind.
    """

    order: int | None
    estimate: float
    slope: float
    stderr: float
    ratio: float
    kl_slope: float
    estimator: str
    passes: int
    fisher_fit: RateFit
    ts: np.ndarray
    fisher: np.ndarray
    kl: np.ndarray
    note: str = ""

    @property
    def consistent(self) -> bool:
        """Whether the Fisher–KL ratio agrees with 2k²: without it no order is given."""
        return self.order is not None

    def __str__(self) -> str:
        head = f"order {self.order}" if self.order is not None else f"no order: {self.note}"
        return (
            f"{head} (estimate {self.estimate:.3f}, Fisher t^{self.slope:.3f} ± {self.stderr:.3f}, "
            f"F t²/K = {self.ratio:.3f}; {self.estimator}, {self.passes} forward-mode passes)"
        )


def directional_fisher(
    outputs: Outputs, theta: Tensor, direction: Tensor, likelihood: str | Likelihood = "gaussian"
) -> Tensor:
    r"""$v^\top F(\theta) v$ by one Jacobian-vector product; half precision is promoted to float64.

    >>> line = lambda th: th[:1].expand(4, 1)
    >>> float(directional_fisher(line, torch.tensor([2.0, 0.0]), torch.tensor([3.0, 0.0])))
    9.0
    """
    check_direction(theta, direction)
    theta, direction = promoted(theta), promoted(direction).to(promoted(theta).dtype)
    out, tangent = jvp(outputs, (theta,), (direction,))[:2]
    check_outputs(out)
    return likelihoods.get(likelihood).fisher(out, tangent)


def kl_along(
    outputs: Outputs, theta0: Tensor, direction: Tensor, ts: Sequence[float], likelihood: str | Likelihood = "gaussian"
) -> Tensor:
    """K(θ0 + t v) for each t, the model at θ0 being the truth."""
    check_direction(theta0, direction)
    family = likelihoods.get(likelihood)
    if not len(ts):
        raise ValueError("ts= is empty: measuring a divergence along a path needs at least one distance t")
    theta0, direction = promoted(theta0), promoted(direction)
    truth = outputs(theta0)
    check_outputs(truth)
    return torch.stack([family.kl(truth, outputs(theta0 + t * direction)) for t in ts])


def kl_order(
    outputs: Outputs,
    theta0: Tensor,
    direction: Tensor,
    likelihood: str | Likelihood = "gaussian",
    *,
    ts: Sequence[float] = DEFAULT_TS,
    shift: bool = False,
) -> KLOrder:
    r"""Estimate the KL order of a direction: $k = 1 + \alpha/2$, where the Fisher information scales as $F_v(t) \sim
    t^\alpha$.

    Args:
        outputs: θ (D,) → outputs (n, d) on fixed inputs. Half precision is promoted to float64 by ``theta0``.
        theta0: the point, ideally on the singular set; with ``shift=True`` a point near it.
        direction: any non-zero vector of the same shape; it is normalised.
        likelihood: ``"gaussian"`` (``"mse"``), ``"categorical"`` (``"ce"``), or an object with ``fisher`` and ``kl``.
        ts: distances at which to measure; one forward-mode product each (10 by default).
        shift: fit how far ``theta0`` is from the singular set, instead of taking it as on it.

    Returns:
        Order None where the estimate is not near a whole number, where $F t^2/K$ is not near $2k^2$ at the places
        next to the singular set, or where the divergence is identically zero (a gauge direction, note "gauge").

    >>> cube = lambda th: th[:1].pow(3).expand(5, 1)
    >>> kl_order(cube, torch.zeros(2, dtype=torch.float64), torch.tensor([1.0, 0.0], dtype=torch.float64)).order
    3
    """
    check_direction(theta0, direction)
    family = likelihoods.get(likelihood)
    v = (direction / direction.norm()).to(torch.float64)
    theta = theta0.to(torch.float64)
    t_axis = np.asarray(ts, float)
    if t_axis.size < 3 or not (t_axis > 0).all():
        raise ValueError(f"estimating an order needs at least three distances t > 0 in ts, got {list(ts)}")
    truth = outputs(theta)
    check_outputs(truth)
    fisher, kl = [], []
    for t in ts:
        out, tangent = jvp(outputs, (theta + t * v,), (v,))[:2]
        fisher.append(family.fisher(out, tangent))
        kl.append(family.kl(truth, out))
    f, k = torch.stack(fisher).detach().cpu().double().numpy(), torch.stack(kl).detach().cpu().double().numpy()
    scale = _size(outputs, theta, truth, float(t_axis.max()))
    half = theta0.dtype in (torch.float16, torch.bfloat16)
    name = family.name + (f", promoted from {str(theta0.dtype).removeprefix('torch.')}" if half else "")
    fit = _nearest_fit(t_axis, f) if shift else rate_fit(t_axis, f)
    near = np.flatnonzero((t_axis >= _BEYOND * fit.shift) & (k > 1e-26 * scale))
    near = near[: max(3, t_axis.size // 2) if fit.shift == 0 else 3]
    from_set = k[near]
    if fit.shift > 0 and near.size:  # the truth is then the model on the singular set, not at theta0
        there = outputs(theta - fit.shift * v)
        moved = [family.kl(there, outputs(theta + t_axis[i] * v)) for i in near]
        from_set = torch.stack(moved).detach().cpu().double().numpy()
    usable = from_set > 1e-26 * scale
    ratios = f[near][usable] * (t_axis[near][usable] + fit.shift) ** 2 / from_set[usable]
    return _conclude(t_axis, f, k, ratios, scale, name, fit)


def _size(outputs: Outputs, theta: Tensor, truth: Tensor, reach: float) -> float:
    """Mean square of the outputs and of what a random step of the size of θ changes: what zero is measured against."""
    drawn = torch.randn(theta.shape, generator=torch.Generator().manual_seed(0), dtype=theta.dtype).to(theta)
    moved = outputs(theta + drawn / drawn.norm() * max(float(theta.norm()), reach)) - truth
    found = float(truth.double().square().mean()) + float(moved.double().square().mean())
    return found if found > 0 and math.isfinite(found) else 1.0


def _nearest_fit(t: np.ndarray, f: np.ndarray) -> RateFit:
    """The fit with a shift, over as much of the window as a power law holds: far out activations saturate."""
    fits = [rate_fit(t[:n], f[:n], shift=True) for n in range(len(t), max(5, len(t) // 2) - 1, -1)]
    fits = [fit for fit in fits if math.isfinite(fit.stderr)] or fits[:1] or [rate_fit(t, f, shift=True)]
    return min(fits, key=lambda fit: fit.stderr if math.isfinite(fit.stderr) else math.inf)


def _conclude(
    t: np.ndarray, f: np.ndarray, kl: np.ndarray, ratios: np.ndarray, scale: float, name: str, fit: RateFit
) -> KLOrder:
    gauge = bool((np.abs(kl) <= 1e-26 * scale).all() and (np.abs(f) <= 1e-24 * scale).all())
    # the difference of two outputs cannot be resolved below their rounding, so K has a floor of its own
    kl_fit = rate_fit(
        t + fit.shift, np.maximum(kl, 0.0), floor=max(1e-30 * scale, 1e-14 * float(np.abs(kl).max(initial=0.0)))
    )
    estimate = 1 + fit.slope / 2
    order, note = None, ""
    if gauge:
        note = "gauge: the divergence is identically zero along it"
    elif not math.isfinite(estimate) or estimate < 1 - _WHOLE or abs(estimate - round(estimate)) >= _WHOLE:
        note = (
            f"the exponent {fit.slope:.3f} is not near an even number; the window is not asymptotic or the point "
            "is not on the singular set"
        )
    else:
        order = max(1, round(estimate))
        off = np.abs(ratios / (2 * order**2) - 1)
        if not off.size or off[0] >= _RATIO or (off >= _NEARBY).any():
            seen = f"{ratios[int(np.argmax(off))]:.3g}" if off.size else "not to be had"
            note = (
                f"two measurements disagree: the Fisher form says order {order}, F t²/K is {seen}, not {2 * order**2}"
            )
            order = None
    return KLOrder(
        order=order,
        estimate=estimate,
        slope=fit.slope,
        stderr=fit.stderr,
        ratio=float(ratios[0]) if ratios.size else math.nan,
        kl_slope=kl_fit.slope,
        estimator=name,
        passes=len(t),
        fisher_fit=fit,
        ts=t,
        fisher=f,
        kl=kl,
        note=note,
    )


@dataclass(frozen=True)
class ScoreExpansion(Result):
    r"""Norms of the Taylor coefficients of the Gaussian log-likelihood ratio along a direction."""

    norms: tuple[float, ...]  # E[a_j²] for j = 1..order, a_j the coefficient of t^j in the output
    order: int | None  # first j whose norm is not zero
    C: float  # K = C t^{2k}: ½ E[a_k²]

    def __str__(self) -> str:
        if self.order is None:
            return f"no coefficient up to t^{len(self.norms)} differs from zero"
        return f"first non-zero coefficient at t^{self.order}, C = {self.C:.4g}"


def score_expansion(outputs: Outputs, theta0: Tensor, direction: Tensor, order: int = 4) -> ScoreExpansion:
    r"""$f(\theta_0 + t v) = \sum_j t^j f_j$ by nested forward mode; k the first j with $f_j \ne 0$, $C = E\|f_k\|^2/2$.

    >>> square = lambda th: th[:1].square().expand(3, 1)
    >>> score_expansion(square, torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)).C
    0.5
    """
    check_direction(theta0, direction)
    if order < 1:
        raise ValueError(f"order= is the highest order of the expansion and must be at least 1, got {order}")
    v, theta = (direction / direction.norm()).double(), theta0.double()
    check_outputs(outputs(theta))

    def along(t: Tensor) -> Tensor:
        return outputs(theta + t * v)

    derivative, zero = along, torch.zeros((), dtype=torch.float64)
    norms = []
    for j in range(1, order + 1):
        derivative = torch.func.jacfwd(derivative)
        norms.append(float((derivative(zero) / math.factorial(j)).square().flatten(1).sum(1).mean()))
    first = next((j for j, n in enumerate(norms, 1) if n > 1e-20), None)
    return ScoreExpansion(tuple(norms), first, 0.5 * norms[first - 1] if first else 0.0)


def check_direction(theta: Tensor, direction: Tensor) -> None:
    """A sentence for a direction of the wrong shape, zero or not finite."""
    if not isinstance(theta, Tensor) or not isinstance(direction, Tensor):
        raise TypeError(
            f"theta= and direction= must be tensors, got {type(theta).__name__} and {type(direction).__name__}"
        )
    if theta.ndim != 1 or direction.shape != theta.shape:
        raise ValueError(
            f"direction= must be a flat vector of the same shape as theta: got {tuple(direction.shape)} for theta of "
            f"shape {tuple(theta.shape)}"
        )
    if not torch.isfinite(direction).all() or float(direction.norm()) == 0.0:
        raise ValueError("direction= must be a finite vector that is not zero, because a zero vector has no order")


def check_outputs(outputs: Tensor) -> None:
    """A sentence for outputs without samples, without entries, or with NaN."""
    if outputs.ndim < 2 or not outputs.numel():
        raise ValueError(
            f"outputs= must have shape (samples, outputs) with at least one of each, got shape {tuple(outputs.shape)}"
        )
    if not torch.isfinite(outputs).all():
        raise ValueError("the outputs contain NaN or infinity: check the data and the parameters")


def promoted(x: Tensor) -> Tensor:
    """Half precision as float64, anything else as it is."""
    return x.double() if x.dtype in (torch.float16, torch.bfloat16) else x
