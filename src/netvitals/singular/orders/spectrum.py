r"""The Fisher spectrum along a path into a singularity, and which eigenvalue means what.

With $F = \frac1n \sum J^\top M J$ (M the likelihood's output metric), eigenvalues along θ(t) = θ0 + t v fall into
groups: *zero* (gauge), *constant* (regular), *tangential* ($t^{2j}$, the model does not change along the eigenvector),
*transversal* ($t^{2(k-1)}$, it does): dead-directions Theorem 3 and §4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.func import jvp, vjp, vmap

from netvitals.capture import Result
from netvitals.singular.orders import likelihood as likelihoods
from netvitals.singular.orders.likelihood import Categorical, Gaussian, Likelihood
from netvitals.singular.orders.order import Outputs, check_direction
from netvitals.singular.orders.rates import rate_fit

DENSE_LIMIT = 2000  # parameters up to which the matrix itself is formed
_TOLERANCE = 0.25  # how far an exponent may be from the one that names its class
_TANGENTIAL = 1e-6  # divergence along an eigenvector, over that along the path, that still counts as none


def fisher_matrix(outputs: Outputs, theta: Tensor, likelihood: str | Likelihood = "gaussian") -> Tensor:
    """F (D, D) in float64 by a batched backward pass per output, for Gaussian and categorical likelihoods.

    >>> fisher_matrix(lambda th: th[:1].expand(4, 1), torch.zeros(2, dtype=torch.float64)).tolist()
    [[1.0, 0.0], [0.0, 0.0]]
    """
    rows = score_rows(outputs, theta.double(), likelihoods.get(likelihood))
    return rows.T @ rows


def fisher_spectrum(
    outputs: Outputs, theta: Tensor, likelihood: str | Likelihood = "gaussian", *, k: int = 16, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Eigenvalues (ascending) and eigenvectors of F: all of them up to 2,000 parameters, else the extreme ``k``.

    Above the limit Lanczos with full reorthogonalisation works on products $J^\\top M J v$; bottom eigenvalues converge
    slowly, so treat them as upper bounds there.

    Args:
        outputs: θ (D,) → outputs (n, d) on fixed inputs.
        theta: parameters (D,).
        likelihood: ``"gaussian"`` (``"mse"``), ``"categorical"`` (``"ce"``), or an object with ``fisher`` and ``kl``.
        k: eigenvalues at each end, where there are more than 2,000 parameters.
        seed: of the start vector there.

    Returns:
        Eigenvalues (K,) ascending and eigenvectors (D, K), in float64.

    >>> x = torch.linspace(-1, 1, 9, dtype=torch.float64)[:, None]
    >>> values, vectors = fisher_spectrum(lambda theta: theta[0] * x + 0 * theta[1], torch.ones(2))
    >>> [bool(v > 1e-6) for v in values], tuple(vectors.shape)  # the second parameter does nothing
    ([False, True], (2, 2))
    """
    theta = theta.double()
    family = likelihoods.get(likelihood)
    if theta.numel() <= DENSE_LIMIT:
        # singular values of the score rows keep small eigenvalues that the squared matrix would lose to rounding
        rows = score_rows(outputs, theta, family)
        _, s, vectors = torch.linalg.svd(rows, full_matrices=True)
        values = torch.zeros(theta.numel(), dtype=torch.float64)
        values[: len(s)] = s.square()
        return values.flip(0), vectors.T.flip(1)
    return _lanczos(lambda v: _product(outputs, theta, v, family), theta.numel(), k, seed)


@dataclass(frozen=True)
class SpectrumDirection(Result):
    """One eigenvalue followed along the path."""

    label: str  # "zero", "constant", "tangential", "transversal", "unclear"
    exponent: float  # of the eigenvalue in t; NaN for zero
    stderr: float
    order: int | None  # j for tangential, k for transversal
    angle: float  # of its eigenvector with the path's direction at the smallest t, in degrees
    values: np.ndarray

    def __str__(self) -> str:
        return f"{self.label:12s} t^{self.exponent:.3f}  angle {self.angle:.1f}°"


@dataclass(frozen=True)
class Classified(Result):
    """All eigenvalues of a path, by class.

    Returned by :func:`classify_spectrum`.

    Attributes:
        directions: one an eigenvalue, with its class and exponent.
        ts: distances along the path.
        separable: condition (G): no tangential exponent coincides with the transversal one.
        note: why classes cannot be told apart, where they cannot.
    """

    directions: tuple[SpectrumDirection, ...]
    ts: np.ndarray
    separable: bool
    note: str = ""

    def count(self, label: str) -> int:
        """How many eigenvalues have the class ``label``."""
        return sum(d.label == label for d in self.directions)

    def of(self, label: str) -> list[SpectrumDirection]:
        """The directions of the class ``label``."""
        return [d for d in self.directions if d.label == label]

    def __str__(self) -> str:
        counts = ", ".join(f"{self.count(n)} {n}" for n in ("zero", "constant", "tangential", "transversal", "unclear"))
        return counts + (f"; {self.note}" if self.note else "")


