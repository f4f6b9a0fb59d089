"""What an anatomy is made of: operations, the tensors between them, and the parameters they read."""

from __future__ import annotations

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
    """A line of the user's code."""

    file: str
    number: int
    text: str

    def __str__(self) -> str:
        return f"{self.file.rpartition('/')[2]}:{self.number}"


@dataclass(frozen=True, kw_only=True)
class Value:
    """A tensor as it was at one moment: an in-place operation makes a new value of the same tensor."""

    index: int
    shape: tuple[int, ...]
    dtype: str
    source: Source
    name: str = ""  # of an input, parameter or buffer
    producer: int = -1  # the operation that made it, -1 for the others
    batch_dim: int | None = None  # the dimension that grows with the batch; None: the same for every batch


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One aten call: what it read, what it made, and whose code called it."""

    index: int
    name: str  # aten name without overload: "addmm", "relu", "where"
    kind: Kind
    inputs: tuple[int, ...]  # values
    outputs: tuple[int, ...]
    module: str  # dotted name of the innermost module that was running; "" is the model itself
    call: int  # which call of that module, from 1
    line: Line | None
    func: Any = None  # the overload and its arguments, for replaying; tensors are Slots
    args: Any = ()
    kwargs: Any = None

    def __str__(self) -> str:
        return f"{self.name} in {self.module or 'the model'} at {self.line or 'unknown'}"


@dataclass(frozen=True)
class Slot:
    """The place of a value in an operation's arguments."""

    value: int


@dataclass(frozen=True, kw_only=True)
class ParameterInfo:
    """A parameter under its first name; ``ties`` are the others of the same tensor."""

    name: str
    shape: tuple[int, ...]
    frozen: bool
    ties: tuple[str, ...] = ()
    readers: tuple[int, ...] = ()  # operations that read it, through views
    role: Role = "other"


@dataclass(frozen=True, kw_only=True)
class ParameterPart:
    """A parameter or a part of it: ``tensor[index]`` of the parameter's tensor.

    >>> part = ParameterPart(parameter="attn.weight", index=(slice(0, 8),))
    >>> str(part), part.of(torch.ones(24, 8)).shape
    ('attn.weight[0:8]', torch.Size([8, 8]))
    """

    parameter: str
    index: tuple[int | slice | tuple[int, ...], ...] = ()  # empty: the whole parameter

    def of(self, tensor: Tensor) -> Tensor:
        """The part of the parameter's tensor, or of anything of its shape, such as its gradient."""
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
