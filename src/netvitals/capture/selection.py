"""Which places: by name, by pattern, or by a function of a name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

Only = str | Iterable[str] | Callable[[str], bool] | None  # names, patterns of names, or a function of names


def lets_through(only: Only, name: str) -> bool:
    """Whether a name passes: equal to one of the names given, like one of the patterns, or by the function's word.

    >>> lets_through("block.*", "block.1"), lets_through(["head", "0"], "block.1"), lets_through(None, "head")
    (True, False, True)
    """
    if only is None:
        return True
    if callable(only):
        return bool(only(name))
    return any(name == p or fnmatchcase(name, p) for p in ([only] if isinstance(only, str) else only))


def picked(names: Iterable[str], only: Only, what: str = "place") -> list[str]:
    """The names that ``only`` lets through; a pattern that matches nothing is refused.

    Args:
        names: all there are.
        only: a name or pattern (``"blocks.*"``), several of them, a function of a name, or None for all.
        what: what the names are of, for the sentence of the error.

    Returns:
        The names, in their order.

    >>> picked(["0", "block.1", "block.2"], "block.*")
    ['block.1', 'block.2']
    >>> picked(["fc1", "norm"], ["fc1", "fc3"], "layer")
    Traceback (most recent call last):
    ...
    ValueError: there is no layer 'fc3'; there are 'fc1', 'norm'
    """
    known = list(names)
    some = ", ".join(map(repr, known[:8])) + (", …" if len(known) > 8 else "")
    if only is not None and not callable(only):
        only = [only] if isinstance(only, str) else list(only)
        for pattern in only:
            if not isinstance(pattern, str):
                raise TypeError(
                    f"only= must be names, patterns or a function of a name, got a {type(pattern).__name__}"
                )
            if not any(lets_through(pattern, n) for n in known):
                raise ValueError(f"there is no {what} {pattern!r}; there are {some or 'none'}")
    found = [n for n in known if lets_through(only, n)]
    if not found and callable(only):
        raise ValueError(f"the function given as only= selects no {what}; there are {some or 'none'}")
    return found
