r"""λ, m and ν of a point of the set of equal models, from its neighbourhood; or the reason why they stay open.

With $g(\theta)$ the change of the outputs, whitened so that $K \asymp \|g\|^2$: $J = g'(\theta_0)$ has rank r and
kernel N. What J can absorb is projected out of the second derivative, which leaves a quadratic map $T$ on N
(dead-directions Theorem 2 (ii): the leading coefficient off the span of the other scores). Directions that T does not
see must be tangent to the fibre of equal models, which is tried by moving along them and solving for the rest. On the
others

- $T$ has no zero: a smooth fibre of order 2, $\lambda = r/2 + s/4$, m = 1;
- $T(a + c) = B(a, c)$ with no zero pair: two sheets cross, $\lambda = (r + \min(\dim a, \dim c))/2$, m = 2 for a tie;
- anything else stays open, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from netvitals.capture import Result
from netvitals.singular.laws.fluctuation import nu
from netvitals.singular.orders.jacobian import Outputs, derivative, second_derivative, solved, whitened
from netvitals.singular.orders.order import KLOrder, kl_order
from netvitals.singular.orders.quadratic import Sheets, defined_below, sheets_of, terms_apart

MOST_PARAMETERS = 1000
MOST_DEGENERATE = 64  # directions of the kernel whose second derivatives are taken, in pairs
_KEPT, _DROPPED = 1e-7, 1e-10  # of the largest singular value of J; what lies between has no clear rank
_FLAT = 1e-7  # of the largest second derivative
_REACH, _FAR = 0.05, 0.4  # of the size of the parameters, how far the fibre is followed
_GROWN = 1e-9  # of the largest singular value: above it a direction has come to life along the fibre


@dataclass(frozen=True, kw_only=True)
class LocalCoefficient(Result):
    """λ, m and ν of one point, or None with the reason in ``why``."""

    lam: float | None
    m: int | None
    nu: float | None  # open at a crossing
    parameters: int
    rank: int  # directions in which the model changes at first order
    fibre: int  # directions along which it does not change at all
    singular: int  # directions in which it changes at a higher order only
    sheets: tuple[int, int] | None = None  # codimensions of two crossing sheets, beyond the rank
    order: int | None = None  # of a smooth singular fibre
    open_cone: bool = False  # of weights that change nothing: shut units
    why: str = ""

    @property
    def resolved(self) -> bool:
        return self.lam is not None

    def __str__(self) -> str:
        if self.lam is None:
            return f"λ not determined, because {self.why}"
        how = (
            f"two sheets of codimension {self.sheets[0]} and {self.sheets[1]} cross"
            if self.sheets
            else "an open cone of weights changes nothing"
            if self.open_cone
            else f"{self.singular} of order {self.order}"
            if self.singular
            else "a regular point"
        )
        nu_text = f"ν = {self.nu:.4g}" if self.nu is not None else "ν not determined"
        fibre = f", {self.fibre} along which nothing changes" if self.fibre else ""
        return f"λ = {self.lam:g}, m = {self.m}, {nu_text} (rank {self.rank} of {self.parameters}{fibre}; {how})"


def local_coefficient(
    outputs: Outputs, theta0: Tensor, likelihood: str = "gaussian", *, sides: tuple[Tensor, Tensor] | None = None
) -> LocalCoefficient:
    r"""λ, m and ν at ``theta0``, the model there being the truth and the prior positive.

    >>> x = torch.linspace(-1, 1, 9, dtype=torch.float64)[:, None]
    >>> print(local_coefficient(lambda th: th[0] * torch.tanh(th[1] * x), torch.zeros(2, dtype=torch.float64)))
    λ = 0.5, m = 2, ν not determined (rank 0 of 2; two sheets of codimension 1 and 1 cross)
    """
    theta0 = theta0.detach().double()
    count = theta0.numel()
    if count > MOST_PARAMETERS:
        return _open(count, why=f"there are {count:,} parameters and ranks are followed up to {MOST_PARAMETERS:,}")
    g, scores = whitened(outputs, theta0, likelihood)
    if scores < count:
        return _open(count, why=f"{count} parameters and only {scores} scores: give more examples")
    j = derivative(g, theta0, torch.eye(count, dtype=torch.float64))
    left, values, right = torch.linalg.svd(j, full_matrices=False)
    scale = float(values[0]) if len(values) else 0.0
    rank = int((values > _KEPT * scale).sum()) if scale > 1e-12 else 0
    if scale > 1e-12 and int((values > _DROPPED * scale).sum()) > rank:
        between = int((values > _DROPPED * scale).sum()) - rank
        return _open(count, rank=rank, why=f"{between} singular values lie between zero and the rest: no clear rank")
    kernel = right[rank:].T
    if rank == count:
        return _found(count, rank, 0, 0, lam=rank / 2, nu_=rank / 2)
    if kernel.shape[1] > MOST_DEGENERATE:
        why = f"{kernel.shape[1]} directions are degenerate at first order, and {MOST_DEGENERATE} can be followed"
        return _open(count, rank=rank, why=why)
    t = second_derivative(g, theta0, kernel, left[:, :rank])
    flat, bent = _split(t, scale)
    along, across = kernel @ flat, kernel @ bent
    form = torch.einsum("ijq,ia,jb->abq", t, bent, bent)
    follow = _Fibre(g, theta0, along, torch.cat([right[:rank].T, across], 1))
    if along.shape[1] and not follow.holds():
        if along.shape[1] == 1 and not across.shape[1]:
            return _single(outputs, theta0, along[:, 0], likelihood, count, rank)
        why = f"{along.shape[1]} directions are neither those of equal models nor seen at second order"
        return _open(count, rank=rank, why=why)
    s, f = across.shape[1], along.shape[1]
    if s == 0:
        return _found(count, rank, f, 0, lam=rank / 2, nu_=rank / 2)
    guess = None if sides is None else tuple(bent.T @ _inside(kernel, side) for side in sides)
    found = sheets_of(form, guess)  # type: ignore[arg-type]
    if found is None and defined_below(form) > 1e-4:
        if f and follow.grows(rank, scale, float(form.norm(dim=2).max())):
            why = f"the rank, {rank} here, grows along {f} flat at second order: no smooth fibre"
            return _open(count, rank=rank, singular=s, why=why)
        nu_ = rank / 2 + s * nu(2) if terms_apart(form) else None
        return _found(count, rank, f, s, lam=rank / 2 + s / 4, nu_=nu_, order=2)
    if found is None or not _ranks_agree(g, theta0, across, follow, found, rank):
        why = f"the second derivative on {s} directions is neither definite nor that of two crossing sheets"
        return _open(count, rank=rank, fibre=f, singular=s, why=why)
    first, second = found.first.shape[1], found.second.shape[1]
    lam, m = (rank + min(first, second)) / 2, 2 if first == second else 1
    return _found(count, rank, f, s, lam=lam, m=m, sheets=(first, second))


@dataclass(frozen=True)
class _Fibre:
    """The set of equal models near a point, followed by moving along and solving for the rest."""

    g: Callable[[Tensor], Tensor]
    theta0: Tensor
    along: Tensor  # (D, f) supposed tangents
    rest: Tensor  # (D, D − f)

    def at(self, move: Tensor, rest: Tensor | None = None, reach: float = _REACH) -> Tensor | None:
        """The point of the fibre above a move; None where there is none."""
        size = max(float(self.theta0.norm()), 1.0) * reach
        start = self.theta0 + size * move / move.norm()
        return solved(self.g, start, self.rest if rest is None else rest, size)

    def points(self, reach: float = _REACH) -> list[Tensor | None]:
        """Points above two generic moves."""
        gen = torch.Generator().manual_seed(0)
        draws = torch.randn(2, self.along.shape[1], generator=gen, dtype=torch.float64)
        return [self.at(self.along @ c, reach=reach) for c in draws]

    def holds(self, reach: float = _REACH) -> bool:
        return all(point is not None for point in self.points(reach))

    def grows(self, rank: int, scale: float, bend: float) -> bool:
        """Whether J has a larger rank at generic points of the fibre; its size is ``scale``, that of g″ ``bend``.

        A point that is solved up to g leaves singular values of about √(bend · g) in the directions of second order.
        """
        for point in (*self.points(), *self.points(_FAR)):
            if point is None:
                continue
            away = float((point - self.theta0).norm())
            values = torch.linalg.svdvals(derivative(self.g, point, torch.eye(len(point), dtype=torch.float64)))
            rounding = 4 * (bend * float(self.g(point).norm())) ** 0.5
            if int((values > _GROWN * max(scale, bend * away) + rounding).sum()) > rank:
                return True
        return False


def _inside(kernel: Tensor, side: Tensor) -> Tensor:
    """Coordinates of the kernel's vectors that lie in the masked parameters, (s, vectors)."""
    _, values, right = torch.linalg.svd(kernel[~side], full_matrices=True)
    rank = int((values > 1e-8).sum())
    return right[rank:].T


