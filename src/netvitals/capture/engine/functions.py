"""Which torch functions mean something to the engine: activations, additions, layers, and what only moves data.

A functional call reaches a torch function mode as the very object the user called: ``F.gelu``, ``torch.relu``, the
method ``Tensor.tanh``. ``MEANING`` maps each of them to what it does; a function that is not in it passes unseen.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from netvitals.activations.table import ACTIVATIONS, MIXING, called

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


class FunctionMeaning(NamedTuple):
    """What a torch function does, as far as the engine cares."""

    what: What
    op: str  # canonical name, "relu" for F.relu, Tensor.relu_, ...
    in_place: bool = False
    random: bool = False  # draws random numbers: it is run again from the same state of the generator


# besides the activations, which are in the table of :mod:`netvitals.activations`
_NAMES: dict[What, str] = {
    "clamp": "clamp clip clamp_min",  # at zero, a ReLU
    "mixing": " ".join(MIXING),
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
_SYNONYMS = {"clip": "clamp", "clamp_min": "clamp"}

# shape or layout of channels is not kept by these
_RESHAPING = (
    "view reshape flatten unflatten transpose permute movedim squeeze unsqueeze expand __getitem__ narrow select "
    "chunk split unbind tensor_split"
)
RESHAPING = frozenset(_RESHAPING.split())


def _table() -> dict[Any, FunctionMeaning]:
    table: dict[Any, FunctionMeaning] = {}
    for row in ACTIVATIONS:
        for function, in_place in row.callables():
            table[function] = FunctionMeaning(
                "ambiguous" if row.after_layer else "activation", row.op, in_place, row.random
            )
    for what, names in _NAMES.items():
        for name in names.split():
            op = _SYNONYMS.get(name, name)
            for function in called(name):
                table[function] = FunctionMeaning(what, op)
            for function in () if name.startswith("__") else called(name + "_"):
                table[function] = FunctionMeaning(what, op, in_place=True)
    return table


MEANING: dict[Any, FunctionMeaning] = _table()
