r"""Lanczos with full reorthogonalisation, several starts at once: $Q^\top H Q$ tridiagonal, $Q^\top Q = I$ to rounding.

Without reorthogonalisation converged eigenvalues come back as copies. Here each new vector is cleaned by the three-term
recurrence and then once against all earlier vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

FEW = 16  # starts up to which a loop of matrix-vector products beats a batch of thin matrix products
Apply = Callable[[Tensor], Tensor]  # rows z (R, d) to z H


@dataclass
class Tridiagonal:
    """Diagonal (R, k), off-diagonal (R, k-1), basis (R, k, d) or None, last off-diagonal (R,) of R runs."""

    diagonal: Tensor
    off: Tensor
    basis: Tensor
    last: Tensor

    def ritz(self) -> tuple[Tensor, Tensor]:
        """Eigenvalues (R, k), ascending, and eigenvectors (R, k, k) of the small matrices, in float64."""
        t = torch.diag_embed(self.diagonal)
        if self.off.shape[1]:
            t = t + torch.diag_embed(self.off, 1) + torch.diag_embed(self.off, -1)
        values, vectors = torch.linalg.eigh(t)
        return values, vectors


class Lanczos:
    """A Lanczos process that can be continued; starts (R, d) are normalised here.

    >>> h = torch.diag(torch.arange(1.0, 6.0, dtype=torch.float64))
    >>> run = Lanczos(lambda z: z @ h, torch.ones(1, 5, dtype=torch.float64), most=5)
    >>> run.advance(5)
    >>> [round(v, 9) for v in run.tridiagonal().ritz()[0][0].tolist()]
    [1.0, 2.0, 3.0, 4.0, 5.0]
    """

    def __init__(self, apply: Apply, starts: Tensor, most: int) -> None:
        self.apply = apply
        self.steps = 0
        runs, d = starts.shape
        self.most = min(most, d)
        self.basis = torch.empty(runs, self.most, d, dtype=starts.dtype, device=starts.device)
        self.diagonal = torch.zeros(runs, self.most, dtype=torch.float64)
        self.off = torch.zeros(runs, self.most, dtype=torch.float64)
        self.next = starts / starts.norm(dim=1, keepdim=True)
        self._over = [False] * runs
        self._scale = [0.0] * runs  # the largest number of each run so far
        self._beta = torch.zeros(runs, dtype=starts.dtype, device=starts.device)

    def advance(self, steps: int) -> None:
        """Take more steps, at most up to the size of the basis."""
        small, least = 10 * torch.finfo(self.next.dtype).eps, torch.finfo(self.next.dtype).tiny
        for _ in range(min(steps, self.most - self.steps)):
            if self.ended:
                return
            j = self.steps
            q = self.next
            self.basis[:, j] = q
            w = self.apply(q)
            alpha = torch.linalg.vecdot(q, w)
            w = torch.addcmul(w, alpha[:, None], q, value=-1)
            if j:
                w.addcmul_(self._beta[:, None], self.basis[:, j - 1], value=-1)
            c = self._cleaned(w, j + 1)
            beta = w.norm(dim=1)
            own, off = (alpha + c[:, j]).tolist(), beta.tolist()
            self._scale = [max(known, abs(a)) for known, a in zip(self._scale, own)]
            here = [b <= small * scale for b, scale in zip(off, self._scale)]
            off = [0.0 if one else b for one, b in zip(here, off)]
            self._scale = [max(known, b) for known, b in zip(self._scale, off)]
            self.diagonal[:, j], self.off[:, j] = torch.tensor([own, off], dtype=torch.float64)
            self._over = [before or one for before, one in zip(self._over, here)]
            self.next, self._beta = w / beta.clamp_min(least)[:, None], beta
            if any(here):
                gone = torch.tensor(here, device=w.device)
                self.next, self._beta = self.next.masked_fill(gone[:, None], 0.0), beta.masked_fill(gone, 0.0)
            self.steps += 1

    @property
    def ended(self) -> bool:
        """Every run has found an invariant subspace: nothing is left to learn."""
        return all(self._over)

    def _cleaned(self, w: Tensor, count: int) -> Tensor:
        """Take what lies along the first ``count`` vectors out of ``w``, in place; the coefficients (R, count)."""
        known = self.basis[:, :count]
        if len(w) > FEW:
            c = (known @ w[:, :, None])[:, :, 0]
            w -= (c[:, None] @ known)[:, 0]
            return c
        c = torch.stack([rows @ one for rows, one in zip(known, w)])
        for rows, one, share in zip(known, w, c):
            one.addmv_(rows.mT, share, alpha=-1)
        return c

    def tridiagonal(self) -> Tridiagonal:
        k = self.steps
        return Tridiagonal(self.diagonal[:, :k], self.off[:, : max(k - 1, 0)], self.basis[:, :k], self.off[:, k - 1])
