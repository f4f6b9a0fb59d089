r"""Norms and ratios of one operator from random probes, each with a standard error.

$\|H\|_F^2=E\|Hz\|^2$ for signs z; the variance of one probe is $2(\|A\|_F^2-\sum_iA_{ii}^2)$ with $A=H^\top H$, so the
relative error falls with the effective rank (the paper's probe rule has the wrong direction; erratum E28).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from netvitals.anatomy import Lanczos
from netvitals.capture import Result
from netvitals.curvature.engine.operator import Operator
from netvitals.curvature.engine.probes import Distribution, draw, generator
from netvitals.curvature.measure.metrics import gn_gap


@dataclass(frozen=True)
class Estimate(Result):
    """A number, its standard error, and the probes behind it; ``draws`` are per probe, mostly of the square."""

    value: float
    stderr: float
    probes: int
    draws: np.ndarray

    def interval(self, sigmas: float = 1.96) -> tuple[float, float]:
        return self.value - sigmas * self.stderr, self.value + sigmas * self.stderr

    def __str__(self) -> str:
        return f"{self.value:.4g} ± {self.stderr:.2g} ({self.probes} probes)"


@dataclass(frozen=True)
class SpectralNorm:
    """Largest singular value from below, its right singular vector, and whether the last step still moved it."""

    value: float
    vector: Tensor
    steps: int
    converged: bool


def frobenius(op: Operator, probes: int = 30, *, distribution: Distribution = "rademacher", seed: int = 0) -> Estimate:
    r"""$\|H\|_F$ with the delta-method error of the square root.

    >>> eye = Operator((3, 3), torch.float64, lambda z: z, lambda z: z)
    >>> print(frobenius(eye))
    1.732 ± 0 (30 probes)
    """
    if probes < 2:
        raise ValueError(f"probes= must be at least 2, got {probes}: the standard error is estimated from them")
    return _root(_squares(op, _probes(op, probes, distribution, seed)))


def adaptive_frobenius(
    op: Operator, relative: float = 0.05, *, most: int = 1000, seed: int = 0, distribution: Distribution = "rademacher"
) -> Estimate:
    """Probes until the relative standard error is below ``relative``, at most ``most``."""
    if not relative > 0:
        raise ValueError(f"relative= must be a positive relative error, got {relative}")
    source, squares = generator(seed, op.device), np.zeros(0)
    found = Estimate(np.nan, np.inf, 0, squares)
    while len(squares) < most:
        more = min(most - len(squares), max(8, len(squares) // 2))
        z = draw(more, [torch.empty(op.shape[1], dtype=op.dtype, device=op.device)], source, distribution)[0]
        squares = np.concatenate([squares, _squares(op, z)])
        found = _root(squares)
        if found.stderr <= relative * found.value:
            break
    return found


def spectral_norm(
    op: Operator, steps: int = 20, *, tol: float = 1e-6, seed: int = 0, method: Literal["power", "lanczos"] = "power"
) -> SpectralNorm:
    r"""$\sigma_1$ by power iteration on $H^\top H$ (always from below), or by Lanczos, which converges faster.

    Stops early when a step changes σ₁² by less than ``tol``; a zero operator gives 0.
    """
    if method not in ("power", "lanczos"):
        raise ValueError(f"method= must be 'power' or 'lanczos', got {method!r}")
    start = torch.randn(1, op.shape[1], generator=generator(seed, op.device), dtype=op.dtype, device=op.device)
    if method == "lanczos":
        run = Lanczos(lambda z: op.apply_adjoint(op.apply(z)), start, steps)
        run.advance(steps)
        t = run.tridiagonal()
        values, vectors = t.ritz()
        q = vectors[0, :, -1].to(op.dtype).to(op.device) @ t.basis[0]
        residual = float((t.last[0] * vectors[0, -1, -1]).abs())
        top = max(float(values[0, -1]), 0.0)
        return SpectralNorm(top**0.5, q, run.steps, residual <= tol * top or run.steps == op.shape[1])
    q = start / start.norm()
    before = 0.0
    for step in range(1, steps + 1):
        hq = op.apply(q)
        size = float(hq.double().norm())
        if abs(size**2 - before**2) <= tol * size**2:
            return SpectralNorm(size, q[0], step, True)
        back = op.apply_adjoint(hq / size)
        before, q = size, back / back.norm()
    return SpectralNorm(float(op.apply(q).double().norm()), q[0], steps, False)


def stable_rank(op: Operator, probes: int = 30, *, steps: int = 20, deflated: bool = True, seed: int = 0) -> Estimate:
    r"""$D=\|H\|_F^2/\|H\|_2^2$; deflated $1+\frac1m\sum\|H(z-qq^\top z)\|^2/\hat\sigma_1^2\ge1$, plain may be < 1."""
    top = spectral_norm(op, steps, seed=seed)
    if top.value == 0:
        return Estimate(float("nan"), float("nan"), probes, np.zeros(0))
    z = _probes(op, probes, "rademacher", seed + 1)
    if deflated:
        z = z - (z @ top.vector)[:, None] * top.vector
    ratios = _squares(op, z) / top.value**2 + (1.0 if deflated else 0.0)
    return Estimate(float(ratios.mean()), _stderr(ratios), probes, ratios)


def coupling(
    vw: Operator, vv: Operator, ww: Operator, probes: int = 30, *, shared: bool = True, seed: int = 0
) -> Estimate:
    r"""$C=\|H_{vw}\|/\sqrt{\|H_{vv}\|\|H_{ww}\|}$; with shared probes $\sqrt[4]{F_{vw}F_{wv}/(F_{vv}F_{ww})}$.

    Sharing $z_w$ between $H_{vw}$ and $H_{ww}$ (and $z_v$ likewise) removes most of the noise where C is near 1. With
    ``shared=False`` three independent series are used, as printed; nothing is clipped.
    """
    if shared:
        zw, zv = _probes(ww, probes, "rademacher", seed), _probes(vv, probes, "rademacher", seed + 1)
        over = _squares(vw, zw), _squares(vw.T, zv)
        under = _squares(ww, zw), _squares(vv, zv)
        value = float((over[0].mean() * over[1].mean() / (under[0].mean() * under[1].mean())) ** 0.25)
        drift = [(a / a.mean() - b / b.mean()) / 4 for a, b in zip(over, under)]
        return Estimate(value, value * float(np.hypot(_stderr(drift[0]), _stderr(drift[1]))), probes, drift[0])
    parts = [_squares(op, _probes(op, probes, "rademacher", seed + i)) for i, op in enumerate((vw, vv, ww))]
    f = [p.mean() for p in parts]
    value = float(np.sqrt(f[0]) / (f[1] * f[2]) ** 0.25)
    error = np.sqrt(sum((w * _stderr(p) / p.mean()) ** 2 for w, p in zip((0.5, 0.25, 0.25), parts)))
    return Estimate(value, value * float(error), probes, parts[0])


def gap(h: Operator, gn: Operator, probes: int = 30, *, seed: int = 0) -> Estimate:
    r"""$\|H^T\|_F/\|H^{GN}\|_F$ with the same probes in both, $H^Tz=Hz-H^{GN}z$."""
    z = _probes(h, probes, "rademacher", seed)
    a, b = h.apply(z).double(), gn.apply(z).double()
    t, g = (x.square().sum(1).cpu().numpy() for x in (a - b, b))
    value = float(gn_gap(*(np.sqrt(x.mean(keepdims=True))[None] for x in (t, g))).item())
    drift = (t / max(t.mean(), 1e-300) - g / max(g.mean(), 1e-300)) / 2
    return Estimate(value, value * _stderr(drift), probes, t)


def probe_variance(matrix: Tensor) -> float:
    r"""$2(\|A\|_F^2-\sum_iA_{ii}^2)$ with $A=H^\top H$: variance of $\|Hz\|^2$ for one sign probe."""
    a = matrix.mT @ matrix
    return float(2 * (a.square().sum() - a.diagonal().square().sum()))


def _probes(op: Operator, count: int, distribution: Distribution, seed: int) -> Tensor:
    return draw(
        count, [torch.empty(op.shape[1], dtype=op.dtype, device=op.device)], generator(seed, op.device), distribution
    )[0]


def _squares(op: Operator, z: Tensor) -> np.ndarray:
    return op.apply(z).double().square().sum(1).cpu().numpy()


def _stderr(draws: np.ndarray) -> float:
    return float(draws.std(ddof=1) / np.sqrt(len(draws)))


def _root(squares: np.ndarray) -> Estimate:
    value = float(np.sqrt(squares.mean()))
    return Estimate(value, _stderr(squares) / (2 * value) if value > 0 else 0.0, len(squares), squares)
