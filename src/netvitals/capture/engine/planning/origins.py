"""Where the tensors of a trace come from: the layer, norm, addition or input behind a value, and its channels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from netvitals.anatomy import Operation, Value
from netvitals.capture.engine.planning.recorded import IDENTITY, MAKERS
from netvitals.capture.site import Follows


class Origin(NamedTuple):
    """What produced a tensor, and its dimension of channels where that is known."""

    follows: Follows = "other"
    channel_dim: int | None = None


UNKNOWN = Origin()
# views that hand on a part of a tensor with its dimensions in place; others may put channels elsewhere
_PARTS = frozenset({"slice", "split", "split_with_sizes", "chunk", "narrow", "unsafe_split", "tensor_split"})
_MOVES = frozenset({*IDENTITY, "_unsafe_view", "reshape", "native_dropout", "copy"})
_CHANNELS_FIRST = frozenset({"convolution", "_convolution", "native_group_norm"})


def origins(
    values: Sequence[Value],
    operations: Sequence[Operation],
    roots: Sequence[int | None],
    marked: Mapping[int, Origin],
) -> list[Origin]:
    """What decides the distribution of every value of a trace.

    Views, casts, dropout, biases and constants keep what was there before; a layer, a norm or the sum of two
    activations is a new origin.
    """
    out: list[Origin] = []
    noise: list[bool] = []
    for value in values:
        if value.producer < 0:
            noise.append(False)
            found = Origin("input") if value.source == "input" else UNKNOWN
        else:
            op = operations[value.producer]
            live = [] if op.name in MAKERS else [i for i in dict.fromkeys(op.inputs) if roots[i] is not None]
            drawn = [i for i in live if noise[i]]
            live = [i for i in live if not noise[i]]
            noise.append(not live and (op.kind == "random" or bool(drawn)))
            found = _after(op, value, values, live, out, scaled=bool(drawn))
        mark = marked.get(value.index, found)
        out.append(mark if mark.channel_dim is not None else Origin(mark.follows, found.channel_dim))
    return out


def _after(
    op: Operation, value: Value, values: Sequence[Value], live: list[int], known: list[Origin], *, scaled: bool
) -> Origin:
    """The origin of what an operation makes of operands whose origins are known."""
    name = op.name.rstrip("_")
    rank = len(value.shape)
    if op.kind == "layer":
        return Origin("linear", 1 if name in _CHANNELS_FIRST else -1)
    alike = [i for i in live if len(values[i].shape) == rank]
    kept = op.kind in ("pointwise", "random") or name in _PARTS or name in _MOVES
    layout = next((d for d in (known[i].channel_dim for i in alike) if d is not None), None) if kept else None
    if op.kind == "norm":
        if "batch_norm" in name:
            return Origin("bn_direct", 1)
        return Origin("norm_direct", 1 if name in _CHANNELS_FIRST else layout if rank > 3 else -1)
    states = [i for i in live if len(values[i].shape) > 1]
    if name in ("add", "sub") and len(states) == 2:
        return Origin("post_add", layout)
    hands_on = op.kind in ("view", "random") or name in ("add", "sub") or name in _MOVES
    if live and (hands_on or (scaled and name in ("mul", "div"))):  # the latter is a dropout
        return Origin(known[(states or live)[0]].follows, layout)
    return Origin("other", layout)