def classify_spectrum(
    outputs: Outputs,
    theta0: Tensor,
    direction: Tensor,
    ts: Sequence[float],
    *,
    likelihood: str | Likelihood = "gaussian",
) -> Classified:
    """Follow every eigenvalue of the Fisher matrix along a path θ0 + t v, and classify how it behaves as t → 0.

    Eigenvectors at neighbouring values of t are matched by their overlaps. A decaying eigenvalue is transversal if its
    eigenvector stays near the direction of the path, or if the KL divergence grows along the eigenvector; otherwise it
    is tangential.

    Args:
        outputs: θ (D,) → outputs (n, d) on fixed inputs.
        theta0: the singular point (D,).
        direction: any non-zero vector (D,) off it; it is normalised.
        ts: three distances t > 0 or more.
        likelihood: ``"gaussian"`` (``"mse"``), ``"categorical"`` (``"ce"``), or an object with ``fisher`` and ``kl``.

    Returns:
        A class and an exponent for every eigenvalue, and whether the classes can be told apart.

    >>> x = torch.linspace(-1, 1, 9, dtype=torch.float64)[:, None]
    >>> outputs = lambda theta: theta[0] ** 2 * x + theta[1]
    >>> found = classify_spectrum(outputs, torch.zeros(2), torch.tensor([1.0, 0.0]), (0.01, 0.02, 0.04))
    >>> len(found.directions), found.separable
    (2, True)
    """
    from scipy.optimize import linear_sum_assignment

    check_direction(theta0, direction)
    family = likelihoods.get(likelihood)
    theta, v = theta0.double(), (direction / direction.norm()).double()
    ts = sorted(float(t) for t in ts)
    if len(ts) < 3 or ts[0] <= 0:
        raise ValueError(f"following eigenvalues needs at least 3 positive values in ts, got {ts}")
    columns, vectors, first = [], None, None
    for t in reversed(ts):
        values, basis = fisher_spectrum(outputs, theta + t * v, family)
        if vectors is not None:
            _, order = linear_sum_assignment(-(vectors.T @ basis).abs().numpy())
            values, basis = values[order], basis[:, order]
        columns.append(values.numpy())
        vectors = basis
        first = basis
    assert first is not None
    table = np.stack(columns[::-1])  # (ts, D)
    axis = np.array(ts)
    found = [_classify(column, axis, vector, v, outputs, theta, family) for column, vector in zip(table.T, first.T)]
    transversal = {d.exponent for d in found if d.label == "transversal"}
    tangential = [d.exponent for d in found if d.label == "tangential"]
    clash = any(abs(a - b) < _TOLERANCE for a in transversal for b in tangential)
    notes = ["a tangential exponent equals the transversal one: genericity (G) fails"] if clash else []
    scores = outputs(theta).numel()
    if scores < theta.numel():
        notes.append(
            f"{theta.numel()} parameters and only {scores} scores: an eigenvalue that falls can hide among "
            "the constant ones"
        )
    return Classified(tuple(found), np.array(ts), not clash, "; ".join(notes))


def operational_selection(
    exponents: Sequence[float], magnitudes: Sequence[float], predicted: float, *, tolerance: float = _TOLERANCE
) -> tuple[int | None, str]:
    """Which rank of a stored spectrum carries the predicted exponent (§5.1); None with "theorem reach exceeded".

    Ranks whose magnitude is within rounding of zero are left out rather than matched.
    """
    if not len(exponents) or len(exponents) != len(magnitudes):
        raise ValueError(
            f"each exponent needs one magnitude, and there must be at least one: got {len(exponents)} exponents and "
            f"{len(magnitudes)} magnitudes"
        )
    peak = max(magnitudes)
    usable = [i for i, m in enumerate(magnitudes) if m > np.finfo(float).eps * 10 * peak and np.isfinite(exponents[i])]
    if not usable:
        return None, "theorem reach exceeded: every rank is at the rounding floor"
    best = min(usable, key=lambda i: abs(exponents[i] - predicted))
    if abs(exponents[best] - predicted) > tolerance:
        return None, (
            f"theorem reach exceeded: the nearest exponent is {exponents[best]:.3f}, "
            f"predicted {predicted:g} ± {tolerance:g}"
        )
    return best, f"rank {best} with exponent {exponents[best]:.3f}"


