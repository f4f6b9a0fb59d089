"""The plan of a model: its activations as one traced pass showed them, and how to find each of them again.

What is exactly one known module is found again by a hook on that module. Every other activation (inline, composite, a
user's own module) is found by its operations: which of the operations of that name, in which call of which module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from netvitals.activations import ACTIVATIONS
from netvitals.anatomy import Anatomy, Operation, Region, Role
from netvitals.capture.engine.modules import ModuleInfo
from netvitals.capture.engine.planning.cores import Core, core_of, declared_core
from netvitals.capture.engine.planning.extras import SOFTMAXES, Extra, attention_of, blocks, counted, named, product_of
from netvitals.capture.engine.planning.live_trace import LiveTrace, ModuleCall
from netvitals.capture.engine.planning.origins import Origin, origins
from netvitals.capture.engine.planning.recognition import recognise
from netvitals.capture.engine.planning.recorded import IDENTITY, MAKERS, function_of, with_makers
from netvitals.capture.engine.roles import REASONS, WHOLE
from netvitals.capture.shards import is_wrapped

Place = tuple[str, int]  # a module and which call of it
_ATTENTION = "_scaled_dot_product"
_COMPARISONS = frozenset({"gt", "ge", "lt", "le"})
_ORDERS = frozenset({"sort", "topk", "kthvalue", "median", "cummax", "cummin"})
_AFTER_LAYER = ("linear", "bn_direct", "norm_direct", "post_add")
_ACTIVE = frozenset(name for row in ACTIVATIONS if not row.after_layer for name in row.aten)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a traced pass showed."""

    extras: tuple[Extra, ...] = ()
    suppressed: frozenset[Place] = frozenset()  # calls of activation modules that are pieces of an extra
    origins: Sequence[Origin] = ()
    roles: Mapping[Place, Role] = field(default_factory=dict)  # of activation modules and layers
    skipped: Mapping[str, str] = field(default_factory=dict)
    # where the operations of extras are: in a call of a module, the n-th call of an operator is the k-th of an extra
    wanted: Mapping[Place, Mapping[tuple[Any, int], tuple[tuple[int, int], ...]]] = field(default_factory=dict)


def make_plan(
    trace: LiveTrace,
    anatomy: Anatomy,
    roots: Sequence[int | None],
    modules: Mapping[str, ModuleInfo],
    marked: Mapping[int, Origin],
) -> Plan:
    """Find the activations of a traced pass."""
    operations = trace.operations
    known = origins(trace.values, operations, roots, marked)
    role = {name: info.role for name, info in modules.items()}
    closed = _Inside(c for c in trace.module_calls if role.get(c.name) in WHOLE - {"activation", "declared"})
    notes = {place: why for place, why in anatomy.skipped.items() if not closed.names(place) and not is_wrapped(place)}
    extras, kept, roles = [], set(), {}
    for core, region in _cores(trace, anatomy, modules, closed).values():
        unit = core.unit
        if unit is not None and role[unit.name] == "activation":
            kept.add((unit.name, unit.call))
            roles[unit.name, unit.call] = region.role if region is not None else "hidden activation"
            continue
        if not trace.tensors[core.end].is_floating_point():
            continue  # a mask
        extra = _extra(core, region, trace, known, roots)
        if unit is None and extra.spec is None and _is_arithmetic(core) and extra.origin.follows not in _AFTER_LAYER:
            notes.setdefault(extra.name, f"{extra.op} of what no layer made is taken for arithmetic, not an activation")
        else:
            extras.append(extra)
    pieces = {op.index for e in extras for op in e.core.path}
    suppressed = {
        (c.name, c.call)
        for c in trace.module_calls
        if role.get(c.name) == "activation"
        and not pieces.isdisjoint(range(c.first, c.last))
        and (c.name, c.call) not in kept
    }
    routers = {mixture.operation for mixture in anatomy.experts}
    for op in operations:
        if op.index not in closed and any(roots[i] is not None for i in op.inputs):
            if op.name.startswith(_ATTENTION):
                extras.append(attention_of(op))
            if op.index not in routers:
                notes |= {place: why for place, why in _unfolded(op, trace, known, roots) if place not in notes}
    for gate in anatomy.gates:
        if gate.operation not in closed and gate.role == "gate":
            extras.append(product_of(gate, operations[gate.operation], known))
    for layer in anatomy.layers:
        op = operations[layer.operation]
        if role.get(op.module) != "linear" and op.index not in closed and op.name != "embedding":
            notes.setdefault(named(op.module, "linear" if "mm" in op.name else op.name), REASONS["function"])
        roles[layer.module, layer.call] = layer.role
    extras = counted(sorted([*extras, *blocks(anatomy, trace)], key=lambda e: e.order), notes)
    return Plan(
        extras=tuple(extras),
        suppressed=frozenset(suppressed),
        origins=known,
        roles=roles,
        skipped=notes,
        wanted=_wanted(extras, operations),
    )


def _cores(
    trace: LiveTrace, anatomy: Anatomy, modules: Mapping[str, ModuleInfo], closed: _Inside
) -> dict[tuple[int, int], tuple[Core, Region | None]]:
    """The activations of a trace with the regions that they are in, by the values they lead from and to."""
    units: dict[int | None, list[ModuleCall]] = {}  # by what they are given
    for c in trace.module_calls:
        if c.name and not modules[c.name].refused and c.first not in closed:
            units.setdefault(c.given, []).append(c)
    declared = [c for c in trace.module_calls if modules[c.name].role == "declared"]
    found: dict[tuple[int, int], tuple[Core, Region | None]] = {}
    for call in declared:
        core = declared_core(call, trace.operations)
        if core is not None:
            found[core.start, core.end] = core, None
    taken = _Inside(declared)
    regions = _leaving(anatomy.regions, trace.operations, set(anatomy.outputs))
    ends = {r.end for r in regions}
    for region in regions:
        if "float" not in trace.values[region.root].dtype or closed.holds(region.operations):
            continue
        core = core_of(region, trace.operations, ends, units)
        if core is not None and not taken.holds([op.index for op in core.path]):
            found.setdefault((core.start, core.end), (core, region))
    return found


