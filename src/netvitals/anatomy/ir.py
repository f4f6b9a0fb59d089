"""What an anatomy is made of: operations, the tensors between them, and the parameters they read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

Kind = Literal["pointwise", "layer", "norm", "view", "random", "other"]
Role = Literal[
    "hidden activation",
    "output link",
    "soft-cap",
    "router",
    "attention weight",
    "normaliser",
    "readout",
    "embedding",
    "positional",
    "hidden layer",
    "scale",  # affine, element by element
    "mask",
    "gate",
    "recurrent",
    "other",
]
Source = Literal["input", "parameter", "buffer", "constant", "operation"]


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of the user's source code.

    Part of :class:`Operation`.

    Attributes:
        file: path of the file.
        number: line number, from 1.
        text: the code of the line.
    """

    file: str
    number: int
    text: str

    def __str__(self) -> str:
        return f"{self.file.rpartition('/')[2]}:{self.number}"


@dataclass(frozen=True, kw_only=True)
class Value:
    """A tensor at one point of the traced pass; an in-place operation makes a new value of the same tensor.

    Part of :class:`Anatomy`.

    Attributes:
        index: its index in ``values``.
        shape: shape in the traced pass.
        dtype: the dtype as text.
        source: where it comes from: an input, a parameter, a buffer, a constant or an operation.
        name: name of the input, parameter or buffer.
        producer: the operation that made it, -1 for the others.
        batch_dim: the dimension that grows with the batch; None: the same for every batch.
    """

    index: int
    shape: tuple[int, ...]
    dtype: str
    source: Source
    name: str = ""
    producer: int = -1
    batch_dim: int | None = None


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One aten operation of the traced pass, with its inputs, outputs and the line of user code that called it.

    Part of :class:`Anatomy`.

    Attributes:
        index: its index in ``operations``.
        name: aten name without overload: "addmm", "relu", "where".
        kind: the kind of operation.
        inputs: values that it read.
        outputs: values that it made.
        module: dotted name of the innermost module that was running; "" is the model itself.
        call: number of this call of the module, from 1.
        line: the line of user code; None if it is not known.
        func: the overload, for replaying; tensors among its arguments are Slots.
        args: positional arguments.
        kwargs: named arguments.
    """

    index: int
    name: str
    kind: Kind
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    module: str
    call: int
    line: Line | None
    func: Any = None
    args: Any = ()
    kwargs: Any = None

    def __str__(self) -> str:
        return f"{self.name} in {self.module or 'the model'} at {self.line or 'unknown'}"


@dataclass(frozen=True)
class Slot:
    """The place of a value in an operation's arguments."""

    value: int


def replaced(nest: Any, kind: type, put: Callable[[Any], Any]) -> Any:
    """The arguments of an aten call with ``put(x)`` for every x of a kind.

    They are scalars, tensors and lists of these: torch's own walk over nested containers knows more and takes longer.

    >>> replaced((Slot(1), [Slot(2), 0.5]), Slot, lambda s: s.value)
    (1, [2, 0.5])
    """
    if isinstance(nest, kind):
        return put(nest)
    if type(nest) in (list, tuple):
        return type(nest)(replaced(part, kind, put) for part in nest)
    return {name: replaced(part, kind, put) for name, part in nest.items()} if type(nest) is dict else nest


def tensors_in(made: Any) -> Iterator[Tensor]:
    """The tensors that an aten call returned, in their order.

    >>> [len(t) for t in tensors_in((torch.ones(2), None, [torch.ones(3)]))]
    [2, 3]
    """
    if isinstance(made, Tensor):
        yield made
    elif isinstance(made, list | tuple):
        for part in made:
            yield from tensors_in(part)


@dataclass(frozen=True, kw_only=True)
class ParameterInfo:
    """A parameter of the model under its first name; ``ties`` lists other names of the same tensor.

    Part of :class:`Anatomy`.

    Attributes:
        name: its first name.
        shape: shape of the tensor.
        frozen: does not require a gradient.
        ties: other names of the same tensor.
        readers: operations that read it, through views.
        role: role of the layer that it belongs to.
    """

    name: str
    shape: tuple[int, ...]
    frozen: bool
    ties: tuple[str, ...] = ()
    readers: tuple[int, ...] = ()
    role: Role = "other"


@dataclass(frozen=True, kw_only=True)
class ParameterPart:
    """A parameter of the model, or the part ``tensor[index]`` of it.

    Attributes:
        parameter: name of the parameter.
        index: empty: the whole parameter.

    >>> part = ParameterPart(parameter="attn.weight", index=(slice(0, 8),))
    >>> str(part), part.of(torch.ones(24, 8)).shape
    ('attn.weight[0:8]', torch.Size([8, 8]))
    """

    parameter: str
    index: tuple[int | slice | tuple[int, ...], ...] = ()

    def of(self, tensor: Tensor) -> Tensor:
        """Return this part of ``tensor``, which is the parameter or a tensor of the same shape (its gradient)."""
        for dim, at in reversed(list(enumerate(self.index))):
            if isinstance(at, tuple):
                tensor = tensor.index_select(dim, torch.tensor(at, device=tensor.device))
            elif isinstance(at, slice):
                tensor = tensor[(slice(None),) * dim + (at,)]
            else:
                tensor = tensor.select(dim, at)
        return tensor

    def __str__(self) -> str:
        return self.parameter + (f"[{', '.join(map(_at, self.index))}]" if self.index else "")


def _at(index: int | slice | tuple[int, ...]) -> str:
    if isinstance(index, slice):
        return ":" if index == slice(None) else f"{index.start}:{index.stop}"
    return str(index) if isinstance(index, int) else f"{len(index)} of them"
