"""Every public function says what each of its parameters means and what it gives back.

A room is a package of :mod:`netvitals` that people import from; what it lists in ``__all__`` is public. Ruff (D417)
sees to docstrings that have an ``Args:`` section; here is the rule that they have one, and a ``Returns:``.
"""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import netvitals

NOT_ROOMS = {"cli", "lab"}  # commands and studies, which nobody calls as a library
ROOMS = ["netvitals", "netvitals.curvature.dag"]
ROOMS += sorted(f"netvitals.{m.name}" for m in pkgutil.iter_modules(netvitals.__path__) if m.ispkg)
ROOMS = [name for name in ROOMS if name.rpartition(".")[2] not in NOT_ROOMS]
HEADING = re.compile(r"^(Args|Returns|Yields|Raises|Example|Examples|Note|Notes):\s*$")


def public_functions(room: ModuleType) -> dict[str, Callable[..., Any]]:
    """By name; a function behind a cache or another decorator counts, a class, a type or a module does not."""
    listed = {name: getattr(room, name) for name in getattr(room, "__all__", ())}
    return {name: f for name, f in listed.items() if inspect.isfunction(inspect.unwrap(f))}


def sections(doc: str) -> dict[str, list[str]]:
    """The lines under each heading, until the next heading or a line that is not indented."""
    found: dict[str, list[str]] = {}
    here: list[str] | None = None
    for line in inspect.cleandoc(doc).splitlines():
        heading = HEADING.match(line)
        if heading:
            here = found.setdefault(heading[1], [])
        elif line.strip() and not line.startswith(" "):
            here = None
        elif here is not None and line.strip():
            here.append(line)
    return found


def missing(f: Callable[..., Any]) -> list[str]:
    """What the docstring leaves out: names of parameters, and ``Returns`` where something is given back."""
    found = sections(f.__doc__ or "")
    described = {
        m[1] for line in found.get("Args", ()) if (m := re.match(r" {4}\*{0,2}(\w+)(?: \([^)]*\))?: *\S", line))
    }
    signature = inspect.signature(f)
    many = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    named = [p.name for p in signature.parameters.values() if p.kind not in many and p.name != "self"]
    out = [name for name in named if name not in described]
    gives = signature.return_annotation not in (None, "None", inspect.Signature.empty, "NoReturn")
    if gives and not (found.get("Returns") or found.get("Yields")):
        out.append("Returns")
    return out


@pytest.mark.parametrize("name", ROOMS)
def test_functions_describe_what_they_take_and_give(name):
    functions = public_functions(importlib.import_module(name))
    lacking = {function: gaps for function, f in functions.items() if (gaps := missing(f))}
    listed = "\n".join(f"  {function}: {', '.join(gaps)}" for function, gaps in lacking.items())
    assert not lacking, f"{name}: {len(lacking)} of {len(functions)} functions leave something out\n{listed}"


def test_most_rooms_have_functions():
    counts = {name: len(public_functions(importlib.import_module(name))) for name in ROOMS}
    assert len(ROOMS) >= 16
    assert sum(counts.values()) > 100, f"too few functions were found for the rule to mean anything: {counts}"


def whole(x: float, *rest: float, mode: str = "a") -> float:
    """x.

    Args:
        x: a number.
        mode: ``"a"``.

    Returns:
        The number.

    >>> 1
    1
    """
    return x


def half(x: float, y: float, mode: str = "a") -> float:
    """x, given y: something.

    Args:
        x: a number
            mode: not a parameter, but the second line of one.

    y: outside the section.
    """
    return x


def bare(x: float) -> float:
    return x


def silent(x: float) -> None:
    """Nothing comes back.

    Args:
        x: a number.
    """


def test_rule_finds_what_is_left_out():
    assert missing(whole) == []
    assert missing(silent) == []
    assert missing(half) == ["y", "mode", "Returns"]
    assert missing(bare) == ["x", "Returns"]
