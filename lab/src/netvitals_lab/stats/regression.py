"""Logistic regression with Wald p-values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from netvitals.stats._sample import finite, numbers


@dataclass(frozen=True)
class Logistic:
    """Coefficients (intercept first), their standard errors, Wald z and two-sided p.

    Returned by :func:`logistic`.

    Attributes:
        coefficients: intercept first.
        stderrs: of the coefficients.
        z: coefficient over standard error.
        p: two-sided, by Wald.
        log_likelihood: at the maximum.
        n: observations.
    """

    coefficients: tuple[float, ...]
    stderrs: tuple[float, ...]
    z: tuple[float, ...]
    p: tuple[float, ...]
    log_likelihood: float
    n: int

    def __str__(self) -> str:
        names = ["intercept"] + [f"x{i}" for i in range(1, len(self.coefficients))]
        return (
            "; ".join(
                f"{name} {c:+.4g} ± {s:.2g} (p = {p:.3g})"
                for name, c, s, p in zip(names, self.coefficients, self.stderrs, self.p)
            )
            + f"; n={self.n}"
        )


def logistic(x: Any, y: Any, *, steps: int = 100) -> Logistic:
    r"""Maximum likelihood of $P[y=1] = 1/(1+e^{-\beta\cdot(1,x)})$ by Newton's method; standard errors from the
    inverse Fisher information $(X^\top \mathrm{diag}(p(1-p)) X)^{-1}$.

    Args:
        x: one number or one row of features per case.
        y: the outcome of each case, zero or one; both must occur.
        steps: Newton steps at most.

    Returns:
        Intercept and coefficients with standard errors and p-values.

    >>> print(logistic([0, 1, 2, 3, 4, 5], [0, 0, 1, 0, 1, 1]))
    intercept -3.035 ± 2.5 (p = 0.233); x1 +1.214 ± 0.91 (p = 0.183); n=6
    """
    from scipy.special import expit
    from scipy.stats import norm

    features, target = numbers(x), numbers(y).reshape(-1)
    features = features.reshape(target.size, -1) if features.size else features
    finite(features, "logistic regression, x")
    if not np.isin(target, (0, 1)).all() or np.ptp(target) == 0:
        raise ValueError("logistic regression: y must hold zeros and ones, and both of them")
    design = np.column_stack([np.ones(target.size), features])
    if np.linalg.matrix_rank(design) < design.shape[1]:
        raise ValueError(
            f"logistic regression: the {design.shape[1] - 1} columns of x are not independent "
            "(a constant column counts as the intercept)"
        )
    beta = np.zeros(design.shape[1])
    for _ in range(steps):
        p = expit(design @ beta)
        information = design.T @ (design * (p * (1 - p))[:, None])
        if np.linalg.cond(information) > 1e14:
            break
        move = np.linalg.solve(information, design.T @ (target - p))
        beta = beta + move
        if np.abs(move).max() <= 1e-10 * (1 + np.abs(beta).max()):
            break
    p = expit(design @ beta)
    if np.abs(target - p).max() < 1e-4 or np.linalg.cond(information) > 1e14:
        raise ValueError(
            "logistic regression: x separates the two outcomes (perfectly or nearly), so the likelihood "
            "has no finite maximum; report the separation itself"
        )
    se = np.sqrt(np.diag(np.linalg.inv(design.T @ (design * (p * (1 - p))[:, None]))))
    z = beta / se
    likelihood = float(-np.logaddexp(0, -(2 * target - 1) * (design @ beta)).sum())
    return Logistic(
        coefficients=tuple(beta.tolist()),
        stderrs=tuple(se.tolist()),
        z=tuple(z.tolist()),
        p=tuple((2 * norm.sf(np.abs(z))).tolist()),
        log_likelihood=likelihood,
        n=target.size,
    )
