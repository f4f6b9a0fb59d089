r"""Directions in which a network may move without changing what it does on an old task, and would learn a new one.

At θ the old task's Fisher form has a kernel. Part of it is *tangential*: $K(\theta + s u) = 0$, the old model stays
what it is. The rest is *transversal*: the Fisher form is zero at θ only, and the model changes at order $s^{2k}$.
A safe direction is tangential for the old task and not for the new one (dead-directions Remark 6). Kernel vectors mix
the two kinds, so safe ones are found as zeros of K on the kernel's unit sphere. Where sheets of the fibre cross, a sum
of two safe directions need not be safe; directions are therefore gathered into spaces in which every sum is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import vmap

from netvitals.capture import (
    LossFn,
    Only,
    Result,
    check_finite,
    in_double,
    inputs_of,
    likelihood_of,
    one_screen,
    picked,
    undisturbed,
)
from netvitals.singular.orders import likelihood as likelihoods
from netvitals.singular.orders.fibre import subfamily
from netvitals.singular.orders.likelihood import Likelihood
from netvitals.singular.orders.nature import along_task
from netvitals.singular.orders.order import Outputs
from netvitals.singular.orders.spectrum import DENSE_LIMIT, fisher_spectrum, score_rows

_KERNEL = 1e-12  # eigenvalue over the largest that counts as zero
_STEPS = 60  # Gauss–Newton steps towards a zero of K; at a zero of order k the error shrinks by 1 − 1/k in each
_STARTS = 3  # from so many places: K has local minima on the sphere
_SUMS = 16  # random vectors of a space on which its safety is measured


@dataclass(frozen=True)
class SafeSpace(Result):
    """A linear space of directions, each safe for the old task."""

    basis: Tensor  # (D, n) orthonormal; the most useful for the new task first
    drift: float  # largest K of the old task over random vectors of length reach in it, relative
    useful: tuple[float, ...]  # the new task's Fisher form along each, over its largest eigenvalue

    @property
    def dimension(self) -> int:
        return self.basis.shape[1]

    def turned(self, outputs: Outputs, theta: Tensor, likelihood: str | Likelihood = "gaussian") -> Tensor:
        """Fisher eigenvalues of the space at a later θ, over the largest there, descending.

        A value that was zero and no longer is: a tangential direction has become transversal.
        """
        whole = fisher_spectrum(outputs, theta, likelihood)[0][-1]
        inside = fisher_spectrum(
            subfamily(outputs, theta.double(), self.basis), torch.zeros(self.dimension, dtype=torch.float64), likelihood
        )[0]
        return inside.flip(0) / whole.clamp_min(torch.finfo(torch.float64).tiny)

    def __str__(self) -> str:
        words = (
            f", the new task's Fisher form along it up to {max(self.useful):.2g} of its largest" if self.useful else ""
        )
        return f"{self.dimension} directions, the old task changes by {self.drift:.1e} of the steepest{words}"


@dataclass(frozen=True, kw_only=True)
class SafeDirections(Result):
    """The safe spaces of an old task, the most useful or the largest first.

    Returned by :func:`safe_directions`.

    Attributes:
        spaces: each with a basis and how far it is safe.
        kernel: dimension of the kernel of the old task's Fisher form.
        singular: so many of it are transversal: zero now, not along the way.
        parameters: how many take part.
        reach: how far along a direction the old model was checked.
        names: of the parameters that the directions move, in order.
    """

    spaces: tuple[SafeSpace, ...]
    kernel: int
    singular: int
    parameters: int
    reach: float
    names: tuple[str, ...] = ()

    @property
    def best(self) -> SafeSpace:
        if not self.spaces:
            raise ValueError(
                f"there is no direction that leaves the old task unchanged: {self}; choose more parameters with only="
            )
        return self.spaces[0]

    def __str__(self) -> str:
        if not self.kernel:
            return f"no safe direction: the Fisher form of the old task has full rank {self.parameters}"
        head = (
            f"{self.kernel} of {self.parameters} directions have no Fisher information on the old task; "
            f"{self.kernel - self.singular} are tangential, {self.singular} singular"
        )
        if len(self.spaces) > 1:
            head += f"; {len(self.spaces)} spaces that must not be mixed (sheets cross here)"
        return one_screen([head, *(f"  {s}" for s in self.spaces)])


@undisturbed
def safe_directions(
    model: nn.Module,
    loss_fn: LossFn,
    batch: Any,
    *,
    only: Only = None,
    seed: int = 0,
    new: Any = None,
    reach: float = 1.0,
    tolerance: float = 1e-8,
) -> SafeDirections:
    """Find parameter directions that do not change the outputs on an old task, sorted by their effect on a new task.

    Args:
        model: the model; a copy of it in float64 is run, in eval mode.
        loss_fn: "ce", "mse", or one of torch's losses of that kind; it fixes the likelihood.
        batch: data of the old task, as a data loader yields it; a target is not used.
        only: names or patterns of parameters, or a function of a name; together at most 2,000 numbers.
        seed: seed of the random starting points of the search.
        new: a batch of the new task; without it directions are not ranked.
        reach: how far the model will move; K is measured there, not at θ.
        tolerance: K at reach, over that along the steepest direction, that still counts as unchanged.

    Returns:
        The subspaces of such directions; ``names`` lists the parameters in the order of the rows of each basis.

    >>> net = nn.Linear(3, 1, bias=False)
    >>> x = torch.eye(3)[:2]
    >>> safe_directions(net, "mse", x).best.basis[:, 0].abs().round(decimals=4).tolist()
    [0.0, 0.0, 1.0]
    """
    given = inputs_of(model, batch)
    kind = likelihood_of(loss_fn, given.targets[0] if given.targets else None)
    check_finite((given.args, dict(given.kwargs)), "the batch")
    old = in_double(given)
    old.model.eval()
    known = dict(old.model.named_parameters())
    moved = {n: known[n].detach() for n in picked(known, only, "parameter")}
    if not moved:
        raise ValueError(
            f"only= selects none of the {len(known)} parameters of {type(model).__name__}: give other names or patterns"
        )
    outputs, theta, _ = along_task(old, moved)
    ahead = None
    if new is not None:
        ahead = along_task(replace(in_double(inputs_of(model, new)), model=old.model), moved)[0]
    family = {"ce": "categorical", "mse": "gaussian"}[kind]
    found = safe_spaces(outputs, theta, new=ahead, likelihood=family, reach=reach, tolerance=tolerance, seed=seed)
    return replace(found, names=tuple(moved))


def safe_spaces(
    outputs: Outputs,
    theta: Tensor,
    *,
    new: Outputs | None = None,
    likelihood: str | Likelihood = "gaussian",
    reach: float = 1.0,
    tolerance: float = 1e-8,
    seed: int = 0,
) -> SafeDirections:
    """The same for a model that is given as a function of its parameters.

    >>> f = lambda th: torch.stack([th[0] + th[1], th[2] ** 2])[None]
    >>> found = safe_spaces(f, torch.zeros(3, dtype=torch.float64))
    >>> found.kernel, found.singular, found.best.basis[:, 0].abs().round(decimals=4).tolist()
    (2, 1, [0.7071, 0.7071, 0.0])
    """
    if theta.ndim != 1 or not 0 < theta.numel() <= DENSE_LIMIT:
        raise ValueError(
            "finding the directions that do not change the old task needs all eigenvalues of its Fisher matrix, so "
            f"theta= must be a flat vector of at most {DENSE_LIMIT} parameters, got shape {tuple(theta.shape)}; for "
            "larger models use tangential_lora"
        )
    if not (reach > 0 and 0 < tolerance < 1):
        raise ValueError(
            f"reach= must be positive and tolerance= must lie between 0 and 1, got {reach} and {tolerance}"
        )
    theta, family = theta.double(), likelihoods.get(likelihood)
    truth = outputs(theta)
    if not torch.isfinite(truth).all():
        raise ValueError("the outputs at theta contain NaN or infinity: check the data and the parameters")
    values, vectors = fisher_spectrum(outputs, theta, family)
    dead = values <= _KERNEL * values[-1]
    kernel, gen = vectors[:, dead], torch.Generator().manual_seed(seed)
    inside = subfamily(outputs, theta, reach * kernel)
    size = _steepest(outputs, theta, truth, family, float(values[-1]), reach, gen)

    def drift(u: Tensor) -> Tensor:
        return vmap(lambda v: family.kl(truth, inside(v)))(u).abs() / size

    found: list[Tensor] = []
    while len(found) < kernel.shape[1]:
        u = _zero(inside, truth, family, kernel.shape[1], found, gen)
        if float(drift(u[None])) > tolerance:
            break
        found.append(u)
    groups: list[list[Tensor]] = []
    for u in found:
        home = next((g for g in groups if bool((drift((torch.stack(g) + u) / 2**0.5) <= tolerance).all())), None)
        groups.append([u]) if home is None else home.append(u)
    spaces = [_space(torch.linalg.qr(torch.stack(g, 1))[0], kernel, drift, new, theta, family, gen) for g in groups]
    spaces.sort(key=lambda s: (-sum(s.useful), -s.dimension))
    return SafeDirections(
        spaces=tuple(spaces),
        kernel=kernel.shape[1],
        singular=kernel.shape[1] - len(found),
        parameters=theta.numel(),
        reach=reach,
    )


def _steepest(
    outputs: Outputs,
    theta: Tensor,
    truth: Tensor,
    family: Likelihood,
    largest: float,
    reach: float,
    gen: torch.Generator,
) -> float:
    """K at reach along the steepest direction; where the whole Fisher form vanishes, along random ones."""
    tries = torch.randn(_SUMS, theta.numel(), generator=gen, dtype=torch.float64)
    tries = reach * tries / tries.norm(dim=1, keepdim=True)
    seen = vmap(lambda v: family.kl(truth, outputs(theta + v)))(tries)
    return max(largest * reach**2 / 2, float(seen.max()), torch.finfo(torch.float64).tiny)


def _zero(
    inside: Outputs, truth: Tensor, family: Likelihood, size: int, found: list[Tensor], gen: torch.Generator
) -> Tensor:
    """A minimum of K on the unit sphere of the kernel, orthogonal to those already found, by Gauss–Newton."""
    best, least = None, float("inf")
    for _ in range(_STARTS if size - len(found) > 1 else 1):
        u = _rest(found, size) @ torch.randn(size - len(found), generator=gen, dtype=torch.float64)
        u = u / u.norm()
        gap = float(family.kl(truth, inside(u)).abs())
        for _ in range(_STEPS if size - len(found) > 1 else 0):
            free = _rest([*found, u], size)  # moves along the sphere; without that u = 0 would be the answer
            residual = _difference(inside(u), truth, family)
            rows = score_rows(inside, u, family) @ free
            step = free @ torch.linalg.lstsq(rows, -residual, driver="gelsd").solution[:, 0]
            tries = u + 0.5 ** torch.arange(6, dtype=torch.float64)[:, None] * step
            tries = tries / tries.norm(dim=1, keepdim=True)
            gaps = vmap(lambda w: family.kl(truth, inside(w)))(tries).abs()
            if not float(gaps.min()) < gap:
                break
            u, gap = tries[int(gaps.argmin())], float(gaps.min())
        if gap < least:
            best, least = u, gap
    assert best is not None
    return best


def _rest(taken: list[Tensor], size: int) -> Tensor:
    """Orthonormal complement of the vectors taken."""
    if not taken:
        return torch.eye(size, dtype=torch.float64)
    return torch.linalg.qr(torch.stack(taken, 1), mode="complete")[0][:, len(taken) :]


def _difference(out: Tensor, truth: Tensor, family: Likelihood) -> Tensor:
    """Outputs minus truth in the likelihood's metric, as a column."""
    return score_rows(lambda a: out + a * (out - truth), torch.zeros(1, dtype=torch.float64), family).reshape(-1, 1)


def _space(
    coordinates: Tensor,
    kernel: Tensor,
    drift: Callable[[Tensor], Tensor],
    new: Outputs | None,
    theta: Tensor,
    family: Likelihood,
    gen: torch.Generator,
) -> SafeSpace:
    sums = torch.randn(_SUMS, coordinates.shape[1], generator=gen, dtype=torch.float64)
    worst = float(drift((sums / sums.norm(dim=1, keepdim=True)) @ coordinates.T).max())
    basis = kernel @ coordinates
    useful: tuple[float, ...] = ()
    if new is not None:
        most = fisher_spectrum(new, theta, family)[0][-1]
        values, vectors = fisher_spectrum(
            subfamily(new, theta, basis), torch.zeros(basis.shape[1], dtype=torch.float64), family
        )
        basis = basis @ vectors.flip(1)
        useful = tuple(float(v / most) if most > 0 else 0.0 for v in values.flip(0))
    return SafeSpace(basis, worst, useful)
