"""Gradients, updates and optimizers, tensor by tensor: cleared, there, used, held, and by which optimizer."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from netvitals.checks.check import Record

ROUNDING = 1e-6  # of the largest gradient
SAMPLE = 2048  # entries of a tensor that are compared before and after a step
CLEARED = 8  # parameters of an optimizer whose gradients are followed from step to step
UNUSED = 0.2  # share of the weights; a smaller unused layer may be meant, such as the pooler of a language model


@dataclass
class Slot:
    """What became of one optimizer's gradients between its steps."""

    optimizer: Optimizer  # kept, so that its id stays its own
    steps: int = 0
    whole: int = 0  # steps on which every tensor was measured
    carried: int = 0  # steps that began with the gradients of the step before
    mixed: int = 0  # steps that began with gradients of a loss after which another optimizer had stepped
    missing: int = 0  # measured steps that found no gradient, or zeros only
    cleared: int = 0  # those whose gradients were there after backward()
    left: list[tuple[Tensor, weakref.ref[Tensor]]] = field(default_factory=list)  # gradients as its last step left them
    uncleared: bool = False  # the last backward pass began with these
    others: bool = False  # another optimizer has stepped on top of gradients that this one has not used
    mixing: bool = False  # and a backward pass has added to them
    there: bool = False  # the last backward pass left gradients
    early: int = 0  # steps between a forward pass and its backward pass

    @property
    def kind(self) -> str:
        return type(self.optimizer).__name__

    @property
    def params(self) -> list[Tensor]:
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    def sample(self) -> list[Tensor]:
        """Some of its parameters that have a gradient."""
        params = [p for p in self.params if p.grad is not None]
        return params[:: max(1, len(params) // CLEARED)]


class ParameterChecks:
    """Follows the optimizers of a loop and the tensors that they hold."""

    def __init__(
        self, record: Record, model: nn.Module, optimizers: Callable[[], Iterable[Optimizer]], names: dict[int, str]
    ) -> None:
        self._record, self._model, self._optimizers, self.names = record, model, optimizers, names
        self.slots: dict[int, Slot] = {}
        self.made: Counter[tuple[int, ...]] = Counter()  # optimizers made for the same tensors
        self.stepped = 0  # steps since the last loss
        self._owners: set[int] = set()  # parameters that some optimizer has stepped
        self._still: dict[str, list[int]] = {}  # parameter → steps that left it as it was, of steps with a gradient
        self._undone: dict[str, list[int]] = {}  # parameter → steps that were taken back, of steps that were compared
        self._before: list[tuple[Tensor, Tensor, int]] = []
        self._moved: list[tuple[Tensor, Tensor, Tensor]] = []  # as they were before and after the last measured step
        self._equal = {n: p for n, p in model.named_parameters() if p.requires_grad and _equal_rows(p)}
        self._pending = ""  # the last forward pass ("forward"), and a step after it ("step"), before its backward pass
        self._lint()

    # ------------------------------------------------------------------ events

    def forward_begins(self) -> None:
        """The model is called with gradients."""
        self._pending = "forward"

    def backward_begins(self) -> None:
        """Note whose gradients have been cleared since their last step, and whose have not."""
        for slot in self.slots.values():
            slot.early += self._pending == "step"
            if slot.left:
                slot.uncleared = not any(_cleared(p, g) for p, g in slot.left)
                slot.left = slot.left if slot.uncleared else []
            if len(self.slots) > 1 and not slot.uncleared:
                dirty = any(bool(_sample(p.grad).any()) for p in slot.sample() if p.grad is not None)
                slot.mixing = slot.others = slot.others and dirty
        self._pending = ""

    def backward_ends(self, whole: bool) -> None:
        """Note which optimizers' gradients are there, on steps that are measured ``whole``."""
        if whole:
            for slot in self.slots.values():
                slot.there = any_gradient(slot.params)

    def step_begins(self, optimizer: Optimizer, whole: bool) -> None:
        """Before ``optimizer`` steps."""
        if not self._ours(optimizer):
            return
        slot = self.slots.get(id(optimizer))
        if slot is None:
            slot = self.slots[id(optimizer)] = Slot(optimizer)
            self.made[tuple(sorted(map(id, slot.params)))] += 1
        slot.steps += 1
        self._pending = self._pending and "step"
        slot.carried += slot.uncleared and bool(slot.left) and not any(_cleared(p, g) for p, g in slot.left)
        slot.mixed += slot.mixing
        slot.mixing = slot.others = slot.uncleared = False
        for other in self.slots.values():
            other.others = other.others or other is not slot
        self._compare_with_last()
        if not whole:
            return
        params = [p for group in optimizer.param_groups for p in group["params"] if group.get("lr", 1)]
        if any(p.grad.is_sparse for p in params if p.grad is not None):
            return
        slot.whole += 1
        if not any_gradient(params):
            slot.missing += 1
            slot.cleared += slot.there
        self._before = [(p, _sample(p), p._version) for p in params]

    def step_ends(self, optimizer: Optimizer, whole: bool) -> None:
        """After ``optimizer`` has stepped."""
        slot = self.slots.get(id(optimizer))
        if slot is None:
            return
        self._owners.update(map(id, slot.params))
        self.stepped += 1
        slot.left = [(p, weakref.ref(p.grad)) for p in slot.sample() if p.grad is not None]
        if not whole:
            return
        grads = [p.grad for p, *_ in self._before]
        sizes = [0.0 if g is None or g.is_sparse or not g.numel() else float(_sample(g).abs().max()) for g in grads]
        for (p, before, version), size in zip(self._before, sizes):
            if not size > ROUNDING * max(sizes):  # a gradient that is zero but for rounding
                continue
            after = _sample(p)
            counts = self._still.setdefault(self.names.get(id(p), ""), [0, 0])
            counts[1] += 1
            counts[0] += p._version == version or torch.equal(before, after)
            self._moved.append((p, before, after))
        self._before = []

    def _compare_with_last(self) -> None:
        """Whether what the last step changed is as it was before it."""
        for p, before, after in self._moved:
            changed = before != after
            if bool(changed.any()):
                counts = self._undone.setdefault(self.names.get(id(p), ""), [0, 0])
                counts[1] += 1
                counts[0] += bool((_sample(p) == before)[changed].all())
        self._moved = []

    def _ours(self, optimizer: Optimizer) -> bool:
        return any(id(p) in self.names for group in optimizer.param_groups for p in group["params"]) or any(
            optimizer is one for one in self._optimizers()
        )

    # ------------------------------------------------------------------ before the first step

    def _lint(self) -> None:
        """Attributes that look like ``requires_grad`` and are none."""
        for name, module in self._model.named_modules():
            trained = [n for n, p in module.named_parameters() if p.requires_grad]
            if trained and any(vars(module).get(word) is False for word in ("requires_grad", *MISSPELT)):
                self._record.fail("freezing without effect", parameters=[f"{name}.{n}".lstrip(".") for n in trained])
        for name, p in self._model.named_parameters():
            word = next((w for w in MISSPELT if w in vars(p)), None)
            if word is not None and vars(p)[word] is False and p.requires_grad:
                self._record.fail("freezing without effect", parameters=[name], word=word)
        self._record.ask("freezing without effect")
        for name, module in self._model.named_modules():
            if isinstance(module, nn.Sequential | nn.ModuleList):
                layers = [m for m in module._modules.values() if m is not None and any(True for _ in m.parameters())]
                self._record.ask("shared module", len(layers) > 1)
                if len({id(m) for m in layers}) < len(layers):
                    self._record.fail("shared module", container=name, layers=len(layers))
        tables = [(n, m.weight) for n, m in self._model.named_modules() if isinstance(m, nn.Embedding)]
        for name, module in self._model.named_modules():
            if isinstance(module, nn.Linear):
                for other, weight in tables:
                    if weight.shape == module.weight.shape and weight is not module.weight:
                        self._record.ask("tying lost")
                        same = weight.numel() > 16 and torch.equal(weight, module.weight)
                        if same and float(weight.detach().std()) > 0:
                            self._record.fail("tying lost", output=name, embedding=other)

    # ------------------------------------------------------------------ conclusions

    def conclude(self, uses: Counter[int], leaves: dict[int, Tensor], fresh: set[int]) -> None:
        """What follows from all steps together.

        Args:
            uses: id of a leaf of the losses → graphs that it was in.
            leaves: the leaves by their ids.
            fresh: ids of leaves that were not there on the first step.
        """
        record = self._record
        slots = [slot for slot in self.slots.values() if slot.steps]
        if not slots:
            return
        held = set(self._owners)
        for optimizer in (*self._optimizers(), *(slot.optimizer for slot in slots)):
            held.update(id(p) for group in optimizer.param_groups for p in group["params"])
        self._equal_units({i for i in held if i in uses})
        used = {i for i, n in uses.items() if n >= 2}
        if used:
            self._held(used, held, leaves, fresh)
        for slot in slots:
            if slot.steps >= 3:
                record.ask("gradients carried over")
                if slot.carried >= 0.8 * (slot.steps - 1):
                    record.fail("gradients carried over", optimizer=slot.kind, steps=slot.steps)
                if len(slots) > 1:
                    record.ask("gradients of another loss")
                    if slot.mixed >= 0.8 * (slot.steps - 1) and slot.carried < 0.2 * slot.steps:
                        record.fail("gradients of another loss", optimizer=slot.kind, steps=slot.mixed)
            if slot.steps >= 2 and len(slots) == 1:
                record.ask("step before backward")
            if len(slots) == 1 and slot.early >= max(2, 0.8 * slot.steps):
                record.fail("step before backward", optimizer=slot.kind, steps=slot.early)
            elif slot.whole >= 2:
                record.ask("gradients gone")
                record.ask("all gradients zero")
                if slot.missing == slot.whole:
                    reached = any(id(p) in uses for p in slot.params)
                    there = any(p.grad is not None for p in slot.params)
                    name = "cut off" if not reached else "all gradients zero" if not slot.cleared and there else ""
                    if name != "cut off" or "stale parameters" not in record.failed:
                        record.fail(name or "gradients gone", optimizer=slot.kind, steps=slot.whole)
        for count in self.made.values():
            record.ask("optimizer recreated")
            if count >= 5:
                record.fail("optimizer recreated", times=count)

    def _held(self, used: set[int], held: set[int], leaves: dict[int, Tensor], fresh: set[int]) -> None:
        """Whether optimizers hold what the losses use, and losses use what optimizers hold."""
        record = self._record
        for name in ("not in the optimizer", "not registered", "stale parameters", "update lost", "unused layers"):
            record.ask(name)
        left = [n for i, n in self.names.items() if i in used and i not in held]
        hidden = {i: place for i, place in hidden_parameters(self._model).items() if i in used and i not in held}
        unused = [p for slot in self.slots.values() for p in slot.params if id(p) not in leaves]
        stale = [p for p in unused if id(p) not in self.names]
        made = [leaves[i] for i in fresh if i in leaves and i not in held]
        if hidden:
            record.fail("not registered", parameters=list(hidden.values()))
        elif len(made) >= 3 and len({tuple(p.shape) for p in made}) < len(made):
            record.fail("not registered", parameters=[], fresh=len(made))
        elif left and stale:
            record.fail("stale parameters", parameters=left, held=len(stale))
        elif left:
            names = list(self.names.values())
            trained = [n for i, n in self.names.items() if i in held]
            # an optimizer that holds the end of a network, and nothing before it, is how a head is trained
            head = bool(trained) and max(map(names.index, left)) < min(map(names.index, trained))
            record.fail("not in the optimizer", parameters=left, head=head)
        sizes = {id(p): p.numel() for p in self._model.parameters() if p.requires_grad and id(p) in held}
        without = [n for i, n in self.names.items() if i in sizes and i not in leaves]
        share = sum(n for i, n in sizes.items() if i not in leaves) / max(1, sum(sizes.values()))
        if without and len(without) < len(sizes):
            record.fail("unused layers", parameters=without, share=share, small=share < UNUSED)
        lost = [n for n, (still, steps) in self._still.items() if n and steps >= 2 and still == steps]
        undone = [n for n, (back, steps) in self._undone.items() if n and steps >= 2 and back == steps]
        if lost:
            record.fail("update lost", parameters=lost, all=len(lost) == len(self._still))
        elif undone:
            record.fail("update lost", parameters=undone, undone=True)

    def _equal_units(self, trained: set[int]) -> None:
        """Weights whose units began equal, and still are."""
        if self._record.step >= 10:
            self._record.ask("equal units")
            equal = [(n, p) for n, p in self._equal.items() if id(p) in trained and _equal_rows(p, 1e-4)]
            if equal:
                self._record.fail("equal units", parameters=[n for n, _ in equal], zero=not bool(equal[0][1].any()))


MISSPELT = ("require_grad", "required_grad", "requires_gradient", "require_gradient", "requires_grads", "require_grads")


def any_gradient(params: Iterable[Tensor]) -> bool:
    """Whether any of ``params`` has a gradient that is not zero."""
    grads = [p.grad for p in params if p.grad is not None]
    if any(g.is_sparse for g in grads):
        return True
    return bool(grads) and any(bool(n) for n in torch._foreach_norm(grads))


def _equal_rows(p: Tensor, share: float = 0.0) -> bool:
    """Whether all rows of a matrix are the same, up to a ``share`` of its largest entry."""
    if p.ndim < 2 or p.shape[0] < 2 or p[0].numel() < 2 or p.is_sparse or p.is_meta:
        return False
    rows = p.detach().reshape(p.shape[0], -1)
    room = share * float(rows.abs().max())
    return bool((rows[0] - rows[-1]).abs().max() <= room) and bool((rows - rows[0]).abs().max() <= room)


def _cleared(p: Tensor, g: weakref.ref[Tensor]) -> bool:
    """Whether the gradient of a parameter is another tensor now, or zeros."""
    grad = g()
    return grad is None or p.grad is not grad or not bool(_sample(grad).any())


def _sample(tensor: Tensor) -> Tensor:
    if tensor.is_sparse:
        tensor = tensor._values()
    flat = tensor.detach().reshape(-1)
    return flat[:: max(1, flat.numel() // SAMPLE)].clone()


def hidden_parameters(model: nn.Module) -> dict[int, str]:
    """Parameters that ``model`` keeps in plain lists, tuples or dicts, where neither ``parameters()`` nor an optimizer
    sees them: id → where.

    >>> net = nn.Module()
    >>> net.layers = [nn.Linear(2, 2)]
    >>> sorted(hidden_parameters(net).values())
    ['layers[0].bias', 'layers[0].weight']
    """
    registered = {id(p) for p in model.parameters()}
    out: dict[int, str] = {}

    def visit(value: Any, place: str, depth: int) -> None:
        if isinstance(value, nn.Parameter):
            if id(value) not in registered:
                out.setdefault(id(value), place)
        elif isinstance(value, nn.Module):
            for name, p in value.named_parameters():
                if id(p) not in registered:
                    out.setdefault(id(p), f"{place}.{name}")
        elif depth and isinstance(value, list | tuple):
            for i, one in enumerate(value[:1000]):
                visit(one, f"{place}[{i}]", depth - 1)
        elif depth and isinstance(value, dict):
            for key, one in list(value.items())[:1000]:
                visit(one, f"{place}[{key!r}]", depth - 1)

    own = set(vars(nn.Module()))
    for name, module in model.named_modules():
        for key, value in vars(module).items():
            if key not in own and isinstance(value, list | tuple | dict):
                visit(value, f"{name}.{key}".lstrip("."), 3)
    return out
