"""What a network is made of: its wiring, its activations, copies that run together, and how it is left as it was.

``chart(model, batch)`` traces one pass and gives an :class:`Anatomy`: operations, tensors, parameters with ties and
freezing, and every pointwise region as one activation.
"""

from netvitals.anatomy.charting import Anatomy, chart
from netvitals.anatomy.connections import Connection, Layer
from netvitals.anatomy.parts import Line, Operation, ParameterInfo, Value
from netvitals.anatomy.regions import Gate, Region

__all__ = ["Anatomy", "Connection", "Gate", "Layer", "Line", "Operation", "ParameterInfo", "Region", "Value", "chart"]
