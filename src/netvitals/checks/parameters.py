"""Gradients and updates, tensor by tensor: cleared, there, used, and by which optimizer."""

from __future__ import annotations

import weakref
from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

SAMPLE = 2048  # entries of a tensor that are compared before and after a step
CLEARED = 8  # parameters of an optimizer whose gradients are followed from step to step


class Gradients:
    """What became of the gradients of each optimizer between its steps."""

    def __init__(self) -> None:
        self.steps: Counter[int] = Counter()  # by optimizer
        self.kept: Counter[int] = Counter()  # steps whose gradients began with those of the step before
        self.missing: Counter[int] = Counter()  # steps, of those looked at whole, that found no gradient
        self.whole: Counter[int] = Counter()
        self.kinds: dict[int, str] = {}
        self.held: dict[int, list[Tensor]] = {}  # what each optimizer moves
        self.still: dict[str, list[int]] = {}  # parameter → steps that left it as it was, of steps with a gradient
        self._left: dict[int, list[tuple[Tensor, weakref.ref[Tensor]]]] = {}  # gradients as the last step left them
        self._carried: set[int] = set()  # optimizers whose gradients a backward pass has found uncleared
        self._before: list[tuple[Tensor, Tensor, int]] = []

    def backward_begins(self) -> None:
        """Note whose gradients have been cleared since their last step, and whose have not."""
        for key in list(self._left):
            if any(_cleared(p, g) for p, g in self._left[key]):
                del self._left[key]
                self._carried.discard(key)
            else:
                self._carried.add(key)

    def step_begins(self, optimizer: Optimizer, whole: bool) -> None:
        """Before ``optimizer`` steps; on some steps every tensor is measured."""
        key = id(optimizer)
        self.kinds[key] = type(optimizer).__name__
        self.held[key] = [p for group in optimizer.param_groups for p in group["params"]]
        self.steps[key] += 1
        if key in self._carried and key in self._left and not any(_cleared(p, g) for p, g in self._left[key]):
            self.kept[key] += 1
        if not whole:
            return
        params = [p for group in optimizer.param_groups for p in group["params"] if group.get("lr", 1)]
        grads = [p.grad for p in params if p.grad is not None]
        if any(g.is_sparse for g in grads):
            return
        self.whole[key] += 1
        self.missing[key] += not grads or not any(bool(n) for n in torch._foreach_norm(grads))
        self._before = [(p, _sample(p), p._version) for p in params]

    def step_ends(self, optimizer: Optimizer, names: dict[int, str], whole: bool) -> None:
        """After ``optimizer`` has stepped."""
        key = id(optimizer)
        params = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        self._carried.discard(key)
        self._left[key] = [(p, weakref.ref(p.grad)) for p in params[:: max(1, len(params) // CLEARED)]]
        if not self._left[key]:
            del self._left[key]
        if not whole:
            return
        for p, before, version in self._before:
            if p.grad is None or p.grad.is_sparse or not bool(_sample(p.grad).any()):
                continue
            counts = self.still.setdefault(names.get(id(p), ""), [0, 0])
            counts[1] += 1
            counts[0] += p._version == version or torch.equal(before, _sample(p))
        self._before = []


def _cleared(p: Tensor, g: weakref.ref[Tensor]) -> bool:
    """Whether the gradient of a parameter is another tensor now, or zeros."""
    grad = g()
    return grad is None or p.grad is not grad or not bool(_sample(grad).any())


def _sample(tensor: Tensor) -> Tensor:
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
