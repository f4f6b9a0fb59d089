"""What a step did to the parameters: their values before it, and the gradients that were used."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from netvitals.anatomy.atlas import Anatomy
from netvitals.capture.engine.hook import Hook
from netvitals.capture.views import ParameterView

Moved = Callable[[Mapping[str, Tensor], Mapping[str, Tensor]], None]  # (gradients, values before)


class OptimizerHooks:
    """Watches the optimizers of a model while armed, by hooks before and after their step.

    With the optimizers given, ``moved`` is called as soon as the last of them has stepped. Without, every torch
    optimizer that holds parameters of the model is noticed; from the next armed step on it counts as given. For a
    loop that moves parameters by hand, copies of the gradients are taken as they arrive.

    Args:
        parameters: the model's parameters by name.
        optimizers: those that move them; may be empty.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], optimizers: Iterable[Optimizer] = ()) -> None:
        self._names = {id(p): name for name, p in parameters.items()}
        self._parameters = parameters
        self._optimizers = [weakref.ref(o) for o in optimizers]
        self._by_hand = not self._optimizers
        self._handles: list[Any] = []
        self._moved: Moved | None = None
        self._stepped: list[Any] = []
        self.grads: dict[str, Tensor] = {}
        self.before: dict[str, Tensor] = {}

    def arm(self, moved: Moved) -> None:
        self.disarm()
        self._moved = moved
        known = [o for o in (ref() for ref in self._optimizers) if o is not None]
        if known:
            for optimizer in known:
                self._handles += (
                    optimizer.register_step_pre_hook(Hook(self._before)),
                    optimizer.register_step_post_hook(Hook(self._after)),
                )
            return
        self._handles += (
            register_optimizer_step_pre_hook(self._before),
            register_optimizer_step_post_hook(self._after),
        )
        if self._by_hand:
            self._handles += [
                p.register_post_accumulate_grad_hook(self._arrived)
                for p in self._parameters.values()
                if p.requires_grad
            ]

    def disarm(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        if self._stepped and not self._optimizers:  # found by looking: given from now on
            self._optimizers = [weakref.ref(o) for o in self._stepped]
            self._by_hand = False
        self._stepped, self._moved = [], None
        self.grads, self.before = {}, {}

    def settle(self) -> None:
        """The step is over: report now if no optimizer, or not every one of them, has stepped."""
        if self._moved is not None:
            grads = self.grads or {n: p.grad for n, p in self._parameters.items() if p.grad is not None}
            self._report(grads)

    def _report(self, grads: Mapping[str, Tensor]) -> None:
        moved, self._moved = self._moved, None
        if moved is not None:
            moved(grads, self.before)

    def _mine(self, optimizer: Optimizer) -> list[tuple[str, Tensor]]:
        return [
            (self._names[id(p)], p) for group in optimizer.param_groups for p in group["params"] if id(p) in self._names
        ]

    def _before(self, optimizer: Any, *_: Any) -> None:
        if self._moved is None or optimizer in self._stepped:
            return
        mine = [(name, p.detach()) for name, p in self._mine(optimizer)]
        if mine:  # times one: the quickest copy of many small tensors
            self.before.update(zip((name for name, _ in mine), torch._foreach_mul([p for _, p in mine], 1)))

    def _after(self, optimizer: Any, *_: Any) -> None:
        mine = self._mine(optimizer)
        if self._moved is None or not mine or optimizer in self._stepped:
            return
        known = [o for o in (ref() for ref in self._optimizers) if o is not None]
        last = len(known) == len(self._stepped) + 1
        self._stepped.append(optimizer)
        # zero_grad(set_to_none=False) may come before the last optimizer: then only a copy is safe
        self.grads.update((name, p.grad if last else p.grad.detach().clone()) for name, p in mine if p.grad is not None)
        if last:
            self._report(self.grads)

    def _arrived(self, p: Tensor) -> None:
        if p.grad is not None and self._moved is not None and not self._stepped:
            self.grads[self._names[id(p)]] = p.grad.detach().clone()


def parameter_view(
    modules: Mapping[str, nn.Module],
    initial: Mapping[str, Tensor],
    grads: Mapping[str, Tensor] | None = None,
    before: Mapping[str, Tensor] | None = None,
    anatomy: Anatomy | None = None,
) -> ParameterView:
    """All parameters of a model, given as its modules by name, as a vital sign is shown them.

    Args:
        modules: every module by its dotted name, the model itself under ``""``.
        initial: copies of the parameters as they were at the start, by name.
        grads: gradients by parameter name, sparse ones are made dense; None where there was no backward pass.
        before: copies of the parameters before the optimizer's step, by name; None where there was no step.
        anatomy: what the model is made of, where that is known.

    Returns:
        The view; a shared parameter is in it once, under the first of its names.
    """
    params: dict[str, Tensor] = {}
    met: set[int] = set()
    for prefix, module in modules.items():
        for key, p in module._parameters.items():
            if p is not None and id(p) not in met:  # a shared parameter has the first of its names
                met.add(id(p))
                params[f"{prefix}.{key}" if prefix else key] = p
    # an nn.Embedding(sparse=True) has a gradient that few operations take
    dense = {n: g if g.layout is torch.strided else g.to_dense() for n, g in (grads or {}).items()}
    return ParameterView(
        params=params, initial=initial, grads=dense, before=before or {}, modules=modules, anatomy=anatomy
    )


def copies(model: nn.Module) -> dict[str, Tensor]:
    """A copy of every parameter, by name.

    Args:
        model: a model whose parameters all have a shape; a lazy one is a ``ValueError``.

    Returns:
        Detached tensors on the parameters' own devices, by dotted name.
    """
    lazy = [n for n, p in model.named_parameters() if isinstance(p, nn.parameter.UninitializedParameter)]
    if lazy:
        raise ValueError(f"parameter {lazy[0]!r} has no shape yet; run one batch through the model first")
    with torch.no_grad():
        return {n: p.detach().clone() for n, p in model.named_parameters()}