def _split(t: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Coordinates of the kernel that the second derivative does not see, and the others."""
    n = t.shape[0]
    u, values, _ = torch.linalg.svd(t.reshape(n, -1), full_matrices=t.shape[2] == 0)
    seen = 0
    if len(values) and float(values[0]) > 1e-9 * max(scale, 1e-6):
        seen = int((values > _FLAT * values[0]).sum())
    return u[:, seen:], u[:, :seen]


def _ranks_agree(
    g: Callable[[Tensor], Tensor], theta0: Tensor, across: Tensor, follow: _Fibre, found: Sheets, rank: int
) -> bool:
    """Anchored rays: on each sheet, away from the other, the rank must have grown by the sheet's codimension."""
    gen = torch.Generator().manual_seed(1)
    for mine, other in ((found.first, found.second), (found.second, found.first)):
        move = across @ mine @ torch.randn(mine.shape[1], generator=gen, dtype=torch.float64)
        basis = across @ mine
        rest = torch.linalg.qr(torch.cat([basis, follow.along], 1), mode="complete")[0]
        rest = rest[:, basis.shape[1] + follow.along.shape[1] :]
        at = follow.at(move, rest)
        if at is None:
            return False
        j = derivative(g, at, torch.eye(len(theta0), dtype=torch.float64))
        _, values, right = torch.linalg.svd(j, full_matrices=True)
        there = int((values > 1e-6 * values[0]).sum())
        if there != rank + other.shape[1]:
            return False
        sheet = _Fibre(g, at, right[there:].T, right[:there].T)
        if sheet.along.shape[1] and not sheet.holds(_REACH / 5):  # as smooth as it was taken for
            return False
    return True


def _single(
    outputs: Outputs, theta0: Tensor, direction: Tensor, likelihood: str, count: int, rank: int
) -> LocalCoefficient:
    """One direction that is not seen at second order: its own order decides."""
    scan: KLOrder = kl_order(outputs, theta0, direction, likelihood)
    k = scan.order
    if k is None or k < 2:
        return _open(count, rank=rank, why=f"along the one degenerate direction {scan.note or 'there is no order'}")
    return _found(count, rank, 0, 1, lam=rank / 2 + 1 / (2 * k), nu_=rank / 2 + nu(k), order=k)


def _found(
    parameters: int,
    rank: int,
    fibre: int,
    singular: int,
    *,
    lam: float,
    m: int = 1,
    nu_: float | None = None,
    sheets: tuple[int, int] | None = None,
    order: int | None = None,
) -> LocalCoefficient:
    return LocalCoefficient(
        lam=lam,
        m=m,
        nu=nu_,
        parameters=parameters,
        rank=rank,
        fibre=fibre,
        singular=singular,
        sheets=sheets,
        order=order,
    )


def _open(parameters: int, rank: int = 0, fibre: int = 0, singular: int = 0, *, why: str) -> LocalCoefficient:
    return LocalCoefficient(
        lam=None, m=None, nu=None, parameters=parameters, rank=rank, fibre=fibre, singular=singular, why=why
    )
