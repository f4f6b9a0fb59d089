r"""Chains: what a network's linear path does to the teacher's direction, layer by layer.

$A_0=v_1,\ A_j=W_jA_{j-1}$ forward, $B_L=1,\ B_\ell=W_{\ell+1}^\top B_{\ell+1}$ backward. On the plateau the
gradient of the signal is $G_\ell\approx\alpha^{L-1}B_\ell A_{\ell-1}^\top$; its size stays of the
order of $\prod_{m\ne\ell}y_m$, $y_m=\lVert W_m\rVert_{op}$, as long as no chain degenerates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from netvitals.capture import Result
from netvitals.saddle.laws.integration import integrate
from netvitals.saddle.students.network import Stack
from netvitals.saddle.students.trajectories import flatten, unflatten


def path_vectors(w: Stack, v: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """A_0..A_L (forward images of v) and B_1..B_L (backward images of 1), each with one row per copy."""
    forward = [v.double().expand(w[0].shape[0], -1)]
    for m in w:
        forward.append(torch.einsum("coi,ci->co", m, forward[-1]))
    backward = [torch.ones(w[0].shape[0], 1, dtype=torch.float64)]
    for m in reversed(w[1:]):
        backward.append(torch.einsum("coi,co->ci", m, backward[-1]))
    return forward, backward[::-1]


@dataclass(frozen=True, kw_only=True)
class Chains(Result):
    """Norms of all chains over the product of the operator norms on their way: at most 1, and 0 where one degenerates.

    Attributes:
        forward: (copies, L), ‖A_j‖ / Π_{m≤j} ‖W_m‖ for j = 0..L−1.
        backward: (copies, L), ‖B_ℓ‖ / Π_{m>ℓ} ‖W_m‖ for ℓ = 1..L.
        signed: (copies,), W_L⋯W_1 v over the product of all norms; its sign is that of the signal.
        gains: (copies, L), ‖W_m‖.
    """

    forward: Tensor
    backward: Tensor
    signed: Tensor
    gains: Tensor

    @property
    def least(self) -> Tensor:
        """Of every copy, the smallest ratio over all its chains: (copies,)."""
        return torch.cat([self.forward, self.backward], 1).amin(1)

    def __str__(self) -> str:
        low = self.least
        path = f"{float(self.signed.min()):+.3g} to {float(self.signed.max()):+.3g}"
        return (
            f"chains keep {float(low.min()):.3g} to {float(low.max()):.3g} of the product of norms where they are "
            f"weakest ({len(low)} networks); signed path {path}"
        )


def chains(weights: Stack, direction: Tensor) -> Chains:
    r"""$\lVert A_j\rVert/\prod_{m\le j}y_m$ and $\lVert B_\ell\rVert/\prod_{m>\ell}y_m$ of every copy.

    >>> two = [torch.eye(2).expand(1, 2, 2), torch.tensor([[[0.6, 0.8]]])]
    >>> found = chains(two, torch.tensor([1.0, 0.0]))
    >>> [round(float(x), 3) for x in (found.least[0], found.signed[0])]
    [1.0, 0.6]
    """
    w = [m.detach().double() for m in weights]
    gains = torch.stack([torch.linalg.matrix_norm(m, 2) for m in w], 1)
    ahead = torch.cat([torch.ones(len(gains), 1, dtype=torch.float64), gains.cumprod(1)], 1)
    forward, backward = path_vectors(w, direction / direction.norm())
    size = lambda vectors: torch.stack([x.norm(dim=1) for x in vectors], 1)
    behind = ahead[:, -1:] / ahead[:, 1:]  # the product over the layers above
    return Chains(
        forward=size(forward[:-1]) / ahead[:, :-1],
        backward=size(backward) / behind,
        signed=forward[-1][:, 0] / ahead[:, -1],
        gains=gains,
    )


def linear_escape(
    weights: Stack, direction: Tensor, small: int | Sequence[int], *, strength: float = 1.0, growth: float = 1e3
) -> Tensor:
    r"""When $\dot W_\ell=c\,B_\ell A_{\ell-1}^\top$ ($\ell$ small, the others at rest) blows up: escape as ε → 0.

    The flow is homogeneous of degree r − 1 in the small layers, so that the time is
    $\varepsilon^{-(r-2)}$ times a number that depends on the directions of W(0) alone: the prefactor off the manifold.

    >>> x, n = 0.01, 4  # equal gains: x^-(r-2) / (r - 2) with three small layers
    >>> same = [torch.full((1, n, 1), x / n**0.5), torch.full((1, n, n), x / n), torch.full((1, 1, n), x / n**0.5)]
    >>> round(float(linear_escape(same, torch.ones(1), 3)) * x, 4)
    1.0
    """
    layers = sorted(range(small) if isinstance(small, int) else small)
    r = len(layers)
    if r < 3:
        raise ValueError(
            f"linear_escape needs at least 3 small layers, got {r}: with fewer, the escape time is not a power of the "
            "scale"
        )
    start = [w.detach().double() for w in weights]
    v = direction.double() / direction.norm()
    shapes = [(start[i].shape[1], start[i].shape[2]) for i in layers]
    scale = torch.stack([torch.linalg.matrix_norm(start[i], 2) for i in layers]).amax(0)

    def velocities(x: Tensor, rows: Tensor) -> list[Tensor]:
        now = [m[rows] for m in start]
        for i, m in zip(layers, unflatten(x, shapes)):
            now[i] = m
        forward, backward = path_vectors(now, v)
        return [strength * backward[i][:, :, None] * forward[i][:, None, :] for i in layers]

    def field(x: Tensor, rows: Tensor) -> Tensor:  # in units in which the largest small layer is 1
        unit = scale[rows, None]
        return flatten(velocities(x * unit, rows)) / unit ** (r - 1)

    def margins(x: Tensor, rows: Tensor) -> Tensor:
        largest = torch.stack([torch.linalg.matrix_norm(m, 2) for m in unflatten(x, shapes)]).amax(0)
        return (largest.log() - math.log(growth))[:, None]

    x0 = flatten([start[i] for i in layers]) / scale[:, None]
    paths = integrate(field, x0, events=margins, rtol=1e-7, atol=1e-9, method="rk45", keep=False)
    end, rows = paths.event_x[:, 0], torch.arange(len(x0))
    pieces, speed = unflatten(end, shapes), unflatten(field(end, rows), shapes)
    size = torch.stack([m.flatten(1).norm(dim=1) for m in pieces]).square().sum(0)  # all small layers together
    pull = torch.stack([(m * s).sum((1, 2)) for m, s in zip(pieces, speed)]).sum(0)
    rest = size / ((r - 2) * pull)  # of a power law: m / ((r − 2) dm/dt)
    return (paths.event_t[:, 0] + rest) / scale ** (r - 2)
