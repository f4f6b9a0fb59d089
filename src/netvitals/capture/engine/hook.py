"""Hooks that stay with the model they were put on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Hook:
    """A hook that a copied or saved model does not carry along: the copy gets one that does nothing.

    >>> import copy
    >>> seen = []
    >>> hook = Hook(seen.append)
    >>> hook(1); copy.deepcopy(hook)(2)
    >>> seen
    [1]
    """

    __slots__ = ("call",)

    def __init__(self, call: Callable[..., None]) -> None:
        self.call = call

    def __call__(self, *args: Any) -> None:
        self.call(*args)

    def __reduce__(self) -> tuple[Callable[[], Callable[..., None]], tuple[()]]:
        return _inert, ()


def _nothing(*args: Any) -> None:
    """What is left of a hook in a copy."""


def _inert() -> Callable[..., None]:
    return _nothing
