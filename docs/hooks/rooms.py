"""Reference pages of the rooms: what is public is what a room lists in ``__all__``."""

from __future__ import annotations

import ast
import importlib
import inspect
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from docstrings import ROLE, as_markdown

import netvitals

ROOMS = {
    "activations": "Activations",
    "layers": "Layers",
    "stats": "Statistics",
    "anatomy": "Anatomy",
    "capture": "Capture",
    "gates": "Gates",
    "saddle": "Saddle",
    "singular": "Singular",
    "drift": "Drift",
    "curvature": "Curvature",
    "curvature.dag": "Curvature on graphs",
    "optim": "Optimisers",
    "vitals": "Vitals",
    "forecasts": "Forecasts",
    "runs": "Runs",
    "checks": "Checks",
    "findings": "Findings",
    "preflights": "Preflight",
    "report": "Report",
    "integrations": "Integrations",
}
# rooms without a list of names: each file is imported by its own name
BY_FILE = {
    "integrations": ("lightning.VitalsCallback", "huggingface.VitalsCallback", "trackers.send", "live.target_of")
}


def public(room: str) -> list[str]:
    """Dotted names of everything public in a room.

    Args:
        room: its name below ``netvitals``; an empty one is the top level.

    Returns:
        ``netvitals.ROOM.NAME``, functions and classes in the order of ``__all__``.
    """
    path = f"netvitals.{room}" if room else "netvitals"
    if room in BY_FILE:
        return [f"{path}.{name}" for name in BY_FILE[room]]
    names = [name for name in importlib.import_module(path).__all__ if not name.startswith("__")]
    return [f"{path}.{name}" for name in names if room or name not in ROOMS]  # a package has a page of its own


def found(dotted: str) -> Any:
    """The object behind a dotted name, however it is loaded.

    Args:
        dotted: ``netvitals.ROOM.NAME``.

    Returns:
        The object.
    """
    owner, _, name = dotted.rpartition(".")
    return getattr(importlib.import_module(owner), name)


def written_in(dotted: str) -> str:
    """Where the source of a name is, for names that a room loads only when they are asked for.

    Args:
        dotted: ``netvitals.ROOM.NAME``.

    Returns:
        The dotted name of the definition, or the same name where it is a constant.
    """
    thing = inspect.unwrap(found(dotted)) if callable(found(dotted)) else found(dotted)
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if not module or not name or not module.startswith("netvitals") or isinstance(thing, ModuleType):
        return dotted
    return f"{module}.{name}"


def is_constant(dotted: str) -> bool:
    """Whether a name stands for a value and not for a function, a class or a module.

    Args:
        dotted: ``netvitals.ROOM.NAME``.

    Returns:
        True for a value, a type alias too.
    """
    if dotted.split(".")[1] in BY_FILE:
        return False
    thing = found(dotted)
    return not (callable(thing) and getattr(thing, "__doc__", None)) and not isinstance(thing, ModuleType)


def constant(dotted: str) -> str:
    """What a constant holds.

    Args:
        dotted: ``netvitals.ROOM.NAME``.

    Returns:
        Its names where it is a table, else its value, cut where it is long.
    """
    thing = found(dotted)
    if isinstance(thing, dict):
        shown = [str(key) if not inspect.isclass(key) else key.__name__ for key in thing]
        return f"A table with {len(shown)} entries: {', '.join(f'`{key}`' for key in shown)}."
    if isinstance(thing, tuple | list | set | frozenset) and thing:
        shown = sorted(str(getattr(one, "name", None) or getattr(one, "__name__", None) or one) for one in thing)
        return f"{len(shown)} entries: {', '.join(f'`{one}`' for one in shown)}."
    return f"`{str(thing)[:200]}`"


