"""Losses and their graphs: what feeds them, with which sign, over which shape, and what they ask for."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn

from netvitals.checks.batches import BatchChecks
from netvitals.checks.check import Record
from netvitals.checks.loss_graph import (
    LossGraph,
    LossNode,
    bootstrapped,
    examples_summed,
    is_mean,
    losses_of,
    name_of,
    parents,
    shape_of,
    singular_points,
    walk,
)
from netvitals.checks.objective import Labels, Targets, smallest_cross_entropy

CLASSIFIED = ("nll", "margin")
COMPARED = ("mse", "l1", "bce", "bce_logits")
PRODUCTS = {"masked": "mask after the mean", "advantage": "advantage with a gradient"}
BOUNDED = ("sigmoid", "tanh", "softmax", "relu", "hardtanh", "hardsigmoid")


class LossChecks:
    """Reads the graph of each loss before ``backward`` frees it."""

    def __init__(self, record: Record, names: dict[int, str], batches: BatchChecks) -> None:
        self._record, self._names, self._batches = record, names, batches
        self.labels, self.targets = Labels(), Targets()
        self.kinds: Counter[str] = Counter()
        self.uses: Counter[int] = Counter()  # id of a leaf → graphs that it was in
        self.leaves: dict[int, Tensor] = {}
        self.fresh: set[int] = set()  # leaves that were not there on the first step
        self.passes = 0
        self.several = False  # losses with labels in one step: they are not pooled
        self._classified = False
        self._summed = 0  # examples over which the loss is a sum
        self._linear = False
        self._classes = 0  # that a loss written by hand chooses from
        self._pure = True  # the loss is one mean and nothing else, so that costs can be compared with it
        self._sizes: list[tuple[int, int]] = []
        self._signs: Counter[bool] = Counter()  # terms of the loss that a better fit makes smaller, and larger
        self._singular = True  # the graph has functions whose gradient may be infinite
        self._poles: set[str] = set()  # names of these functions, but for the division, which is everywhere
        self.points: dict[str, int] = {}  # and at such a point they are, in the last graph

    # ------------------------------------------------------------------ the graph

    def backward_begins(self, tensors: Any, given: bool, whole: bool, many: bool) -> None:
        """Read the graphs of ``tensors``; every node on steps that are measured ``whole``.

        Args:
            tensors: what backward is called on.
            given: whether the caller weights the outputs.
            whole: whether every node is visited.
            many: whether several optimizers step.
        """
        outputs = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        roots = [t.grad_fn for t in outputs if isinstance(t, Tensor) and t.grad_fn is not None]
        if not roots:
            return
        self.points = {}
        for root in roots:
            if whole or self._singular:
                self._graph(walk(root), whole)
            summed = examples_summed(root, self._batches.size)
            if given and shape_of(root)[:1] == (self._batches.size,) and self._batches.size >= 4:
                summed = self._batches.size  # backward(torch.ones_like(loss)) adds up
            self._summed = max(self._summed, summed)
            losses = losses_of(root)
            alone = [loss for loss in losses if loss.kind not in PRODUCTS]
            self._pure = self._pure and len(alone) == 1 and is_mean(root, alone[0])
            for loss in losses:
                self._loss(loss, many)
            self._bootstrap(root)
        if self.points and not all(bool(torch.isfinite(t.detach()).all()) for t in outputs if isinstance(t, Tensor)):
            self._record.fail("infinite gradient", functions=dict(self.points), loss=True)
        self.passes += 1

    def _graph(self, graph: LossGraph, whole: bool) -> None:
        self._singular = bool(graph.singular)
        self._poles |= {name_of(node).lower() for node in graph.singular} - {"div"}
        for name, count in singular_points(graph.singular).items():
            self.points[name] = self.points.get(name, 0) + count
        if not whole:
            return
        own = [p for p in graph.leaves if id(p) in self._names]
        for p in graph.leaves:
            new = self._record.step and id(p) not in self.uses and isinstance(p, nn.Parameter)
            if new and own and id(p) not in self._names:  # a graph without the model's own is one of copies of it
                self.fresh.add(id(p))  # kept alive below, so that its id stays its own
            self.uses[id(p)] += 1
            self.leaves[id(p)] = p
        if not own:
            return
        self._sizes.append((self._record.step, graph.nodes))
        self._linear = graph.linear and graph.weights >= 2 and len(self.leaves) >= 2
        self._record.ask("zero gradient")
        lost = [self._names[id(p)] for part in graph.steps for p in part if id(p) in self._names]
        if lost:
            self._record.fail("zero gradient", parameters=lost)
        for name, dim, shape in graph.softmaxes:
            self._record.ask("softmax over one class")
            if shape[dim] == 1:
                self._record.fail("softmax over one class", shape=list(shape), function=name)

    def _bootstrap(self, root: Any) -> None:
        """A difference of two predictions, one of them a reward and the best value of the next state."""
        node = root
        for _ in range(6):
            name, edges = name_of(node), [fn for fn, _ in node.next_functions]
            if name in ("MseLoss", "SmoothL1Loss", "HuberLoss", "Sub") and len(edges) == 2 and None not in edges:
                self._record.ask("target with a gradient")
                if bootstrapped(edges[1]) != bootstrapped(edges[0]):
                    self._record.fail("target with a gradient")
                return
            if name not in ("Mean", "Sum", "Pow", "Abs", "Div", "Mul") or not parents(node):
                return
            node = parents(node)[0]

    def gradients_broke(self, params: list[Tensor]) -> None:
        """After a backward pass with functions at singular points: name them if a gradient is not finite."""
        self._record.ask("infinite gradient")
        grads = [p.grad for p in params if p.grad is not None and not p.grad.is_sparse]
        if self.points and grads and not all(bool(torch.isfinite(n)) for n in torch._foreach_norm(grads)):
            self._record.fail("infinite gradient", functions=dict(self.points))

    # ------------------------------------------------------------------ one loss

    def _loss(self, loss: LossNode, many: bool) -> None:
        record = self._record
        if loss.kind == "broadcast":
            record.fail("broadcast", prediction=list(loss.stretched), compared=list(loss.shape))
        elif loss.kind == "clamped":
            record.fail("loss clamped", share=loss.share)
        elif loss.kind == "swapped":
            record.fail("loss mismatch", why="swapped")
        elif loss.kind in PRODUCTS:
            record.ask(PRODUCTS[loss.kind])
            if not loss.sign:
                record.fail(PRODUCTS[loss.kind], shape=list(loss.shape))
        else:
            self.kinds[loss.kind] += 1
            self._feeds(loss)
            if loss.kind in COMPARED:
                record.ask("broadcast", bool(loss.shape))
                shape, own = loss.shape, loss.stretched
                square = len(shape) == 2 and shape[0] == shape[1] > 1
                if square and own in ((shape[0], 1), (shape[0],), (1, shape[0])):
                    record.fail("broadcast", prediction=list(own), compared=list(shape))
                record.ask("output activation", loss.target is not None)
            if not many and loss.kind not in ("margin", "ctc") and loss.sign and loss.terms == 1:
                record.ask("loss sign")
                self._signs[loss.sign == (-1 if loss.kind == "log_prob" else 1)] += 1
            self._pool(loss)

    def _feeds(self, loss: LossNode) -> None:
        """The activation before the loss, and the dimension of its softmax."""
        record = self._record
        if loss.reduction == "sum" and loss.shape and math.prod(loss.shape) > 1:
            self._summed = max(self._summed, loss.shape[0])
        classes = loss.shape[1] if len(loss.shape) > 1 else loss.shape[0] if loss.shape else 0
        if loss.kind in ("nll", "log_prob"):
            record.ask("double softmax")
            reach = smallest_cross_entropy(loss.before, classes)
            if loss.before == "softmax" and loss.activation != "log":
                record.fail("double softmax", classes=classes, reach=reach)
            elif loss.before in BOUNDED and loss.activation != "log":
                record.fail("output activation", activation=loss.before, loss="cross-entropy", reach=reach)
            elif loss.activation == "log" and loss.before in ("relu", "tanh"):
                record.fail("output activation", activation=loss.before, loss="cross-entropy")
        if loss.kind == "log_prob" and loss.activation == "log_softmax" and len(loss.shape) == 2:
            self._classes = classes
        if loss.dim is not None and len(loss.over) == 2 and loss.over[0] != loss.over[1]:
            record.ask("softmax dimension")
            if loss.dim == 0 and loss.over[0] > 1:
                record.fail("softmax dimension", shape=list(loss.over))
        if loss.kind in ("nll", "ctc") and loss.prediction is not None:
            self._log_probabilities(loss)
        if loss.kind == "kl" and loss.activation:
            record.ask("missing log-softmax")
            if loss.activation in ("softmax", "sigmoid", "logits"):
                record.fail("missing log-softmax", probabilities=loss.activation != "logits", loss="kl_div")
        if loss.kind == "nll" and loss.weighted:
            record.ask("class without weight")
            if loss.without is not None:
                record.fail("class without weight", label=loss.without)
        if loss.kind == "ctc":
            record.ask("blank among the labels")
            if loss.without is not None:
                record.fail("blank among the labels", blank=loss.without)
        if loss.kind == "bce_logits":
            record.ask("double sigmoid")
            if loss.activation in ("sigmoid", "softmax"):
                record.fail("double sigmoid", activation=loss.activation)
            elif loss.activation in ("relu", "tanh", "hardtanh", "hardsigmoid"):
                record.fail("output activation", activation=loss.activation, loss="binary cross-entropy with logits")
            if loss.target is not None and loss.target.numel():
                record.ask("labels out of range")
                low, high = (float(v) for v in torch.aminmax(loss.target.float()))
                if low < 0 or high > 1:
                    record.fail("labels out of range", low=low, high=high)
        if loss.kind == "bce" and loss.activation in ("relu", "tanh"):
            record.fail("output activation", activation=loss.activation, loss="binary cross-entropy")
        if loss.kind == "mse" and loss.activation == "softmax" and loss.target is not None and loss.target.ndim == 2:
            record.ask("output activation")
            if float(((loss.target.sum(1) - 1).abs() > 0.01).float().mean()) > 0.05:
                record.fail("output activation", activation="softmax", loss="a loss with several labels an example")

    def _log_probabilities(self, loss: LossNode) -> None:
        assert loss.prediction is not None
        self._record.ask("missing log-softmax")
        if loss.activation == "log_softmax":
            return
        values = loss.prediction.float()
        dim = -1 if loss.kind == "ctc" else 1 if values.ndim > 1 else 0
        total = torch.logsumexp(values, dim)
        if bool(torch.isfinite(total).all()) and float(total.abs().max()) > 0.05:
            sums = values.sum(dim)
            probable = float(values.min()) >= 0 and bool(((sums - 1).abs() < 1e-3).all())
            function = "ctc_loss" if loss.kind == "ctc" else "nll_loss"
            self._record.fail("missing log-softmax", probabilities=probable, loss=function)

    def _pool(self, loss: LossNode) -> None:
        target = loss.target
        if target is None or not target.numel():
            return
        self._record.ask("targets not finite")
        if target.is_floating_point() and not bool(torch.isfinite(target).all()):
            self._record.fail("targets not finite", share=float((~torch.isfinite(target)).float().mean()))
        if loss.kind in CLASSIFIED and not target.is_floating_point():
            self.several = self.several or self._classified  # two sets of labels in one step are not pooled
            self._classified = True
            self.labels.add(target, loss.ignored)
            self._batches.beside_labels(target, loss.ignored)
            if loss.reduction != "none":  # a mask may follow
                self._batches.padding(target, loss.ignored)
        elif loss.kind in COMPARED:
            self.targets.add(target, loss.activation)
            self._batches.beside_targets(target)

    # ------------------------------------------------------------------ the end

    def end_step(self) -> None:
        """The loop has given a loss."""
        self._classified = False

    def conclude(self) -> None:
        """What follows from all steps together."""
        if self._signs[False] >= 3 and not self._signs[True]:
            self._record.fail("loss sign")
        if len(self._sizes) >= 4:
            self._record.ask("graph grows")
            (first, small), (last, large) = self._sizes[1], self._sizes[-1]
            steady = all(a[1] < b[1] for a, b in zip(self._sizes[1:], self._sizes[2:]))
            if steady and large > 2 * small and large - small > 0.2 * small * (last - first) / max(1, first):
                self._record.fail("graph grows", first=small, last=large, steps=last - first)

    def facts(self) -> dict[str, Any]:
        """What rules ask of the losses."""
        return {
            "summed": self._summed,
            "pure": self._pure,
            "linear": self._linear,
            "losses": dict(self.kinds),
            "classes": self._classes,
            "poles": sorted(self._poles),
            "labels": self.labels.facts() if self.labels.batches and not self.several else {},
            "targets": self.targets.facts() if self.targets.batches else {},
        }
