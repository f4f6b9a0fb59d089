"""One forward pass through many copies of any model, whose parameters are stacked along a first dimension."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from torch import Tensor, nn
from torch.func import functional_call, vmap

Tensors = Mapping[str, Tensor]


class Forward(Protocol):
    """Outputs (copies, N, ...) of stacked networks for inputs (N, ...), or (copies, N, ...) when ``each`` has its
    own."""

    def __call__(self, parameters: Tensors, buffers: Tensors, x: Tensor, *, each: bool) -> Tensor: ...


class MappedModel:
    """Any network, by :func:`torch.func.vmap` over its functional call: general, and slower than batched products.

    Buffers that are stacked are updated in place, copy by copy; random draws differ from copy to copy.

    >>> import torch
    >>> run = MappedModel(nn.Linear(2, 1, bias=False))
    >>> run({"weight": torch.tensor([[[1.0, 0.0]], [[0.0, 2.0]]])}, {}, torch.ones(3, 2), each=False).shape
    torch.Size([2, 3, 1])
    """

    def __init__(self, model: nn.Module, shared: Tensors | None = None) -> None:
        self.model, self.shared = model, shared or {}
        # torch's own tying would leave a module that is used twice with the parameters of the call
        names = {p: name for name, p in model.named_parameters()}
        self._aliases = {
            alias: names[p]
            for path, module in model.named_modules()
            for key, p in module._parameters.items()
            if p is not None and (alias := f"{path}.{key}" if path else key) != names[p]
        }

    def __call__(self, parameters: Tensors, buffers: Tensors, x: Tensor, *, each: bool) -> Any:
        def one(p: dict[str, Tensor], b: dict[str, Tensor], inputs: Tensor) -> Any:
            named = {**self.shared, **p, **b}
            named |= {alias: named[name] for alias, name in self._aliases.items()}
            return functional_call(self.model, named, (inputs,), tie_weights=False)

        run = vmap(one, in_dims=(0, 0, 0 if each else None), randomness="different")
        return run(dict(parameters), dict(buffers), x)
