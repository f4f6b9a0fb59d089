"""Which torch functions mean something to the engine: activations, additions, layers, and what only moves data.

A functional call reaches a torch function mode as the very object the user called: ``F.gelu``, ``torch.relu``, the
method ``Tensor.tanh``. ``MEANING`` maps each of them to what it does; a function that is not in it passes unseen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F

What = Literal[
    "activation",
    "ambiguous",
    "clamp",
    "mixing",
    "maximum",
    "addition",
    "linear",
    "convolution",
    "batch norm",
    "channel norm",
    "last norm",
    "attention",
    "opaque attention",
    "moving",
    "splitting",
]


class Meaning(NamedTuple):
    what: What
    op: str  # canonical name, "relu" for F.relu, Tensor.relu_, ...
    in_place: bool = False


_NAMES: dict[What, str] = {
    "activation": "relu relu6 leaky_relu prelu elu celu selu gelu silu mish tanh sigmoid softplus softsign "
    "hardswish hardsigmoid hardtanh logsigmoid softshrink hardshrink tanhshrink threshold",
    # also used for position codes and the like: an activation only where the input comes from a layer
    "ambiguous": "sin erf atan arctan",
    "clamp": "clamp clip clamp_min",
    "mixing": "glu softmax log_softmax softmin gumbel_softmax",
    "maximum": "max amax maximum",  # maxout, where it takes one of several outputs of a layer
    "addition": "add",
    "linear": "linear",
    "convolution": "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d",
    "batch norm": "batch_norm",
    "channel norm": "group_norm instance_norm",
    "last norm": "layer_norm rms_norm",
    "attention": "scaled_dot_product_attention",
    "opaque attention": "multi_head_attention_forward",
    # values stay, only shape, dtype or a random mask changes: what produced the input still decides its distribution
    "moving": "view reshape flatten unflatten transpose permute movedim contiguous to float double half bfloat16 type "
    "squeeze unsqueeze expand dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout "
    "clone detach __getitem__ narrow select type_as",
    "splitting": "chunk split unbind tensor_split",
}
_PLACES: tuple[Any, ...] = (F, torch, torch.Tensor, torch.special, torch.nn.functional)
_SYNONYMS = {"arctan": "atan", "clip": "clamp", "clamp_min": "clamp"}

# shape or layout of channels is not kept by these
RESHAPING = frozenset(
    {
        "view",
        "reshape",
        "flatten",
        "unflatten",
        "transpose",
        "permute",
        "movedim",
        "squeeze",
        "unsqueeze",
        "expand",
        "__getitem__",
        "narrow",
        "select",
        "chunk",
        "split",
        "unbind",
        "tensor_split",
    }
)


def _callables(name: str) -> Iterable[Callable[..., Any]]:
    for place in _PLACES:
        found = getattr(place, name, None)
        if callable(found):
            yield found


def _table() -> dict[Any, Meaning]:
    table: dict[Any, Meaning] = {}
    for what, names in _NAMES.items():
        for name in names.split():
            op = _SYNONYMS.get(name, name)
            for function in _callables(name):
                table[function] = Meaning(what, op)
            for function in () if name.startswith("__") else _callables(name + "_"):
                table[function] = Meaning(what, op, in_place=True)
    table[torch.special.expit] = Meaning("activation", "sigmoid")
    # boolean_dispatch and other wrappers have an inner function that a mode may be shown instead
    for name in ("relu", "dropout"):
        table.setdefault(getattr(F, name), table[getattr(torch, name)])
    return table


MEANING: dict[Any, Meaning] = _table()
