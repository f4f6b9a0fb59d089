"""Chart a model: a traced pass tells what is connected to what, where it bends, and what each part is for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from netvitals.anatomy.anatomy import Anatomy
from netvitals.anatomy.batching import call_with, find_batch_dim, named_tensors, with_batch_dims
from netvitals.anatomy.blocks.connections import Connection, find_connections
from netvitals.anatomy.blocks.experts import find_experts
from netvitals.anatomy.blocks.gated import find_gated
from netvitals.anatomy.blocks.heads import find_heads
from netvitals.anatomy.blocks.layers import find_layers
from netvitals.anatomy.blocks.norms import find_norms
from netvitals.anatomy.blocks.parameters import describe_parameters, tied
from netvitals.anatomy.blocks.recurrence import find_recurrences, inner_modules
from netvitals.anatomy.blocks.roles import Roles
from netvitals.anatomy.blocks.stream import find_streams
from netvitals.anatomy.dataflow import Dataflow
from netvitals.anatomy.preserve import preserved
from netvitals.anatomy.regions import find_regions, numbered
from netvitals.anatomy.tracing import Tracer

_PASSES = 4  # forward passes that a chart may take
_WRAPPERS = ("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel")


def chart(
    model: nn.Module,
    batch: Any,
    *,
    forward: Callable[[nn.Module, Any], Any] | None = None,
    keep_tensors: bool = True,
) -> Anatomy:
    """Trace one forward pass and return the structure of the model: layers, activations, norms, attention, streams.

    The model is left unchanged: buffers, modes, random generators and module attributes are restored afterwards. While
    the model is traced, only torch's own hooks are called. To find the batch dimension, the model is run at
    most three more times without tracing.

    Args:
        model: any module; it is run without a loss. Compiled and data-parallel wrappers are taken off.
        batch: one batch as a data loader yields it: a tensor, a tuple of arguments, a dict of keywords; a target that
            ``forward`` has no place for is left out.
        forward: how to run the model on a batch of another kind: ``forward(model, batch)``.
        keep_tensors: keep what every value held; without, an anatomy that is kept for long holds no activations, only
            parameters, buffers and what regions need to be replayed.

    Returns:
        The anatomy: operations, values, parameters, regions, gates, layers, norms, heads, experts, streams, roles.

    >>> class Net(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.a, self.b = nn.Linear(2, 3), nn.Linear(3, 1)
    ...     def forward(self, x):
    ...         h = self.a(x)
    ...         return self.b(h * torch.sigmoid(h))
    >>> found = chart(Net(), torch.ones(4, 2))
    >>> [(r.text, r.role) for r in found.regions], [(x.name, x.role) for x in found.layers]
    ([('sigmoid → mul', 'hidden activation')], [('a', 'hidden layer'), ('b', 'readout')])
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"chart needs a torch.nn.Module, got a {type(model).__name__}")
    named = dict(named_tensors("input", batch))
    if not named:
        raise ValueError(
            "the batch contains no tensor: give the model's input as a tensor, a tuple of arguments or a dict. For "
            "other types pass forward=, a function of (model, batch)"
        )
    model = _unwrapped(model)
    call = forward or call_with
    with preserved(model), _plainly(), torch.enable_grad():
        run = lambda data: call(model, data)
        tracer = Tracer(model, named)
        with tracer.following(model):
            output = run(batch)
        traced = [
            ((op.module, op.call, op.name), tuple(tracer.values[v].shape for v in op.outputs))
            for op in tracer.operations
        ]
        outputs = tuple(tracer.value_of(t) for _, t in named_tensors("output", output))
        dims, grown, more, why = find_batch_dim(run, model, batch, traced, output, _PASSES - 1)
    values = with_batch_dims(tracer.values, tracer.operations, dims, grown)
    flow = Dataflow(values, tracer.operations, tracer.tensors, outputs)
    found = described(model, flow, {"batch dimension": why} if why else {}, more + 1)
    return found if keep_tensors else _without_tensors(found, flow)


