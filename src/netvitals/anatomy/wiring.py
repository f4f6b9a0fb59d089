"""Links of a charted model: pairs of layers where the second sees nothing but a function of the first.

A link is (A, B): B's input is F(A's output) for some F (an activation, pooling, reshaping, a norm), A's output goes
nowhere else, both weights are parameters of their own and are used once per forward pass. On every link the imbalance
identity holds. Chains are maximal runs of links. A layer is whatever multiplies with a parameter, whoever wrote it:
``nn.Linear``, a convolution, an embedding, Hugging Face's ``Conv1D``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from netvitals.anatomy.anatomy import Anatomy
from netvitals.anatomy.blocks.connections import Connection
from netvitals.anatomy.blocks.layers import Layer

# what passes an activation's zeros on; a product passes those of both factors
_KEEPS_ZEROS = frozenset(
    {"alias", "cat", "clone", "contiguous", "detach", "div", "mul", "native_dropout", "_to_copy", "_unsafe_view"}
)


@dataclass
class LayerRun:
    """One layer as it ran: its input ``u`` and its output ``z``, both in the autograd graph."""

    name: str
    weight_name: str
    bias_name: str  # "" if there is none
    weight: Tensor
    bias: Tensor | None
    u: Tensor
    z: Tensor
    channel: int  # the dimension of channels in u and z
    transposed: bool  # the weight is stored (in, out, …)
    groups: int = 1

    def by_output(self, w: Tensor) -> Tensor:
        """The weight, or a gradient of its shape, as (out, everything else)."""
        return self._by(w, self.transposed)

    def by_input(self, w: Tensor) -> Tensor:
        """The weight, or a gradient of its shape, as (in, everything else)."""
        return self._by(w, not self.transposed)

    def _by(self, w: Tensor, other: bool) -> Tensor:
        """Rows of the stored first dimension, or of the ``other`` one: of each group its own."""
        if not other:
            return w.reshape(w.shape[0], -1)
        return (
            w.reshape(self.groups, w.shape[0] // self.groups, w.shape[1], -1).transpose(1, 2).flatten(0, 1).flatten(1)
        )


@dataclass(frozen=True)
class Link:
    """Layer ``first`` feeds layer ``second`` through ``between`` (aten names)."""

    first: str
    second: str
    between: tuple[str, ...]


@dataclass(frozen=True)
class Links:
    """All links of a model, and for every other layer what was in the way."""

    links: tuple[Link, ...]
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def chains(self) -> tuple[tuple[str, ...], ...]:
        """Maximal runs of linked layers, by name."""
        after = {link.first: link.second for link in self.links}
        starts = [a for a in after if a not in set(after.values())]
        chains = []
        for name in starts:
            chain = [name]
            while chain[-1] in after:
                chain.append(after[chain[-1]])
            chains.append(tuple(chain))
        return tuple(chains)

    def __str__(self) -> str:
        lines = [" → ".join(chain) for chain in self.chains] or ["no chain found"]
        return "\n".join(lines + [f"{name}: {why}" for name, why in self.skipped.items()])


def find_links(anatomy: Anatomy) -> Links:
    """The links among the layers of a charted model.

    >>> import torch
    >>> from netvitals.anatomy import chart
    >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    >>> print(find_links(chart(net, torch.ones(4, 2))))
    0 → 2
    """
    alone = {layer.name: why_not_alone(layer, anatomy) for layer in anatomy.layers}
    links: list[Link] = []
    skipped = {name: why for name, why in alone.items() if why}
    fed = Counter(reader for c in anatomy.connections for reader in c.readers)
    for connection in anatomy.connections:
        name = connection.writer
        if name in skipped or not connection.readers:
            continue
        why = _why_no_link(connection, alone, fed)
        if why:
            skipped[name] = why
        else:
            links.append(Link(first=name, second=connection.readers[0], between=connection.between))
    return Links(links=tuple(links), skipped=skipped)


def why_not_alone(layer: Layer, anatomy: Anatomy) -> str:
    """Why a layer's weight is not a parameter that this layer alone uses, once; empty where it is."""
    if layer.reparametrised:
        return f"its weight is computed from {', '.join(layer.reparametrised)}"
    if layer.part.index:
        return f"its weight is a part of a larger parameter, {layer.part}"
    if layer.calls > 1:
        return f"its weight is used {layer.calls} times per forward pass: its gradient mixes several inputs"
    info = anatomy.parameter(layer.weight)
    if info is None:
        return "its weight is computed from other parameters"
    if info.ties:
        return f"its weight is tied: {' = '.join((info.name, *info.ties))}"
    return ""


