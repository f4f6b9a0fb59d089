"""The anatomy of a model: everything that one chart found, as one frozen result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from torch import Tensor

from netvitals.anatomy.blocks.connections import Connection
from netvitals.anatomy.blocks.experts import Mixture
from netvitals.anatomy.blocks.gated import GatedMLP
from netvitals.anatomy.blocks.heads import Heads
from netvitals.anatomy.blocks.layers import Layer
from netvitals.anatomy.blocks.norms import Norm
from netvitals.anatomy.blocks.recurrence import Recurrence
from netvitals.anatomy.blocks.roles import Softmax
from netvitals.anatomy.blocks.stream import Stream
from netvitals.anatomy.dataflow import Dataflow
from netvitals.anatomy.ir import Operation, ParameterInfo, Role, Value
from netvitals.anatomy.regions import Gate, Region

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Anatomy:
    """The structure of a model, traced in one forward pass: operations, layers, activations, norms and attention.

    Returned by :func:`chart`.

    Attributes:
        model: class name of the model.
        modules: name → class of every module.
        values: every tensor of the pass, in the order they were made.
        operations: every aten call, in order.
        parameters: all parameters, with the operations that read them.
        layers: products of an activation with a parameter.
        connections: the connections of each layer's output, one per layer.
        regions: activations.
        gates: products of two branches.
        softmaxes: softmaxes over data.
        norms: layer, batch, group and root-mean-square norms, by what they compute.
        norm_readers: the layers that read each norm, one per norm.
        heads: attention blocks.
        gated: gated MLPs.
        experts: mixtures of experts.
        streams: residual streams.
        recurrent: modules and layers that are used several times in a pass.
        inputs: values passed to the model.
        outputs: values returned by the model.
        skipped: place → the reason why it is not included.
        passes: number of forward passes used for tracing.
        tensors: the tensor of each value.
    """

    model: str
    modules: Mapping[str, str]
    values: tuple[Value, ...] = field(repr=False)
    operations: tuple[Operation, ...] = field(repr=False)
    parameters: tuple[ParameterInfo, ...] = field(repr=False)
    layers: tuple[Layer, ...]
    connections: tuple[Connection, ...]
    regions: tuple[Region, ...]
    gates: tuple[Gate, ...]
    softmaxes: tuple[Softmax, ...]
    norms: tuple[Norm, ...]
    norm_readers: tuple[Connection, ...]
    heads: tuple[Heads, ...]
    gated: tuple[GatedMLP, ...]
    experts: tuple[Mixture, ...]
    streams: tuple[Stream, ...]
    recurrent: tuple[Recurrence, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    skipped: Mapping[str, str]
    passes: int
    tensors: tuple[Tensor, ...] = field(repr=False, compare=False)

    def _repr_html_(self) -> str:
        from html import escape

        return f'<pre style="line-height:1.3">{escape(str(self))}</pre>'

    @property
    def activations(self) -> tuple[Region, ...]:
        """The regions that are neither affine, nor part of a norm or a recurrent kernel, nor unclear."""
        return tuple(r for r in self.regions if r.kind == "activation" and r.role != "recurrent")

    @property
    def stream(self) -> Stream | None:
        """The residual stream with most additions; None if there is none."""
        return max(self.streams, key=lambda s: len(s.additions), default=None)

    @property
    def embeddings(self) -> tuple[Layer, ...]:
        """Layers that look up ids of the input."""
        return self.layers_with("embedding")

    @property
    def readouts(self) -> tuple[Layer, ...]:
        """The last layers on the way to the output."""
        return self.layers_with("readout")

    def layers_with(self, role: Role) -> tuple[Layer, ...]:
        """Return all layers that have the given ``role``."""
        return tuple(layer for layer in self.layers if layer.role == role)

    @property
    def roles(self) -> dict[str, Role]:
        """The role of every site by its name: layers, norms, regions, gates and softmaxes."""
        sites = (self.layers, self.norms, self.softmaxes, self.gates, self.regions)
        return {site.name: site.role for kind in sites for site in kind}

    def parameter(self, name: str) -> ParameterInfo | None:
        """Return the parameter called ``name``, also if it is another name of a tied parameter; None if there is
        none.
        """
        return self._parameters.get(name)

    @cached_property
    def _parameters(self) -> dict[str, ParameterInfo]:
        return {name: p for p in self.parameters for name in (p.name, *p.ties)}

    @property
    def batch_dim(self) -> int | None:
        """The batch dimension of the first input that has one."""
        return next((self.values[v].batch_dim for v in self.inputs if self.values[v].batch_dim is not None), None)

    def producers(self, value: int) -> Operation | None:
        """Return the operation that made ``value``; None for inputs, parameters and constants."""
        made = self.values[value].producer
        return None if made < 0 else self.operations[made]

    def readers(self, value: int) -> tuple[Operation, ...]:
        """Return all operations that read ``value``."""
        return tuple(self._readers.get(value, ()))

    @cached_property
    def noise(self) -> frozenset[int]:
        """Values made of random numbers alone, such as the mask of a dropout."""
        return frozenset(Dataflow(self.values, self.operations, self.tensors, self.outputs).noise)

    @cached_property
    def _readers(self) -> dict[int, list[Operation]]:
        out: dict[int, list[Operation]] = {}
        for op in self.operations:
            for value in dict.fromkeys(op.inputs):
                out.setdefault(value, []).append(op)
        return out

    def at(self, region: Region) -> tuple[Tensor, Tensor]:
        """Return the input and output tensors of the activation ``region`` (a part of the traced graph)."""
        x, y = self.tensors[region.root], self.tensors[region.end]
        if x.shape != self.values[region.root].shape or y.shape != self.values[region.end].shape:
            raise ValueError(f"the tensors at {region.name} were not stored; use chart(..., keep_tensors=True)")
        return x, y

    def __str__(self) -> str:
        from netvitals.anatomy.drawing.outline import outline_of

        return outline_of(self)

    def to_html(self, path: str | Path | None = None, colours: Mapping[str, float] | None = None) -> str:
        """Write the model's structure as an HTML page in which modules can be folded.

        Args:
            path: a file to write; None only returns the text.
            colours: site → number, such as a vital sign; without it sites have the colour of their role.

        Returns:
            The page.
        """
        from netvitals.anatomy.drawing.page import page_of

        text = page_of(self, colours)
        if path is not None:
            from pathlib import Path

            Path(path).write_text(text, encoding="utf-8")
        return text
