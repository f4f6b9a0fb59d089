r"""The singular fluctuation ν: what a dead direction of order k adds to the gap between training and test loss.

Along one dead direction with $K = C u^{2k}$ and prior $|u|^h$, after rescaling $n\beta C u^{2k} = \eta^{2k}$, the
posterior given the data fluctuation $Z \sim N(0, 2\beta)$ is $\pi_Z(\eta) \propto |\eta|^h e^{Z\eta^k - \eta^{2k}}$,
and $\nu(k) = E_Z\,\mathrm{Var}_{\pi_Z}[\eta^k]$ (dead-directions, Theorem 96). It depends on k, h and β alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from netvitals.capture import Result

_PANELS, _NODES = 12, 40  # Gauss–Legendre panels on the half line, nodes in each
_Z_NODES, _Z_SPAN = 241, 9.0  # trapezoid rule in Z, exponentially accurate for a Gaussian weight
_COLDEST = 1e4  # β above which ν is its limit to 1e-4 and the rule would need too many nodes


def nu(k: int, h: float = 0.0, beta: float = 1.0) -> float:
    r"""Singular fluctuation $\nu(k, h, \beta) = E_Z\,\mathrm{Var}_{\pi_Z}[\eta^k]$ by two-dimensional quadrature.

    Args:
        k: KL order of the direction, at least 1.
        h: exponent of the prior $|u|^h$, above −1.
        beta: inverse temperature of the posterior; the data are not tempered. The fluctuation does depend on it for
            k ≥ 2 (the paper's universality across β holds at k = 1 only, erratum E7).

    Returns:
        ν, a number without unit.

    >>> round(nu(1), 6), round(nu(2), 6)
    (0.5, 0.172973)
    """
    _, variance, weight = _posterior_moments(k, h, beta)
    return float(weight @ variance)


def mean_square(k: int, h: float = 0.0) -> float:
    r"""$E_Z[m(Z)^2]$ with $m(Z) = E_{\pi_Z}[\eta^k]$ at β = 1: equal to λ = (h+1)/(2k), a check of the rule.

    >>> round(mean_square(3), 8) == round(1 / 6, 8)
    True
    """
    mean, _, weight = _posterior_moments(k, h, 1.0)
    return float(weight @ mean**2)


def nu_data_free(k: int, h: float = 0.0) -> float:
    r"""$\nu^{\sqrt T}(k) = \lambda - (\Gamma(\lambda + 1/2)/\Gamma(\lambda))^2$: the part without data fluctuation.

    >>> round(nu_data_free(2), 6)
    0.135763
    """
    _check(k, h, 1.0)
    lam = (h + 1) / (2 * k)
    return lam - math.exp(2 * (math.lgamma(lam + 0.5) - math.lgamma(lam)))


def nu_frozen(k: int, h: float = 0.0) -> float:
    r"""$\mathrm{Var}(\eta^k)$ at Z = 0: the data-free part for even k, λ for odd k (erratum E6: the signs of η cancel).

    >>> nu_frozen(3) == 1 / 6
    True
    """
    return nu_data_free(k, h) if k % 2 == 0 else (h + 1) / (2 * k)


@dataclass(frozen=True)
class FluctuationMC(Result):
    """Monte Carlo over data sets of the power-law model, each posterior integrated exactly on a grid."""

    nu: float  # ½ E[V_n]
    nu_stderr: float
    generalisation: float  # n (E[G_n] − S) → λ
    generalisation_stderr: float
    training: float  # n (E[T_n] − S) → λ − 2ν
    training_stderr: float
    n: int
    data_sets: int

    def __str__(self) -> str:
        return (
            f"nu = {self.nu:.4f} ± {self.nu_stderr:.4f}, n(G−S) = {self.generalisation:.4f} ± "
            f"{self.generalisation_stderr:.4f}, n(T−S) = {self.training:.4f} ± {self.training_stderr:.4f} "
            f"({self.data_sets} data sets of {self.n} points)"
        )


def functional_variance_mc(
    k: int, n: int = 1000, data_sets: int = 500, scale: float = 1.0, seed: int = 0, grid: int = 801
) -> FluctuationMC:
    r"""ν, generalisation and training loss of $N(a\,\theta^k, 1)$ at truth 0, flat prior, by simulation.

    $V_n = \sum_i \mathrm{Var}_{post}[\log p(x_i|\theta)]$; with $s = a\theta^k$ it needs only the moments of s. The
    predictive losses use the second-cumulant expansion in the posterior, exact to $O(n^{-3/2})$ of their 1/n terms.
    """
    _check(k, 0.0, 1.0)
    if n < 2 or data_sets < 2 or not scale > 0:
        raise ValueError(
            f"n= and data_sets= must be at least 2 and scale= must be positive, got {n}, {data_sets} and {scale}"
        )
    rng = np.random.default_rng(seed)
    total = rng.normal(0.0, math.sqrt(n), data_sets)  # Σ x
    square = total**2 / n + rng.chisquare(n - 1, data_sets)  # Σ x²
    reach = (8.0 / (scale * math.sqrt(n))) ** (1 / k)
    theta, weight = _half_line(reach, 0.0, grid // _NODES + 1)
    theta, weight = np.concatenate([-theta, theta]), np.concatenate([weight, weight])
    s = scale * theta**k
    log_density = total[:, None] * s - 0.5 * n * s**2 + np.log(weight)
    posterior = np.exp(log_density - log_density.max(1, keepdims=True))
    posterior /= posterior.sum(1, keepdims=True)
    m1, m2, m3, m4 = (posterior @ s**p for p in (1, 2, 3, 4))
    var_s, cov, var_s2 = m2 - m1**2, m3 - m1 * m2, m4 - m2**2
    v = square * var_s - total * cov + n * var_s2 / 4
    train = n * (m2 / 2) - total * m1 - v / 2  # n (T_n − S_n)
    fresh = var_s + var_s2 / 4  # E_X Var_post[log p(X)]
    general = n * (m2 / 2 - fresh / 2)
    root = math.sqrt(data_sets)
    return FluctuationMC(
        nu=v.mean() / 2,
        nu_stderr=v.std(ddof=1) / 2 / root,
        generalisation=general.mean(),
        generalisation_stderr=general.std(ddof=1) / root,
        training=train.mean(),
        training_stderr=train.std(ddof=1) / root,
        n=n,
        data_sets=data_sets,
    )


def _posterior_moments(k: int, h: float, beta: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    _check(k, h, beta)
    sigma = math.sqrt(2 * beta)
    # in units of Z the posterior keeps its width of about one, so both rules grow finer as β spreads Z
    unit = np.linspace(-_Z_SPAN, _Z_SPAN, 2 * round(_Z_NODES * max(1.0, sigma / 4) / 2) + 1)
    weight = np.exp(-(unit**2) / 2)
    weight /= weight.sum()
    z = sigma * unit
    reach = abs(z[-1]) + 8.0
    eta, mass = _half_line(reach ** (1 / k), h, max(_PANELS, math.ceil(_PANELS * k * reach / 200)))
    s, mass = (np.concatenate([eta**k, (-eta) ** k]), np.concatenate([mass, mass]))
    means, variances = [], []
    for part in np.array_split(z, max(1, z.size * s.size // 2_000_000)):
        log_density = part[:, None] * s - s**2
        density = np.exp(log_density - log_density.max(1, keepdims=True)) * mass
        density /= density.sum(1, keepdims=True)
        means.append(density @ s)
        variances.append(density @ s**2 - means[-1] ** 2)
    return np.concatenate(means), np.concatenate(variances), weight


def _half_line(reach: float, h: float, panels: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes η in (0, reach) with weights for |η|^h dη; for h < 0 the substitution u = η^(h+1) takes the pole out."""
    x, w = np.polynomial.legendre.leggauss(_NODES)
    power = h + 1 if h < 0 else 1.0
    edges = np.linspace(0.0, reach**power, panels + 1)
    half = np.diff(edges)[:, None] / 2
    u = (edges[:-1, None] + half * (x + 1)).ravel()
    eta, weight = u ** (1 / power), (half * w).ravel()
    return (eta, weight / power) if h < 0 else (eta, weight * eta**h)


def _check(k: int, h: float, beta: float) -> None:
    if not (isinstance(k, int | np.integer) and k >= 1):
        raise ValueError(f"the KL order k must be a whole number of at least 1, got {k!r}")
    if not h > -1:
        raise ValueError(f"the prior exponent h must be above −1 for |u|^h to be integrable, got {h!r}")
    if not 0 < beta <= _COLDEST:
        raise ValueError(
            f"the inverse temperature beta must be positive and at most {_COLDEST:g}, got {beta!r}. Above this "
            "limit the singular fluctuation ν is 1/2 for odd k and 1/4 for even k"
        )
