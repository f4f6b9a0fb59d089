r"""What a loss reads of the recorded pass besides the model's output: activations kept by hooks, penalised parameters.

With $a,b$ over everything that the loss reads, the model's output among them,
$H^{GN}_{v,w}=\sum_{a,b}J_{a,v}^\top\,\partial^2L/\partial f_a\partial f_b\,J_{b,w}$. For $\partial L$ each of them has
to be a variable of its own, also where one feeds another: while the loss runs, every tensor that it takes from the
pass is replaced by such a variable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only


class Replaced(TorchFunctionMode):
    """Every tensor that a function of torch gets is ``by(tensor)`` instead."""

    def __init__(self, by: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self._by = by

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = tree_map_only(Tensor, self._by, (tuple(args), dict(kwargs or {})))
        return func(*args, **kwargs)


class LossInputs:
    """Tensors of one recorded pass that a loss reads, and a variable for each.

    Args:
        moved: id of a tensor as its module made it → the tensor and the same with its perturbation: what a module
            keeps of its own output is read with the perturbation.
        leaves: parameters that are differentiated by.
        start: where autograd's count stood before the pass.
    """

    def __init__(self, moved: Mapping[int, tuple[Tensor, Tensor]], leaves: Iterable[Tensor], start: int) -> None:
        self._moved, self._start = moved, start
        self._leaves = {id(t) for t in leaves}
        self._end = operations()
        self._variables: dict[int, tuple[Tensor, Tensor]] = {}

    @property
    def tensors(self) -> list[Tensor]:
        """What was read, in the graph of the pass."""
        return [t for t, _ in self._variables.values()]

    @property
    def variables(self) -> list[Tensor]:
        """The same as variables of the loss alone."""
        return [v for _, v in self._variables.values()]

    def attached(self) -> Replaced:
        """While this is active, the loss is a function of the pass."""
        return Replaced(self._perturbed)

    def cut(self) -> Replaced:
        """While this is active, the loss is a function of variables."""
        return Replaced(self._variable)

    def halved(self, part: slice, examples: int) -> Replaced:
        """While this is active, the loss sees some of the examples of what it reads."""
        return Replaced(lambda t: v[part] if (v := self._variable(t)) is not t and v.shape[:1] == (examples,) else v)

    def _perturbed(self, t: Tensor) -> Tensor:
        return self._moved[id(t)][1] if id(t) in self._moved else t

    def _variable(self, t: Tensor) -> Tensor:
        t = self._perturbed(t)
        if not t.requires_grad:
            return t
        if t.grad_fn is None:
            if id(t) not in self._leaves:
                return t
        elif t.grad_fn._sequence_nr() >= self._end:
            return t  # made by the loss itself
        elif t.grad_fn._sequence_nr() < self._start:
            raise ValueError(
                f"loss_fn reads a tensor of shape {tuple(t.shape)} from an earlier forward pass, perhaps stored by a "
                "hook; your own hooks are not called during a measurement. Store the tensor as an attribute in "
                "forward, or return it"
            )
        if id(t) not in self._variables:
            self._variables[id(t)] = t, t.detach().requires_grad_()
        return self._variables[id(t)][1]


def operations() -> int:
    """Where autograd's count of operations stands."""
    one = torch.ones((), requires_grad=True) * 1
    assert one.grad_fn is not None
    return int(one.grad_fn._sequence_nr())
