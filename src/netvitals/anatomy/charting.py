"""Chart a model: one traced pass tells what is connected to what, and where the nonlinearities are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from netvitals.anatomy.connections import Connection, Layer, find_connections, find_layers
from netvitals.anatomy.parts import Operation, ParameterInfo, Value
from netvitals.anatomy.preserve import preserved
from netvitals.anatomy.regions import Gate, Region, find_regions
from netvitals.anatomy.tracing import Tracer


@dataclass(frozen=True, kw_only=True)
class Anatomy:
    """What a model is made of, as one pass showed it; made by :func:`chart`."""

    model: str
    values: tuple[Value, ...] = field(repr=False)
    operations: tuple[Operation, ...] = field(repr=False)
    parameters: tuple[ParameterInfo, ...] = field(repr=False)
    layers: tuple[Layer, ...]
    connections: tuple[Connection, ...]
    regions: tuple[Region, ...]
    gates: tuple[Gate, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    skipped: Mapping[str, str]  # place → why it is not an activation of one tensor
    tensors: tuple[Tensor, ...] = field(repr=False, compare=False)  # what each value held

    @property
    def activations(self) -> tuple[Region, ...]:
        """The regions that are neither affine nor unclear."""
        return tuple(r for r in self.regions if r.kind == "activation")

    def producers(self, value: int) -> Operation | None:
        """The operation that made a value; None for inputs, parameters and constants."""
        made = self.values[value].producer
        return None if made < 0 else self.operations[made]

    def readers(self, value: int) -> tuple[Operation, ...]:
        """The operations that read a value."""
        return tuple(op for op in self.operations if value in op.inputs)

    def at(self, region: Region) -> tuple[Tensor, Tensor]:
        """What went into a region and what came out, in the charted pass."""
        return self.tensors[region.root], self.tensors[region.end]

    def __str__(self) -> str:
        lines = [
            f"Anatomy of {self.model}: {len(self.operations)} operations, {len(self.layers)} layers, "
            f"{len(self.activations)} activations, {len(self.gates)} gates, {len(self.parameters)} parameters"
        ]
        for region in self.activations[:30]:
            shape = "×".join(map(str, self.values[region.root].shape))
            lines.append(f"  {region.name:<32} {region.text:<40} {shape:<14} {region.line or ''}")
        if len(self.activations) > 30:
            lines.append(f"  … and {len(self.activations) - 30} more activations")
        lines += [f"  {gate.name:<32} gate of two branches at {gate.line or 'unknown'}" for gate in self.gates[:10]]
        clean = [f"{c.writer} → {', '.join(c.readers)}" for c in self.connections if c.clean]
        lines += [f"  feeds: {'; '.join(clean[:12])}{' …' if len(clean) > 12 else ''}"] if clean else []
        ties = [f"{p.name} = {' = '.join(p.ties)}" for p in self.parameters if p.ties]
        lines += [f"  tied: {', '.join(ties)}"] if ties else []
        frozen = [p.name for p in self.parameters if p.frozen]
        lines += [f"  frozen: {', '.join(frozen[:8])}{' …' if len(frozen) > 8 else ''}"] if frozen else []
        lines += [f"  not charted: {place}: {why}" for place, why in list(self.skipped.items())[:10]]
        return "\n".join(lines)


def chart(model: nn.Module, batch: Any) -> Anatomy:
    """Trace one forward pass of ``model`` and tell what it is made of; the model is left as it was.

    Args:
        model: any module; it is run once, without a loss.
        batch: the model's input: a tensor, a tuple of arguments, or a dict of keyword arguments.

    Returns:
        The anatomy: operations, values, parameters, pointwise regions and gates.

    >>> class Net(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.a, self.b = nn.Linear(2, 3), nn.Linear(3, 1)
    ...     def forward(self, x):
    ...         h = self.a(x)
    ...         return self.b(h * torch.sigmoid(h))
    >>> found = chart(Net(), torch.ones(4, 2))
    >>> [(r.text, r.kind) for r in found.regions]
    [('sigmoid → mul', 'activation')]
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"chart needs a torch.nn.Module, got a {type(model).__name__}")
    args, kwargs = _arguments(batch)
    named = dict(_named(args, kwargs))
    if not named:
        raise ValueError("the batch holds no tensor; give the model's input: x, a tuple of arguments or a dict")
    tracer = Tracer(model, named)
    with preserved(model), ExitStack() as stack, torch.enable_grad():
        for name, module in model.named_modules():
            if name:
                begins, ends = tracer.follow(name)
                stack.callback(module.register_forward_pre_hook(begins).remove)
                stack.callback(module.register_forward_hook(ends, always_call=True).remove)
        with tracer:
            output = model(*args, **kwargs)
    outputs = tuple(tracer.value_of(t) for _, t in _nested("output", output))
    layers = find_layers(tracer.values, tracer.operations)
    regions, gates, skipped = find_regions(tracer.values, tracer.operations, tracer.tensors, outputs)
    return Anatomy(
        model=type(model).__name__,
        values=tuple(tracer.values),
        operations=tuple(tracer.operations),
        parameters=tuple(_parameters(model, tracer)),
        layers=layers,
        connections=find_connections(tracer.values, tracer.operations, layers, outputs),
        regions=regions,
        gates=gates,
        inputs=tuple(v.index for v in tracer.values if v.source == "input"),
        outputs=outputs,
        skipped=skipped,
        tensors=tuple(tracer.tensors),
    )


def _parameters(model: nn.Module, tracer: Tracer) -> Iterator[ParameterInfo]:
    names: dict[int, list[str]] = {}
    for name, p in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(p), []).append(name)
    holds = {v.index: v.name for v in tracer.values if v.source == "parameter"}  # also through views and casts
    readers: dict[str, list[int]] = {}
    for op in tracer.operations:
        for name in {holds[i] for i in op.inputs if i in holds}:
            if op.kind == "view" or op.name in ("detach", "_to_copy"):
                holds.update(dict.fromkeys(op.outputs, name))
            else:
                readers.setdefault(name, []).append(op.index)
    for name, p in model.named_parameters():
        yield ParameterInfo(
            name=name,
            shape=tuple(p.shape),
            frozen=not p.requires_grad,
            ties=tuple(names[id(p)][1:]),
            readers=tuple(readers.get(name, ())),
        )


def _arguments(batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(batch, Mapping):
        return (), dict(batch)
    return (tuple(batch), {}) if isinstance(batch, tuple | list) else ((batch,), {})


def _named(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, Tensor]]:
    for i, a in enumerate(args):
        yield from _nested(f"input {i}", a)
    for name, a in kwargs.items():
        yield from _nested(name, a)


def _nested(name: str, nest: Any) -> Iterator[tuple[str, Tensor]]:
    if isinstance(nest, Tensor):
        yield name, nest
    elif isinstance(nest, Mapping):
        for key, value in nest.items():
            yield from _nested(f"{name}.{key}", value)
    elif isinstance(nest, tuple | list):
        for i, value in enumerate(nest):
            yield from _nested(f"{name}.{i}", value)
