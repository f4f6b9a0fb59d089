r"""Laws over stiffness: what depth does to the active share, and what makes a problem hard.

Depth: $F_\ell = F_1 / (1 + c\alpha)^{\ell - 1}$; from two layers $c(\alpha) = (F_1/F_2 - 1)/\alpha$, and over stiffness
$c(\alpha) \approx a\alpha^b$.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from netvitals_lab import stats


@dataclass(frozen=True)
class DepthLaw:
    """Rates by stiffness and their power law; stiffness values where either layer is shut are left out."""

    alphas: tuple[float, ...]
    rates: tuple[float, ...]
    factor: float
    exponent: float
    exponent_stderr: float
    r2: float  # of the power law, in logarithms
    left_out: int

    def __str__(self) -> str:
        return (
            f"c(α) = {self.factor:.3g} α^({self.exponent:.3f} ± {self.exponent_stderr:.2g}), R² = {self.r2:.3f}, "
            f"{len(self.alphas)} values of α ({self.left_out} left out)"
        )


def depth_law(alphas: Sequence[float], first: Sequence[float], second: Sequence[float]) -> DepthLaw:
    """Fit c(α) from the active shares of one and of two layers.

    >>> law = depth_law([10, 20, 40], [1, 1, 1], [1 / (1 + a * 0.2 * a**-0.5) for a in (10, 20, 40)])
    >>> round(law.factor, 3), round(law.exponent, 3)
    (0.2, -0.5)
    """
    kept = [(a, (f / s - 1) / a) for a, f, s in zip(alphas, first, second) if f > 0 and 0 < s < f]
    if len(kept) < 3:
        raise ValueError(f"only {len(kept)} of {len(alphas)} stiffness values have 0 < F² < F¹; the law needs 3")
    x, y = np.log([a for a, _ in kept]), np.log([c for _, c in kept])
    fit = stats.slope(x, y)
    return DepthLaw(
        alphas=tuple(a for a, _ in kept),
        rates=tuple(c for _, c in kept),
        factor=float(np.exp(fit.intercept)),
        exponent=fit.value,
        exponent_stderr=fit.stderr,
        r2=fit.r2,
        left_out=len(alphas) - len(kept),
    )


@dataclass(frozen=True)
class Profile:
    """Active share by layer of a deep network, and the law fitted to it."""

    rate: float  # c
    r2: float  # against the mean; negative when the law is worse than a constant
    front: int | None  # first layer from which on no layer is active (share below 1 %), None without one


def layer_profile(shares: Sequence[float], alpha: float) -> Profile:
    """Least squares of F_l = F_1/(1 + cα)^(l − 1) over the layers.

    >>> p = layer_profile([1 / (1 + 0.02 * 20) ** l for l in range(17)], 20)
    >>> round(p.rate, 4), round(p.r2, 4), p.front
    (0.02, 1.0, 14)
    """
    from scipy.optimize import minimize_scalar

    y = np.asarray(shares, float)
    if y.size < 3 or not np.isfinite(y).all():
        raise ValueError(f"a profile needs at least 3 finite shares, got {y.tolist()}")
    depth = np.arange(y.size)

    def misfit(log_rate: float) -> float:
        return float(((y - y[0] / (1 + np.exp(log_rate) * alpha) ** depth) ** 2).sum())

    found = minimize_scalar(misfit, bounds=(-20, 3), method="bounded", options={"xatol": 1e-10})
    total = float(((y - y.mean()) ** 2).sum())
    open_layers = np.flatnonzero(y > 0.01)
    front = 0 if not open_layers.size else int(open_layers[-1]) + 1
    return Profile(
        float(np.exp(found.x)),
        float(1 - found.fun / total) if total else float("nan"),
        front if front < y.size else None,
    )


def difficulty_features(alpha: Sequence[float], sigma_max: Sequence[float], high_pass: Sequence[bool]) -> np.ndarray:
    """log(α + 1), σ_max, 1_hp, α·1_hp, log(α + 1)·σ_max: one row per problem."""
    a, s, hp = np.asarray(alpha, float), np.asarray(sigma_max, float), np.asarray(high_pass, float)
    return np.stack([np.log1p(a), s, hp, a * hp, np.log1p(a) * s], 1)


@dataclass(frozen=True)
class Clusters:
    """k-means of points at several k."""

    best: int
    silhouettes: dict[int, float]
    labels: tuple[int, ...]  # at the best k


def clusters(points: np.ndarray, ks: Sequence[int] = (2, 3, 4), seed: int = 0) -> Clusters:
    """The number of clusters with the largest silhouette.

    >>> clusters(np.array([[0.0], [0.1], [5.0], [5.1], [9.0], [9.1]])).best
    3
    """
    from sklearn.cluster import KMeans

    x = np.asarray(points, float)
    fits = {k: KMeans(k, n_init=10, random_state=seed).fit_predict(x) for k in ks if k < len(x)}
    scores = {k: stats.silhouette(x, labels) for k, labels in fits.items() if len(np.unique(labels)) > 1}
    if not scores:
        raise ValueError(f"{len(x)} points cannot be split into {', '.join(map(str, ks))} clusters")
    best = max(scores, key=lambda k: scores[k])
    return Clusters(best, scores, tuple(int(v) for v in fits[best]))
