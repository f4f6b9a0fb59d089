"""What is found by its operations: activations that are no modules, products, attention blocks, routers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from netvitals.anatomy import Anatomy, Gate, Operation, Role
from netvitals.capture.engine.planning.cores import Core
from netvitals.capture.engine.planning.live_trace import LiveTrace
from netvitals.capture.engine.planning.origins import UNKNOWN, Origin
from netvitals.capture.engine.planning.recorded import IDENTITY

LOOP = 16  # of what a loop over time steps repeats in one call of a module, so many are measured
SOFTMAXES = {"_softmax": "softmax", "_safe_softmax": "softmax", "_log_softmax": "log_softmax"}


@dataclass(frozen=True, kw_only=True)
class Extra:
    """An activation, a product of two branches, an attention or a router that is found by its operations."""

    kind: Literal["activation", "product", "attention", "heads", "router"] = "activation"
    name: str
    count: int = 1  # which activation of this name it is
    op: str  # empty for a user's module, whose class names it
    spec: str | None
    module: str  # that owns it
    role: Role
    core: Core
    origin: Origin
    order: int  # operations that had run when it was complete
    part: Any = None  # the gate, heads or mixture of the anatomy that it is

    @property
    def site(self) -> str:
        return self.name if self.count == 1 else f"{self.name}#{self.count}"

    @property
    def random(self) -> bool:
        return any(torch.Tag.nondeterministic_seeded in op.func.tags for op in self.core.path)

    @staticmethod
    def secant(x: Tensor, a: Tensor) -> Callable[[Tensor], Tensor]:
        """One that draws a slope, as a function with the slopes that it drew."""
        slope = torch.where(x == 0, torch.ones_like(x), a / x)
        return lambda t: t * slope.to(t.dtype)


def named(owner: str, op: str) -> str:
    """The name of a place that is no module.

    >>> named("block.0", "gelu"), named("", "relu")
    ('block.0.gelu()', 'relu()')
    """
    return f"{owner}.{op}()" if owner else f"{op}()"


def counted(extras: Sequence[Extra], notes: dict[str, str]) -> list[Extra]:
    """The second of a name in a pass is ``name#2``; a module counts by its calls. Of a loop the first turns stay."""
    counts: dict[str, int] = {}
    turns: dict[tuple[str, int], int] = {}
    out = []
    for extra in extras:
        unit, last = extra.core.unit, extra.core.path[-1]
        turn = turns[extra.name, last.call] = turns.get((extra.name, last.call), 0) + 1
        if unit is None and turn > LOOP:
            notes.setdefault(
                f"{extra.name} (loop)", f"it runs again and again in one call; the first {LOOP} are measured"
            )
            continue
        counts[extra.name] = counts.get(extra.name, 0) + 1
        out.append(replace(extra, count=counts[extra.name] if unit is None else unit.call))
    return out


def blocks(anatomy: Anatomy, trace: LiveTrace) -> list[Extra]:
    """Attention heads and routers, each found by the operations that make what is measured."""
    out = []
    for heads in anatomy.heads:
        values = [heads.query, heads.key, heads.value, heads.logits, heads.weights]
        makers = {trace.values[v].producer for v in values if v is not None} | {heads.operation}
        path = (heads.operation,) if heads.fused else sorted(makers - {-1})
        out.append(_block("heads", named(heads.module, "heads"), heads, path, heads.query, trace))
    for mixture in anatomy.experts:
        one = _block("router", named(mixture.name, "router"), mixture, (mixture.operation,), mixture.scores, trace)
        out.append(replace(one, op="softmax") if _is_softmax(mixture.scores, trace) else one)
    return out


def _is_softmax(value: int, trace: LiveTrace) -> bool:
    """Whether a value is the output of a softmax, seen through views and casts."""
    while (made := trace.values[value].producer) >= 0:
        op = trace.operations[made]
        if op.kind != "view" and op.name not in IDENTITY:
            return op.name in SOFTMAXES and op.name != "_log_softmax"
        value = op.inputs[0]
    return False


def _block(
    kind: Literal["heads", "router"], name: str, part: Any, path: Sequence[int], start: int, trace: LiveTrace
) -> Extra:
    steps = tuple(trace.operations[i] for i in path)
    return Extra(
        kind=kind,
        name=name,
        op=kind,
        spec=None,
        module=steps[-1].module,
        role="attention weight" if kind == "heads" else "router",
        core=Core(start=start, end=steps[-1].outputs[0], path=steps),
        origin=UNKNOWN,
        order=steps[-1].index + 1,
        part=part,
    )


def product_of(gate: Gate, op: Operation, known: Sequence[Origin]) -> Extra:
    """A product of two branches."""
    return Extra(
        kind="product",
        name=named(op.module, op.name.rstrip("_")),
        op=op.name.rstrip("_"),
        spec=None,
        module=op.module,
        role=gate.role,
        core=Core(start=gate.left, end=gate.output, path=(op,)),
        origin=known[gate.left],
        order=op.index + 1,
        part=gate,
    )


def attention_of(op: Operation) -> Extra:
    """The output of a fused attention that a function computes."""
    return Extra(
        kind="attention",
        name=named(op.module, "scaled_dot_product_attention"),
        op="scaled_dot_product_attention",
        spec=None,
        module=op.module,
        role="attention weight",
        core=Core(start=op.inputs[0], end=op.outputs[0], path=(op,)),
        origin=UNKNOWN,
        order=op.index + 1,
    )
