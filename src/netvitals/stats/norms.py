"""Norms and inner products of big tensors, as fast as one pass over them and good to 1e-7.

On a CPU torch adds up float32 squares in one accumulator, which has lost 4e-4 of the norm of an 8192 × 8192 matrix:
here the squares of 1024 entries are added up at a time, and the sums in float64. Half precision is squared in float32.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

CHUNK = 1024  # entries whose squares are added up in the tensor's own precision
SMALL = 1 << 14  # entries of a tensor whose norm torch has to 1e-6
PIECE = 1 << 16  # entries of an inner product


def row_norms(rows: Tensor) -> Tensor:
    """The Euclidean norm of each row of a matrix, in the precision of the rows.

    >>> row_norms(torch.tensor([[3.0, 4.0], [0.0, 2.0]]))
    tensor([5., 2.])
    """
    n = rows.shape[1]
    if n <= CHUNK or rows.dtype != torch.float32:
        return torch.linalg.vector_norm(rows, dim=1)
    whole = n // CHUNK * CHUNK
    parts = torch.linalg.vector_norm(rows[:, :whole].unflatten(1, (-1, CHUNK)), dim=2)
    if whole < n:
        parts = torch.cat([parts, torch.linalg.vector_norm(rows[:, whole:], dim=1, keepdim=True)], 1)
    return torch.linalg.vector_norm(parts, dim=1, dtype=torch.float64).to(rows.dtype)


def norm(t: Tensor) -> Tensor:
    """The Euclidean norm of a tensor of any shape; the numbers of a complex one count by their size.

    >>> norm(torch.tensor([[3.0 + 4.0j, 0.0], [0.0, 12.0]]))
    tensor(13.)
    """
    return row_norms(_flat(t)[None])[0]


def norms(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The norm of each tensor; small ones of one device together."""
    small = [i for i, t in enumerate(tensors) if t.numel() <= SMALL or t.device.type != "cpu"]
    together = torch._foreach_norm([_real(tensors[i]) for i in small]) if small else ()
    known = dict(zip(small, together))
    return [known[i] if i in known else norm(t) for i, t in enumerate(tensors)]


def inner(a: Tensor, b: Tensor) -> Tensor:
    """The real inner product of two tensors of one shape.

    >>> inner(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))
    tensor(11.)
    """
    a, b = (_real(t).reshape(-1) for t in (a, b))
    if a.numel() <= PIECE:
        return torch.dot(a, b)
    return torch.stack([torch.dot(x, y) for x, y in zip(a.split(PIECE), b.split(PIECE))]).double().sum().to(a.dtype)


def _real(t: Tensor) -> Tensor:
    """Half precision as float32, complex numbers as pairs."""
    if t.is_complex():
        t = torch.view_as_real(t.resolve_conj())
    return t.float() if t.dtype in (torch.float16, torch.bfloat16) else t


def _flat(t: Tensor) -> Tensor:
    """The entries in the order of memory: a tensor that is not contiguous need not be copied."""
    t = _real(t)
    if not t.is_contiguous():
        t = t.permute(sorted(range(t.ndim), key=t.stride, reverse=True))
    return t.reshape(-1)
