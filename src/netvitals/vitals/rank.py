r"""Effective rank: how many directions a matrix really uses, in the definitions in use.

With singular values $s_k$, $p_k = s_k / \sum s$ and $q_k = s_k^2 / \sum s^2$:

- ``entropy`` $= \exp(-\sum p_k \ln p_k)$, the default for features;
- ``energy`` $= \exp(-\sum q_k \ln q_k)$, the form used for weights in the weight-drift literature;
- ``stable`` $= \sum s^2 / s_1^2$;
- ``participation`` $= (\sum s^2)^2 / \sum s^4$.

Effective rank does not tell activations apart; it is here to be looked at, not to decide.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from netvitals.capture import LinearView, ParameterView, Recorder, TensorView, Vital

DEFINITIONS = ("entropy", "energy", "stable", "participation")
DROPPED = 1e-10  # shares of the spectrum at or below this count as nothing
ROWS = 512  # features: rows behind the number, evenly strided
WIDEST = 1024  # weights whose smaller side is longer are left out: the cost is cubic


@dataclass(frozen=True)
class EffectiveRank:
    """Effective rank of one matrix; each number lies between 1 and min(shape)."""

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
    """All definitions for one matrix; ``centred`` subtracts the mean row first, as one does with features.

    >>> print(effective_rank(torch.eye(4)))
    effective rank of 4×4: entropy 4.00, energy 4.00, stable 4.00, participation 4.00
    """
    if matrix.ndim < 2:
        raise ValueError(f"expected a matrix, got a tensor of shape {tuple(matrix.shape)}")
    m = matrix.detach().flatten(1)
    values = dict(zip(DEFINITIONS, spectrum_ranks(_squared_spectrum(m, centred)).tolist()))
    return EffectiveRank(**values, shape=(m.shape[0], m.shape[1]))


def spectrum_ranks(squared: Tensor) -> Tensor:
    """The four definitions from squared singular values (last dimension), in the order of ``DEFINITIONS``; NaN for a
    matrix of zeros."""
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


def _squared_spectrum(m: Tensor, centred: bool = False) -> Tensor:
    """Eigenvalues of the smaller Gram matrix; batched over leading dimensions. Double precision, because the square
    of a small singular value is lost in single."""
    m = m.float() if m.device.type == "mps" else m.double()
    if centred:
        m = m - m.mean(-2, keepdim=True)
    gram = m @ m.mT if m.shape[-2] <= m.shape[-1] else m.mT @ m
    broken = ~gram.isfinite().flatten(-2).all(-1)  # a diverged matrix has no rank; the solver would refuse it
    found = torch.linalg.eigvalsh(gram.masked_fill(broken[..., None, None], 0.0))
    return found.masked_fill(broken[..., None], float("nan"))


class Rank(Vital):
    """Effective rank of every weight matrix and of the centred features that enter the last layer (site ``features``).

    A convolution's kernel counts as (out, in × kernel). Each matrix costs an eigendecomposition, and rank changes
    slowly, so it is read on measured steps at least ``min_steps`` training steps apart.
    """

    name = "rank"
    tensors_of = ("norm", "output")

    def __init__(self, min_steps: int = 2000) -> None:
        if min_steps < 1:
            raise ValueError(f"spacing counts training steps and must be 1 or more, got {min_steps}")
        self.min_steps = self.min_steps = min_steps
        self._read_at: int | None = None
        self._features: Tensor | None = None

    def linear(self, recorder: Recorder, view: LinearView) -> None:
        x = view.x
        self._features = x.reshape(-1, x.shape[-1]) if isinstance(view.module, torch.nn.Linear) else None

    def tensor(self, recorder: Recorder, view: TensorView) -> None:
        if view.site.kind == "norm":
            # a head that shares its weights with the embedding is no module: the last norm is what it reads
            value = view.value
            last = view.site.channel_dim in (-1, value.ndim - 1)
            self._features = value.reshape(-1, value.shape[-1]) if last else None
        elif view.site.kind == "output":
            features, self._features = self._features, None
            if features is not None and self._due(recorder) and features.shape[0] > 1 and min(features.shape) <= WIDEST:
                rows = features[:: -(-features.shape[0] // ROWS)]
                recorder.write("features", DEFINITIONS, spectrum_ranks(_squared_spectrum(rows, centred=True)))

    def parameters(self, recorder: Recorder, view: ParameterView) -> None:
        self._features = None
        if not self._due(recorder):
            return
        self._read_at = recorder.step
        shapes: dict[tuple[object, ...], list[str]] = {}
        for name, p in view.params.items():
            if p.ndim >= 2 and p.is_floating_point() and 1 < min(p.shape[0], p[0].numel()) <= WIDEST:
                shapes.setdefault((p.shape[0], p[0].numel(), p.device), []).append(name)
        for names in shapes.values():
            batch = torch.stack([view.params[n].detach().flatten(1) for n in names])
            recorder.write(names, DEFINITIONS, spectrum_ranks(_squared_spectrum(batch)))

    def _due(self, recorder: Recorder) -> bool:
        return self._read_at is None or not 0 < recorder.step - self._read_at < self.min_steps
