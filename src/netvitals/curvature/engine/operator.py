r"""Blocks and whole matrices as linear operators: $H_{v,w}z$, $H_{v,w}^\top u$; GN, T and Fisher matrices too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from netvitals._help import hint
from netvitals.capture import LossFn, Mode
from netvitals.curvature.engine.cost import Cost
from netvitals.curvature.engine.fisher import FISHERS
from netvitals.curvature.engine.journal import Journal
from netvitals.curvature.engine.nodes import Choice
from netvitals.curvature.engine.probes import flattened, identity, pieces_of
from netvitals.curvature.engine.products import Part, Pieces, Products
from netvitals.curvature.engine.stream import BatchStream, several
from netvitals.curvature.engine.tape import Space, recorded, recorded_parameters

Apply = Callable[[Tensor], Tensor]  # rows (m, d) -> rows (m, d')
PARTS = ("H", "GN", "T", *FISHERS)


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
    session: Callable[[], AbstractContextManager[Any]] = nullcontext  # inside, many products record the graph once

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

    def diagonal(self) -> Tensor:
        """The diagonal, by a product for every column; ``curvature.diagonal`` estimates it with fewer."""
        first, out = torch.empty(self.shape[1], dtype=self.dtype, device=self.device), []
        with self.session():
            for start in range(0, self.shape[1], 64):
                rows = identity([first], start, min(start + 64, self.shape[1]))[0]
                out.append(self.apply(rows).diagonal(offset=start))
        return torch.cat(out)

    def to_scipy(self) -> Any:
        """A scipy LinearOperator, for its solvers."""
        from scipy.sparse.linalg import LinearOperator

        here = lambda x: torch.as_tensor(x, dtype=self.dtype, device=self.device)
        there = lambda f: lambda x: f(here(x)).cpu().numpy()
        columns = lambda f: lambda x: f(here(x).mT).mT.cpu().numpy()
        numpy_type = torch.empty(0, dtype=self.dtype).numpy().dtype
        return LinearOperator(
            self.shape,
            matvec=there(self.matvec),
            rmatvec=there(self.rmatvec),
            matmat=columns(self.apply),
            rmatmat=columns(self.apply_adjoint),
            dtype=numpy_type,
        )


class Operators:
    """Operators of one problem.

    Inside ``with`` the graph is recorded once. What is asked for lives on after it: a product then records the graph
    anew, of the model as it is by that time.
    """

    def __init__(
        self,
        products: Products | BatchStream | None = None,
        begin: Callable[[], AbstractContextManager[Products | BatchStream]] | None = None,
    ) -> None:
        self._live, self._begin, self._stack = products, begin, ExitStack()
        self._known: tuple[tuple[str, ...], list[list[Tensor]]] | None = None
        self.labels, self.seed = 1, 0  # drawn for each unit by "fisher-mc", and their seed

    def __enter__(self) -> Operators:
        self._stack.enter_context(self.session())
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()

    @contextmanager
    def session(self) -> Iterator[Products | BatchStream]:
        """The products of the problem: those that are open, or opened for so long."""
        if self._live is not None or self._begin is None:
            assert self._live is not None
            yield self._live
            return
        with self._begin() as self._live:
            self._live.labels, self._live.seed = self.labels, self.seed
            try:
                yield self._live
            finally:
                self._live = None

    @property
    def products(self) -> Products | BatchStream:
        """What makes the products; inside ``with``."""
        if self._live is None:
            raise RuntimeError(
                f"these operators are closed: use them inside `with operators(...) as of:` {hint('products-closed')}"
            )
        return self._live

    @property
    def tape(self) -> Any:
        return self.products.tape

    @property
    def names(self) -> tuple[str, ...]:
        """Of the nodes, in the order of their coordinates."""
        return self._of_problem()[0]

    def _of_problem(self) -> tuple[tuple[str, ...], list[list[Tensor]]]:
        if self._known is None:
            with self.session() as products:
                self._known = tuple(n.name for n in products.tape.nodes), products.leaves
        return self._known

    def _leaves(self, nodes: Sequence[int]) -> list[Tensor]:
        leaves = self._of_problem()[1]
        return [leaf for v in nodes for leaf in leaves[v]]

    def block(self, v: str, w: str, part: Part = "H") -> Operator:
        """H_{v,w}: rows at v, columns at w."""
        i, j = self._index(v), self._index(w)
        if part in FISHERS:
            return self._cut([i], [j], part)
        return self._operator([i], [j], lambda z: self._column(j, z, part)[i], lambda u: self._column(i, u, part)[j])

    def submatrix(self, rows: str | Sequence[str], columns: str | Sequence[str] | None = None, part: Part = "H") -> Any:
        """The blocks of all nodes whose names match: ``submatrix("h.0.*")``, ``submatrix("h.0.*", "h.1.*")``."""
        over = self._matching(rows)
        return self._cut(over, over if columns is None else self._matching(columns), part)

    def column(self, w: str, z: Tensor, part: Part = "H") -> dict[str, Tensor]:
        """H_{v,w} z for every node v from one product; z is (d_w,) or rows (m, d_w)."""
        at = self._index(w)
        rows = self._column(at, z.reshape(-1, sum(leaf.numel() for leaf in self._leaves([at]))), part)
        return {name: (r[0] if z.ndim == 1 else r) for name, r in zip(self.names, rows)}

    def whole(self, part: Part = "H") -> Operator:
        """The assembled matrix over all nodes (or all parameters)."""
        everything = list(range(len(self.names)))
        run = lambda z: self._whole(z, part)
        return self._operator(everything, everything, run, run)

    def split(self, z: Tensor) -> dict[str, Tensor | list[Tensor]]:
        """A vector over all nodes as tensors by name, shaped like the parameters; a list where a node has several."""
        out: dict[str, Tensor | list[Tensor]] = {}
        at = 0
        for v, name in enumerate(self.names):
            leaves = self._leaves([v])
            size = sum(leaf.numel() for leaf in leaves)
            parts = [p[0] for p in pieces_of(z[None, at : at + size], leaves)]
            out[name], at = parts[0] if len(parts) == 1 else parts, at + size
        return out

    def joined(self, by_name: dict[str, Any]) -> Tensor:
        """The vector of tensors by name; what is left out is zero."""
        parts = []
        for v, name in enumerate(self.names):
            leaves, value = self._leaves([v]), by_name.get(name)
            given = [torch.zeros_like(x) for x in leaves] if value is None else value
            parts += [t.detach().reshape(-1) for t in ([given] if isinstance(given, Tensor) else given)]
        return torch.cat(parts)

    def _operator(self, rows: list[int], columns: list[int], run: Apply, back: Apply) -> Operator:
        sizes = [sum(leaf.numel() for leaf in self._leaves(nodes)) for nodes in (rows, columns)]
        first = self._leaves([0])[0]
        cost = self._live.cost if self._live is not None else None
        return Operator((sizes[0], sizes[1]), first.dtype, run, back, cost, first.device, self.session)

    def _cut(self, rows: list[int], columns: list[int], part: Part) -> Operator:
        """Rows and columns of the whole matrix."""
        sizes = [sum(leaf.numel() for leaf in self._leaves([v])) for v in range(len(self.names))]
        starts = [sum(sizes[:v]) for v in range(len(sizes))]
        where = lambda nodes: torch.cat([torch.arange(starts[v], starts[v] + sizes[v]) for v in nodes])
        over, of = where(rows), where(columns)

        def times(z: Tensor, given: Tensor, wanted: Tensor) -> Tensor:
            full = torch.zeros(z.shape[0], sum(sizes), dtype=z.dtype, device=z.device)
            full[:, given.to(z.device)] = z
            return self._whole(full, part)[:, wanted.to(z.device)]

        return self._operator(rows, columns, lambda z: times(z, of, over), lambda u: times(u, over, of))

    def _index(self, name: str) -> int:
        if name not in self.names:
            raise KeyError(f"there is no node {name!r}; the nodes are {', '.join(self.names)}")
        return self.names.index(name)

    def _matching(self, patterns: str | Sequence[str]) -> list[int]:
        wanted = [patterns] if isinstance(patterns, str) else list(patterns)
        found = [i for i, n in enumerate(self.names) if any(fnmatchcase(n, p) for p in wanted)]
        if not found:
            raise KeyError(f"no node matches {', '.join(map(repr, wanted))}; the nodes are {', '.join(self.names)}")
        return found

    def _whole(self, z: Tensor, part: Part) -> Tensor:
        if part not in PARTS:
            raise ValueError(f"part= must be one of {', '.join(map(repr, PARTS))}, got {part!r}")
        with self.session() as of:
            return flattened(of.whole(pieces_of(z.to(of.flat[0].dtype), of.flat), part))

    def _column(self, w: int, z: Tensor, part: Part) -> list[Tensor]:
        with self.session() as of:
            column = of.column(w, self._pieces(z, [w]))
        out = []
        for v in range(len(self.names)):
            tensor = column.tensor[v]
            if part == "T":
                out.append(torch.zeros_like(flattened(column.gauss_newton[v])) if tensor is None else flattened(tensor))
            else:
                out.append(flattened(column.gauss_newton[v] if part == "GN" else column.hessian(v)))
        return out

    def _pieces(self, z: Tensor, nodes: list[int]) -> Pieces:
        return pieces_of(z, self._leaves(nodes))


def operators(
    model: nn.Module,
    loss_fn: LossFn,
    batch: Any,
    *,
    mode: Mode = "as_is",
    nodes: Choice = None,
    seed: int = 0,
    space: Space = "parameter",
    labels: int = 1,
    dtype: torch.dtype | None = None,
    memory: int = 2 << 30,
    journal: Journal | None = None,
) -> Operators:
    """Compute matrix-vector products with the Hessian, Gauss–Newton or Fisher matrix, or with blocks of it.

    In parameter space, if ``nodes`` is left out, every trainable tensor is one node, in the order of
    ``model.parameters()``.

    Args:
        model: any module; it is not changed.
        loss_fn: ``loss_fn(output, target)``, its name, or None for the model's own ``output.loss``.
        batch: one batch as a data loader yields it; or a list of batches or a loader, over which every product is then
            averaged.
        mode: ``"as_is"``, ``"train"`` (batch statistics, dropout off) or ``"eval"``.
        nodes: names or glob patterns of submodules, a function ``(name, module) -> bool``, or None.
        seed: seed of the labels drawn for ``part="fisher-mc"``.
        space: ``"parameter"`` or ``"activation"``.
        labels: drawn for each token or example by ``part="fisher-mc"``.
        dtype: measure a copy of the model in this dtype.
        memory: memory budget in bytes for graph and products.
        journal: stores the state of a measurement of many batches, so that it can be interrupted and resumed.

    Returns:
        ``Operators``: ``block(v, w)``, ``submatrix(pattern)``, ``column(w, z)``, ``whole()``, each of a part ``"H"``,
        ``"GN"``, ``"T"``, ``"fisher"`` (exact), ``"fisher-mc"`` or ``"fisher-empirical"``. Inside ``with`` the graph is
        recorded once; operators live on after it, and each product then records the graph anew.

    >>> net = nn.Linear(3, 1)
    >>> with operators(net, nn.MSELoss(), (torch.ones(2, 3), torch.zeros(2, 1))) as of:
    ...     whole = of.whole()
    ...     (whole @ torch.ones(4)).tolist()       # 2 · 1 · (1 + 1 + 1 + 1)
    [8.0, 8.0, 8.0, 8.0]
    >>> (whole @ torch.ones(4)).tolist()
    [8.0, 8.0, 8.0, 8.0]
    """
    options: Any = {"dtype": dtype, "mode": mode, "memory": memory}
    many: Any = {"split": False, "journal": journal, **options}
    tensors = space == "parameter" and nodes is None

    @contextmanager
    def begin() -> Iterator[Products | BatchStream]:
        if several(batch):
            with BatchStream(model, loss_fn, batch, nodes=nodes, space=space, tensors=tensors, **many) as stream:
                yield stream
            return
        with (
            recorded_parameters(model, loss_fn, batch, **options)
            if tensors
            else recorded(model, loss_fn, batch, nodes=nodes, space=space, **options)
        ) as tape:
            yield Products(tape, memory=memory, roots="never", split=False)

    of = Operators(begin=begin)
    of.labels, of.seed = labels, seed
    return of
