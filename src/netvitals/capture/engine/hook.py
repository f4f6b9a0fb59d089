"""Hooks that stay with the model they were put on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any


class Hook:
    """A hook that a copied or saved model does not carry along: the copy gets one that does nothing, and that loads
    where there is no netvitals.

    >>> import copy
    >>> seen = []
    >>> hook = Hook(seen.append)
    >>> hook(1); copy.deepcopy(hook)(2)
    >>> seen
    [1]
    """

    __slots__ = ("call",)
    of_a_watch = True  # a measurement that the user asks for meanwhile does without it

    def __init__(self, call: Callable[..., None]) -> None:
        self.call = call

    def __call__(self, *args: Any) -> None:
        self.call(*args)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        # a method of the standard library that takes anything and does nothing: the copy needs no netvitals
        return getattr, (nullcontext(), "__exit__")
