"""Activations written inside ``forward``: surgery on modules cannot reach them, so they are looked for and reported."""

from __future__ import annotations

import ast
import inspect
import textwrap
from functools import lru_cache

from torch import nn

from netvitals import activations

_CALLED = {name: row.name for row in activations.ACTIVATIONS if not row.after_layer for name in row.functions}
_NAMES = set(_CALLED) | {f"{name}_" for name in _CALLED}


@lru_cache(maxsize=1024)
def _calls(kind: type[nn.Module]) -> tuple[tuple[str, int], ...]:
    """(activation name, line) of every functional activation in the class's own forward."""
    try:
        lines, first = inspect.getsourcelines(kind.forward)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):  # no source: built in a shell, compiled, or C
        return ()
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Attribute) and called.attr in _NAMES:
            owner = called.value
            # self.relu(x) is a module or a method, F.relu(x), torch.relu(x) and h.relu() are what we look for
            if isinstance(owner, ast.Name) and owner.id == "self":
                continue
            if isinstance(owner, (ast.Name, ast.Attribute, ast.Call, ast.BinOp, ast.Subscript)):
                found.append((_CALLED[called.attr.rstrip("_")], first + node.lineno - 1))
        elif isinstance(called, ast.Name) and called.id in _NAMES:
            found.append((_CALLED[called.id.rstrip("_")], first + node.lineno - 1))
    return tuple(found)


def functional_activations(model: nn.Module) -> list[tuple[str, str, int]]:
    """(module name, activation, line) of functional activations in the forwards of the model's own classes.

    Classes of torch itself are passed over: their activations are modules or attributes, which surgery does reach.

    Args:
        model: any model; its source is read, it is not called.

    Returns:
        One triple a call, the line counted in the file of the class; a class without source gives none.

    >>> functional_activations(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))  # it is a module, which surgery reaches
    []
    """
    found = []
    for name, module in model.named_modules():
        kind = type(module)
        if kind.__module__.startswith(("torch.", "netvitals.activations", "netvitals.layers")):
            continue
        found += [(name, activation, line) for activation, line in _calls(kind)]  # type: ignore[arg-type]
    return found
