"""Batches: how a model is called with what a loader yields, and which dimension of every value is the batch.

The batch dimension is found by running a batch twice as long: what grows with it carries it. That it is the batch and
not a sequence is seen by the examples: each must come out as it did alone.
"""

from __future__ import annotations

import copy
import dataclasses
import difflib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from netvitals.anatomy.ir import Operation, Value
from netvitals.anatomy.preserve import rng_state
from netvitals.anatomy.tracing import Shapes

_TARGETS = ("labels", "label", "targets", "target", "y")  # where a dict keeps what a loss compares with
_DEEP = 6  # nesting of a batch that is looked into
_COMPARED = 8  # output tensors

Run = Callable[[Any], Any]


def call_with(model: nn.Module, batch: Any) -> Any:
    """Call a model with what a loader yields.

    A dict gives keywords, without a target that ``forward`` has no name for. A tuple gives arguments; where ``forward``
    takes one less, the last is a target and is left out.

    >>> call_with(nn.Linear(2, 1), (torch.ones(3, 2), torch.zeros(3))).shape
    torch.Size([3, 1])
    """
    try:
        takes: Mapping[str, inspect.Parameter] = inspect.signature(model.forward).parameters
    except (TypeError, ValueError):  # a compiled or scripted forward has no signature
        takes = {"args": inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)}
    any_keyword = any(p.kind is p.VAR_KEYWORD for p in takes.values())
    if isinstance(batch, Mapping):
        given = {k: v for k, v in batch.items() if k not in _TARGETS or k in takes or any_keyword}
        return model(**given)
    if not isinstance(batch, tuple | list):
        return model(batch)
    places = [p for p in takes.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    several = any(p.kind is p.VAR_POSITIONAL for p in takes.values())
    args = tuple(batch)
    if len(args) == 2 and isinstance(args[0], Mapping) and all(k in takes or any_keyword for k in args[0]):
        return model(**args[0])
    if not several and len(args) == len(places) + 1 and len(args) > 1:
        args = args[:-1]
    return model(*args)


def named_tensors(name: str, nest: Any, depth: int = 0) -> Iterator[tuple[str, Tensor]]:
    """Every tensor in nested tuples, lists, dicts and plain objects, with a name for its place.

    >>> [n for n, _ in named_tensors("batch", {"x": torch.ones(1), "more": (torch.ones(1), 3)})]
    ['x', 'more.0']
    """
    if isinstance(nest, Tensor):
        yield name, nest
    elif depth < _DEEP:
        for key, part in _items(nest):
            inner = (
                key if depth == 0 and isinstance(nest, Mapping) else f"{name} {key}" if depth == 0 else f"{name}.{key}"
            )
            yield from named_tensors(inner, part, depth + 1)


def _items(nest: Any) -> list[tuple[str, Any]]:
    if isinstance(nest, Mapping):
        return [(str(k), v) for k, v in nest.items()]
    if isinstance(nest, tuple | list):
        return [(str(i), v) for i, v in enumerate(nest)]
    if isinstance(nest, str | bytes | nn.Module | type) or callable(nest) or not hasattr(nest, "__dict__"):
        return []
    return list(vars(nest).items())


def mapped(nest: Any, f: Callable[[Tensor], Tensor], depth: int = 0) -> Any:
    """The same nest with every tensor replaced; objects are copied, never changed."""
    if isinstance(nest, Tensor):
        return f(nest)
    if depth >= _DEEP or not _items(nest):
        return nest
    inner = {key: mapped(part, f, depth + 1) for key, part in _items(nest)}
    if isinstance(nest, Mapping):
        made = {k: inner[str(k)] for k in nest}
        return made if type(nest) is dict else _refilled(nest, made)
    if isinstance(nest, tuple | list):
        parts = [inner[str(i)] for i in range(len(nest))]
        return type(nest)(*parts) if hasattr(nest, "_fields") else type(nest)(parts)
    twin = copy.copy(nest)
    if dataclasses.is_dataclass(nest):
        for key, value in inner.items():
            object.__setattr__(twin, key, value)
    else:
        vars(twin).update(inner)
    return twin


def _refilled(nest: Mapping[Any, Any], made: dict[Any, Any]) -> Any:
    try:
        twin = copy.copy(nest)
        for k, v in made.items():
            twin[k] = v  # type: ignore[index]
    except Exception:  # a mapping that cannot be written to
        return made
    return twin


def doubled(batch: Any, dim: int) -> tuple[Any, list[int | None]] | None:
    """The batch after itself along a dimension, and for each tensor the dimension that grew.

    In what comes first, the first example is replaced by the last: a mean over the batch would not feel a plain copy.
    """
    tensors = [t for _, t in named_tensors("batch", batch)]
    size = next((t.shape[dim] for t in tensors if t.ndim > dim), None)
    if size is None:
        return None
    grown: list[int | None] = []

    def twice(t: Tensor) -> Tensor:
        at = (
            dim
            if t.ndim > dim and t.shape[dim] == size
            else next((d for d, n in enumerate(t.shape) if n == size), None)
        )
        grown.append(at)
        if at is None:
            return t
        other = (
            t.narrow(at, size - 1, 1)
            if size < 2
            else torch.cat([t.narrow(at, size - 1, 1), t.narrow(at, 1, size - 1)], at)
        )
        return torch.cat([other, t], at)

    return mapped(batch, twice), grown


Recording = Sequence[tuple[tuple[str, int, str], tuple[tuple[int, ...], ...]]]


def find_batch_dim(
    run: Run, model: nn.Module, batch: Any, traced: Recording, output: Any, most: int
) -> tuple[list[int | None], dict[int, tuple[int | None, ...]], int, str]:
    """Which dimension is the batch, in the inputs and in what every traced operation makes."""
    ran, alone, shapes = 0, output, traced
    if any(m.training for m in model.modules()):  # dropout and batch statistics tie examples together
        model.eval()
        alone, shapes, _ = _recorded(run, model, batch)
        ran += 1
    why = ""
    for dim in (0, 1):
        longer = doubled(batch, dim)
        if longer is None or ran >= most:
            continue
        ran += 1
        try:
            together, wide, drew = _recorded(run, model, longer[0])
        except Exception as error:  # the model refuses such a batch: this is not the batch dimension
            why = why or f"the model refused an input twice as long ({type(error).__name__})"
            continue
        if _independent(alone, together, drew):
            return longer[1], _grown(traced, shapes, wide), ran, ""
        why = why or "examples are not independent: beside others they came out otherwise than alone"
    return [], {}, ran, why or "no input has a dimension"


def _recorded(run: Run, model: nn.Module, batch: Any) -> tuple[Any, Recording, bool]:
    mode, before = Shapes(), rng_state()
    with mode.following(model):
        output = run(batch)
    after = rng_state()
    same = torch.equal(before["torch"], after["torch"]) and before["python"] == after["python"]
    pairs = zip(tree_leaves(before["devices"]), tree_leaves(after["devices"]))
    same = same and all(torch.equal(a, b) for a, b in pairs)
    return output, mode.made, not same


def _independent(alone: Any, together: Any, drew: bool) -> bool:
    """Whether the examples in the second half of a longer batch came out as they did alone.

    Where random numbers are drawn nothing can be compared, and an output that grew has to do.
    """
    pairs = list(zip(named_tensors("", alone), named_tensors("", together)))
    grown = False
    compared = 0
    for (_, one), (_, two) in pairs:
        if not one.is_floating_point() or compared >= _COMPARED:
            continue
        compared += 1
        compare = False
        for dim, (n, m) in enumerate(zip(one.shape, two.shape)):
            if m == 2 * n and n:  # in every dimension that grew, as logits of pairs do in two
                two, grown = two.narrow(dim, n, n), True
                compare = True
        if one.shape != two.shape or (compare and not drew and not _close(one, two)):
            return False
    return grown or all(a.ndim == 0 for (_, a), _ in pairs)


def _close(one: Tensor, two: Tensor) -> bool:
    a, b = one.detach().double(), two.detach().double()
    size = float(a.nan_to_num().abs().amax()) if a.numel() else 0.0
    return bool(torch.allclose(a, b, rtol=1e-2, atol=1e-3 * size, equal_nan=True))


def _grown(traced: Recording, alone: Recording, together: Recording) -> dict[int, tuple[int | None, ...]]:
    """For every traced operation, the dimension of each output that grew with the batch."""
    out: dict[int, tuple[int | None, ...]] = {}
    grown = {}
    for i, k in _matched(alone, together):
        grown[i] = tuple(_longer(a, b) for a, b in zip(alone[i][1], together[k][1]))
    for i, k in _matched(traced, alone) if alone is not traced else ((i, i) for i in grown):
        if k in grown and (alone is traced or [len(s) for s in traced[i][1]] == [len(s) for s in alone[k][1]]):
            out[i] = grown[k]
    return out


def _longer(one: tuple[int, ...], two: tuple[int, ...]) -> int | None:
    return next((d for d, (a, b) in enumerate(zip(one, two)) if a != b), None) if len(one) == len(two) else None


def _matched(one: Recording, two: Recording) -> Iterator[tuple[int, int]]:
    """Pairs of the same calls in two recordings."""
    first, second = [key for key, _ in one], [key for key, _ in two]
    if first == second:
        yield from ((i, i) for i in range(len(first)))
        return
    for a, b, n in difflib.SequenceMatcher(None, first, second, autojunk=False).get_matching_blocks():
        yield from ((a + i, b + i) for i in range(n))


def with_batch_dims(
    values: Sequence[Value],
    operations: Sequence[Operation],
    inputs: Sequence[int | None],
    grown: Mapping[int, tuple[int | None, ...]],
) -> tuple[Value, ...]:
    """Values with their batch dimension; what could not be compared has that of an input of the same shape."""
    out: list[int | None] = [None] * len(values)
    given = [v.index for v in values if v.source == "input"]
    for index, dim in zip(given, inputs):
        out[index] = dim
    for op in operations:
        known = grown.get(op.index, ())
        for k, value in enumerate(op.outputs):
            if k < len(known):
                out[value] = known[k]
            elif grown:
                alike = (i for i in (*op.inputs, *op.outputs[:k]) if values[i].shape == values[value].shape)
                out[value] = next((out[i] for i in alike if out[i] is not None), None)
    return tuple(dataclasses.replace(v, batch_dim=dim) for v, dim in zip(values, out))
