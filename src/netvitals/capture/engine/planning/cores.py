"""The core of a pointwise region: what is left when the affine operations before and after it are taken away.

``2 * relu(h + b)`` has the core relu, with the input h + b: a shift before belongs to the layer, a scale after it to
the next one. Where a whole module lies between, such as a user's own ``Swish``, the module is the unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from netvitals.anatomy import Operation, Region
from netvitals.capture.engine.planning.live_trace import ModuleCall
from netvitals.capture.engine.planning.recorded import MAKERS, is_affine


@dataclass(frozen=True, kw_only=True)
class Core:
    """An activation in a trace: from the value ``start`` to the value ``end`` by the operations of ``path``."""

    start: int
    end: int
    path: tuple[Operation, ...]
    unit: ModuleCall | None = None  # the module that computes just this


def core_of(
    region: Region, operations: Sequence[Operation], ends: Set[int], calls: Mapping[int | None, Sequence[ModuleCall]]
) -> Core | None:
    """What bends in a region."""
    path = [operations[i] for i in region.operations]
    necks = _necks(path, region.root)
    begin = max((k for k, value in necks.items() if k < len(path) - 1 and k >= 0 and value in ends), default=-1)
    after = [k for k in necks if k >= begin]
    first = max(k for k in after if is_affine(path[begin + 1 : k + 1], necks[begin]))
    if first == len(path) - 1:
        return None
    last = min(k for k in after if k > first and is_affine(path[k + 1 :], necks[k]))
    at = {value: k for k, value in reversed(necks.items()) if k >= begin}
    unit = _unit(calls, at, first, last)
    if unit is not None:
        assert unit.given is not None and unit.made is not None
        first, last = at[unit.given], at[unit.made]
    return Core(start=necks[first], end=necks[last], path=tuple(path[first + 1 : last + 1]), unit=unit)


def _necks(path: Sequence[Operation], root: int) -> dict[int, int]:
    """Position → value, where all that follows depends on this one value of all that came before; −1 is the root."""
    last_read: dict[int, int] = {}
    for k, op in enumerate(path):
        if op.name not in MAKERS:
            last_read.update(dict.fromkeys(op.inputs, k))
    necks = {-1: root}
    needed = last_read.get(root, -1)  # how far the values before are read
    for k, op in enumerate(path):
        if needed <= k:
            necks[k] = op.outputs[0]
        if op.name not in MAKERS:
            needed = max(needed, last_read.get(op.outputs[0], -1))
    return necks


def _unit(
    calls: Mapping[int | None, Sequence[ModuleCall]], at: Mapping[int, int], first: int, last: int
) -> ModuleCall | None:
    """The innermost module that is given a neck before the core and hands on one after it."""
    best = None
    for given, begins in at.items():
        for call in calls.get(given, ()):
            ends = -1 if call.made is None else at.get(call.made, -1)
            if begins <= first and ends >= last and (best is None or call.first > best.first):
                best = call
    return best


def declared_core(call: ModuleCall, operations: Sequence[Operation]) -> Core | None:
    """A module that its author calls elementwise, whatever happens in it."""
    if call.given is None or call.made is None:
        return None
    live, path = {call.given}, []
    for op in operations[call.first : call.last]:
        if live.intersection(op.inputs) and op.name not in MAKERS and op.kind != "random":
            path.append(op)
            live.update(op.outputs)
            if call.made in op.outputs[:1]:
                return Core(start=call.given, end=call.made, path=tuple(path), unit=call)
    return None
