r"""Pointwise regions: all that happens to one tensor, element by element, until something mixes elements again.

The *root* of a value is the nearest value above it that is not made element by element from a single one. Operations
that share a root r, with every other operand a parameter, a constant or a number, form one region, so
$h\,\sigma(h)$, ``where(h > 0, h, 0.1 * h)`` and an erf written out are one activation each, not three pieces.
A product of two values with different roots is a gate (a GLU): both factors are regions of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from netvitals.anatomy.blocks.norms import Norm
from netvitals.anatomy.dataflow import IDENTITY, Dataflow
from netvitals.anatomy.ir import Line, Operation, Role
from netvitals.anatomy.replay import Replay, shape_of

RegionKind = Literal["activation", "affine", "normaliser", "unclear"]
T = TypeVar("T", bound=Any)
_SUMS = frozenset(
    {"add", "sub", "rsub", "neg", "copy", "masked_fill", "fill", *IDENTITY}
)  # linear in all that they read


@dataclass(frozen=True, kw_only=True)
class Region:
    """One activation f in the traced pass, from its input ``root`` to its output ``end``.

    The function ``f`` repeats the recorded operations on any tensor of the input's shape, in any dtype, and is
    differentiable.

    Part of :class:`Anatomy`.

    Attributes:
        name: name of the site.
        kind: the kind of function.
        root: the value it starts from.
        end: the value it ends at.
        operations: the operations it consists of.
        module: name of the module that ran.
        call: number of this call of the module.
        line: the line of user code.
        f: replays the operations.
        text: the operations, for a reader: "sigmoid → mul".
        role: its role in the model, such as ``hidden activation``.
    """

    name: str
    kind: RegionKind
    root: int
    end: int
    operations: tuple[int, ...]
    module: str
    call: int = 1
    line: Line | None
    f: Replay = field(repr=False, compare=False)
    text: str = ""
    role: Role = "hidden activation"

    @property
    def reads(self) -> tuple[str, ...]:
        """The parameters and buffers that the region reads, such as the β of a learned Swish."""
        return self.f.named

    def replay(self, x: Tensor, tensors: Mapping[str | int, Tensor]) -> Tensor:
        """f(x) with other operands than those of the charted pass.

        Args:
            x: a tensor in place of the root.
            tensors: today's operands: by name for parameters and buffers, by value for others (``region.f.operands``).

        Returns:
            f(x).
        """
        return self.f(x, tensors)

    def derivative(self, x: Tensor, tensors: Mapping[str | int, Tensor] | None = None) -> Tensor:
        """f'(x) at ``x`` element by element, with other operands where ``tensors`` holds them, by replaying f and going
        back once; half precision is differentiated in float32.
        """
        with torch.enable_grad():
            wide = x.detach().float() if x.dtype in (torch.float16, torch.bfloat16) else x.detach().clone()
            leaf = wide.requires_grad_()
            y = self.f(leaf, tensors or {})
            (slope,) = torch.autograd.grad(y.sum(), leaf, allow_unused=True) if y.requires_grad else (None,)
        return torch.zeros_like(leaf) if slope is None else slope


@dataclass(frozen=True, kw_only=True)
class Gate:
    """An elementwise product of two branches ``left`` and ``right``, as in a gated linear unit.

    Part of :class:`Anatomy`.

    Attributes:
        name: name of the site.
        operation: the product.
        left: one factor; the same value as ``right`` if both are halves of one tensor, as in ``nn.GLU``.
        right: the other factor.
        output: value.
        module: name of the module that ran.
        call: number of this call of the module, from 1.
        line: the line of user code.
        role: its role in the model, such as ``hidden activation``.
    """

    name: str
    operation: int
    left: int
    right: int
    output: int
    module: str
    call: int = 1
    line: Line | None
    role: Role = "gate"


def find_regions(flow: Dataflow, norms: Sequence[Norm]) -> tuple[tuple[Region, ...], tuple[Gate, ...], dict[str, str]]:
    """Regions and gates of a trace, and the pointwise places that are neither, with the reason."""
    values, root = flow.values, flow.roots
    scaling = {i for norm in norms for i in norm.operations}
    members: dict[int, list[Operation]] = {}
    gates, skipped = [], {}
    for op in flow.operations:
        live = flow.live_inputs(op)
        made = op.outputs[0] if op.outputs else None
        if op.name == "glu":
            gates.append(_gate(op, live[0], live[0]))
        if op.kind != "pointwise" or made is None or not live or not flow.signal[made]:
            continue
        above, name = root[made], op.name.rstrip("_")
        if above is not None and above != made:
            members.setdefault(above, []).append(op)
        elif op.index in scaling or name in _SUMS or (name == "where" and not flow.signal[op.inputs[0]]):
            continue  # a norm that is written out, a sum, a choice that does not depend on the data: a new root
        elif len(live) < 2 or flow.noise.intersection(op.inputs):
            if name not in ("mul", "div"):  # a row of scales, dropout: linear
                skipped[place_of(op)] = f"{op.name} broadcasts its tensor, or draws random numbers"
        elif name in ("mul", "addcmul"):
            left, right = live[-2:]
            if "bool" not in (values[left].dtype, values[right].dtype):
                gates.append(_gate(op, left, right))
        elif values[made].dtype.startswith(("float", "bfloat", "complex", "bool")):
            skipped[place_of(op)] = (
                f"{op.name} of {len(live)} tensors is elementwise, but not a function of one of them"
            )
    found: list[Region] = []
    for start, ops in members.items():
        found += _regions_of(start, ops, flow)
    marked = [
        replace(r, kind="normaliser", role="normaliser") if scaling.issuperset(r.operations) else r for r in found
    ]
    for region in marked:
        if region.kind == "unclear":
            skipped[region.name] = (
                f"{region.text} is elementwise, but its operations could not be repeated on other inputs"
            )
    return numbered(sorted(marked, key=lambda r: r.operations[-1])), numbered(gates), skipped


def _gate(op: Operation, left: int, right: int) -> Gate:
    return Gate(
        name=place_of(op),
        operation=op.index,
        left=left,
        right=right,
        output=op.outputs[0],
        module=op.module,
        call=op.call,
        line=op.line,
    )


def _regions_of(start: int, ops: list[Operation], flow: Dataflow) -> list[Region]:
    """One region for every value that leaves the pointwise part over one root, unless it is the root unchanged."""
    inside, outputs = {op.index for op in ops}, set(flow.outputs)
    ends = [
        value
        for op in ops
        for value in op.outputs[:1]
        if flow.values[value].dtype != "bool"
        and (value in outputs or any(r.index not in inside for r in flow.readers[value]))
    ]
    by_value = {v: op for op in ops for v in op.outputs}
    out = []
    for end in dict.fromkeys(ends):
        path = _path(end, start, by_value)
        if not path or all(op.name in IDENTITY for op in path):
            continue
        f = Replay(path, start, end, flow)
        last = next(op for op in reversed(path) if op.name not in IDENTITY)
        kind = shape_of(f, flow.tensors[start])
        out.append(
            Region(
                name=place_of(last),
                kind=kind,
                root=start,
                end=end,
                operations=tuple(op.index for op in path),
                module=last.module,
                call=last.call,
                line=last.line,
                f=f,
                text=" → ".join(op.name.strip("_") for op in path if op.name not in IDENTITY),
                role="scale" if kind == "affine" else "hidden activation" if kind == "activation" else "other",
            )
        )
    return out


def _path(end: int, start: int, by_value: dict[int, Operation]) -> list[Operation]:
    """The operations between two values, in order."""
    seen: dict[int, Operation] = {}
    todo = [end]
    while todo:
        value = todo.pop()
        op = by_value.get(value)
        if value == start or op is None or op.index in seen:
            continue
        seen[op.index] = op
        todo += op.inputs
    return [seen[i] for i in sorted(seen)]


def place_of(op: Operation) -> str:
    """Where an operation is called, as a site is named: the module and the operation."""
    name = f"{op.name.strip('_')}()"
    return f"{op.module}.{name}" if op.module else name


def numbered(sites: Sequence[T]) -> tuple[T, ...]:
    """The same sites, where a name that comes again gets a number: "relu()", "relu()#2"."""
    seen: dict[str, int] = {}
    out = []
    for site in sites:
        seen[site.name] = count = seen.get(site.name, 0) + 1
        out.append(site if count == 1 else replace(site, name=f"{site.name}#{count}"))
    return tuple(out)
