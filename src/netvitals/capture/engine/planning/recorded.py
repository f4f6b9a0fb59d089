"""Recorded operations as a function of one tensor, with the other operands as they were when they ran."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from netvitals.anatomy import Operation, Slot, Value

IDENTITY = frozenset({"detach", "alias", "clone", "_to_copy", "lift_fresh"})  # bookkeeping that changes no value
MAKERS = frozenset({"zeros_like", "ones_like", "empty_like", "full_like"})  # read a shape, not a value
_SUMS = frozenset({"add", "sub", "rsub", "neg", "positive", "copy"})  # affine in all of their operands together
_CHOICES = {"where": 0, "masked_fill": 1}  # affine where the mask, the operand of this number, is fixed


def function_of(
    path: Sequence[Operation], start: int, end: int, tensors: Sequence[Tensor] | Mapping[int, Tensor]
) -> Callable[[Tensor], Tensor]:
    """What happened between two values as a function of the first."""

    def f(x: Tensor) -> Tensor:
        held: dict[int, Any] = {start: x}

        def get(slot: Any) -> Any:
            if not isinstance(slot, Slot):
                return slot
            if slot.value in held:
                return held[slot.value]
            other = tensors[slot.value].detach()
            return other.to(x.dtype) if other.is_floating_point() and x.is_floating_point() else other

        for op in path:
            if op.name in IDENTITY:
                held[op.outputs[0]] = get(Slot(op.inputs[0]))
                continue
            args, kwargs = (tree_map(get, part, is_leaf=lambda s: isinstance(s, Slot)) for part in (op.args, op.kwargs))
            kwargs.pop("dtype", None)  # all of it runs in the dtype of x
            for value, tensor in zip(op.outputs, tree_leaves(_out_of_place(op)(*args, **kwargs))):
                held[value] = tensor
        return held[end]

    return f


def _out_of_place(op: Operation) -> Callable[..., Any]:
    """An operator that leaves its operands as they are."""
    if not op.func._schema.is_mutable:
        return op.func
    return lambda first, *args, **kwargs: op.func(first.clone(), *args, **kwargs)


def is_affine(path: Sequence[Operation], start: int) -> bool:
    """Whether the last value of a path is a·x + b in the value it starts from, element by element."""
    live = {start}
    bent: set[int] = set()
    for op in path:
        read = [i for i in op.inputs if i in live]
        if not read or op.name in MAKERS:
            continue
        live.update(op.outputs)
        name = op.name.rstrip("_")
        operands = [a.value if isinstance(a, Slot) else None for a in op.args]
        if name == "mul":
            straight = len(read) == 1
        elif name == "div":
            straight = len(read) == 1 and operands[0] in live and op.kwargs.get("rounding_mode") is None
        elif name in _CHOICES:
            straight = operands[_CHOICES[name]] not in live
        else:
            straight = name in IDENTITY or name in _SUMS
        if not straight or bent.intersection(read):
            bent.update(op.outputs)
    return not path or path[-1].outputs[0] not in bent


def with_makers(
    path: Sequence[Operation], values: Sequence[Value], operations: Sequence[Operation]
) -> tuple[Operation, ...]:
    """A path with what makes its constants alike, such as the zeros of ``where(h > 0, h, zeros_like(h))``."""
    found = {op.index: op for op in path}
    todo = [i for op in path for i in op.inputs]
    while todo:
        made = values[todo.pop()].producer
        if made < 0 or made in found:
            continue
        op = operations[made]
        source = values[op.inputs[0]].producer if op.inputs else -1
        if op.name in MAKERS or (op.name in IDENTITY and source >= 0 and operations[source].name in MAKERS):
            found[made] = op
            todo += op.inputs if op.name in IDENTITY else ()
    return tuple(found[i] for i in sorted(found))
