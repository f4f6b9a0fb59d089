"""What an anatomy is made of: operations, the tensors between them, and the parameters they read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["pointwise", "layer", "norm", "view", "random", "other"]
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
