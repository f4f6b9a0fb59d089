r"""Curvature over many batches: $H=\sum_b n_bH_b/\sum_b n_b$ at fixed vectors, one batch in memory at a time.

The Hessian of a mean over all examples is the mean of the batches' Hessians by their number of examples. Each product
goes over the data once; the first pass makes every check, later ones only record the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from netvitals.capture.loss import LossFn
from netvitals.capture.observation import Mode
from netvitals.capture.task import batches_of
from netvitals.curvature.engine.cost import PREPARED, Cost
from netvitals.curvature.engine.nodes import Choice
from netvitals.curvature.engine.problem import Problem, advised, laboratory
from netvitals.curvature.engine.products import Column, Pieces, Products
from netvitals.curvature.engine.tape import Space, Tape, recorded, recorded_parameters

Found = TypeVar("Found")


def several(batch: Any) -> bool:
    """Whether this is an iterable of batches and not one batch.

    Args:
        batch: what a user gave.

    >>> pair = (torch.ones(2, 3), torch.ones(2))
    >>> several(pair), several([pair, pair])
    (False, True)
    """
    if isinstance(batch, Sequence) and not isinstance(batch, str):
        first = next(batches_of(batch), None)
        return first is not batch and isinstance(first, Tensor | Sequence | Mapping | None)
    return isinstance(batch, Iterable) and not isinstance(batch, Tensor | Mapping | str) and not hasattr(batch, "keys")


class Stream:
    """Products summed over batches, with the interface of :class:`Products`.

    Args:
        model: any module; left exactly as it was.
        loss_fn: a mean over examples.
        batches: a list of batches or a loader that gives the same data each time.
        nodes, space, dtype, mode, memory: as for one batch.
        split: False when the parts of H may not be asked for.
        tensors: every trainable parameter tensor is a node.
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: LossFn,
        batches: Iterable[Any],
        *,
        nodes: Choice = None,
        space: Space = "parameter",
        dtype: torch.dtype | None = None,
        mode: Mode = "as_is",
        memory: int = 2 << 30,
        split: bool = True,
        tensors: bool = False,
    ) -> None:
        self.model, self.loss_fn, self.batches = model, loss_fn, batches
        self.nodes, self.space, self.dtype, self.mode, self.memory = nodes, space, dtype, mode, memory
        self.split, self.tensors = split, tensors
        self.tape: Any = None  # of the first batch, for its nodes
        self.cost = Cost(back=1.0 if space == "activation" else 2.0, passes=0.0)
        self.weights: list[int] = []  # examples of every batch
        self._loss: float | None = None

    @property
    def leaves(self) -> list[list[Tensor]]:
        return self.tape.leaves

    @property
    def flat(self) -> list[Tensor]:
        return [leaf for leaves in self.leaves for leaf in leaves]

    def size(self, v: int) -> int:
        """Length of the vectors at node v."""
        return sum(leaf.numel() for leaf in self.leaves[v])

    def begin(self) -> Stream:
        """Look at the data once, with every check; needs an iterable that can be gone over again."""
        if isinstance(self.batches, Iterator):
            raise ValueError(
                "a generator of batches can be gone over once, and this measurement needs its data once a product: "
                "give a list of batches or a DataLoader"
            )
        for _ in self.each(lambda products: None):
            pass
        return self

    def each(self, do: Callable[[Products], Found]) -> Iterator[tuple[int, Found]]:
        """Do something with the products of every batch; yields (examples, what it gave).

        Args:
            do: called with the products of one batch, whose graph is gone afterwards.
        """
        total, weights = 0.0, []
        for batch in batches_of(self.batches):
            with self._recorded(batch) as tape:
                products = Products(tape, memory=self.memory, roots="never", split=self.split)
                if self.tape is None:
                    _require_mean(tape)
                    self.tape = tape
                found, n, loss = do(products), tape.examples, tape.loss
                self.cost.products += products.cost.products
                self.cost.vjps += products.cost.vjps
                # later passes record the graph and check nothing
                self.cost.passes += products.cost.passes - (0.0 if self._checked(tape) else PREPARED - 1.0)
            weights.append(n)
            total += n * loss
            if self.tape is tape:
                _forget(tape)
            yield n, found
        if not weights:
            raise ValueError("there is no batch in what was given: give a list of batches or a loader that has some")
        self._same_data(weights, total / sum(weights))

    def _checked(self, tape: Tape) -> bool:
        return tape is self.tape or self.space == "activation"

    def column(self, w: int, probes: Pieces) -> Column:
        """Column w of the mean Hessian times probes, over one pass through the data."""
        total: Column | None = None
        for n, got in self.each(lambda products: products.column(w, probes)):
            total = _scaled(got, n) if total is None else _plus(total, got, n)
        assert total is not None
        return _scaled(total, 1 / sum(self.weights))

    def whole(self, probes: Pieces, part: Literal["H", "GN", "T"] = "H") -> Pieces:
        """The mean of the whole matrix times probes, over one pass through the data."""
        total: Pieces | None = None
        for n, got in self.each(lambda products: products.whole(probes, part)):
            total = [n * g for g in got] if total is None else [t.add_(g, alpha=n) for t, g in zip(total, got)]
        assert total is not None
        return [t / sum(self.weights) for t in total]

    def _same_data(self, weights: list[int], loss: float) -> None:
        if self._loss is None:
            self.weights, self._loss = weights, loss
            self.tape.loss, self.tape.problem.examples = loss, sum(weights)
        elif len(weights) != len(self.weights) or abs(loss - self._loss) > 1e-4 * max(abs(loss), abs(self._loss)):
            raise ValueError(
                f"the loader gives other data in every pass (loss {self._loss:.6g}, then {loss:.6g}): products of "
                "different matrices cannot be compared. Switch augmentation, drop_last and sampling off, or give "
                "list(itertools.islice(loader, n))"
            )

    @contextmanager
    def _recorded(self, batch: Any) -> Iterator[Tape]:
        first = self.tape
        options: Any = {"dtype": self.dtype, "mode": self.mode, "memory": self.memory}
        if first is not None and self.space == "parameter":
            problem = Problem(self.model, self.loss_fn, batch, self.dtype)
            with laboratory(problem.model, self.mode), advised():
                tape = Tape(problem, list(first.nodes), "parameter", chosen=first.chosen, kept_bytes=first.kept_bytes)
                tape.record()
                tape.beyond = first.beyond
                yield tape
        elif self.tensors:
            with recorded_parameters(self.model, self.loss_fn, batch, **options) as tape:
                yield tape
        else:
            nodes = self.nodes if first is None else [n.name for n in first.nodes]
            with recorded(self.model, self.loss_fn, batch, nodes=nodes, space=self.space, **options) as tape:
                yield tape


