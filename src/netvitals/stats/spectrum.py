r"""Effective rank: how many directions a matrix really uses, in the definitions in use.

With singular values $s_k$, $p_k = s_k / \sum s$ and $q_k = s_k^2 / \sum s^2$:

- ``entropy`` $= \exp(-\sum p_k \ln p_k)$, the default for features;
- ``energy`` $= \exp(-\sum q_k \ln q_k)$, the form used for weights in the weight-drift literature;
- ``stable`` $= \sum s^2 / s_1^2$;
- ``participation`` $= (\sum s^2)^2 / \sum s^4$.

Effective rank does not tell activations apart; it is here to be measured, not to decide.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from netvitals._device import double

DEFINITIONS = ("entropy", "energy", "stable", "participation")
DROPPED = 1e-10  # shares of the spectrum at or below this count as nothing


@dataclass(frozen=True)
class EffectiveRank:
    """Effective rank of one matrix; each number lies between 1 and min(shape).

    Returned by :func:`effective_rank`.

    Attributes:
        entropy: exp of the entropy of the singular values.
        energy: the same of their squares.
        stable: sum of squares over the largest.
        participation: squared sum of squares over sum of fourth powers.
        shape: of the matrix.
    """

    entropy: float
    energy: float
    stable: float
    participation: float
    shape: tuple[int, int]

    def __str__(self) -> str:
        return (
            f"effective rank of {self.shape[0]}×{self.shape[1]}: entropy {self.entropy:.2f}, "
            f"energy {self.energy:.2f}, stable {self.stable:.2f}, participation {self.participation:.2f}"
        )


def effective_rank(matrix: Tensor, *, centred: bool = False) -> EffectiveRank:
    """All definitions for one matrix.

    Args:
        matrix: shape (rows, columns); further dimensions, as of a convolution, are flattened into the columns.
        centred: subtract the mean row first, as one does with features.

    Returns:
        Four pure numbers between 1 and min(shape); NaN for a matrix of zeros.

    >>> print(effective_rank(torch.eye(4)))
    effective rank of 4×4: entropy 4.00, energy 4.00, stable 4.00, participation 4.00
    """
    if matrix.ndim < 2:
        raise ValueError(f"expected a matrix with two dimensions, got a tensor of shape {tuple(matrix.shape)}")
    m = matrix.detach().flatten(1)
    values = dict(zip(DEFINITIONS, spectrum_ranks(squared_spectrum(m, centred)).tolist()))
    return EffectiveRank(**values, shape=(m.shape[0], m.shape[1]))


def spectrum_ranks(squared: Tensor) -> Tensor:
    """The four definitions from squared singular values (last dimension), in the order of ``DEFINITIONS``; NaN for a
    matrix of zeros.
    """
    s2 = squared.clamp_min(0)
    s = s2.sqrt()
    energy = s2.sum(-1)
    return torch.stack(
        [_perplexity(s), _perplexity(s2), energy / s2.amax(-1), energy.square() / s2.square().sum(-1)], dim=-1
    )


def _perplexity(weights: Tensor) -> Tensor:
    p = weights / weights.sum(-1, keepdim=True)
    p = torch.where(p > DROPPED, p, torch.where(p.isnan(), p, 0.0))
    return torch.exp(-torch.special.xlogy(p, p).sum(-1))


def squared_spectrum(m: Tensor, centred: bool = False) -> Tensor:
    """Eigenvalues of the smaller Gram matrix; batched over leading dimensions. Double precision, because the square
    of a small singular value is lost in single.
    """
    m = double(m)
    if centred:
        m = m - m.mean(-2, keepdim=True)
    gram = m @ m.mT if m.shape[-2] <= m.shape[-1] else m.mT @ m
    broken = ~gram.isfinite().flatten(-2).all(-1)  # a diverged matrix has no rank; the solver would refuse it
    found = torch.linalg.eigvalsh(gram.masked_fill(broken[..., None, None], 0.0))
    return found.masked_fill(broken[..., None], float("nan"))
