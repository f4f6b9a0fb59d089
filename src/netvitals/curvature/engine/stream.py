r"""Curvature over many batches: $H=\sum_b n_bH_b/\sum_b n_b$ at fixed vectors, one batch in memory at a time.

The Hessian of a mean over all examples is the mean of the batches' Hessians by their number of examples. Each pass over
the data makes as many products as fit; the first batch is measured with every check, later ones only record the graph.
Graphs are kept from pass to pass while all of them together are small, so that memory is flat in data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from netvitals.capture import LossFn, Mode, batches_of
from netvitals.curvature.engine.checks import dimension_of_examples, first_input, require_mean, require_same_shapes
from netvitals.curvature.engine.cost import Cost
from netvitals.curvature.engine.journal import Journal
from netvitals.curvature.engine.nodes import Choice
from netvitals.curvature.engine.problem import Problem, advised, laboratory
from netvitals.curvature.engine.products import Column, Part, Pieces, Products, filled
from netvitals.curvature.engine.sketches import inner_products, sketched
from netvitals.curvature.engine.tape import Space, Tape, recorded, recorded_parameters

SHORT = 1 << 16  # numbers in a vector: copies of shorter ones cost less than to handle each by itself
KEPT = 64  # graphs are kept between passes in at most this part of the memory budget


def several(batch: Any) -> bool:
    """Whether this is an iterable of batches and not one batch.

    >>> pair = (torch.ones(2, 3), torch.ones(2))
    >>> several(pair), several([pair, pair])
    (False, True)
    """
    if isinstance(batch, Sequence) and not isinstance(batch, str):
        first = next(batches_of(batch), None)
        return first is not batch and isinstance(first, Tensor | Sequence | Mapping | None)
    return isinstance(batch, Iterable) and not isinstance(batch, Tensor | Mapping | str) and not hasattr(batch, "keys")


class BatchStream:
    """Products summed over batches, with the interface of :class:`Products`; alive inside ``with``."""

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
        journal: Journal | None = None,
        once: bool = False,
    ) -> None:
        if isinstance(batches, Iterator) and not once:
            raise ValueError(
                "a generator of batches can be read only once, but this measurement reads the data again for each "
                "matrix-vector product. Give a list of batches or a DataLoader"
            )
        self.model, self.loss_fn, self.batches = model, loss_fn, batches
        self.nodes, self.space, self.dtype, self.mode, self.memory = nodes, space, dtype, mode, memory
        self.split, self.tensors, self.journal, self.once = split, tensors, journal, once
        self.tape: Any = None  # of the first batch, for its nodes
        self.cost = Cost(back=1.0 if space == "activation" else 2.0, passes=0.0)
        self.weights: list[int] = []  # examples of every batch
        self.tick: Callable[[float], None] | None = None  # called with the share of a pass that is done
        self.labels, self.seed = 1, 0  # drawn for a Monte Carlo Fisher matrix, and their seed
        self._loss: float | None = None
        self._passes = 0
        self._kept: dict[int, Products] = {}
        self._all_kept = False
        self._dim, self._in_first = 0, 1
        self._curved_at: set[int] = set()
        self._symmetric: set[str] = set()
        self.make: Callable[[Problem, int], Tape] | None = None  # another kind of tape of every batch
        self._signs: dict[tuple[int, int], Tensor] = {}
        self._stack = ExitStack()

    def __enter__(self) -> BatchStream:
        """Look at the first batch, with every check."""
        first = self._first()
        if first is None:
            raise ValueError("the data holds no batch: give a list of batches or a loader that yields at least one")
        options: Any = {"dtype": self.dtype, "mode": self.mode, "memory": self.memory, "noise": 0}
        with (
            recorded_parameters(self.model, self.loss_fn, first, **options)
            if self.tensors
            else recorded(self.model, self.loss_fn, first, nodes=self.nodes, space=self.space, **options)
        ) as tape:
            require_mean(tape)
            self.cost.passes += Cost().passes
            self._dim, self._in_first = dimension_of_examples(tape), tape.examples
        _forget(tape)
        self.tape = tape
        # the model that is measured may be a copy, and its copy of the loss goes with it
        self._stack.enter_context(laboratory(tape.problem.model, self.mode))
        return self

    def __exit__(self, *error: Any) -> None:
        self._kept = {}
        self._stack.close()

    def _first(self) -> Any:
        """The first batch; a generator gets it back."""
        if not isinstance(self.batches, Iterator):
            return next(batches_of(self.batches), None)
        first = next(self.batches, None)
        self.batches = chain([] if first is None else [first], self.batches)
        return first

    @property
    def leaves(self) -> list[list[Tensor]]:
        return self.tape.leaves

    @property
    def flat(self) -> list[Tensor]:
        return [leaf for leaves in self.leaves for leaf in leaves]

    def size(self, v: int) -> int:
        """Length of the vectors at node v."""
        return sum(leaf.numel() for leaf in self.leaves[v])

    def each(self, do: Callable[[Products], tuple[Any, Any]]) -> tuple[Any, list[Any]]:
        """One pass: do something with the products of every batch."""
        number, self._passes = self._passes, self._passes + 1
        state: dict[str, Any] = {"total": None, "each": [], "weights": [], "loss": 0.0, "over": False}
        if self.journal is not None:
            state = self.journal.load(number) or state
        if not state["over"]:
            done = len(state["weights"])
            for i, products in enumerate(self._visits(done)):
                n, loss = products.tape.examples, products.tape.loss
                got, kept = do(products)
                state["total"] = _added(state["total"], got, n)
                state["each"].append(kept)
                state["weights"].append(n)
                state["loss"] += n * loss
                if self.tick is not None and self.weights:
                    self.tick((done + i + 1) / len(self.weights))
                if self.journal is not None:
                    self.journal.save(number, state, over=False)
            state["over"] = True
            if self.journal is not None:
                self.journal.save(number, state, over=True)
        self._same_data(state["weights"], state["loss"] / sum(state["weights"]))
        share = 1 / sum(self.weights)
        return tree_map(lambda t: None if t is None else t * share, state["total"]), state["each"]

    def columns(self, wanted: Sequence[tuple[int, Pieces]]) -> list[Column]:
        """Several columns of the mean Hessian, each times its own probes, over one pass through the data."""

        portions: list[list[slice]] = []  # the same in every batch, so that long ones are joined once
        small = sum(leaf.numel() for leaf in self.flat) < SHORT

        def do(products: Products) -> tuple[Any, Any]:
            if not portions:
                portions.extend(products.portions(probes[0].shape[0]) for _, probes in wanted)
            sums, sketches = [], []
            for (w, probes), places in zip(wanted, portions):
                parts = [products.portion(w, probes, at) for at in places]
                if small:
                    parts = [Column.joined(parts)]
                sums.append([[c.gauss_newton, c.tensor] for c in parts])
                sketches.append([sketched(c, self._signs) for c in parts])
            return sums, sketches

        total, kept = self.each(do)
        weights = np.array(self.weights, float)
        found = []
        for k, parts in enumerate(total):
            column = Column.joined([Column(gauss_newton, tensor) for gauss_newton, tensor in parts])
            if len(kept) > 1:
                shares = [inner_products([one[k][i] for one in kept], weights) for i in range(len(parts))]
                column = replace(column, spread=np.concatenate(shares, -1))
            found.append(column)
        return found

    def column(self, w: int, probes: Pieces) -> Column:
        """Column w of the mean Hessian times probes, over one pass through the data."""
        return self.columns([(w, probes)])[0]

    def whole(self, probes: Pieces, part: Part = "H") -> Pieces:
        """The mean of the whole matrix times probes, over one pass through the data."""
        if part == "H" and self._all_kept and self.space == "parameter" and self.journal is None:
            return self._joined(probes)
        return self.each(lambda products: (products.whole(probes, part), None))[0]

    def _joined(self, probes: Pieces) -> Pieces:
        """The same from graphs that were all kept: one backward pass goes through all of them and adds them up."""
        kept, total = list(self._kept.values()), sum(self.weights)
        kept[0].require_symmetric("H")
        self._passes += 1
        out = []
        for at in kept[0].portions(probes[0].shape[0]):
            heads, tails = [], []
            for products in kept:
                share = products.tape.examples / total
                pairs = [
                    (g, z[at]) for g, z in zip(products.full_gradient, probes) if g is not None and g.requires_grad
                ]
                heads += [g for g, _ in pairs]
                tails += [share * z for _, z in pairs]
            out.append(filled(kept[0].backward(heads, kept[0].flat, tails), kept[0].flat, at.stop - at.start))
        self.cost.count_products(len(kept) * probes[0].shape[0])
        return out[0] if len(out) == 1 else [torch.cat(c) for c in zip(*out)]

    @property
    def at_once(self) -> int:
        """Products with a column that one pass may make: their sums are held in memory."""
        item = self.flat[0].element_size()
        return max(1, self.memory // 4 // (3 * item * sum(leaf.numel() for leaf in self.flat)))

    def _same_data(self, weights: list[int], loss: float) -> None:
        if self._loss is None:
            self.weights, self._loss = weights, loss
            self.tape.loss, self.tape.problem.examples = loss, sum(weights)
        elif len(weights) != len(self.weights) or abs(loss - self._loss) > 1e-4 * max(abs(loss), abs(self._loss)):
            raise ValueError(
                f"the loader yields different data in every pass (loss {self._loss:.6g}, then {loss:.6g}), but "
                "every matrix-vector product must use the same data. Turn off augmentation, drop_last and random "
                "sampling, or give list(itertools.islice(loader, n))"
            )

    def _visits(self, done: int) -> Iterator[Products]:
        """The products of every batch after the first ``done``, from graphs that were kept or recorded now."""
        if self._all_kept and not done:
            yield from self._kept.values()
            return
        # a loader may shuffle: some of its graphs and the rest of its batches are not its data
        keep = not self.once and (self._passes == 1 or isinstance(self.batches, Sequence))
        room = self.memory // KEPT
        count = 0
        for i, batch in enumerate(batches_of(self.batches)):
            count += 1
            if i < done:
                continue
            if i in self._kept:
                yield self._kept[i]
                continue
            with self._recorded(batch, i) as tape:
                products = Products(tape, memory=self.memory, roots="never", split=self.split, cost=self.cost)
                products.labels, products.seed, products.curved_at = self.labels, self.seed + i, self._curved_at
                products.symmetric = self._symmetric
                self.cost.passes += 1.0
                room -= 3 * tape.kept_bytes
                if keep and room >= 0:
                    self._kept[i] = products
                yield products
        self._all_kept = not done and len(self._kept) == count
        if not self._all_kept and not isinstance(self.batches, Sequence):
            self._kept = {}

    @contextmanager
    def _recorded(self, batch: Any, number: int) -> Iterator[Tape]:
        first = self.tape
        if first.pruned:  # of several tensors that a node returns some are used: found out again for each batch
            names = [n.name for n in first.nodes]
            options: Any = {"dtype": self.dtype, "mode": self.mode, "memory": self.memory, "noise": number}
            with recorded(self.model, self.loss_fn, batch, nodes=names, space=self.space, **options) as tape:
                yield tape
            return
        model, loss_fn = first.problem.model, first.problem.task.loss_fn
        if self.dtype is not None:
            cast = lambda t: t.to(self.dtype) if isinstance(t, Tensor) and t.is_floating_point() else t
            batch = tree_map(cast, batch)
        problem = Problem(model, loss_fn, batch, self.dtype, number)
        problem.examples = int(first_input(problem).shape[self._dim])
        kept = first.kept_bytes * problem.examples // self._in_first
        with advised():
            if self.make is not None:
                tape = self.make(problem, kept)
            else:
                tape = Tape(problem, list(first.nodes), self.space, chosen=first.chosen, kept_bytes=kept)
            tape.record(checked=True)
            tape.beyond = first.beyond
            if self.make is None:
                require_same_shapes(first, tape)
            yield tape


def _forget(tape: Tape) -> None:
    """Let go of the graph; nodes and the shapes of the leaves stay."""
    tape.outputs, tape.detached, tape.slope, tape.values, tape.rows = [], [], [], [], []
    tape._rebuild = None
    if tape.space == "activation":
        tape.leaves = [[leaf.detach() for leaf in leaves] for leaves in tape.leaves]


def _added(total: Any, more: Any, by: float) -> Any:
    """total + by · more through nested lists; None is zero."""
    if more is None:
        return total
    if isinstance(more, Tensor):
        return by * more if total is None else total.add_(more, alpha=by)
    return [_added(a, b, by) for a, b in zip(total if total is not None else [None] * len(more), more)]
