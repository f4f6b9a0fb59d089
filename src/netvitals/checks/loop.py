"""Listens to the first steps of a training loop and answers the questions of :data:`netvitals.checks.CHECKS`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from netvitals.capture import BeforeScripting, Hook, detached_context
from netvitals.checks import backward
from netvitals.checks.check import CHECKS, Check
from netvitals.checks.dependencies import dependencies
from netvitals.checks.loss_graph import LossGraph, LossNode, examples_summed, is_mean, losses_of, walk
from netvitals.checks.objective import Labels, Targets, smallest_cross_entropy
from netvitals.checks.parameters import Gradients, hidden_parameters

STEPS = 50  # that are listened to
WHOLE = frozenset({0, 1, 2, 4, 8, 16, 32})  # steps on which every parameter and node is measured
CLASSIFIED = ("nll", "margin")
COMPARED = ("mse", "l1", "bce", "bce_logits")
BOUNDED = ("sigmoid", "tanh", "softmax", "relu", "hardtanh", "hardsigmoid")
NORMS = nn.modules.batchnorm._BatchNorm
DROPOUT = nn.modules.dropout._DropoutNd
TRAINS = (nn.modules.batchnorm._NormBase, nn.modules.dropout._DropoutNd)


class LoopChecks:
    """Collects exact facts of a loop: its losses, gradients, optimizers, passes and labels.

    Hooks are on the optimizers, on the watched modules and around ``torch.autograd.backward``, for ``STEPS`` steps;
    what is asked of evaluations stays until the end.
    """

    def __init__(
        self,
        model: nn.Module,
        roots: Sequence[nn.Module],
        optimizers: Callable[[], Iterable[Optimizer]],
        passes: bool = True,
    ) -> None:
        self._model, self._roots, self._optimizers, self._passes = model, list(roots), optimizers, passes
        self._names = {id(p): n for n, p in model.named_parameters()}
        self._handles: list[Any] = []
        self._global: list[Any] = []
        self.failed: dict[str, dict[str, Any]] = {}  # check → evidence, with the first step
        self.asked: Counter[str] = Counter()  # check → how often it ran on data that could have failed it
        self.why: dict[str, str] = {}
        self.step = 0  # of losses that were given
        self.gradients = Gradients()
        self.labels, self.targets = Labels(), Targets()
        self.loss_kinds: Counter[str] = Counter()
        self._leaves: Counter[int] = Counter()
        self._leaf: dict[int, Tensor] = {}
        self._sizes: list[tuple[int, int]] = []
        self._backwards = self._since_backward = 0
        self._stepped = 0  # optimizer steps since the last loss
        self._idle = 0  # losses in a row without an optimizer step
        self._owners: dict[int, set[int]] = {}  # parameter → optimizers that have stepped it
        self._kinds: dict[int, str] = {}
        self._made: Counter[tuple[int, ...]] = Counter()
        self._held: list[Optimizer] = []
        self._batch: tuple[nn.Module, tuple[Any, ...], dict[str, Any]] | None = None
        self._inputs: list[int] = []
        self._in_a_row = 0
        self._trained: set[int] = set()
        self._first: Tensor | None = None  # the first batch
        self._was_training = False
        self._depended = False
        self._features: tuple[Tensor, Tensor] | None = None
        self.open = self._concluding = False
        self._last_target: Tensor | None = None
        self.summed = 0  # examples over which the loss is a sum
        self._fresh: set[int] = set()
        self.linear = False
        self._classified = self.several = False
        self.pure = True  # the loss is one mean and nothing else, so that costs can be compared with it
        self._signs: Counter[bool] = Counter()  # terms of the loss that a better fit makes smaller, and larger

    # ------------------------------------------------------------------ beginning and end

    def begin(self) -> None:
        """Listen."""
        self.open = True
        backward.listen(self._backward)
        self._global = [
            register_optimizer_step_pre_hook(self._guarded(self._step_begins)),
            register_optimizer_step_post_hook(self._guarded(self._step_ends)),
        ]
        if self._passes:
            for root in self._roots:
                BeforeScripting.put_on(root, self.close)
                self._handles.append(root.register_forward_pre_hook(Hook(self._enters), with_kwargs=True))
        self._tied()

    def end_first_steps(self) -> None:
        """The first steps are over: only evaluations are still looked at."""
        if not self.open:
            return
        self.open = False
        backward.stop(self._backward)
        for handle in self._global:
            handle.remove()
        self._global, self._batch, self._held = [], None, []
        self._leaf.clear()
        if not any(isinstance(m, TRAINS) for m in self._model.modules()):
            self._leave()  # no layer of it knows train from eval mode

    def close(self) -> None:
        """Take every hook away."""
        self._guarded(self.conclude)()
        self.end_first_steps()
        self._leave()

    def _leave(self) -> None:
        """Take the hooks off the model."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        for root in self._roots:
            BeforeScripting.take_off(root, self.close)

    def _guarded(self, work: Callable[..., None]) -> Callable[..., None]:
        def call(*args: Any) -> None:
            try:
                with detached_context():
                    work(*args)
            except Exception as error:  # an error of ours must not end the user's training
                self.why.setdefault("checks", f"{type(error).__name__}: {error}")
                self.end_first_steps()

        return call

    def _fail(self, name: str, **evidence: Any) -> None:
        self.failed.setdefault(name, {"step": 0 if self._concluding else self.step, **evidence})

    # ------------------------------------------------------------------ the loss

    def _backward(self, tensors: Any) -> None:
        self._guarded(self._backward_begins)(tensors)

    def _backward_begins(self, tensors: Any) -> None:
        for t in [tensors] if isinstance(tensors, Tensor) else list(tensors):
            if t.grad_fn is not None and self._inputs:
                self.summed = max(self.summed, examples_summed(t.grad_fn, self._inputs[0]))
        roots = [
            t.grad_fn for t in ([tensors] if isinstance(tensors, Tensor) else list(tensors)) if t.grad_fn is not None
        ]
        if not roots:
            return
        self.gradients.backward_begins()
        self._since_backward += 1
        whole = self.step in WHOLE
        for root in roots:
            if whole:
                self._graph(walk(root))
            losses = losses_of(root)
            self.pure = self.pure and len(losses) == 1 and is_mean(root, losses[0])
            for loss in losses:
                self._loss(loss)
        self._backwards += 1

    def _graph(self, graph: LossGraph) -> None:
        own = [p for p in graph.leaves if id(p) in self._names]
        for p in graph.leaves:
            if self.step and id(p) not in self._leaves and isinstance(p, nn.Parameter) and id(p) not in self._names:
                self._fresh.add(id(p))  # kept alive below, so that its id stays its own
            self._leaves[id(p)] += 1
            self._leaf[id(p)] = p
        if not own:
            return
        self._sizes.append((self.step, graph.nodes))
        self.linear = graph.linear and graph.weights >= 2 and len(self._leaves) >= 2
        lost = [self._names[id(p)] for part in graph.steps for p in part if id(p) in self._names]
        if lost:
            self._fail("zero gradient", parameters=lost)
        for name, dim, shape in graph.softmaxes:
            self.asked["softmax over one class"] += 1
            if shape[dim] == 1:
                self._fail("softmax over one class", shape=list(shape), function=name)

    def _loss(self, loss: LossNode) -> None:
        if loss.kind == "broadcast":
            self._fail("broadcast", prediction=list(loss.stretched), compared=list(loss.shape))
            return
        if loss.kind == "clamped":
            self._fail("loss clamped", what="loss")
            return
        if loss.kind == "swapped":
            self._fail("loss mismatch", why="swapped")
            return
        self.loss_kinds[loss.kind] += 1
        if loss.reduction == "sum" and loss.shape and math.prod(loss.shape) > 1:
            self.summed = max(self.summed, math.prod(loss.shape[:1]))
        classes = loss.shape[1] if len(loss.shape) > 1 else loss.shape[0] if loss.shape else 0
        if loss.kind in ("nll", "log_prob"):
            self.asked["double softmax"] += 1
            if loss.before == "softmax":
                self._fail("double softmax", classes=classes, reach=smallest_cross_entropy("softmax", classes))
            elif loss.before in BOUNDED:
                self._fail(
                    "output activation",
                    activation=loss.before,
                    loss="cross-entropy",
                    reach=smallest_cross_entropy(loss.before, classes),
                )
        if loss.dim is not None and len(loss.over) == 2 and loss.over[0] != loss.over[1]:
            self.asked["softmax dimension"] += 1
            if loss.dim == 0 and loss.over[0] > 1:
                self._fail("softmax dimension", shape=list(loss.over))
        if loss.kind == "nll" and loss.prediction is not None:
            self._log_probabilities(loss)
        if loss.kind == "bce_logits":
            self.asked["double sigmoid"] += 1
            if loss.activation in ("sigmoid", "softmax"):
                self._fail("double sigmoid", activation=loss.activation)
            elif loss.activation in ("relu", "tanh", "hardtanh", "hardsigmoid"):
                self._fail("output activation", activation=loss.activation, loss="binary cross-entropy with logits")
        if loss.kind == "bce" and loss.activation in ("relu", "tanh"):
            self._fail("output activation", activation=loss.activation, loss="binary cross-entropy")
        if loss.kind == "mse" and loss.activation == "softmax" and loss.target is not None and loss.target.ndim == 2:
            rows = loss.target.sum(1)
            self.asked["output activation"] += 1
            if float(((rows - 1).abs() > 0.01).float().mean()) > 0.05:
                self._fail("output activation", activation="softmax", loss="a loss with several labels an example")
        if loss.kind in COMPARED:
            self._shapes(loss)
            self._reach(loss)
        self._sign(loss)
        self._pool(loss)

    def _log_probabilities(self, loss: LossNode) -> None:
        assert loss.prediction is not None
        if loss.activation == "log_softmax":
            self.asked["missing log-softmax"] += 1
            return
        values = loss.prediction.float()
        dim = 1 if values.ndim > 1 else 0
        total = torch.logsumexp(values, dim)
        self.asked["missing log-softmax"] += 1
        if bool(torch.isfinite(total).all()) and float(total.abs().max()) > 0.05:
            sums = values.sum(dim)
            probable = float(values.min()) >= 0 and bool(((sums - 1).abs() < 1e-3).all())
            self._fail("missing log-softmax", probabilities=probable)

    def _shapes(self, loss: LossNode) -> None:
        self.asked["broadcast"] += bool(loss.shape)
        shape, own = loss.shape, loss.stretched
        if len(shape) == 2 and shape[0] == shape[1] > 1 and own in ((shape[0], 1), (shape[0],), (1, shape[0])):
            self._fail("broadcast", prediction=list(own), compared=list(shape))

    def _reach(self, loss: LossNode) -> None:
        if loss.target is None:
            return
        self.asked["output activation"] += 1

    def _sign(self, loss: LossNode) -> None:
        if loss.kind in ("margin", "ctc") or not loss.sign or loss.terms > 1 or len(self._kinds) > 1:
            return
        self.asked["loss sign"] += 1
        self._signs[loss.sign == (-1 if loss.kind == "log_prob" else 1)] += 1

    def _pool(self, loss: LossNode) -> None:
        target = loss.target
        if target is None or not target.numel():
            return
        self.asked["targets not finite"] += 1
        if target.is_floating_point() and not bool(torch.isfinite(target).all()):
            self._fail("targets not finite", share=float((~torch.isfinite(target)).float().mean()))
        if loss.kind in CLASSIFIED and not target.is_floating_point():
            if self._classified:  # two sets of labels in one loss, or two losses a step, are not pooled
                self.several = True
            self._classified = True
            self.labels.add(target, loss.ignored)
            if not self._depended:
                self._last_target = target.detach().clone()
            self._compare_with_input(target, loss)
        elif loss.kind in COMPARED:
            self.targets.add(target, loss.activation)
            if not self._depended:
                self._last_target = target.detach().clone()
            self._same_sequence(target)
            self._feature(target)

    # ------------------------------------------------------------------ labels and inputs

    def _tokens(self, target: Tensor) -> Tensor | None:
        """The token ids of the last pass that stand where the labels stand."""
        if self._batch is None:
            return None
        for x in self._batch[1]:
            if (
                isinstance(x, Tensor)
                and not x.is_floating_point()
                and x.ndim == 2
                and x.numel() == target.numel()
                and x.shape[1] > 1
            ):
                return x
        return None

    def _compare_with_input(self, target: Tensor, loss: LossNode) -> None:
        x = self._tokens(target)
        if x is None:
            self._feature(target)
            return
        y = (
            target.reshape(x.shape)
            if target.shape == x.shape or target.ndim == 1
            else target.reshape(-1)[: x.numel()].reshape(x.shape)
        )
        used = y != loss.ignored
        self.asked["label is input"] += 1
        self.asked["padding counted"] += 1
        if bool(used.any()):
            same = float((x == y)[used].float().mean())
            if same > 0.95 and len(torch.unique(y[used])) > 2:
                self._fail("label is input", share=same)
        # padding: the same id at the end of rows, in input and labels
        pad = int(x[:, -1].mode().values)
        ends = (x == pad).flip(1).cumprod(1).flip(1).bool()
        lengths = ends.sum(1)
        if bool((lengths >= 2).float().mean() >= 0.25) and len(torch.unique(lengths)) > 1:
            labelled = ends & used & (y == pad)
            share = float(labelled.sum()) / max(1, int(used.sum()))
            if share > 0.1 and not bool((x == pad)[~ends].any()):
                self._fail("padding counted", share=share, token=pad)

    def _same_sequence(self, target: Tensor) -> None:
        """Whether a sequence of targets is a column of the inputs at the same places."""
        for x in self._batch[1] if self._batch is not None else ():
            if not isinstance(x, Tensor) or not x.is_floating_point() or x.ndim != 3 or target.shape[:2] != x.shape[:2]:
                continue
            y = target.reshape(*x.shape[:2], -1)
            if x.shape[1] < 2 or y.shape[2] != 1 or x.shape[2] < 2 or float(y.std()) == 0:
                continue  # an autoencoder gives back all that it gets
            self.asked["label is input"] += 1
            if bool((x == y).all(0).all(0).any()):
                self._fail("label is input", share=1.0)

    def _feature(self, target: Tensor) -> None:
        """Keep a table of features and its labels, to ask whether one column gives the label."""
        if self._batch is None or len(self._batch[1]) != 1:
            return
        x = self._batch[1][0]
        if not isinstance(x, Tensor) or x.ndim != 2 or not x.is_floating_point() or not 2 <= x.shape[1] <= 512:
            return
        y = target.reshape(len(target), -1) if target.ndim else target.reshape(1, 1)
        if len(y) != len(x) or y.shape[1] != 1:
            return
        pair = (x.double().cpu(), y.double().cpu()[:, 0])
        if self._features is None:
            self._features = pair
        elif len(self._features[0]) < 4096:
            self._features = (torch.cat([self._features[0], pair[0]]), torch.cat([self._features[1], pair[1]]))

    def _leak(self) -> None:
        if self._features is None or len(self._features[0]) < 64:
            return
        rows = torch.unique(torch.cat([self._features[0], self._features[1][:, None]], 1), dim=0)  # epochs repeat them
        x, y = rows[:, :-1], rows[:, -1]
        if len(x) < 64:
            return
        if not 2 <= len(torch.unique(y)) <= 20:  # a regression on one feature is a task like any other
            return
        self.asked["label leak"] += 1
        for j in range(x.shape[1]):
            column = x[:, j]
            if float(column.std()) == 0:
                continue
            r = float(torch.corrcoef(torch.stack([column, y]))[0, 1])
            if abs(r) > 0.999:
                self._fail("label leak", feature=j, correlation=r)
                return
            values, at = torch.unique(column, return_inverse=True)
            if len(values) <= len(column) / 8 and len(torch.unique(y)) <= len(values):
                low = torch.full((len(values),), math.inf, dtype=torch.float64).scatter_reduce(0, at, y, "amin")
                high = torch.full((len(values),), -math.inf, dtype=torch.float64).scatter_reduce(0, at, y, "amax")
                if bool((low == high).all()):
                    self._fail("label leak", feature=j, correlation=r)
                    return

    # ------------------------------------------------------------------ optimizers

    def _step_begins(self, optimizer: Optimizer, *_: Any) -> None:
        if self._ours(optimizer):
            self.gradients.step_begins(optimizer, self.step in WHOLE)

    def _step_ends(self, optimizer: Optimizer, *_: Any) -> None:
        params = [p for group in optimizer.param_groups for p in group["params"]]
        for p in params:
            self._owners.setdefault(id(p), set()).add(id(optimizer))
        if not self._ours(optimizer):
            return
        if id(optimizer) not in self._kinds:
            self._kinds[id(optimizer)] = type(optimizer).__name__
            self._held.append(optimizer)  # so that its id stays its own
            self._made[tuple(sorted(map(id, params)))] += 1
        self._stepped += 1
        self.gradients.step_ends(optimizer, self._names, self.step in WHOLE)

    def _ours(self, optimizer: Optimizer) -> bool:
        return any(id(p) in self._names for group in optimizer.param_groups for p in group["params"]) or any(
            optimizer is one for one in self._optimizers()
        )

    def _tied(self) -> None:
        tables = [(n, m.weight) for n, m in self._model.named_modules() if isinstance(m, nn.Embedding)]
        for name, module in self._model.named_modules():
            if isinstance(module, nn.Linear):
                for other, weight in tables:
                    if weight.shape == module.weight.shape and weight is not module.weight:
                        self.asked["tying lost"] += 1
                        if (
                            weight.numel() > 16
                            and torch.equal(weight, module.weight)
                            and float(weight.detach().std()) > 0
                        ):
                            self._fail("tying lost", output=name, embedding=other)

    # ------------------------------------------------------------------ passes

    def _enters(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        grad = torch.is_grad_enabled()
        try:
            with detached_context():  # what is computed here is no operation of the model's
                self._entered(module, args, kwargs, grad)
        except Exception as error:
            self.why.setdefault("passes", f"{type(error).__name__}: {error}")

    def _entered(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], grad: bool) -> None:
        if grad:
            self._in_a_row = 0
            self._trained.add(id(module))
            if self.open:
                self._training_pass(module, args, kwargs)
            elif module.training != self._was_training and self._was_training:
                self._mode(module)
            return
        if id(module) not in self._trained:
            return  # a teacher or target network
        self._in_a_row += 1
        if self._in_a_row == 2 or (self._in_a_row == 1 and self._larger(args)):
            self.asked["train mode in evaluation"] += 1
            wrong = [
                n for n, m in module.named_modules() if m.training and isinstance(m, TRAINS) and getattr(m, "p", 1) > 0
            ]
            if wrong:
                self._fail("train mode in evaluation", layers=wrong[:8], count=len(wrong))

    def _larger(self, args: tuple[Any, ...]) -> bool:
        n = next((len(a) for a in args if isinstance(a, Tensor) and a.ndim), 0)
        return bool(self._inputs) and n > 1.5 * self._inputs[0]

    def _training_pass(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._backwards <= STEPS:
            tensors = [a for a in args if isinstance(a, Tensor) and a.ndim]
            if tensors and self._first is None:
                self._first = tensors[0].detach().clone()
            if tensors and not self._inputs:
                self._inputs = [len(tensors[0])]
            numbers = sum(t.numel() for t in tensors)
            self._batch = None
            if numbers < (4_000_000 if self.step < 4 else 100_000):
                self._batch = (
                    module,
                    tuple(a.detach().clone() if isinstance(a, Tensor) else a for a in args),
                    dict(kwargs),
                )
        self._mode(module)

    def _mode(self, module: nn.Module) -> None:
        layers = [m for m in module.modules() if isinstance(m, TRAINS) and getattr(m, "p", 1) > 0]
        if not layers:
            return
        self.asked["left in eval mode"] += 1
        if any(m.training for m in layers):
            self._was_training = True
        elif self._was_training:
            self._fail("left in eval mode", layers=len(layers))

    # ------------------------------------------------------------------ the end of a step

    def end_step(self, loss: Any, busy: bool = False) -> None:
        """The loop has given a loss; while a measurement is under way (``busy``) the model is not run again."""
        if not self.open:
            return
        self._guarded(self._end_step)(loss, busy)

    def _end_step(self, loss: Any, busy: bool) -> None:
        self._idle = 0 if self._stepped else self._idle + 1
        if self._idle == 10:
            graph = isinstance(loss, Tensor) and loss.requires_grad
            self._fail("no optimizer step", backward=self._since_backward > 0, graph=graph)
        self._stepped = 0
        self._classified = False
        if self.step >= 2 and not busy and not self._depended and self._batch is not None:
            self._depended = True
            self._dependencies()
        self.step += 1
        if self.step >= STEPS:
            self.conclude()
            self.end_first_steps()

    def _dependencies(self) -> None:
        assert self._batch is not None
        module, args, kwargs = self._batch
        if not any(isinstance(a, Tensor) for a in args):
            return
        try:
            answers = dependencies(module, args, kwargs, self._last_target)
        except Exception as error:
            self.why["dependencies"] = f"{type(error).__name__}: {error}"
            return
        if args and isinstance(args[0], Tensor) and self._first is not None and torch.equal(args[0], self._first):
            answers.pop("examples mixed", None)  # the same rows on every step may be the nodes of a graph
        if "why" in answers:
            self.why["dependencies"] = answers.pop("why")
        for name, failed in answers.items():
            self.asked[name] += 1
            if failed:
                self._fail(name)

    # ------------------------------------------------------------------ answers

    def conclude(self) -> None:
        """What follows from the first steps together."""
        if not self.open:
            return
        self._concluding = True
        self._concluded_parameters()
        self._leak()
        if self._signs[False] >= 3 and not self._signs[True]:
            self._fail("loss sign")
        if len(self._sizes) >= 4:
            self.asked["graph grows"] += 1
            (first, small), (last, large) = self._sizes[1], self._sizes[-1]
            steady = all(a[1] < b[1] for a, b in zip(self._sizes[1:], self._sizes[2:]))
            if steady and large > 2 * small and large - small > 0.2 * small * (last - first) / max(1, first):
                self._fail("graph grows", first=small, last=large, steps=last - first)
        if self._idle < 10 and self.step >= 10:
            self.asked["no optimizer step"] += 1
        self._concluding = False

    def _concluded_parameters(self) -> None:
        g = self.gradients
        if not g.steps:
            return
        for key, n in g.steps.items():
            if n >= 3:
                self.asked["gradients carried over"] += 1
                if g.kept[key] >= 0.8 * (n - 1):
                    self._fail("gradients carried over", optimizer=g.kinds[key], steps=n)
            if g.whole[key] >= 2:
                self.asked["gradients gone"] += 1
                if g.missing[key] == g.whole[key] and self._backwards:
                    reached = any(id(p) in self._leaves for p in g.held[key])
                    self._fail("gradients gone" if reached else "cut off", optimizer=g.kinds[key], steps=g.whole[key])
        for count in self._made.values():
            self.asked["optimizer recreated"] += 1
            if count >= 5:
                self._fail("optimizer recreated", times=count)
        held = {id(p) for o in self._held for group in o.param_groups for p in group["params"]} | set(self._owners)
        for o in self._optimizers():
            held |= {id(p) for group in o.param_groups for p in group["params"]}
        used = {i for i, n in self._leaves.items() if n >= 2}
        if not used:
            return
        for name in ("not in the optimizer", "not registered", "stale parameters", "update lost"):
            self.asked[name] += 1
        left = [n for i, n in self._names.items() if i in used and i not in held]
        hidden = {i: place for i, place in hidden_parameters(self._model).items() if i in used and i not in held}
        unused = [
            p for o in self._held for group in o.param_groups for p in group["params"] if id(p) not in self._leaves
        ]
        stale = [p for p in unused if id(p) not in self._names]
        fresh = [self._leaf[i] for i in self._fresh if i in self._leaf and i not in held]
        if hidden:
            self._fail("not registered", parameters=list(hidden.values()))
        elif len(fresh) >= 3 and len({tuple(p.shape) for p in fresh}) < len(fresh):
            self._fail("not registered", parameters=[], fresh=len(fresh))
        elif left and stale:
            self._fail("stale parameters", parameters=left, held=len(stale))
        elif left:
            names = list(self._names.values())
            trained = [n for i, n in self._names.items() if i in held]
            # an optimizer that holds the end of a network, and nothing before it, is how a head is trained
            head = bool(trained) and max(map(names.index, left)) < min(map(names.index, trained))
            self._fail("not in the optimizer", parameters=left, head=head)
        self._unused(used, held)
        lost = [n for n, (still, seen) in g.still.items() if n and seen >= 2 and still == seen]
        if lost:
            self._fail("update lost", parameters=lost, all=len(lost) == len(g.still))

    def _unused(self, used: set[int], held: set[int]) -> None:
        """Parameters that an optimizer holds and no loss has reached."""
        whole = {id(p): p.numel() for p in self._model.parameters() if p.requires_grad and id(p) in held}
        left = [n for i, n in self._names.items() if i in whole and i not in self._leaves]
        share = sum(whole[i] for i in whole if i not in self._leaves) / max(1, sum(whole.values()))
        self.asked["unused layers"] += 1
        if left and share >= 0.2 and len(left) < len(whole):
            self._fail("unused layers", parameters=left, share=share)

    def facts(self) -> dict[str, Any]:
        """Everything that was found, as plain data."""
        self.conclude()
        return {
            "failed": dict(self.failed),
            "asked": dict(self.asked),
            "why": dict(self.why),
            "steps": self.step,
            "optimizers": len(self._made),
            "summed": self.summed,
            "pure": self.pure,
            "linear": self.linear,
            "single": bool(self._inputs)
            and self._inputs[0] == 1
            and any(isinstance(m, NORMS) for m in self._model.modules()),
            "half": [n for n, p in self._model.named_parameters() if p.dtype == torch.float16 and p.requires_grad][:50],
            "dropout": max((float(m.p) for m in self._model.modules() if isinstance(m, DROPOUT)), default=0.0),
            "losses": dict(self.loss_kinds),
            "labels": self.labels.facts() if self.labels.batches and not self.several else {},
            "targets": self.targets.facts() if self.targets.batches else {},
        }


def answers(facts: dict[str, Any]) -> list[Check]:
    """One check for each question, from the facts of a run."""
    out = []
    for name, question in CHECKS.items():
        if name in facts.get("failed", {}):
            out.append(Check(name, question.text, "failed", evidence=facts["failed"][name]))
        elif facts.get("asked", {}).get(name):
            out.append(Check(name, question.text, "passed"))
        else:
            out.append(Check(name, question.text, "not enough data", f"it needs {question.needs}"))
    return out
