"""Context managers that say, when they are printed, how they are used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Within(AbstractContextManager[T], Generic[T]):
    """What a function returns whose result lives inside a ``with`` block only."""

    def __init__(self, context: AbstractContextManager[T], name: str, given: str) -> None:
        self._context, self._name, self._given = context, name, given

    def __enter__(self) -> T:
        return self._context.__enter__()

    def __exit__(self, *error: Any) -> bool | None:
        return self._context.__exit__(*error)

    def __repr__(self) -> str:
        return (
            f"{self._name} of {self._given}, not measured yet: its result lives inside a block, "
            f"with curvature.{self._name}(...) as found:"
        )


def within(f: Callable[P, Iterator[T]]) -> Callable[P, Within[T]]:
    """``contextmanager`` whose value prints how it is used."""
    make = contextmanager(f)

    @wraps(f)
    def opened(*args: P.args, **kwargs: P.kwargs) -> Within[T]:
        given = type(args[0]).__name__ if args else "a model"
        return Within(make(*args, **kwargs), f.__name__, given)

    return opened
