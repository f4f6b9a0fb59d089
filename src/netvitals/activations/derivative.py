"""An activation in float64, and its derivative by autograd: what crossings, classes and constants are computed from."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

Activation = str | nn.Module | Callable[[Tensor], Tensor]


def in_double(f: Activation) -> Callable[[Tensor], Tensor]:
    """The function in float64, in evaluation mode; a module is copied, never changed."""
    if isinstance(f, str):
        from netvitals.activations.registry import get

        f = get(f)
    if not isinstance(f, nn.Module):
        if not callable(f):
            raise TypeError(f"expected an activation (spec string, module or callable), got {type(f).__name__}")
        return f
    twin = copy.deepcopy(f).cpu()
    single = {name: p.detach().clone() for name, p in twin.named_parameters() if p.dtype != torch.float64}
    twin = twin.double().eval().requires_grad_(False)
    for name, p in twin.named_parameters():
        if name in single and p.numel() == 1:
            # a slope of float32 0.1 means 0.1, not 0.100000001490: thresholds are compared with it strictly
            p.data.fill_(float(np.format_float_positional(single[name].float().numpy().ravel()[0], unique=True)))
    return twin


def derivative(f: Activation) -> Callable[[Tensor], Tensor]:
    """f' as a function of a float64 tensor, by autograd.

    >>> derivative("tanh")(torch.zeros(1, dtype=torch.float64)).item()
    1.0
    """
    function = in_double(f)

    def slope(z: Tensor) -> Tensor:
        with torch.enable_grad():
            point = z.detach().to(torch.float64).requires_grad_(True)
            value = function(point)
            if value.shape != point.shape:
                raise ValueError(f"the activation turned shape {tuple(point.shape)} into {tuple(value.shape)}: "
                                 "only elementwise functions have a derivative f'(z)")
            if not value.requires_grad:  # constant
                return torch.zeros_like(point)
            (grad,) = torch.autograd.grad(value.sum(), point, allow_unused=True)
        return torch.zeros_like(z, dtype=torch.float64) if grad is None else grad.detach()

    return slope
