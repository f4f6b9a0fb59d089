r"""How outputs become a statistical model: the Fisher form of an output tangent, and the KL divergence of two outputs.

With outputs $f_\theta(x)$ of shape (n, d), both are means over the n inputs; the expectation over labels is exact (the
*expected*, population Fisher), or over labels drawn from the model (*monte-carlo*), or over given labels
(*empirical*). Rates need the expected one; the empirical one equals it only where the model is well specified
(dead-directions §2.5).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Likelihood(Protocol):
    """What a custom likelihood must offer; both return one number."""

    @property
    def name(self) -> str: ...

    def fisher(self, outputs: Tensor, tangent: Tensor) -> Tensor: ...

    def kl(self, truth: Tensor, outputs: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Gaussian:
    r"""$p(y|x) = N(f, \sigma^2 I)$: $v^\top F v = E\|Jv\|^2/\sigma^2$, $K = E\|f - f_0\|^2/2\sigma^2$."""

    sigma: float = 1.0
    name: str = "gaussian, expected Fisher"

    def fisher(self, outputs: Tensor, tangent: Tensor) -> Tensor:
        return tangent.square().flatten(1).sum(1).mean() / self.sigma**2

    def kl(self, truth: Tensor, outputs: Tensor) -> Tensor:
        return (outputs - truth).square().flatten(1).sum(1).mean() / (2 * self.sigma**2)


@dataclass(frozen=True)
class Categorical:
    r"""$p(y|x) = \mathrm{softmax}(f)$ over the last dimension: $v^\top F v = E\,\mathrm{Var}_p(Jv)$."""

    name: str = "categorical, expected Fisher"

    def fisher(self, outputs: Tensor, tangent: Tensor) -> Tensor:
        p = outputs.softmax(-1)
        centred = tangent - (p * tangent).sum(-1, keepdim=True)  # a shift of all logits carries no information
        return _per_sample(p * centred.square())

    def kl(self, truth: Tensor, outputs: Tensor) -> Tensor:
        # log E_p[e^d] − E_p[d] with the mean of d = outputs − truth taken out: exact to rounding however small K is
        p, d = truth.softmax(-1), outputs - truth
        d = d - (p * d).sum(-1, keepdim=True)
        series = d.square() / 2 * (1 + d / 3 * (1 + d / 4 * (1 + d / 5)))
        beyond = torch.where(d.abs() < 1e-2, series, torch.expm1(d) - d)  # e^d − 1 − d
        return _per_sample(torch.log1p((p * beyond).sum(-1, keepdim=True)))


@dataclass(frozen=True)
class Labelled:
    r"""Fisher from given or sampled labels: $E[(\partial_v \log p(y|x))^2]$; the estimator is named on every result."""

    logp: Callable[[Tensor, Tensor], Tensor]  # (outputs, labels) → per-sample log-likelihood
    labels: Tensor
    name: str = "empirical Fisher"

    def fisher(self, outputs: Tensor, tangent: Tensor) -> Tensor:
        score = torch.func.jvp(lambda o: self.logp(o, self.labels), (outputs,), (tangent,))[1]
        return score.square().mean()

    def kl(self, truth: Tensor, outputs: Tensor) -> Tensor:
        return (self.logp(truth, self.labels) - self.logp(outputs, self.labels)).mean()


def monte_carlo(outputs: Tensor, family: str = "categorical", sigma: float = 1.0, seed: int = 0) -> Labelled:
    """Labels drawn once from the model at ``outputs``."""
    generator = torch.Generator(outputs.device).manual_seed(seed)
    if family == "categorical":
        labels = torch.multinomial(outputs.softmax(-1), 1, generator=generator).squeeze(1)
        return Labelled(lambda o, y: o.log_softmax(-1).gather(1, y[:, None]).squeeze(1), labels, "monte-carlo Fisher")
    noise = torch.randn(outputs.shape, generator=generator, dtype=outputs.dtype, device=outputs.device)
    return Labelled(
        lambda o, y: -(o - y).square().flatten(1).sum(1) / (2 * sigma**2), outputs + sigma * noise, "monte-carlo Fisher"
    )


def get(likelihood: str | Likelihood) -> Likelihood:
    """A likelihood by name, or the one given.

    >>> get("categorical").name
    'categorical, expected Fisher'
    """
    if not isinstance(likelihood, str):
        if hasattr(likelihood, "fisher") and hasattr(likelihood, "kl"):
            return likelihood
        raise TypeError(
            "likelihood= must be an object with methods fisher(outputs, tangent) and kl(truth, outputs), got "
            f"{type(likelihood).__name__}"
        )
    known: dict[str, Likelihood] = {
        "gaussian": Gaussian(),
        "mse": Gaussian(),
        "categorical": Categorical(),
        "ce": Categorical(),
    }
    if likelihood not in known:
        raise ValueError(
            f"there is no likelihood {likelihood!r}; choose one of {', '.join(known)} or pass an object "
            "with fisher(outputs, tangent) and kl(truth, outputs)"
        )
    return known[likelihood]


def _per_sample(values: Tensor) -> Tensor:
    """Sum over classes (and positions), mean over samples."""
    return values.flatten(1).sum(1).mean()
