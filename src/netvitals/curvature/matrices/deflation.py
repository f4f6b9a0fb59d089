r"""Trace and diagonal with the large part taken out first: what Hutch++ does, for every coordinate.

With orthonormal $Q$ that spans a sketch $H\Omega$, $Y=HQ$ and $P=QQ^\top$,
$H = YQ^\top + QY^\top - Q(Q^\top Y)Q^\top + (I-P)H(I-P)$: the diagonal of the first three is known, and only the last
is left to random signs $z$. It pays where few directions hold most of H; the sketch tells, before more is spent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

PAYS = 1 / 3  # of a product left outside the span of the others, below which the large part is taken out


def left_out(sketch: Tensor) -> float:
    r"""The mean share of $\|Hz_i\|^2$ outside the span of the other $Hz_j$: $1/(K^{-1})_{ii}K_{ii}$, Gram matrix K.

    >>> left_out(torch.eye(3)), round(left_out(torch.tensor([[1.0, 0.0], [1.0, 1e-3]])), 3)
    (1.0, 0.0)
    """
    gram = sketch.double() @ sketch.double().mT
    sizes = gram.diagonal()
    if len(gram) < 2 or not bool((sizes > 0).all()):
        return 1.0
    scaled = gram / torch.sqrt(sizes[:, None] * sizes[None])
    inverse = torch.linalg.pinv(scaled, hermitian=True, rtol=1e-12)
    own = inverse.diagonal().clamp_min(1.0)
    spanned = torch.linalg.matrix_rank(scaled, hermitian=True, rtol=1e-12) < len(gram)
    return 0.0 if bool(spanned) else float((1 / own).mean())


@dataclass
class Deflated:
    """A basis and what is taken out with it.

    Attributes:
        basis: orthonormal rows (r, d).
    """

    basis: Tensor

    @classmethod
    def of(cls, sketch: Tensor) -> Deflated:
        """The basis of a sketch (k, d)."""
        wide = sketch if sketch.dtype in (torch.float32, torch.float64) else sketch.float()
        return cls(torch.linalg.qr(wide.mT)[0].mT.to(sketch.dtype))

    def cleaned(self, rows: Tensor) -> Tensor:
        """Rows without their part in the span, (I − P) z."""
        return rows - (rows @ self.basis.mT) @ self.basis

    def known(self, images: Tensor) -> Tensor:
        """The diagonal (d,) of the part that the products H Q, rows (r, d), know."""
        core = images @ self.basis.mT  # QᵀHQ
        return 2 * (images * self.basis).sum(0) - (self.basis * (core @ self.basis)).sum(0)

    def samples(self, signs: Tensor, images: Tensor) -> Tensor:
        """One sample (k, d) of the rest of the diagonal a sign vector, from the products with the cleaned signs."""
        return signs * self.cleaned(images)


def by_tensor(diagonals: Tensor, sizes: list[int]) -> np.ndarray:
    """Sums of diagonals (k, d) over the coordinates of each tensor, (k, tensors), in float64.

    >>> by_tensor(torch.tensor([[1.0, 2.0, 3.0]]), [1, 2]).tolist()
    [[1.0, 5.0]]
    """
    parts = diagonals.double().split(sizes, 1)
    return torch.stack([p.sum(1) for p in parts], 1).numpy(force=True)


def widened(count: int) -> float:
    """By how much a standard error from so few samples is too small: the spread of Student's t.

    >>> widened(5), round(widened(50), 3)
    (1.4142135623730951, 1.021)
    """
    return float(np.sqrt((count - 1) / max(count - 3, 1)))
