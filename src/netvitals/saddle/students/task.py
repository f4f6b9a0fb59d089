r"""Teacher–student tasks of the theory: orthonormal teacher directions, Gaussian inputs, exact small samples.

$y=\sum_k\beta_k\sigma(v_k^\top x)$, $x\sim N(0,I_d)$, loss $\tfrac12E(f-y)^2$.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from netvitals.saddle.laws.drives import resolve


@dataclass(frozen=True)
class Sample:
    """Inputs (n, d) and their weights (n,), which sum to 1: a finite stand-in for the Gaussian."""

    x: Tensor
    weight: Tensor

    def mean(self, values: Tensor) -> Tensor:
        """Weighted mean over the sample dimension, the last but one of ``values`` (..., n, k)."""
        return (values * self.weight[:, None]).sum(-2)


@dataclass(frozen=True)
class Teacher:
    """A single-hidden-layer teacher with orthonormal directions, rows of ``directions`` (K, d).

    Returned by :func:`teacher`.

    Attributes:
        f: the activation of its units.
        directions: (K, d), orthonormal rows.
        betas: (K,), strength of each mode.
    """

    f: Callable[[Tensor], Tensor]
    directions: Tensor
    betas: Tensor

    @property
    def inputs(self) -> int:
        return self.directions.shape[1]

    def target(self, x: Tensor) -> Tensor:
        """y for inputs ``x`` (..., d): shape (..., 1)."""
        modes = self.f(x @ self.directions.to(x.dtype).T)
        return (modes * self.betas.to(x.dtype)).sum(-1, keepdim=True)

    def batch(
        self, n: int, generator: torch.Generator, *, copies: int | None = None, dtype: torch.dtype = torch.float32
    ) -> tuple[Tensor, Tensor]:
        """``n`` fresh Gaussian inputs drawn from ``generator``, and their targets, in ``dtype``; ``copies`` independent
        batches along a leading axis.
        """
        shape = (n, self.inputs) if copies is None else (copies, n, self.inputs)
        x = torch.randn(shape, generator=generator, dtype=dtype)
        return x, self.target(x)

    @property
    def baseline(self) -> float:
        r"""Loss of the zero network, $\tfrac12E[y^2]$, with Gaussian modes that are independent of each other."""
        from netvitals.activations import expect

        mean, square = expect(self.f), expect(lambda g: self.f(g) ** 2)
        b = self.betas.double()
        return float(0.5 * (square * (b**2).sum() + mean**2 * (b.sum() ** 2 - (b**2).sum())))


def teacher(
    f: str | Callable[[Tensor], Tensor], inputs: int, betas: Sequence[float] = (1.0,), *, seed: int | None = None
) -> Teacher:
    """Make a teacher function with one direction for each strength in ``betas``. The directions are coordinate axes, or
    random if ``seed`` is given.

    Args:
        f: activation, by name or callable.
        inputs: input dimension d.
        betas: strength of each mode; at most d modes.
        seed: seed of random orthonormal directions; without it they are the coordinate axes.

    Returns:
        The teacher, directions (K, d) and strengths (K,) in float64.

    >>> round(teacher("tanh", inputs=16).baseline, 6)
    0.197147
    """
    if len(betas) < 1 or any(b <= 0 for b in betas):
        raise ValueError(f"teacher strengths must be positive, got {tuple(betas)}")
    if len(betas) > inputs:
        raise ValueError(
            f"a teacher with {len(betas)} orthonormal directions needs at least as many input dimensions, got {inputs}"
        )
    v = torch.eye(inputs, dtype=torch.float64)
    if seed is not None:
        g = torch.Generator().manual_seed(seed)
        v = torch.linalg.qr(torch.randn(inputs, inputs, generator=g, dtype=torch.float64))[0]
    return Teacher(resolve(f), v[: len(betas)].clone(), torch.tensor(list(betas), dtype=torch.float64))


def antithetic_sample(n: int, inputs: int, seed: int = 0) -> Sample:
    """n/2 Gaussian points and their mirror images, whitened: mean 0 and second moment I hold exactly."""
    if n < 2 * inputs:
        raise ValueError(f"whitening in {inputs} input dimensions needs at least {2 * inputs} points, got {n}")
    g = torch.Generator().manual_seed(seed)
    half = torch.randn(n // 2, inputs, generator=g, dtype=torch.float64)
    root = torch.linalg.cholesky(half.T @ half / len(half))
    half = torch.linalg.solve_triangular(root, half.T, upper=False).T
    x = torch.cat([half, -half])
    return Sample(x, torch.full((len(x),), 1 / len(x), dtype=torch.float64))


def aligned_sample(direction: Tensor, nodes: int = 24, *, seed: int = 0) -> Sample:
    r"""Exact in the teacher's direction: Gauss–Hermite in $g=v^\top x$ times a whitened mirror-symmetric set across it.

    $E[\sigma(g)x]=h_\sigma v$ holds exactly, so relations of the theory that need Gaussian inputs only through second
    moments across $v$ hold to rounding.
    """
    from netvitals.activations import gauss_hermite

    v = direction.double() / direction.norm()
    g, w = gauss_hermite(nodes)
    d = len(v)
    generator = torch.Generator().manual_seed(seed)
    basis = torch.randn(d, d, generator=generator, dtype=torch.float64)
    basis[:, 0] = v
    q = torch.linalg.qr(basis)[0][:, 1:]  # orthonormal complement of v
    across = (d - 1) ** 0.5 * torch.cat([q.T, -q.T]) if d > 1 else torch.zeros(1, d, dtype=torch.float64)
    x = g[:, None, None] * v + across[None]
    weight = w[:, None].expand(-1, len(across)) / len(across)
    return Sample(x.reshape(-1, d), weight.reshape(-1))