def _classify(
    values: np.ndarray, ts: np.ndarray, vector: Tensor, v: Tensor, outputs: Outputs, theta: Tensor, family: Likelihood
) -> SpectrumDirection:
    angle = float(torch.rad2deg(torch.arccos((vector @ v).abs().clamp(max=1))))
    if np.abs(values).max() < 1e-26:
        return SpectrumDirection(
            label="zero", exponent=float("nan"), stderr=float("nan"), order=None, angle=angle, values=values
        )
    fit = rate_fit(ts, np.maximum(values, 0), floor=1e-30)
    if fit.used < 3:
        return SpectrumDirection(
            label="zero", exponent=float("nan"), stderr=float("nan"), order=None, angle=angle, values=values
        )
    if abs(fit.slope) < _TOLERANCE:
        return SpectrumDirection(
            label="constant", exponent=fit.slope, stderr=fit.stderr, order=1, angle=angle, values=values
        )
    half = fit.slope / 2
    if abs(half - round(half)) > _TOLERANCE:
        return SpectrumDirection(
            label="unclear", exponent=fit.slope, stderr=fit.stderr, order=None, angle=angle, values=values
        )
    truth = outputs(theta)
    step = 10 * ts[0]
    along, across = (float(family.kl(truth, outputs(theta + step * w))) for w in (v, vector))
    # a tangential eigenvector at t > 0 has a small part along v, so its divergence is small but not zero
    grows = across > max(1e-26 * (1 + float(truth.square().mean())), _TANGENTIAL * along)
    if grows:
        return SpectrumDirection(
            label="transversal",
            exponent=fit.slope,
            stderr=fit.stderr,
            order=round(half) + 1,
            angle=angle,
            values=values,
        )
    return SpectrumDirection(
        label="tangential", exponent=fit.slope, stderr=fit.stderr, order=round(half), angle=angle, values=values
    )


def score_rows(outputs: Outputs, theta: Tensor, family: Likelihood) -> Tensor:
    """Rows r with Σ r rᵀ = F: Jacobian rows times a square root of the output metric."""
    out, pull = vjp(outputs, theta)[:2]
    if not torch.isfinite(out).all():
        raise ValueError("the outputs contain NaN or infinity: check the data and the parameters")
    n = len(out)
    flat = out.detach().flatten(1)
    d = flat.shape[1]
    if isinstance(family, Gaussian):
        root = torch.eye(d, dtype=out.dtype).expand(n, d, d) / family.sigma
    elif isinstance(family, Categorical):
        p = flat.softmax(-1)
        root = torch.diag_embed(p.sqrt()) - p.sqrt()[:, :, None] * p[:, None, :]
    else:
        raise ValueError(
            f"the full Fisher matrix needs a gaussian or categorical likelihood, got {family.name}; "
            "directional_fisher works with any likelihood"
        )
    seeds = torch.zeros(n * d, n, d, dtype=out.dtype)
    index = torch.arange(n * d)
    seeds[index, index // d] = root.reshape(n * d, d)
    (rows,) = vmap(pull)(seeds.reshape(n * d, *out.shape))
    return rows / n**0.5


def _product(outputs: Outputs, theta: Tensor, v: Tensor, family: Likelihood) -> Tensor:
    """F v = Jᵀ M J v without forming anything."""
    out, tangent = jvp(outputs, (theta,), (v,))[:2]
    if isinstance(family, Gaussian):
        metric = tangent / family.sigma**2
    elif isinstance(family, Categorical):
        p = out.softmax(-1)
        metric = p * (tangent - (p * tangent).sum(-1, keepdim=True))
    else:
        raise ValueError(f"Fisher products need a gaussian or categorical likelihood, got {family.name}")
    return vjp(outputs, theta)[1](metric)[0] / len(out)


def _lanczos(product: Callable[[Tensor], Tensor], size: int, k: int, seed: int) -> tuple[Tensor, Tensor]:
    from netvitals.anatomy import Lanczos

    start = torch.randn(1, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    run = Lanczos(lambda z: product(z[0])[None], start, most=max(4 * k, 40))
    run.advance(run.most)
    small = run.tridiagonal()
    values, vectors = (part[0] for part in small.ritz())
    steps = len(values)
    keep = torch.unique(torch.cat([torch.arange(min(k, steps)), torch.arange(max(steps - k, 0), steps)]))
    return values[keep], small.basis[0].T @ vectors[:, keep]
