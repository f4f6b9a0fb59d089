r"""First-order descent on flat buffers: the same steps as the plain form, several times faster on a CPU.

Every picture is stored with a border of one pixel, all pictures of a chunk one after the other in one flat buffer. A
tap of the kernel is then a slice of that buffer, so every operation runs over contiguous memory, in place, and a chunk
stays in the cache for all iterations. The border is held at zero, which is zero padding. A kernel of rank one, such as
Sobel's, is applied as two passes of three taps.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from netvitals_lab.papers.gate_density.reconstruction.problem import Reconstruction

# pixels worked on at once: about ten buffers of that size fit into the cache, and torch does not split so few among its
# threads, which leaves whole chunks to be shared out instead
CHUNK = 1 << 15


def fits(problem: Reconstruction) -> bool:
    """Zero padding and one kernel for the whole batch."""
    return problem.padding == "zero" and (problem.kernels.ndim == 2 or len(problem.kernels) == 1)


def descend(
    problem: Reconstruction, x0: Tensor, method: str, iterations: int, lr: float, beta: float, beta2: float
) -> Tensor:
    """x after ``iterations`` steps of pgd, momentum, nesterov, adam or oracle from ``x0``, chunk by chunk."""
    pixels = (problem.y.shape[-1] + 2) * (problem.y.shape[-2] + 2)
    size = max(1, CHUNK // pixels)

    def of(begin: int) -> Tensor:
        part = problem.part(slice(begin, begin + size))
        chunk = _Chunk(part.alpha, part.kernels.reshape(-1, 3, 3)[0], part.seen, part.c, x0[begin : begin + size])
        return chunk.descend(method, iterations, lr, beta, beta2)

    begins, threads = range(0, problem.batch, size), torch.get_num_threads()
    if threads == 1 or len(begins) == 1:
        return torch.cat([of(b) for b in begins])
    with ThreadPoolExecutor(threads) as pool:
        return torch.cat(list(pool.map(of, begins)))


class _Chunk:
    def __init__(self, alpha: Tensor, kernel: Tensor, y: Tensor, c: float, x0: Tensor) -> None:
        self.count, (self.rows, self.cols) = len(alpha), x0.shape[-2:]
        self.row = self.cols + 2
        self.guard = self.row + 1  # the farthest tap
        self.pixels = (self.rows + 2) * self.row
        self.total = self.count * self.pixels
        self.dtype, self.c, self.column = x0.dtype, c, alpha.to(x0.dtype)[:, None]
        self.x = self._buffer(x0)
        inside = self._inside(self.x, 0).new_zeros(self.count, self.rows + 2, self.row)
        inside[:, 1:-1, 1:-1] = 1
        self.mask = inside.reshape(-1)
        self.floor = torch.zeros_like(self.mask)
        self.twice = (2 * self.column * inside.reshape(self.count, -1)).reshape(-1)
        self.y = torch.nn.functional.pad(y.to(self.dtype).reshape(-1, self.rows, self.cols), (1, 1, 1, 1)).reshape(
            -1, self.pixels
        )
        self.h, self.gate, self.g = (torch.empty_like(self.mask) for _ in range(3))
        self.residual, self.between = self._buffer(), self._buffer()
        self.forth, self.back = _passes(kernel.double()), _passes(kernel.double().flip(-1, -2))

    def _buffer(self, picture: Tensor | None = None) -> Tensor:
        buffer = torch.zeros(self.total + 2 * self.guard, dtype=self.dtype)
        if picture is not None:
            self._inside(buffer, 0).view(self.count, self.rows + 2, self.row)[:, 1:-1, 1:-1] = picture
        return buffer

    def _inside(self, buffer: Tensor, shift: int, room: int = 0) -> Tensor:
        return buffer[self.guard + shift - room : self.guard + shift + self.total + room]

    def _blur(self, source: Tensor, taps: tuple[Sequence[tuple[int, int, float]], ...], out: Tensor) -> None:
        if len(taps) == 2:  # columns first, one row beyond both ends, then rows
            middle = self._inside(self.between, 0, self.row)
            _combine([(self._inside(source, j, self.row), w) for _, j, w in taps[0]], middle)
            _combine([(self._inside(self.between, i * self.row), w) for i, _, w in taps[1]], out)
        else:
            _combine([(self._inside(source, i * self.row + j), w) for i, j, w in taps[0]], out)

    def _gradient(self, x: Tensor) -> Tensor:
        h, gate, residual = self.h, self.gate, self._inside(self.residual, 0)
        by_problem = h.view(self.count, -1)
        self._blur(x, self.forth, h)
        h.sub_(self.c)
        by_problem.mul_(self.column)
        torch.sigmoid(h, out=h)
        torch.addcmul(h, h, h, value=-1, out=gate)  # h(1 − h)
        torch.sub(by_problem, self.y, out=residual.view(self.count, -1))
        residual.mul_(gate).mul_(self.twice)  # 2α on the picture, 0 on its border
        self._blur(self.residual, self.back, self.g)
        return self.g

    def descend(self, method: str, iterations: int, lr: float, beta: float, beta2: float) -> Tensor:
        x = self._inside(self.x, 0)
        m, v, size = torch.zeros_like(x), torch.zeros_like(x), torch.empty_like(x)
        ahead = self._buffer() if method == "nesterov" else self.x
        for t in range(1, iterations + 1):
            if method == "nesterov":
                observe = self._inside(ahead, 0)
                torch.add(x, m, alpha=-lr * beta, out=observe)
                torch.clamp(observe, self.floor, self.mask, out=observe)
            g = self._gradient(ahead)
            if method == "pgd":
                x.sub_(g, alpha=lr)
            elif method in ("momentum", "nesterov"):
                m.mul_(beta).add_(g)
                x.sub_(m, alpha=lr)
            else:
                v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
                root = (1 - beta2**t) ** 0.5
                torch.sqrt(v, out=size).add_(1e-8 * root)
                if method == "adam":
                    m.lerp_(g, 1 - beta)
                    x.addcdiv_(m, size, value=-lr * root / (1 - beta**t))
                else:
                    x.addcdiv_(g, size, value=-lr * root)
            torch.clamp(x, self.floor, self.mask, out=x)
        return x.view(self.count, self.rows + 2, self.row)[:, 1:-1, 1:-1].clone()


def _passes(kernel: Tensor) -> tuple[Sequence[tuple[int, int, float]], ...]:
    """Taps (row, column, weight): two passes for a kernel that is an outer product, one otherwise."""
    if int(torch.linalg.matrix_rank(kernel)) == 1:
        at = int(kernel.abs().argmax())
        column, row = kernel[:, at % 3] / kernel[at // 3, at % 3], kernel[at // 3]
        scale = row.abs().max()
        column, row = column * scale, row / scale  # weights of one where possible: they cost no multiplication
        if float(column.sum()) < 0:
            column, row = -column, -row
        return (
            [(0, j - 1, float(w)) for j, w in enumerate(row) if w != 0],
            [(i - 1, 0, float(w)) for i, w in enumerate(column) if w != 0],
        )
    return ([(i - 1, j - 1, float(kernel[i, j])) for i in range(3) for j in range(3) if kernel[i, j] != 0],)


def _combine(taps: Sequence[tuple[Tensor, float]], out: Tensor) -> None:
    """out = Σ weight · slice."""
    if not taps:
        out.zero_()
        return
    first, *rest = sorted(taps, key=lambda tap: tap[1] != 1)
    if first[1] == 1 and rest:
        torch.add(first[0], rest[0][0], alpha=rest[0][1], out=out)
        rest = rest[1:]
    else:
        torch.mul(first[0], first[1], out=out)
    for piece, weight in rest:
        out.add_(piece, alpha=weight)