def _require_mean(tape: Tape) -> None:
    whole, parts = tape.mean_check()
    if abs(whole - parts) > 0.25 * max(abs(whole), abs(parts)):  # a mean over tokens may differ a little by padding
        raise ValueError(
            f"the loss is not a mean over examples (whole batch {whole:.6g}, mean of its halves {parts:.6g}), and over "
            "many batches the mean is measured: use reduction='mean' in loss_fn"
        )


def _forget(tape: Tape) -> None:
    """Let go of the graph; nodes and the shapes of the leaves stay."""
    tape.outputs, tape.detached, tape.slope, tape.values, tape.rows = [], [], [], [], []
    tape._rebuild = None


def _scaled(column: Column, by: float) -> Column:
    scale = lambda pieces: None if pieces is None else [by * p for p in pieces]
    return Column([[by * p for p in ps] for ps in column.gauss_newton], [scale(ps) for ps in column.tensor])


def _plus(total: Column, more: Column, by: float) -> Column:
    tensor: list[Pieces | None] = []
    for a, b in zip(total.tensor, more.tensor):
        extra = None if b is None else [by * p for p in b]
        tensor.append(extra if a is None else a if extra is None else [x + y for x, y in zip(a, extra)])
    gn = [[x.add_(y, alpha=by) for x, y in zip(a, b)] for a, b in zip(total.gauss_newton, more.gauss_newton)]
    return Column(gn, tensor)
