r"""Quadratic maps $T(v, v)$ from few directions to outputs: have they zeros, and are those two crossing sheets?

$K = \|T(v, v)\|^2$ vanishes nowhere but at 0 (definite), on two subspaces that cross ($T(a + c, a + c) = 2 B(a, c)$
with B zero for no pair), or in a way that needs a resolution of singularities.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_STARTS = 24
MOST = 16  # directions in which zeros are looked for
_ZERO = 1e-9  # of the largest ‖T(v, v)‖ over unit v
_APART = 1e-4  # of the largest ‖B(a, c)‖, below which a pair counts as a zero


@dataclass(frozen=True)
class Sheets:
    """Bases of two subspaces on each of which the form vanishes."""

    first: Tensor  # (s, a)
    second: Tensor  # (s, c)


def defined_below(form: Tensor) -> float:
    """The smallest ‖T(v, v)‖ over unit v, over the largest; 0 where T has a zero."""
    if form.shape[0] > MOST:
        return 0.0
    return float(_minima(form)[0].min())


def sheets_of(form: Tensor, guess: tuple[Tensor, Tensor] | None = None) -> Sheets | None:
    """The two subspaces whose union is the zero set of the form; None where it is not of that kind.

    >>> product = torch.zeros(2, 2, 1, dtype=torch.float64)
    >>> product[0, 1] = product[1, 0] = 0.5
    >>> found = sheets_of(product)
    >>> found.first.shape[1], found.second.shape[1]
    (1, 1)
    """
    s = form.shape[0]
    if s < 2:
        return None
    if guess is not None and (found := _checked(form, *(_span(side.T) for side in guess))) is not None:
        return found
    if s > MOST:
        return None
    values, points = _minima(form)
    big = _largest(form)
    zeros = points[values <= _ZERO]
    if not len(zeros):
        return None
    met = torch.einsum("ijq,i,nj->nq", form, zeros[0], zeros).norm(dim=1) <= 1e-4 * big
    return _checked(form, _span(zeros[met]), _span(zeros[~met]))


def _checked(form: Tensor, first: Tensor | None, second: Tensor | None) -> Sheets | None:
    """The two subspaces, where the form vanishes on each and for no pair."""
    s, big = form.shape[0], _largest(form)
    if first is None or second is None or first.shape[1] + second.shape[1] != s:
        return None
    if int(torch.linalg.matrix_rank(torch.cat([first, second], 1), rtol=1e-4)) != s:
        return None
    own = [float(torch.einsum("ijq,ia,jb->abq", form, b, b).abs().max()) for b in (first, second)]
    cross = torch.einsum("ijq,ia,jb->abq", form, first, second)
    if max(own) > 1e-4 * big or smallest_pair(cross) <= _APART * float(cross.norm(dim=2).max()):
        return None
    return Sheets(first, second)


def terms_apart(form: Tensor) -> bool:
    """Whether T is a sum of squares of single directions into orthogonal outputs: then their ν add."""
    gen = torch.Generator().manual_seed(2)
    weights = torch.randn(form.shape[2], generator=gen, dtype=form.dtype)
    basis = torch.linalg.eigh(form @ weights).eigenvectors
    turned = torch.einsum("ijq,ia,jb->abq", form, basis, basis)
    own = turned.diagonal(dim1=0, dim2=1).T  # (s, q)
    gram = own @ own.T
    off = (gram - torch.diag(gram.diagonal())).abs().max()
    mixed = (turned - torch.einsum("ab,aq->abq", torch.eye(len(own), dtype=form.dtype), own)).abs().max()
    return float(off) <= 1e-6 * float(gram.max()) and float(mixed) <= 1e-6 * float(own.abs().max())


def _largest(form: Tensor) -> float:
    return float(form.norm(dim=2).max().clamp_min(1e-300))


def _minima(form: Tensor) -> tuple[Tensor, Tensor]:
    """‖T(v, v)‖, over the largest entry, and v at the ends of descents from random unit vectors."""
    form = form / _largest(form)
    s = form.shape[0]
    gen = torch.Generator().manual_seed(0)
    v = torch.randn(_STARTS + 4 * s, s, generator=gen, dtype=form.dtype)
    for _ in range(80):  # Gauss–Newton on ‖T(v, v)‖² over the sphere, damped
        v = v / v.norm(dim=1, keepdim=True)
        half = torch.einsum("ijq,nj->niq", form, v)
        value = torch.einsum("niq,ni->nq", half, v)
        jacobian = 2 * half.transpose(1, 2) - 2 * value[:, :, None] * v[:, None, :]
        gradient = torch.einsum("nqi,nq->ni", jacobian, value)
        normal = jacobian.transpose(1, 2) @ jacobian
        damp = (value.norm(dim=1) * 1e-1 + 1e-14)[:, None, None] * torch.eye(s, dtype=form.dtype)
        step = torch.linalg.solve(normal + damp, -gradient[:, :, None])[:, :, 0]
        v = v + step * (0.5 / step.norm(dim=1, keepdim=True).clamp_min(0.5))
    v = v / v.norm(dim=1, keepdim=True)
    value = torch.einsum("ijq,ni,nj->nq", form, v, v).norm(dim=1)
    order = value.argsort()
    return value[order], v[order]


def _span(points: Tensor) -> Tensor | None:
    """An orthonormal basis of what the points span."""
    if not points.numel() or float(points.abs().max()) < 1e-9:
        return None
    _, values, right = torch.linalg.svd(points, full_matrices=False)
    return right[: int((values > 1e-3 * values[0]).sum())].T


def smallest_pair(cross: Tensor) -> float:
    """The smallest ‖B(a, c)‖ over unit a and c, by turns from several starts; ``cross`` is (dim a, dim c, outputs)."""
    gen = torch.Generator().manual_seed(3)
    best = float("inf")
    for _ in range(8):
        c = torch.randn(cross.shape[1], generator=gen, dtype=cross.dtype)
        for _ in range(12):
            a = torch.linalg.svd(torch.einsum("abq,b->qa", cross, c / c.norm()), full_matrices=True)[2][-1]
            _, values, right = torch.linalg.svd(torch.einsum("abq,a->qb", cross, a), full_matrices=True)
            c = right[-1]
        smallest = float(values[-1]) if len(values) == cross.shape[1] else 0.0
        best = min(best, smallest)
    return best
