"""Names that moved: the old one works for one version, with a sentence."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from netvitals._trouble import see


def moved(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """A module's ``__getattr__`` that finds names at their new place.

    Args:
        module: dotted name of the module that had them.
        names: old name → dotted new name, e.g. ``{"measure": "netvitals.gates.measure"}``.

    Returns:
        The function to bind to ``__getattr__``.
    """

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(
            f"{module}.{name} is now {names[name]}; the old name goes with the next version {see('renamed')}",
            DeprecationWarning,
            stacklevel=2,
        )
        home, _, attribute = names[name].rpartition(".")
        return getattr(importlib.import_module(home), attribute)

    find.names = dict(names)  # type: ignore[attr-defined]  # for the test that tries every one
    return find
