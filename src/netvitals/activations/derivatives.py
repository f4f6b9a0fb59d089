"""An activation in float64, and its derivative by autograd: what crossings, classes and constants are computed from."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable

import numpy as np
import torch
from torch import Tensor, nn

Activation = str | nn.Module | Callable[[Tensor], Tensor]


def shortest(number: Tensor) -> str:
    """The shortest decimal that a one-element tensor can mean in its own precision.

    >>> shortest(torch.tensor(0.1)), shortest(torch.tensor(0.1, dtype=torch.float64))
    ('0.1', '0.1')
    """
    value = number.detach().cpu()
    value = value if value.dtype == torch.float64 else value.float()
    return np.format_float_positional(value.numpy().ravel()[0], unique=True).rstrip(".")


def in_double(f: Activation) -> Callable[[Tensor], Tensor]:
    """The function in float64, in evaluation mode; a module is copied, never changed."""
    if isinstance(f, str):
        f = Key(f).module()
    if not isinstance(f, nn.Module):
        if not callable(f):
            raise TypeError(f"expected an activation (a name, module or callable), got {type(f).__name__}")
        return f
    if isinstance(f, nn.PReLU) and f.weight.numel() > 1:
        raise ValueError(
            f"this PReLU has {f.weight.numel()} slopes, one per channel, so it is not a single function: give one "
            "channel as 'prelu:SLOPE'"
        )
    twin = copy.deepcopy(f).cpu()
    single = {name: p.detach().clone() for name, p in twin.named_parameters() if p.dtype != torch.float64}
    twin = twin.double().eval().requires_grad_(False)
    for name, p in twin.named_parameters():
        if name in single and p.numel() == 1:
            # a slope of float32 0.1 means 0.1, not 0.100000001490: thresholds are compared with it strictly
            p.data.fill_(float(shortest(single[name])))
    return twin


class Key:
    """An activation as a key of a cache: its spec, or its class, plain attributes and parameters.

    A module whose slope has been trained since is a new key; two modules that compute the same are one.
    """

    def __init__(self, f: Activation) -> None:
        from netvitals.activations.recognise import spec_of
        from netvitals.activations.registry import canonical

        self.source = f
        if isinstance(f, str):
            self.token: Hashable = canonical(f)
        elif isinstance(f, nn.Module):
            self.token = spec_of(f) or _fingerprint(f)
        else:
            self.token = f
        if isinstance(self.token, str):
            self.source = self.token

    def module(self) -> nn.Module:
        """The activation as a module; one that draws a number when it is made leaves the random state alone."""
        from netvitals.activations.registry import get

        with torch.random.fork_rng(devices=[]):
            return get(self.source)

    def __hash__(self) -> int:
        return hash(self.token)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.token == other.token


def _fingerprint(module: nn.Module) -> Hashable:
    parts = []
    for name, m in module.named_modules():
        plain = sorted((k, v) for k, v in vars(m).items() if isinstance(v, (int, float, str)) and k != "training")
        parts.append((name, type(m), tuple(plain), getattr(m, "function", None)))
    weights = ((n, tuple(p.detach().flatten().tolist())) for n, p in module.named_parameters())
    return tuple(parts), tuple(weights), tuple((n, tuple(b.flatten().tolist())) for n, b in module.named_buffers())


def derivative(f: Activation) -> Callable[[Tensor], Tensor]:
    """Return the derivative f' of an activation as a function of a float64 tensor, by autograd.

    Args:
        f: spec string, module or elementwise function; a module is copied, put in eval mode and float64.

    Returns:
        A function of a tensor z that gives f'(z) in float64 and z's shape, without a graph.

    >>> derivative("tanh")(torch.zeros(1, dtype=torch.float64)).item()
    1.0
    """
    function = in_double(f)

    def slope(z: Tensor) -> Tensor:
        with torch.enable_grad():
            point = z.detach().to(torch.float64).requires_grad_(True)
            value = function(point)
            if value.shape != point.shape:
                raise ValueError(
                    f"the activation changed the shape {tuple(point.shape)} to {tuple(value.shape)}: only elementwise "
                    "functions have a derivative f'(z)"
                )
            if not value.requires_grad:  # constant
                return torch.zeros_like(point)
            (grad,) = torch.autograd.grad(value.sum(), point, allow_unused=True)
        return torch.zeros_like(z, dtype=torch.float64) if grad is None else grad.detach()

    return slope


def derivative_pair(f: Activation) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    """f and f' in float64, both of plain tensors without gradients.

    Args:
        f: spec string, module or elementwise function.

    Returns:
        Two functions of a tensor, f and f', each giving float64 in the tensor's shape.

    >>> f, slope = derivative_pair("tanh")
    >>> f(torch.zeros(1)).item(), slope(torch.zeros(1)).item()
    (0.0, 1.0)
    """
    function = in_double(f)

    def value(z: Tensor) -> Tensor:
        with torch.no_grad():
            return function(z.to(torch.float64))

    return value, derivative(function)
