"""What a network is made of: its wiring, its activations, copies that run together, and how it is left as it was.

``chart(model, batch)`` traces a pass and gives an :class:`Anatomy`: operations, tensors, parameters with ties and
freezing, every pointwise region as one activation, layers, norms, attention heads, gated MLPs, experts, the residual
stream, and the role of each. If unsure, print it.

Names are loaded when first used: who only wants to leave a model as it was (``anatomy.preserve``) loads nothing else.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from netvitals.anatomy.anatomy import Anatomy
    from netvitals.anatomy.batching import call_with as call_with
    from netvitals.anatomy.batching import mapped as mapped
    from netvitals.anatomy.batching import named_tensors as named_tensors
    from netvitals.anatomy.blocks.connections import Connection
    from netvitals.anatomy.blocks.experts import Expert, Mixture
    from netvitals.anatomy.blocks.gated import GatedMLP
    from netvitals.anatomy.blocks.heads import Heads
    from netvitals.anatomy.blocks.layers import Layer
    from netvitals.anatomy.blocks.norms import Norm
    from netvitals.anatomy.blocks.norms import find_norms as find_norms
    from netvitals.anatomy.blocks.projections import Projection
    from netvitals.anatomy.blocks.recurrence import Recurrence
    from netvitals.anatomy.blocks.roles import Softmax
    from netvitals.anatomy.blocks.stream import Addition, Stream
    from netvitals.anatomy.charting import chart
    from netvitals.anatomy.charting import described as described
    from netvitals.anatomy.copies.replicas import Replicas as Replicas
    from netvitals.anatomy.dataflow import IDENTITY as IDENTITY
    from netvitals.anatomy.dataflow import Dataflow as Dataflow
    from netvitals.anatomy.ir import Line, Operation, ParameterInfo, ParameterPart, Role, Value
    from netvitals.anatomy.ir import Slot as Slot
    from netvitals.anatomy.ir import Source as Source
    from netvitals.anatomy.kinds import by_output as by_output
    from netvitals.anatomy.kinds import channel_dim as channel_dim
    from netvitals.anatomy.kinds import layer_kind as layer_kind
    from netvitals.anatomy.lanczos import Lanczos as Lanczos
    from netvitals.anatomy.lanczos import Tridiagonal as Tridiagonal
    from netvitals.anatomy.preserve import plain_kernels as plain_kernels
    from netvitals.anatomy.preserve import preserved as preserved
    from netvitals.anatomy.preserve import rng_state as rng_state
    from netvitals.anatomy.preserve import set_rng_state as set_rng_state
    from netvitals.anatomy.preserve import undisturbed as undisturbed
    from netvitals.anatomy.regions import Gate, Region
    from netvitals.anatomy.regions import find_regions as find_regions
    from netvitals.anatomy.regions import numbered as numbered
    from netvitals.anatomy.topology import Topology as Topology
    from netvitals.anatomy.tracing import Tracer as Tracer
    from netvitals.anatomy.tracing import storage_of as storage_of
    from netvitals.anatomy.wiring import LayerRun as LayerRun
    from netvitals.anatomy.wiring import Link as Link
    from netvitals.anatomy.wiring import Links as Links
    from netvitals.anatomy.wiring import find_links as find_links
    from netvitals.anatomy.wiring import layers_after_activation as layers_after_activation
    from netvitals.anatomy.wiring import recorded as recorded
    from netvitals.anatomy.wiring import why_not_alone as why_not_alone

__all__ = [
    "chart",
    "Anatomy",
    # the trace
    "Operation",
    "Value",
    "Line",
    "ParameterInfo",
    "ParameterPart",
    # sites with roles
    "Role",
    "Layer",
    "Norm",
    "Region",
    "Gate",
    "Softmax",
    # blocks
    "Connection",
    "Projection",
    "Heads",
    "GatedMLP",
    "Mixture",
    "Expert",
    "Stream",
    "Addition",
    "Recurrence",
]

_HOMES = {
    "charting": ("chart",),
    "anatomy": ("Anatomy",),
    "ir": ("Operation", "Value", "Line", "ParameterInfo", "ParameterPart", "Role"),
    "regions": ("Region", "Gate"),
    "blocks.connections": ("Connection",),
    "blocks.experts": ("Mixture", "Expert"),
    "blocks.gated": ("GatedMLP",),
    "blocks.heads": ("Heads",),
    "blocks.layers": ("Layer",),
    "blocks.norms": ("Norm",),
    "blocks.projections": ("Projection",),
    "blocks.recurrence": ("Recurrence",),
    "blocks.roles": ("Softmax",),
    "blocks.stream": ("Stream", "Addition"),
}

_INTERNAL = {  # for the packages above, not public
    "batching": "call_with mapped named_tensors",
    "blocks.norms": "find_norms",
    "charting": "described",
    "copies.replicas": "Replicas",
    "dataflow": "Dataflow IDENTITY",
    "ir": "Slot Source",
    "kinds": "by_output channel_dim layer_kind",
    "lanczos": "Lanczos Tridiagonal",
    "preserve": "plain_kernels preserved rng_state set_rng_state undisturbed",
    "regions": "find_regions numbered",
    "topology": "Topology",
    "tracing": "Tracer storage_of",
    "wiring": "LayerRun Link Links find_links layers_after_activation recorded why_not_alone",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names} | {
    name: home for home, names in _INTERNAL.items() for name in names.split()
}


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"netvitals.anatomy has no {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f"netvitals.anatomy.{home}"), name)
