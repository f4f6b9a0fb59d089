"""Rows of a network near its symmetric saddle: rates by degree of the rows' profile, and what a closure leaves out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from netvitals import activations, saddle
from netvitals.saddle.students.network import Stack, ansatz_stack, losses, normalized_rates, project
from netvitals.saddle.students.trajectories import flatten, unflatten

LINE = torch.ones(1, dtype=torch.float64)  # inputs along the teacher suffice: rows stay on it


@dataclass(frozen=True)
class RowModes:
    """One teacher mode, ``width`` units a layer; the state is all weights, flat, in the clock t."""

    activation: str
    depth: int
    width: int
    nodes: int = 48

    @property
    def shapes(self) -> list[tuple[int, int]]:
        n = self.width
        return [(n, 1), *[(n, n)] * (self.depth - 2), (1, n)]

    @property
    def rates(self) -> Tensor:
        n = self.width
        by_layer = zip(self.shapes, normalized_rates(self.depth, n))
        return torch.cat([torch.full((a * b,), n * rate, dtype=torch.float64) for (a, b), rate in by_layer])

    @property
    def profile(self) -> Tensor:
        """Standardised Gaussian quantiles: the labels of the units, with mean 0 and variance 1."""
        from scipy.stats import norm

        x = torch.tensor(norm.ppf((np.arange(self.width) + 0.5) / self.width))
        return (x - x.mean()) / x.std(correction=0)

    def loss(self, flat: Tensor) -> Tensor:
        f = activations.get(self.activation)
        g, w = activations.gauss_hermite(self.nodes)
        return losses(unflatten(flat[None], self.shapes), g[:, None], f(g)[:, None], f, w)[0]

    def state(self, eps: float, rows: dict[int, Tensor], columns: dict[int, Tensor] | None = None) -> Tensor:
        """Balanced at ε, with rows or columns of some layers (from 0) multiplied by 1 + the given profile."""
        stack = ansatz_stack(torch.full((self.depth,), eps, dtype=torch.float64), self.width, LINE)
        for i, x in rows.items():
            stack[i] = stack[i] * (1 + x)[None, :, None]
        for i, x in (columns or {}).items():
            stack[i] = stack[i] * (1 + x)[None, None, :]
        return flatten(stack)[0]

    def mean_drift(self, flat: Tensor) -> Tensor:
        """Velocities of the scalars of the symmetric network nearest to a state."""
        velocity = -self.rates * torch.func.grad(self.loss)(flat)
        return project(unflatten(velocity[None], self.shapes), LINE)[0][0]

    def by_degree(self, flat: Tensor) -> tuple[Tensor, Tensor]:
        """The Jacobian in the basis of polynomials of the units' labels, and the degree of every coordinate."""
        n = self.width
        one = torch.linalg.qr(torch.stack([self.profile**p for p in range(n)], 1))[0]
        two = torch.kron(one, one)
        basis = torch.block_diag(one, *[two] * (self.depth - 2), one)
        d = torch.arange(n)
        square = torch.maximum(d[:, None], d[None]).flatten()
        root = self.rates.sqrt()
        jacobian = -(root[:, None] * torch.func.hessian(self.loss)(flat) * root)
        return basis.T @ jacobian @ basis, torch.cat([d, *[square] * (self.depth - 2), d])


def rates_by_degree(config: dict) -> dict:
    """λ_K of the truncations to degree K, and the rate of what is centred within the block."""
    modes = RowModes(config["activation"], config["depth"], config["width"])
    spread = config["spread"] * modes.profile
    jacobian, degree = modes.by_degree(modes.state(config["eps"], dict.fromkeys(range(config["depth"] - 1), spread)))
    lead = lambda keep: float(torch.linalg.eigvalsh(jacobian[keep][:, keep])[-1])
    rates = [lead(degree <= k) for k in range(min(6, config["width"]))]
    unit = saddle.drive(config["activation"], config["depth"], config["width"]).k * config["eps"] ** (
        config["depth"] - 2
    )
    return {
        "rates": [r / unit for r in rates],
        "centred rate": lead(degree >= 1) / unit,
        "coupling": float(jacobian[degree == 0][:, degree > 0].abs().max()) / rates[0],
    }


def residuals(config: dict) -> dict:
    """Relative change of the mean drift by what a closure drops, at ε: variance, kurtosis, and joint moments."""
    modes, n, eps = RowModes(config["activation"], config["depth"], config["width"]), config["width"], config["eps"]
    if n % 12:
        raise ValueError(f"the two- and three-point rows need a width that 12 divides, got {n}")
    none = torch.zeros(n, dtype=torch.float64)
    two = 0.5 * torch.tensor([-1.0, 1.0] * (n // 2), dtype=torch.float64)
    six = n // 6  # the same mean, variance and skewness, three times the fourth moment
    three = 0.5 * 3**0.5 * torch.cat([-torch.ones(n // 12 * 2), torch.zeros(n - 2 * six), torch.ones(six)]).double()
    drift: Callable[..., Tensor] = lambda x, y=None: modes.mean_drift(
        modes.state(eps, {0: x}, None if y is None else {1: y})
    )
    apart = lambda a, b: float((a / b - 1).abs().max())
    both = 0.5 * modes.profile
    return {
        "variance": apart(drift(two), drift(none)),
        "fourth moment": apart(drift(three), drift(two)),
        "joint": apart(drift(both, both), drift(none)),
    }


def symmetric_start(eps: float, depth: int, width: int, inputs: int, spread: float, seed: int) -> Stack:
    """The symmetric network with a random spread over the rows of its first layer."""
    v = torch.zeros(inputs, dtype=torch.float64)
    v[0] = 1
    stack = ansatz_stack(torch.full((depth,), eps, dtype=torch.float64), width, v)
    x = torch.randn(width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    stack[0] = stack[0] * (1 + spread * (x - x.mean()) / x.std(correction=0))[None, :, None]
    return stack