def _why_no_link(connection: Connection, alone: dict[str, str], fed: Counter[str]) -> str:
    if connection.blocked:
        return connection.blocked
    if len(connection.readers) > 1:
        return f"it feeds {' and '.join(connection.readers)}"
    (reader,) = connection.readers
    if alone.get(reader):
        return f"{reader} after it: {alone[reader]}"
    return f"{reader} after it is fed by {fed[reader]} layers" if fed[reader] > 1 else ""


def layers_after_activation(anatomy: Anatomy) -> frozenset[str]:
    """Layers whose input is an activation's output: as it is, pooled, dropped out, or multiplied by another branch.

    What these do keeps a zero a zero, so that the sparsity of the activation is the sparsity of the layer's input. An
    addition does not: a layer behind a residual stream reads a dense tensor.

    >>> import torch
    >>> from netvitals.anatomy import chart
    >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Dropout(), nn.Linear(3, 1))
    >>> sorted(layers_after_activation(chart(net, torch.ones(4, 2))))
    ['3']
    """
    ends = {region.end for region in anatomy.activations if region.role == "hidden activation"}
    return frozenset(layer.name for layer in anatomy.layers if _comes_from(layer.input, ends, anatomy))


def _comes_from(value: int, ends: set[int], anatomy: Anatomy) -> bool:
    todo, seen = [value], set[int]()
    while todo:
        value = todo.pop()
        if value in ends:
            return True
        op = anatomy.producers(value)
        if op is None or op.index in seen:
            continue
        seen.add(op.index)
        name = op.name.rstrip("_")
        if op.kind == "view" or name in _KEEPS_ZEROS or "pool" in name:
            todo += op.inputs
    return False


@contextmanager
def recorded(model: nn.Module, anatomy: Anatomy) -> Iterator[dict[str, LayerRun]]:
    """Within the block a forward pass notes input and output of every charted layer that is a module of its own.

    A layer that is called as a function inside a larger module has no call that could be noted and stays out, and so
    does one whose weight is computed from other parameters.
    """
    runs: dict[str, LayerRun] = {}
    handles = []
    parameters = dict(model.named_parameters(remove_duplicate=False))
    modules = dict(model.named_modules())

    def hook_for(layer: Layer) -> Callable[..., Tensor]:
        op = anatomy.operations[layer.operation]
        groups = int(op.args[8]) if "convolution" in op.name else 1

        def hook(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
            if layer.name in runs or not isinstance(output, Tensor) or not inputs:
                return output
            runs[layer.name] = LayerRun(
                name=layer.name,
                weight_name=layer.weight,
                bias_name=layer.bias,
                weight=parameters[layer.weight],
                bias=parameters[layer.bias] if layer.bias else None,
                u=inputs[0],
                z=output,
                channel=layer.channel_dim,
                transposed=layer.out_dim != 0,
                groups=groups,
            )
            return output.clone()  # an in-place activation must not overwrite what was noted

        return hook

    for layer in anatomy.layers:
        if layer.name in modules and layer.weight in parameters and modules[layer.name] is not model:
            handles.append(modules[layer.name].register_forward_hook(hook_for(layer)))
        elif layer.name in modules and layer.weight in parameters:
            handles.append(model.register_forward_hook(hook_for(layer)))
    try:
        yield runs
    finally:
        for handle in handles:
            handle.remove()
