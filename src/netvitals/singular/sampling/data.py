"""All the data of a posterior as two tensors, whatever the loader yields.

Chains draw rows of one input and one target. Where a model takes several inputs, or keywords, or holds its own loss,
the rows drawn are row numbers, and a thin module looks the inputs up by them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from netvitals.capture import (
    LOSSES,
    LossFn,
    Only,
    Task,
    batches_of,
    check_finite,
    mapped,
    output_tensor,
    picked,
    resolve_loss,
    task_of,
    tensors,
)


@dataclass(frozen=True)
class Data:
    """``loss_fn(model(x), y)`` over all examples."""

    model: nn.Module
    loss_fn: Callable[[Any, Any], Tensor]
    x: Tensor
    y: Tensor

    def names(self, only: Only) -> list[str] | None:
        """Parameters that take part, as the model that is run has them; None is all of them."""
        if only is None:
            return None
        prefix = "model." if isinstance(self.model, ByRow) else ""
        known = [n.removeprefix(prefix) for n, _ in self.model.named_parameters()]
        found = picked(known, only, "parameter")
        if not found:
            raise ValueError(f"only= selects no parameter; the model has {', '.join(known[:12])}, …")
        return [prefix + n for n in found]


class ByRow(nn.Module):
    """A model whose input is a vector of row numbers of ``inputs``; it returns one tensor, or its own loss."""

    def __init__(self, task: Task, own_loss: bool) -> None:
        super().__init__()
        self.model, self.own_loss = task.model, own_loss
        self.inputs = (task.args, dict(task.kwargs))
        self.task = task

    def forward(self, rows: Tensor) -> Tensor:
        args, kwargs = mapped(self.inputs, lambda t: t[rows] if t.ndim else t)
        output = self.model(*args, **kwargs)
        return self.task.loss(output) if self.own_loss else output_tensor(output, self.model)


def gathered(model: nn.Module, loss_fn: LossFn, batch: Any) -> Data:
    """Read a loader once, or take one batch, and put everything into two tensors.

    >>> found = gathered(nn.Linear(2, 1), "mse", [(torch.ones(2, 2), torch.ones(2, 1))] * 3)
    >>> found.x.shape, found.y.shape
    (torch.Size([6, 2]), torch.Size([6, 1]))
    """
    loss = resolve_loss(loss_fn)
    half = any(p.dtype in (torch.float16, torch.bfloat16) for p in model.parameters())
    tasks = [task_of(model, loss_fn, one) for one in batches_of(batch)]
    if not tasks:
        raise ValueError("the loader yields no batch: give a loader with at least one")
    for task in tasks:
        check_finite((task.args, dict(task.kwargs)), "the data")
    whole = Task(
        model=model,
        loss_fn=loss,
        args=_joined([task.args for task in tasks]),
        kwargs=_joined([dict(task.kwargs) for task in tasks]),
        targets=_joined([task.targets for task in tasks]),
    )
    counts = {len(t) for t in tensors((whole.args, dict(whole.kwargs), whole.targets)) if t.ndim}
    if len(counts) != 1 or min(counts) < 3:
        raise ValueError(
            "inputs and targets must have the same number of examples, at least 3; got "
            f"{' and '.join(map(str, sorted(counts))) or 'none'}"
        )
    if half:  # the chains are run in float32
        whole = replace(whole, args=mapped(whole.args, _single), kwargs=mapped(dict(whole.kwargs), _single))
    rows = torch.arange(counts.pop(), device=next(tensors((whole.args, dict(whole.kwargs)))).device)
    if loss is None:
        return Data(ByRow(whole, own_loss=True), lambda value, _: value, rows, rows)
    (target,) = whole.targets
    if not isinstance(target, Tensor):
        raise TypeError(f"the target must be a single tensor, got a {type(target).__name__}")
    loss = F.cross_entropy if loss is LOSSES["ce"] and target.ndim == 1 else loss  # which has a fast path
    if len(whole.args) == 1 and isinstance(whole.args[0], Tensor) and not whole.kwargs:
        return Data(model, _on_tensors(model, loss), whole.args[0], target)
    return Data(ByRow(whole, own_loss=False), loss, rows, target)


def _on_tensors(model: nn.Module, loss: Callable[..., Tensor]) -> Callable[[Any, Any], Tensor]:
    """The loss itself for a stack of layers, which returns a tensor; else with the tensor taken out of the output."""
    if isinstance(model, nn.Sequential | nn.Linear):
        return loss  # recognised by identity further down, where cross-entropy has a fast path
    return _Unwrapped(model, loss)


class _Unwrapped:
    def __init__(self, model: nn.Module, loss: Callable[..., Tensor]) -> None:
        self.model, self.loss = model, loss

    def __call__(self, output: Any, target: Tensor) -> Tensor:
        return self.loss(output if isinstance(output, Tensor) else output_tensor(output, self.model), target)


def _single(t: Tensor) -> Tensor:
    return t.float() if t.dtype in (torch.float16, torch.bfloat16) else t


def _joined(parts: Sequence[Any]) -> Any:
    """Nests of one shape with their tensors laid end to end; what is no tensor is taken from the first."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if isinstance(first, Tensor):
        try:
            return torch.cat(list(parts)) if first.ndim else first
        except RuntimeError as error:
            shapes = sorted({tuple(p.shape[1:]) for p in parts})
            raise ValueError(
                f"the batches cannot be concatenated because their examples have different shapes {shapes}: pad them "
                "to one shape"
            ) from error
    if isinstance(first, Mapping):
        return {key: _joined([part[key] for part in parts]) for key in first}
    if isinstance(first, tuple | list):
        return type(first)(_joined(list(column)) for column in zip(*parts))
    return first
