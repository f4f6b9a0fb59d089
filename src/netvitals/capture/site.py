"""A site: one place in a model where something can be measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "activation", "product", "heads", "router", "norm", "linear", "attention", "stream", "output", "parameter", "model"
]
Follows = Literal["bn_direct", "norm_direct", "post_add", "linear", "input", "other"]


@dataclass(frozen=True)
class Site:
    """A place in the model where something is measured; its name is the same at every step.

    The site of a module has the module's dotted name. The second call of a module in one forward pass is named
    ``name#2``. A functional activation is named after the module that calls it, as in ``block.0.gelu()``.

    Attributes:
        name: dotted name of the module, or of the call.
        kind: ``activation``, ``linear``, ``norm``, ``stream``, ``output``, ….
        op: "relu", "Linear", "BatchNorm2d", ...
        follows: what produced the input, which decides how it is distributed.
        channel_dim: the dimension of channels in the site's tensors; negative counts from the end.
        module: dotted name of the module that owns the call.
        batch_dim: the dimension of examples: 1 where a sequence comes first.
        role: what it is there for, as the anatomy says: ``hidden activation``, ``output link``, ``soft-cap``,
            ``readout``.

    >>> Site("blocks.0.act", "activation", op="relu", follows="bn_direct").op
    'relu'
    """

    name: str
    kind: Kind
    op: str = ""
    follows: Follows = "other"
    channel_dim: int = 1
    module: str = ""
    batch_dim: int = 0
    role: str = (
        ""  # what it is there for, as the anatomy says: "hidden activation", "output link", "soft-cap", "readout"
    )
