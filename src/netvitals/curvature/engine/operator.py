r"""Blocks and whole matrices as linear operators: $H_{v,w}z$, $H_{v,w}^\top u$, and the parts GN and T of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from netvitals.capture.loss import LossFn
from netvitals.capture.observation import Mode
from netvitals.curvature.engine.cost import Cost
from netvitals.curvature.engine.journal import Journal
from netvitals.curvature.engine.nodes import Choice
from netvitals.curvature.engine.products import Pieces, Products, flattened, pieces_of
from netvitals.curvature.engine.stream import Stream, several
from netvitals.curvature.engine.tape import Space, recorded, recorded_parameters

Part = Literal["H", "GN", "T"]
Apply = Callable[[Tensor], Tensor]  # rows (m, d) -> rows (m, d')


@dataclass(frozen=True)
class Operator:
    """A matrix known by its products. ``apply`` takes and gives vectors as rows; ``@`` takes them as columns.

    >>> double = Operator((2, 2), torch.float32, lambda rows: 2 * rows, lambda rows: 2 * rows)
    >>> (double @ torch.ones(2)).tolist()
    [2.0, 2.0]
    """

    shape: tuple[int, int]
    dtype: torch.dtype
    apply: Apply
    apply_adjoint: Apply
    cost: Cost | None = None
    device: torch.device = torch.device("cpu")  # noqa: RUF009

    def matvec(self, z: Tensor) -> Tensor:
        return self.apply(z.reshape(1, -1))[0]

    def rmatvec(self, u: Tensor) -> Tensor:
        return self.apply_adjoint(u.reshape(1, -1))[0]

    def __matmul__(self, z: Tensor) -> Tensor:
        return self.matvec(z) if z.ndim == 1 else self.apply(z.mT).mT

    @property
    def T(self) -> Operator:
        return replace(self, shape=self.shape[::-1], apply=self.apply_adjoint, apply_adjoint=self.apply)

    def dense(self) -> Tensor:
        """The matrix itself; for small ones."""
        return self.apply(torch.eye(self.shape[1], dtype=self.dtype, device=self.device)).mT

    def to_scipy(self) -> Any:
        """A scipy LinearOperator, for its solvers."""
        from scipy.sparse.linalg import LinearOperator

        here = lambda x: torch.as_tensor(x, dtype=self.dtype, device=self.device).reshape(-1)
        there = lambda f: lambda x: f(here(x)).cpu().numpy()
        numpy_type = torch.empty(0, dtype=self.dtype).numpy().dtype
        return LinearOperator(self.shape, matvec=there(self.matvec), rmatvec=there(self.rmatvec), dtype=numpy_type)


class Operators:
    """Operators of one recorded problem; alive inside ``operators(...)``."""

    def __init__(self, products: Products | Stream) -> None:
        self.products, self.tape = products, products.tape
        self.names = tuple(n.name for n in self.tape.nodes)

    def block(self, v: str, w: str, part: Part = "H") -> Operator:
        """H_{v,w}: rows at v, columns at w."""
        i, j = self._index(v), self._index(w)
        of = self.products
        return Operator(
            (of.size(i), of.size(j)),
            of.flat[0].dtype,
            lambda z: self._column(j, z, part)[i],
            lambda u: self._column(i, u, part)[j],
            cost=of.cost,
            device=of.flat[0].device,
        )

    def column(self, w: str, z: Tensor, part: Part = "H") -> dict[str, Tensor]:
        """H_{v,w} z for every node v from one product; z is (d_w,) or rows (m, d_w)."""
        rows = self._column(self._index(w), z.reshape(-1, self.products.size(self._index(w))), part)
        return {name: (r[0] if z.ndim == 1 else r) for name, r in zip(self.names, rows)}

    def whole(self, part: Part = "H") -> Operator:
        """The assembled matrix over all nodes (or all parameters)."""
        of = self.products
        n = sum(leaf.numel() for leaf in of.flat)
        run = lambda z: flattened(of.whole(self._pieces(z, list(range(len(of.leaves)))), part))
        return Operator((n, n), of.flat[0].dtype, run, run, cost=of.cost, device=of.flat[0].device)

    def _index(self, name: str) -> int:
        if name not in self.names:
            raise KeyError(f"no node {name!r}; the nodes are {', '.join(self.names)}")
        return self.names.index(name)

    def _column(self, w: int, z: Tensor, part: Part) -> list[Tensor]:
        column = self.products.column(w, self._pieces(z, [w]))
        out = []
        for v in range(len(self.names)):
            tensor = column.tensor[v]
            if part == "T":
                out.append(torch.zeros_like(flattened(column.gauss_newton[v])) if tensor is None else flattened(tensor))
            else:
                out.append(flattened(column.gauss_newton[v] if part == "GN" else column.hessian(v)))
        return out

    def _pieces(self, z: Tensor, nodes: list[int]) -> Pieces:
        return pieces_of(z, [leaf for v in nodes for leaf in self.products.leaves[v]])


@contextmanager
def operators(
    model: nn.Module,
    loss_fn: LossFn,
    batch: Any,
    *,
    mode: Mode = "as_is",
    nodes: Choice = None,
    space: Space = "parameter",
    dtype: torch.dtype | None = None,
    memory: int = 2 << 30,
    journal: Journal | None = None,
) -> Iterator[Operators]:
    """Products with blocks or with the whole matrix, as long as the ``with`` block lasts.

    In parameter space without ``nodes`` every trainable tensor is a node, in the order of ``model.parameters()``.

    Args:
        model: any module; left exactly as it was.
        loss_fn: ``loss_fn(output, target)``, its name, or None for the model's own ``output.loss``.
        batch: what a loader yields; or a list of batches or a loader, over which every product is then averaged.
        mode: ``"as_is"``, ``"train"`` (batch statistics, dropout off) or ``"eval"``.
        nodes: names or globs of submodules, a rule ``(name, module) -> bool``, or None.
        space: ``"parameter"`` or ``"activation"``.
        dtype: measure a copy in this dtype.
        memory: bytes for graph and products.
        journal: of a measurement of many batches that may be interrupted.

    Returns:
        A context that gives ``Operators``: ``block(v, w)``, ``column(w, z)``, ``whole()``.

    >>> net = nn.Linear(3, 1)
    >>> with operators(net, nn.MSELoss(), (torch.ones(2, 3), torch.zeros(2, 1))) as of:
    ...     (of.whole() @ torch.ones(4)).tolist()       # 2 · 1 · (1 + 1 + 1 + 1)
    [8.0, 8.0, 8.0, 8.0]
    """
    options: Any = {"dtype": dtype, "mode": mode, "memory": memory}
    tensors = space == "parameter" and nodes is None
    if several(batch):
        with Stream(
            model, loss_fn, batch, nodes=nodes, space=space, split=False, tensors=tensors, journal=journal, **options
        ) as stream:
            yield Operators(stream)
        return
    with (
        recorded_parameters(model, loss_fn, batch, **options)
        if tensors
        else recorded(model, loss_fn, batch, nodes=nodes, space=space, **options)
    ) as tape:
        yield Operators(Products(tape, memory=memory, roots="never", split=False))
