"""All blocks as dense matrices: the identity as probes, one column of every block per product."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from netvitals._help import hint
from netvitals.curvature.engine.probes import identity
from netvitals.curvature.engine.products import Column, Pieces, Products, Progress
from netvitals.curvature.engine.stream import BatchStream
from netvitals.curvature.measure import metrics


class ExactBlock(NamedTuple):
    """One block; with a leading dimension of examples when measured by example."""

    H: Tensor
    GN: Tensor
    T: Tensor


@dataclass(frozen=True)
class Blocks:
    """The assembled matrices over all nodes; ``index[name]`` is the slice of a node."""

    index: dict[str, slice]
    gauss_newton: Tensor  # (D, D), or (B, D, D) by example
    tensor: Tensor

    @property
    def hessian(self) -> Tensor:
        return self.gauss_newton + self.tensor

    def block(self, v: str, w: str) -> ExactBlock:
        for name in (v, w):
            if name not in self.index:
                raise KeyError(f"there is no node {name!r}; the nodes are {', '.join(self.index)}")
        at = (..., self.index[v], self.index[w])
        return ExactBlock(self.gauss_newton[at] + self.tensor[at], self.gauss_newton[at], self.tensor[at])


def exact_blocks(products: Products, *, per_sample: bool, budget: int, progress: Progress | None = None) -> Blocks:
    """Assemble GN and T from identity probes.

    With ``per_sample`` the same unit vector goes to every example at once, which is right because examples do not see
    each other. Otherwise the products' leaves say what a coordinate is: shared by all examples, or one of each.
    """
    tape = products.tape
    b = tape.examples
    sizes = [products.size(v) // (b if per_sample else 1) for v in range(len(tape.nodes))]
    total, copies = sum(sizes), (b if per_sample else 1)
    item = products.flat[0].element_size()
    needed = 2 * copies * total * total * item
    if needed > budget:
        raise MemoryError(
            f"the blocks of {len(sizes)} nodes with {total} coordinates need {needed / 2**20:.4g} "
            f"MiB{f' for {b} examples' if per_sample else ''}, but the budget is {budget / 2**20:.4g} MiB. Use fewer "
            f"nodes or examples, method='stochastic', or raise memory= {hint('no-memory')}"
        )
    shape = (copies, total, total) if per_sample else (total, total)
    gn, tensor = (torch.zeros(shape, dtype=products.flat[0].dtype, device=products.flat[0].device) for _ in range(2))
    starts = np.cumsum([0, *sizes])
    step = max(1, products.chunk)
    for w in range(len(sizes)):
        for first in range(0, sizes[w], step):
            last = min(first + step, sizes[w])
            column = products.column(w, _unit_probes(products, w, first, last, per_sample))
            _store(column, gn, tensor, starts, slice(starts[w] + first, starts[w] + last), per_sample)
        if progress:
            progress(int(starts[w + 1]), int(total))
    if per_sample:  # the loss holds 1/B; H_b is the Hessian of one example's own loss
        gn, tensor = gn * b, tensor * b
    names = [n.name for n in tape.nodes]
    return Blocks({n: slice(int(a), int(z)) for n, a, z in zip(names, starts, starts[1:])}, gn, tensor)


def mean_blocks(stream: BatchStream, *, budget: int) -> tuple[Blocks, dict[str, np.ndarray]]:
    """Blocks of the mean over batches, and what each batch adds to their squared norms, (batches, N, N) by part."""

    def do(products: Products) -> tuple[Any, Any]:
        blocks = exact_blocks(products, per_sample=False, budget=budget)
        return [blocks.gauss_newton, blocks.tensor], blocks

    (gn, tensor), each = stream.each(do)
    mean = replace(each[0], gauss_newton=gn, tensor=tensor)
    parts = {"H": lambda b: b.hessian, "GN": lambda b: b.gauss_newton, "T": lambda b: b.tensor}
    cells = list(mean.index.values())
    inner = lambda a, b: np.array([[float((a[v, w] * b[v, w]).sum()) for w in cells] for v in cells])
    return mean, {k: np.stack([inner(part(mean), part(b)) for b in each]) for k, part in parts.items()}


def _unit_probes(products: Products, w: int, first: int, last: int, per_sample: bool) -> Pieces:
    leaves = products.leaves[w]
    if not per_sample:
        return identity(leaves, first, last)
    row = [leaves[0][:1]]
    return [identity(row, first, last)[0].expand(last - first, *leaves[0].shape)]


def _store(column: Column, gn: Tensor, tensor: Tensor, starts: np.ndarray, at: slice, per_sample: bool) -> None:
    for v in range(len(starts) - 1):
        rows = slice(int(starts[v]), int(starts[v + 1]))
        for matrix, pieces in ((gn, column.gauss_newton[v]), (tensor, column.tensor[v])):
            if pieces is None:
                continue
            if per_sample:  # (m, B, ...) -> (B, d_v, m)
                matrix[:, rows, at] = pieces[0].flatten(2).permute(1, 2, 0)
            else:
                matrix[rows, at] = torch.cat([p.flatten(1) for p in pieces], 1).mT


def block_norms(blocks: Blocks) -> dict[str, np.ndarray]:
    """Frobenius norms of H, GN and T, spectral and nuclear norms of H: N×N, or B×N×N by example."""
    names = list(blocks.index)
    lead = tuple(blocks.gauss_newton.shape[:-2])
    out = {k: np.zeros((*lead, len(names), len(names))) for k in ("H", "GN", "T", "spectral", "nuclear")}
    for i, v in enumerate(names):
        for j, w in enumerate(names):
            block = blocks.block(v, w)
            for key, matrix in zip(("H", "GN", "T"), block):
                out[key][..., i, j] = metrics.resonance(matrix.double()).cpu().numpy()
            singular = torch.linalg.svdvals(block.H.double())
            out["spectral"][..., i, j] = singular[..., 0].cpu().numpy()
            out["nuclear"][..., i, j] = singular.sum(-1).cpu().numpy()
    return out