def _unfolded(
    op: Operation, trace: LiveTrace, known: Sequence[Origin], roots: Sequence[int | None]
) -> Iterator[tuple[str, str]]:
    """What an operation does that is no function of one element: place and reason."""
    several = len({roots[i] for i in op.inputs} - {None}) > 1
    if op.name.rstrip("_") == "mul" and several and any(trace.values[i].dtype == "bool" for i in op.inputs):
        yield named(op.module, "mul"), REASONS["mask"]
    elif (op.name in _ORDERS and known[op.inputs[0]].follows in _AFTER_LAYER) or (op.name in _COMPARISONS and several):
        yield named(op.module, op.name), REASONS["mixing"]
    elif op.name in SOFTMAXES:
        yield named(op.module, SOFTMAXES[op.name]), REASONS["mixing"]
    elif op.name.startswith(_ATTENTION):
        yield named(op.module, "scaled_dot_product_attention"), REASONS["fused attention"]
    elif op.name in ("max", "amax") and _is_folded(known[op.inputs[0]]):
        yield named(op.module, "maxout"), REASONS["mixing"]


def _leaving(regions: Sequence[Region], operations: Sequence[Operation], outputs: Set[int]) -> list[Region]:
    """The regions whose end somebody else reads; who only takes its shape does not count. Norms are no activations."""
    inside: dict[int, set[int]] = {}
    for region in regions:
        inside.setdefault(region.root, set()).update(region.operations)
    readers: dict[int, list[int]] = {}
    for op in operations:
        if op.name not in MAKERS:
            for value in set(op.inputs):
                readers.setdefault(value, []).append(op.index)
    return [
        r
        for r in regions
        if r.kind != "normaliser" and (r.end in outputs or not inside[r.root].issuperset(readers.get(r.end, ())))
    ]


def _extra(
    core: Core, region: Region | None, trace: LiveTrace, known: Sequence[Origin], root: Sequence[int | None]
) -> Extra:
    core = replace(core, path=with_makers(core.path, trace.values, trace.operations))
    steps = [op for op in core.path if op.name not in IDENTITY and op.name not in MAKERS]
    live = {core.start} | {v for op in core.path for v in op.outputs}
    others = {i for op in core.path for i in op.inputs if i not in live}
    learned = any(_reads_parameter(i, trace) for i in others)
    drawn = any(torch.Tag.nondeterministic_seeded in op.func.tags for op in core.path)
    f = function_of(core.path, core.start, core.end, trace.tensors)
    called = recognise(core.path, f, learned=learned or drawn or any(root[i] is not None for i in others))
    last = steps[-1] if steps else core.path[-1]
    unit = core.unit
    op = called.op if called.spec or len(steps) == 1 else last.name.rstrip("_")
    return Extra(
        name=named(last.module, op) if unit is None else unit.name,
        op=called.op if unit is None else "",
        spec=called.spec,
        module=last.module if unit is None else unit.name,
        role="hidden activation" if region is None else region.role,
        core=core,
        origin=known[core.start],
        order=core.path[-1].index + 1 if unit is None else unit.last,
    )


def _reads_parameter(value: int, trace: LiveTrace) -> bool:
    todo, seen = [value], set()
    while todo:
        found = trace.values[todo.pop()]
        if found.source == "parameter":
            return True
        if found.producer >= 0 and found.producer not in seen:
            seen.add(found.producer)
            todo += trace.operations[found.producer].inputs
    return False


def _is_folded(origin: Origin) -> bool:
    """The channels of a layer were moved elsewhere, so that a maximum takes the largest of several of them."""
    return origin.channel_dim is None and origin.follows in _AFTER_LAYER


def _is_arithmetic(core: Core) -> bool:
    """Nothing in it is called an activation by anybody."""
    return not any(op.name.rstrip("_") in _ACTIVE for op in core.path)


def _wanted(
    extras: Sequence[Extra], operations: Sequence[Operation]
) -> dict[Place, dict[tuple[Any, int], tuple[tuple[int, int], ...]]]:
    uses: dict[int, list[tuple[int, int]]] = {}
    for i, extra in enumerate(extras):
        for k, op in enumerate(extra.core.path):
            uses.setdefault(op.index, []).append((i, k))
    counts: dict[tuple[str, int, Any], int] = {}
    out: dict[Place, dict[tuple[Any, int], tuple[tuple[int, int], ...]]] = {}
    for op in operations:
        key = (op.module, op.call, op.func)
        counts[key] = counts.get(key, 0) + 1
        if op.index in uses:
            out.setdefault((op.module, op.call), {})[op.func, counts[key]] = tuple(uses[op.index])
    return out


class _Inside:
    """The operations that run inside some calls of modules."""

    def __init__(self, calls: Iterable[ModuleCall]) -> None:
        calls = list(calls)
        self._operations = {i for c in calls for i in range(c.first, c.last)}
        self._owners = tuple(f"{c.name}{mark}" for c in calls for mark in (".", "#") if c.name)

    def __contains__(self, operation: int) -> bool:
        return operation in self._operations

    def holds(self, operations: Iterable[int]) -> bool:
        """All of them are inside."""
        return self._operations.issuperset(operations)

    def names(self, place: str) -> bool:
        return place.startswith(self._owners)
