"""What a module is to the engine: an activation, a layer, a norm, something that cannot be seen into, or a container.

An activation module is one of

- torch's own elementwise activations (``nn.ReLU``, ``nn.GELU``, ...);
- a module from :mod:`netvitals.activations`;
- a user's module with the attribute ``elementwise = True``; ``elementwise = False`` always means that it is not;
- a user's module without parameters and children, whose output has the shape of its input, is not affine in it, and
  commutes with a permutation of all elements (tried once, on the first input it gets).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from netvitals import activations
from netvitals.anatomy.kinds import layer_kind

Role = Literal[
    "activation", "candidate", "mixing", "linear", "norm", "attention", "recurrent", "compiled", "plain", "container"
]

MIXING = tuple(kind for kinds in activations.MIXING.values() for kind in kinds)
LINEAR = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
CONVOLUTIONS = LINEAR[1:]
BATCH_NORMS = (nn.modules.batchnorm._BatchNorm,)
CHANNEL_NORMS = (*BATCH_NORMS, nn.GroupNorm, nn.modules.instancenorm._InstanceNorm, nn.LocalResponseNorm)
NORMS = (*CHANNEL_NORMS, nn.LayerNorm, *((nn.RMSNorm,) if hasattr(nn, "RMSNorm") else ()))
DROPOUTS = (nn.modules.dropout._DropoutNd,)

_OF_TORCH = tuple(k for k in activations.ELEMENTWISE if k.__module__.startswith("torch."))
_RANDOM = tuple(kind for row in activations.ACTIVATIONS if row.random for kind in row.modules)
_NORM = re.compile(r"Norm(\d[dD])?$")  # a user's own norm is known by the name of its class

REASONS: dict[str, str] = {
    "mixing": "its output at one place depends on other places, so it has no elementwise derivative",
    "recurrent": "its gates run inside one fused recurrent kernel",
    "compiled": "compiled code does not call hooks; pass probe=(x, y, loss_fn) to look through the uncompiled model",
    "attention": "its projections and softmax run inside one fused attention call; only the output is looked at",
}


def role(module: nn.Module) -> Role:
    """What ``module`` is, as far as its class tells.

    >>> role(nn.GELU()), role(nn.Conv2d(1, 1, 1)), role(nn.Softmax(-1))
    ('activation', 'linear', 'mixing')
    """
    kind = type(module)
    if is_compiled(module):
        return "compiled"
    elementwise = getattr(module, "elementwise", None)
    if elementwise is True:
        return "activation"
    if activations.is_activation(module):
        return "activation"
    if isinstance(module, MIXING):
        return "mixing"
    if isinstance(module, LINEAR) or layer_kind(module) == "linear":
        return "linear"
    if isinstance(module, NORMS) or (_NORM.search(kind.__name__) and not any(True for _ in module.children())):
        return "norm"
    if isinstance(module, nn.MultiheadAttention):
        return "attention"
    if isinstance(module, nn.RNNBase):
        return "recurrent"
    if kind in (nn.Sequential, nn.ModuleList, nn.ModuleDict):
        return "container"  # runs no operation of its own, so it owns none
    if (
        elementwise is None
        and not kind.__module__.startswith("torch.nn.")
        and not any(True for _ in module.children())
        and not any(True for _ in module.parameters())
    ):
        return "candidate"
    return "plain"


def may_change(module: nn.Module) -> bool:
    """Whether an activation may give another output the next time: a user's and our own may draw random numbers or
    keep buffers, as ``nn.RReLU`` does; the others of torch do not."""
    return isinstance(module, _RANDOM) or not isinstance(module, _OF_TORCH)


def is_compiled(module: nn.Module) -> bool:
    """Compiled by ``torch.compile``, in place by ``module.compile()``, or scripted."""
    return (
        getattr(module, "_compiled_call_impl", None) is not None
        or type(module).__name__ == "OptimizedModule"
        or isinstance(module, torch.jit.ScriptModule)
    )


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside wrappers of data-parallel training, whose names a user knows.

    Args:
        model: any model.

    Returns:
        The innermost model, or the one given where no wrapper is around it.
    """
    while type(model).__name__ in ("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel"):
        model = model.module  # type: ignore[assignment]
    return model


def uncompiled(model: nn.Module) -> nn.Module:
    """The module that ``torch.compile`` wrapped, sharing its parameters.

    Args:
        model: any model; data-parallel wrappers are taken off first.

    Returns:
        The module that was compiled, or the unwrapped model where it was not.
    """
    model = unwrapped(model)
    return getattr(model, "_orig_mod", model) if type(model).__name__ == "OptimizedModule" else model


def is_elementwise(f: Callable[[Tensor], Any], x: Tensor) -> bool | None:
    """True: f acts on each element alone. False: it mixes elements. None: it is no activation (other shape, affine)."""
    if x.numel() > 1_000_000 and x.ndim > 1:
        x = x[:1]
    x = x.detach()
    y = f(x.clone())
    if not isinstance(y, Tensor) or y.shape != x.shape or not y.is_floating_point() or x.numel() < 2:
        return None
    if _affine(x.reshape(-1), y.reshape(-1)):
        return None
    # a fixed permutation that leaves no row or column together; a random one would touch the user's generator
    n = x.numel()
    stride = next(k for k in range(int(0.618 * n) + 1, 2 * n + 2) if math.gcd(k, n) == 1)
    order = torch.arange(n, device=x.device) * stride % n
    shuffled = f(x.reshape(-1)[order].reshape(x.shape).clone())
    return bool(torch.allclose(shuffled.reshape(-1), y.reshape(-1)[order], rtol=1e-4, atol=1e-6, equal_nan=True))


def _affine(x: Tensor, y: Tensor) -> bool:
    low, high = x.argmin(), x.argmax()
    width = x[high] - x[low]
    if not bool(width > 0):
        return False
    line = y[low] + (x - x[low]) * ((y[high] - y[low]) / width)
    return bool(torch.allclose(y, line, rtol=1e-4, atol=1e-6))
