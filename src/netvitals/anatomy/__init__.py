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
    from netvitals.anatomy.blocks.connections import Connection
    from netvitals.anatomy.blocks.experts import Expert, Mixture
    from netvitals.anatomy.blocks.gated import GatedMLP
    from netvitals.anatomy.blocks.heads import Heads
    from netvitals.anatomy.blocks.layers import Layer
    from netvitals.anatomy.blocks.norms import Norm
    from netvitals.anatomy.blocks.projections import Projection
    from netvitals.anatomy.blocks.recurrence import Recurrence
    from netvitals.anatomy.blocks.roles import Softmax
    from netvitals.anatomy.blocks.stream import Addition, Stream
    from netvitals.anatomy.charting import chart
    from netvitals.anatomy.ir import Line, Operation, ParameterInfo, ParameterPart, Role, Value
    from netvitals.anatomy.regions import Gate, Region

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


def __getattr__(name: str) -> Any:
    home = next((home for home, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"netvitals.anatomy has no {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f"netvitals.anatomy.{home}"), name)
