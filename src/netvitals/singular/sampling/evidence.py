r"""What λ, m and ν say of Bayesian learning: free energy, expected losses, WAIC, WBIC.

With S the entropy of the truth and n samples (dead-directions §2.11, β = 1 unless stated):
$F_n = n S_n + \lambda \log n - (m-1)\log\log n$, $E[G_n] = S + \lambda/n$, $E[T_n] = S + (\lambda - 2\nu)/n$.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from netvitals.capture import Result


@dataclass(frozen=True)
class WatanabeTriple(Result):
    """λ, m, ν of one singularity, and what follows from them.

    Attributes:
        lam: learning coefficient λ.
        m: its multiplicity; NaN where it is not known.
        nu: singular fluctuation ν; NaN where it is not known.
        stderr: of a sampled λ; 0 where it was calculated.

    >>> t = WatanabeTriple(lam=0.25, m=1, nu=0.172973)
    >>> round(t.gap(1000), 6)
    0.000346
    """

    lam: float
    m: float = 1
    nu: float = math.nan
    stderr: float = 0.0

    def free_energy(self, n: int, entropy: float = 0.0) -> float:
        r"""$n S + \lambda \log n - (m-1) \log\log n$ without the O(1) term, of ``n`` examples with ``entropy`` S.

        Where m is not known λ was sampled at ``n``, and its own $\lambda \log n$ (WBIC) has the multiplicity in it.
        """
        _count(n)
        if math.isnan(self.m):
            return n * entropy + self.lam * math.log(n)
        return n * entropy + self.lam * math.log(n) - (self.m - 1) * math.log(math.log(n))

    def generalisation(self, n: int, entropy: float = 0.0) -> float:
        """Expected loss on new data, S + λ/n, for ``n`` examples and the ``entropy`` S of an example."""
        return entropy + self.lam / _count(n)

    def training(self, n: int, entropy: float = 0.0) -> float:
        """Expected loss on the training data, S + (λ − 2ν)/n; ``n`` examples, ``entropy`` S of an example."""
        return entropy + (self.lam - 2 * self.nu) / _count(n)

    def gap(self, n: int) -> float:
        """Expected generalisation minus training loss of ``n`` examples: 2ν/n."""
        return 2 * self.nu / _count(n)

    def __str__(self) -> str:
        error = f" ± {self.stderr:.2g}" if self.stderr else ""
        m, nu = (f"{v:.4g}" if math.isfinite(v) else "not known" for v in (self.m, self.nu))
        return f"λ = {self.lam:.4g}{error}, m = {m}, ν = {nu}"


@dataclass(frozen=True)
class WAIC(Result):
    """Training loss, functional variance and their sum, all per sample.

    Returned by :func:`waic`.

    Attributes:
        value: T_n + V_n / n.
        training: T_n, the Bayes training loss.
        functional_variance: V_n, variance of log-likelihoods over draws, summed.
        draws: from the posterior.
        n: examples.
    """

    value: float
    training: float
    functional_variance: float
    draws: int
    n: int

    @property
    def nu(self) -> float:
        """½ V_n, an estimate of the singular fluctuation from one data set."""
        return self.functional_variance / 2

    def __str__(self) -> str:
        return (
            f"WAIC {self.value:.5g} (training {self.training:.5g}, V {self.functional_variance:.4g}, "
            f"{self.draws} draws)"
        )


def waic(log_likelihood: Any) -> WAIC:
    r"""$T_n + V_n/n$ from posterior draws; ``log_likelihood[s, i]`` $= \log p(x_i | w_s)$.

    Args:
        log_likelihood: (draws, samples), two draws or more, in nats.

    Returns:
        WAIC per sample with its two parts, in nats.

    >>> print(waic([[-1.0, -2.0], [-1.0, -2.0]]))
    WAIC 1.5 (training 1.5, V 0, 2 draws)
    """
    from scipy.special import logsumexp

    ll = np.asarray(log_likelihood, dtype=float)
    if ll.ndim != 2 or ll.shape[0] < 2:
        raise ValueError(
            "waic needs log-likelihoods log p(x_i | w_s) of shape (draws, samples) with at least 2 draws, got shape "
            f"{ll.shape}"
        )
    if not np.isfinite(ll).all():
        raise ValueError(
            f"waic got {int((~np.isfinite(ll)).sum())} of {ll.size} log-likelihoods that are NaN or infinite: leave "
            "out diverged draws, and report how many"
        )
    draws, n = ll.shape
    training = -float((logsumexp(ll, axis=0) - math.log(draws)).mean())
    variance = float(ll.var(axis=0, ddof=1).sum())
    return WAIC(value=training + variance / n, training=training, functional_variance=variance, draws=draws, n=n)


def wbic(losses: Any, n: int) -> float:
    r"""WBIC $= n\,E_\beta[L_n(w)]$ over draws at $\beta = 1/\log n$; ``losses[s]`` is draw s's mean loss.

    Args:
        losses: mean loss per sample of each draw, in nats.
        n: samples behind each mean.

    Returns:
        An estimate of the free energy of all n samples, in nats.

    >>> wbic([0.5, 0.7], n=10)
    6.0
    """
    draws = np.asarray(losses, dtype=float)
    if draws.size == 0 or not np.isfinite(draws).all():
        raise ValueError(
            f"wbic needs at least one mean loss, and all must be finite; got {draws.size}: leave out diverged draws"
        )
    return float(_count(n) * draws.mean())


def _count(n: int) -> int:
    if n < 3:
        raise ValueError(f"n= is the number of samples and must be at least 3, got {n}")
    return n