def docstring(dotted: str) -> str:
    """The docstring of a name; read from the source where the room's files need an extra that may be missing.

    Args:
        dotted: ``netvitals.ROOM.NAME``.

    Returns:
        The docstring; empty for constants, and where there is none.
    """
    owner, _, name = dotted.rpartition(".")
    if dotted.split(".")[1] in BY_FILE:
        file = Path(netvitals.__file__).parent.joinpath(*owner.split(".")[1:]).with_suffix(".py")
        tree = ast.parse(file.read_text(encoding="utf-8"))
        named = [n for n in tree.body if isinstance(n, ast.ClassDef | ast.FunctionDef) and n.name == name]
        return (ast.get_docstring(named[0]) or "") if named else ""
    thing = found(dotted)
    return thing.__doc__ or "" if inspect.isclass(thing) or callable(thing) else ""


def first_sentence(dotted: str) -> str:
    """What a name is, in a line of a table.

    Args:
        dotted: ``netvitals.ROOM.NAME``.

    Returns:
        The first paragraph of its docstring up to its first full stop; empty for constants.
    """
    doc = docstring(dotted)
    text = " ".join(inspect.cleandoc(doc).split("\n\n")[0].split())
    if text.startswith(f"{dotted.rpartition('.')[2]}("):  # what dataclass writes where a person wrote nothing
        return ""
    sentence = text.split(". ")[0].rstrip(".") if not text.startswith("$") else text
    return ROLE.sub(r"`\1`", sentence).replace("|", "\\|")


def page(room: str) -> str:
    """The reference page of a room: its own words, a table of what it has, and each name in full.

    Args:
        room: its name below ``netvitals``; an empty one is the top level.

    Returns:
        Markdown, with the directives of mkdocstrings.
    """
    path = f"netvitals.{room}" if room else "netvitals"
    title = f"# `{path}`"
    doc = as_markdown(inspect.cleandoc(importlib.import_module(path).__doc__ or ""))
    names = public(room)
    rows = [f"| [`{n.removeprefix(path + '.')}`](#{n}) | {first_sentence(n)} |" for n in names]
    table = "\n".join(["| name | what it is |", "|---|---|", *rows])
    parts = [title, doc, "## Contents", table]
    for name in names:
        short = name.removeprefix(path + ".")
        parts += entry(name, short)
    return "\n\n".join(parts) + "\n"


def entry(dotted: str, short: str) -> list[str]:
    """One name in full.

    Args:
        dotted: ``netvitals.ROOM.NAME``.
        short: the name as the heading has it.

    Returns:
        Parts of a page: a heading, and what mkdocstrings makes of the definition; its value for a constant.
    """
    if is_constant(dotted):
        return [f"## `{short}` {{ #{dotted} data-toc-label='{short}' }}", constant(dotted)]
    owner, _, name = dotted.rpartition(".")
    own_file = dotted.split(".")[1] in BY_FILE
    shadowed = not own_file and not isinstance(found(dotted), ModuleType) and find_spec(dotted) is not None
    lazy = not own_file and name not in vars(importlib.import_module(owner))
    source = written_in(dotted) if shadowed or lazy else dotted  # a file of the same name would be shown instead
    mark = [] if source == dotted else [f'<a id="{dotted}"></a>']
    options = f"    options:\n      heading: {short}\n      toc_label: {short}"
    return [*mark, f"::: {source}\n{options}"]


def index() -> str:
    """The list of rooms.

    Returns:
        Markdown with a line for each room.
    """
    lines = [
        "# Every package",
        "",
        "This page lists the packages of the library. If you are not sure, start with [`netvitals`](netvitals.md).",
        "",
    ]
    lines += ["| package | purpose | public names |", "|---|---|---|"]
    top = netvitals.__doc__ or ""
    lines.append(f"| [`netvitals`](netvitals.md) | {top.splitlines()[0]} | {len(public(''))} |")
    for room in ROOMS:
        words = (importlib.import_module(f"netvitals.{room}").__doc__ or "").splitlines()[0]
        lines.append(f"| [`{room}`]({room}.md) | {words} | {len(public(room))} |")
    return "\n".join(lines) + "\n"
