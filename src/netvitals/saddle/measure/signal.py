r"""Signal energy: how strongly a network's output already follows the teacher, and what feeds it.

$\gamma=E[fg]$ with $g=v_1^\top x$; $G_\ell=\nabla_{W_\ell}\gamma$, $T=\sum_\ell\lVert G_\ell\rVert_F^2$. Under uniform
gradient flow $\dot\gamma=\beta_1h_\sigma T(1+O(M^2))-S$, where M is the largest operator norm among the small layers;
with $T\ge c'\gamma^{2-2/r}$ this gives the exponent r − 2 without any symmetric ansatz.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from netvitals.capture import Result
from netvitals.saddle.laws.drives import drive
from netvitals.saddle.measure.chains import path_vectors
from netvitals.saddle.students.network import Stack, output
from netvitals.saddle.students.task import Sample, Teacher


@dataclass(frozen=True, kw_only=True)
class SignalEnergy(Result):
    """Signal quantities of a stack of networks; every array has one row per copy."""

    gamma: Tensor  # E[f g]
    energy: Tensor  # T = Σ ‖G_ℓ‖²
    self_interaction: Tensor  # S
    teacher_term: Tensor  # Σ ⟨G_ℓ, E[y δ_ℓ h_{ℓ−1}ᵀ]⟩, equal to β h T (1 + O(M²))
    scale: Tensor  # M = max over small layers of ‖W_ℓ‖_op
    rank_one: Tensor  # (copies, L): ‖G_ℓ − α^{L−1} B_ℓ A_{ℓ−1}ᵀ‖ / ‖G_ℓ‖
    linear_gain: Tensor  # q(W) = W_L … W_1 v_1
    output_norm: Tensor  # √E[f²]
    layer_energy: Tensor  # (copies, L): ‖G_ℓ‖
    h: float
    beta: float
    alpha: float
    r: int

    @property
    def gamma_dot(self) -> Tensor:
        """Exact dγ/ds under uniform gradient flow on this sample (eq. 41)."""
        return self.teacher_term - self.self_interaction

    @property
    def drive_ratio(self) -> Tensor:
        r"""$\dot\gamma/(\beta_1h_\sigma T)$, near 1 on the plateau."""
        return self.gamma_dot / (self.beta * self.h * self.energy)

    @property
    def am_gm(self) -> Tensor:
        r"""$T/|\gamma|^{2-2/r}$, bounded below on the plateau."""
        return self.energy / self.gamma.abs() ** (2 - 2 / self.r)

    @property
    def self_ratio(self) -> Tensor:
        r"""$S/(\gamma T)$, bounded on the plateau (Lemma 10)."""
        return self.self_interaction / (self.gamma * self.energy)

    def __str__(self) -> str:
        shown = {
            "gamma": self.gamma,
            "T": self.energy,
            "S": self.self_interaction,
            "M": self.scale,
            "dgamma/ds over beta h T": self.drive_ratio,
            "T/gamma^(2-2/r)": self.am_gm,
        }
        text = ", ".join(f"{name} {float(value[0]):.4g}" for name, value in shown.items())
        return text + (f" (first of {len(self.gamma)})" if len(self.gamma) > 1 else "")


def stack_signal(
    weights: Stack, task: Teacher, sample: Sample, r: int, *, small: Sequence[int] | None = None
) -> SignalEnergy:
    """Signal energy of networks against the first mode of a teacher."""
    layers = list(range(r)) if small is None else list(small)
    if len(layers) != r or not 1 <= r <= len(weights):
        raise ValueError(
            f"r= must equal the number of small layers and lie between 1 and {len(weights)}, got r = {r} and small = "
            f"{layers}"
        )
    w = [m.detach().double() for m in weights]
    v = task.directions[0]
    g, y, p = sample.x @ v, task.target(sample.x)[:, 0], sample.weight
    d = drive(task.f, len(w), w[0].shape[1], float(task.betas[0]))
    with torch.enable_grad():
        leaves = [m.requires_grad_(True) for m in w]
        f = output(leaves, sample.x, task.f)[..., 0]
        pull = lambda c: torch.autograd.grad(f, leaves, (p * c).expand_as(f), retain_graph=True)
        big_g, by_y, by_f = pull(g), pull(y), pull(f.detach())
    f = f.detach()
    w = [m.detach() for m in w]
    dot = lambda a, b: torch.stack([(x * y).sum((1, 2)) for x, y in zip(a, b)]).sum(0)
    forward, backward = path_vectors(w, v)
    rank_one = []
    for ell, full in enumerate(big_g):
        outer = d.slope ** (len(w) - 1) * backward[ell][:, :, None] * forward[ell][:, None, :]
        rank_one.append((full - outer).flatten(1).norm(dim=1) / full.flatten(1).norm(dim=1))
    return SignalEnergy(
        gamma=(f * g * p).sum(1),
        energy=dot(big_g, big_g),
        self_interaction=dot(big_g, by_f),
        teacher_term=dot(big_g, by_y),
        scale=torch.stack([torch.linalg.matrix_norm(w[i], 2) for i in layers]).amax(0),
        rank_one=torch.stack(rank_one, 1),
        linear_gain=forward[-1][:, 0],
        output_norm=(f.square() * p).sum(1).sqrt(),
        layer_energy=torch.stack([m.flatten(1).norm(dim=1) for m in big_g], 1),
        h=d.h,
        beta=float(task.betas[0]),
        alpha=d.slope,
        r=r,
    )


def signal_margins(
    task: Teacher, sample: Sample, r: int, *, gammas: Sequence[float] = (), scales: Sequence[float] = ()
) -> Callable[[Stack], Tensor]:
    r"""Detectors for :func:`~netvitals.saddle.students.trajectories.flow`: $\gamma$ and M as they pass given levels."""
    g = sample.x @ task.directions[0].to(sample.x)

    def margins(weights: Stack) -> Tensor:
        seen = []
        if gammas:
            gamma = (output(weights, sample.x, task.f)[..., 0] * g * sample.weight).sum(1)
            seen += [gamma / level - 1 for level in gammas]
        if scales:
            m = torch.stack([torch.linalg.matrix_norm(w, 2) for w in weights[:r]]).amax(0)
            seen += [m.log() - math.log(level) for level in scales]
        return torch.stack(seen, 1)

    return margins


@dataclass(frozen=True)
class Nondegeneracy(Result):
    """How often the linear path from input to output starts near zero, over seeds."""

    ratios: np.ndarray  # √N · W_L⋯W_1v / (product of path gains), one per seed
    positive: float  # share of seeds with a positive start (erratum E18: the sign is a random event)

    def probability(self, eta: float) -> float:
        """Share of seeds whose ratio is below ``eta`` in size; at most C·eta when the density is bounded at 0."""
        return float((np.abs(self.ratios) < eta).mean())

    def density_at_zero(self, eta: float = 0.25) -> tuple[float, float]:
        """Density of the ratio at 0 and its standard error; a unit Gaussian has 0.399."""
        p, n = self.probability(eta), len(self.ratios)
        return p / (2 * eta), math.sqrt(p * (1 - p) / n) / (2 * eta)

    def __str__(self) -> str:
        d, e = self.density_at_zero()
        return f"density at 0: {d:.3f} ± {e:.3f} over {len(self.ratios)} seeds, {100 * self.positive:.0f} % positive"


def nondegeneracy(weights: Stack, direction: Tensor) -> Nondegeneracy:
    """Distribution of the linear path gain at initialisation, one copy per seed."""
    w = [m.detach().double() for m in weights]
    forward, _ = path_vectors(w, direction / direction.norm())
    scale = forward[-2].norm(dim=1) * w[-1].flatten(1).norm(dim=1)
    ratio = math.sqrt(w[-1].shape[2]) * forward[-1][:, 0] / scale
    return Nondegeneracy(ratio.numpy(), float((ratio > 0).double().mean()))


@dataclass(frozen=True)
class Bracket(Result):
    """Two-sided bound on the escape time of a trajectory from comparison equations."""

    lower: float
    upper: float

    def __str__(self) -> str:
        return f"escape between s = {self.lower:.4g} and {self.upper:.4g}"


def comparison(v0: float, c: float, r: int, t: float | np.ndarray) -> float | np.ndarray:
    r"""Solution of $\dot V=cV^{r-1}$: $[V_0^{-(r-2)}-c(r-2)t]^{-1/(r-2)}$, $V_0e^{ct}$ (r = 2), $V_0+ct$ (r = 1)."""
    if r == 1:
        return v0 + c * np.asarray(t)
    if r == 2:
        return v0 * np.exp(c * np.asarray(t))
    inner = v0 ** -(r - 2) - c * (r - 2) * np.asarray(t, float)
    return np.where(inner > 0, np.maximum(inner, 1e-300) ** (-1 / (r - 2)), np.inf)


def exit_time(v0: float, c: float, r: int, level: float) -> float:
    r"""When the solution of :func:`comparison` reaches ``level``."""
    if level <= v0:
        return 0.0
    if r == 1:
        return (level - v0) / c
    if r == 2:
        return math.log(level / v0) / c
    return (v0 ** -(r - 2) - level ** -(r - 2)) / (c * (r - 2))


def bracket(scale0: float, gamma0: float, growth: float, feed: float, r: int, level: float) -> Bracket:
    r"""Lower bound from $D^+M\le CM^{r-1}$, upper bound from $\dot\gamma\ge cc'\gamma^{2-2/r}$."""
    lower = exit_time(scale0, growth, r, level)
    upper = r / (feed * (r - 2)) * gamma0 ** (-(r - 2) / r) if r > 2 else math.inf
    return Bracket(lower, upper)
