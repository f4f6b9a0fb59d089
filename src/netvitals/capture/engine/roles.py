"""What a module is to the engine: an activation, a layer, a norm, something that cannot be seen into, or a container.

An activation module is one of torch's own elementwise activations (``nn.ReLU``, ``nn.GELU``, ...) or a module from
:mod:`netvitals.activations`: what it computes is known, and to run it once more does no harm. A user's own module is
never run by us: the trace of the pass shows what it computes. One with the attribute ``elementwise = True`` is taken as
a whole, whatever happens in it; one with ``elementwise = False`` never is.
"""

from __future__ import annotations

import re
from typing import Literal

import torch
from torch import nn

from netvitals import activations
from netvitals.anatomy import layer_kind

Role = Literal[
    "activation", "declared", "mixing", "linear", "norm", "attention", "recurrent", "compiled", "plain", "container"
]
# looked at as a whole: what happens inside is their own affair
WHOLE = frozenset({"activation", "declared", "mixing", "linear", "norm", "attention", "recurrent", "compiled"})
FUSED = (nn.TransformerEncoderLayer,)  # run in one kernel in eval mode, unless there are hooks in them

# a gated linear unit mixes two halves, and is measured as the product that it is
MIXING = tuple(kind for kinds in activations.MIXING.values() for kind in kinds if kind is not nn.GLU)
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
    "mixing": "each output depends on several inputs, so it has no elementwise derivative",
    "recurrent": "its gates run inside one fused recurrent kernel",
    "compiled": "compiled code does not call hooks; pass probe=(x, y, loss_fn) to measure the uncompiled model",
    "scripted": "a TorchScript module does not accept hooks; only its parameters are measured",
    "attention": "its projections and softmax run inside one fused attention call; only the output is measured",
    "fused attention": "the softmax runs inside a fused kernel; only the output is measured",
    "mask": "it is multiplied by a mask computed from another tensor, so it is not a function of one input",
    "no room": "there was not enough memory to keep its tensors in this traced pass; it is measured in other passes",
    "own backward": "it has a custom backward pass; its gates are computed from the derivative of the forward pass",
    "function": "this layer is called as a function and has no module; its parameters are measured by name",
    "fused": "in eval mode it runs as one fused kernel, which hooks inside it would switch off",
}


def role(module: nn.Module) -> Role:
    """What ``module`` is, as far as its class tells.

    >>> role(nn.GELU()), role(nn.Conv2d(1, 1, 1)), role(nn.Softmax(-1))
    ('activation', 'linear', 'mixing')
    """
    kind = type(module)
    if is_compiled(module):
        return "compiled"
    if is_known(module):
        return "activation"
    if getattr(module, "elementwise", None) is True:
        return "declared"
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
    return "plain"


def is_known(module: nn.Module) -> bool:
    """Whether a module is an activation of torch's or ours, with nothing of a user's inside."""
    return activations.is_activation(module) and all(
        type(m).__module__.startswith(("torch.", "netvitals.")) and not isinstance(m, activations.Function)
        for m in module.modules()
    )


def may_change(module: nn.Module) -> bool:
    """Whether an activation may give another output the next time: our own may draw random numbers or keep buffers, as
    ``nn.RReLU`` does; the others of torch do not.
    """
    return isinstance(module, _RANDOM) or not isinstance(module, _OF_TORCH)


def is_compiled(module: nn.Module) -> bool:
    """Compiled by ``torch.compile``, in place by ``module.compile()``, or scripted."""
    return (
        getattr(module, "_compiled_call_impl", None) is not None
        or type(module).__name__ == "OptimizedModule"
        or isinstance(module, torch.jit.ScriptModule)
    )


_WRAPPERS = ("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel", "_FabricModule")


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside wrappers of data-parallel training, whose names a user knows.

    Args:
        model: any model.

    Returns:
        The innermost model, or the one given where no wrapper is around it.

    >>> net = nn.Linear(2, 1)
    >>> unwrapped(nn.DataParallel(net)) is net
    True
    """
    while type(model).__name__ in _WRAPPERS:
        model = model.module  # type: ignore[assignment]
    return model


def uncompiled(model: nn.Module) -> nn.Module:
    """The module that ``torch.compile`` wrapped, sharing its parameters.

    Args:
        model: any model; data-parallel wrappers are taken off first.

    Returns:
        The module that was compiled, or the unwrapped model where it was not.

    >>> net = nn.Linear(2, 1)
    >>> uncompiled(net) is net  # and so is uncompiled(torch.compile(net))
    True
    """
    model = unwrapped(model)
    while type(model).__name__ == "OptimizedModule":
        model = unwrapped(model._orig_mod)  # type: ignore[arg-type]
    return model