def described(model: nn.Module, flow: Dataflow, skipped: dict[str, str], passes: int) -> Anatomy:
    """All that a dataflow tells."""
    frozen = frozenset(n for n, p in model.named_parameters() if not p.requires_grad)
    layers = find_layers(flow, frozen, {names[0]: names for names in tied(model)})
    for number, layer in enumerate(layers):
        flow.mark(layer.output, number, layer.channel_dim)
    norms = numbered(find_norms(flow))
    regions, gates, unfolded = find_regions(flow, norms)
    heads = find_heads(flow, layers, norms)
    experts = find_experts(flow, layers, model)
    recurrent = find_recurrences(flow, layers, model)
    aside = {m.router.operation for m in experts}
    streams = find_streams(flow, [x for x in layers if x.operation not in aside], norms, inner_modules(recurrent))
    roles = Roles(flow, layers=layers, gates=gates, heads=heads, experts=experts, streams=streams, recurrent=recurrent)
    gated = find_gated(flow, layers, gates, regions)
    connections = find_connections(flow, layers)
    behind_norms = find_connections(flow, (*layers, *norms), first=len(layers)) if norms else ()
    layers = tuple(replace(layer, role=roles.of_layer(layer)) for layer in layers)
    regions = tuple(replace(r, role=roles.of_region(r)) for r in regions)
    skipped |= unfolded
    for found in recurrent:
        if found.kind in ("LSTM", "GRU", "RNN"):
            skipped[found.name] = f"the gates of this {found.kind} run inside one recurrent operation"
    parameters = tuple(describe_parameters(model, flow, layers, norms, regions))
    ran = {op.module for op in flow.operations}
    for p in parameters:
        module = p.name.rpartition(".")[0]
        if not p.readers and p.role != "recurrent":
            place, what = (p.name, "was not read") if module in ran else (module, "did not run")
            skipped.setdefault(place, f"{what} in this pass")
    return Anatomy(
        model=type(model).__name__,
        modules={name: type(m).__name__ for name, m in model.named_modules()},
        values=tuple(flow.values),
        operations=tuple(flow.operations),
        parameters=parameters,
        layers=layers,
        connections=connections,
        regions=regions,
        gates=tuple(replace(g, role=roles.of_gate(g)) for g in gates),
        softmaxes=numbered(roles.softmaxes()),
        norms=norms,
        norm_readers=tuple(_of_layers(c, {x.name for x in layers}) for c in behind_norms),
        heads=heads,
        gated=gated,
        experts=experts,
        streams=streams,
        recurrent=recurrent,
        inputs=tuple(v.index for v in flow.values if v.source == "input"),
        outputs=flow.outputs,
        skipped=skipped,
        passes=passes,
        tensors=tuple(flow.tensors),
    )


def _without_tensors(anatomy: Anatomy, flow: Dataflow) -> Anatomy:
    """The same anatomy without what values held, but for operands of regions."""
    needed = {i for region in anatomy.regions for i in region.f.operands}
    for value in flow.values:
        if value.source in ("input", "operation") and value.index not in needed:
            flow.release(value.index)
    return replace(anatomy, tensors=tuple(flow.tensors))


def _of_layers(connection: Connection, layers: set[str]) -> Connection:
    return replace(connection, readers=tuple(r for r in connection.readers if r in layers))


def _unwrapped(model: nn.Module) -> nn.Module:
    while type(model).__name__ in _WRAPPERS:
        model = model.module  # type: ignore[assignment]
    return getattr(model, "_orig_mod", model) if type(model).__name__ == "OptimizedModule" else model


@contextmanager
def _plainly() -> Iterator[None]:
    """Without fused shortcuts of inference, and with compiled functions run as they are written."""
    fast = torch.backends.mha.get_fastpath_enabled()
    with ExitStack() as stack:
        torch.backends.mha.set_fastpath_enabled(False)
        stack.callback(torch.backends.mha.set_fastpath_enabled, fast)
        if "torch._dynamo" in sys.modules and hasattr(torch.compiler, "set_stance"):
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        yield
