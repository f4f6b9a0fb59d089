r"""What must not change along a gauge's orbit: the log-probabilities, the outputs, or a loss of the user's own."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from netvitals.capture import (
    LossFn,
    Task,
    inputs_of,
    likelihood_of,
    mapped,
    output_tensor,
    resolve_loss,
    task_of,
    undisturbed,
)
from netvitals.optim.gauges import Gauge


@dataclass(frozen=True)
class Invariant:
    """A model, its input, and what must not change along an orbit."""

    task: Task
    kind: str | None  # "ce" or "mse"; None for a loss of the user's own

    def value(self, output: Any) -> Tensor:
        """Log-probabilities for cross-entropy, the outputs for MSE, or the user's loss."""
        if self.kind is None:
            return torch.atleast_1d(self.task.loss(output))
        outputs = output_tensor(output, self.task.model)
        return F.log_softmax(outputs, -1) if self.kind == "ce" else outputs

    def change_along(self, gauge: Gauge, seed: int) -> float:
        """Relative change of the value when a float64 copy of the model is moved along the gauge's orbit."""
        memo: dict[int, Any] = {}
        twin = copy.deepcopy(self.task.model, memo).double().eval()
        moved = copy.deepcopy(gauge, memo)  # the copy's gauge acts on the copy's parameters
        cast = lambda nest: mapped(nest, lambda t: t.double() if t.is_floating_point() else t)
        args, kwargs = cast(self.task.args), cast(dict(self.task.kwargs))
        net = replace(self, task=replace(self.task, targets=cast(self.task.targets)))
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            before = net.value(twin(*args, **kwargs))
            moved.act(0.5 * torch.randn(gauge.modes, generator=generator, dtype=torch.float64))
            after = net.value(twin(*args, **kwargs))
        change, size = (float(t.abs().max()) for t in (after - before, before))
        return change / size if size else change


@undisturbed
def invariant_of(model: nn.Module, loss_fn: LossFn, batch: Any) -> Invariant:
    """What must not change along an orbit: the output up to its likelihood's own symmetry, or a user's own loss."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"find_gauges needs a torch.nn.Module, got {type(model).__name__}")
    resolve_loss(loss_fn)
    given = inputs_of(model, _guess(model) if batch is None else batch)
    try:
        kind = likelihood_of(loss_fn, given.targets[0] if given.targets else None)
    except ValueError:  # a loss of the user's own: its value must not change
        if batch is None:
            raise ValueError(
                "with your own loss_fn, netvitals cannot guess the data: pass batch=(inputs, targets), or loss_fn as "
                "'ce' or 'mse'"
            ) from None
        return Invariant(task_of(model, loss_fn, batch), None)
    return Invariant(given, kind)


def _guess(model: nn.Module) -> Tensor:
    """A small random input that the first layer accepts."""
    like = next(model.parameters(), None)
    if like is None:
        raise ValueError(f"{type(model).__name__} has no parameters, so it has no gauge symmetries")
    generator = torch.Generator().manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            return torch.randint(0, module.num_embeddings, (2, 8), generator=generator)
        if isinstance(module, nn.Linear):
            return torch.randn(4, module.in_features, generator=generator).to(like)
        if isinstance(module, nn.Conv2d):
            return torch.randn(2, module.in_channels, 32, 32, generator=generator).to(like)
        if isinstance(module, nn.Conv1d):
            return torch.randn(2, module.in_channels, 32, generator=generator).to(like)
    raise ValueError("the model has no layer from which an input shape could be guessed; pass batch=(inputs, targets)")
