"""Which code does a trial depend on, and has it changed?

    version = sha256 over the meanings of the definitions that the trial reaches

A trial reaches a function, class or constant when its own code names it, or the code of something it reaches does;
imports are seen through to where the thing is defined. What counts of a definition is its meaning
(:mod:`netvitals_lab.engine.versions.meaning`): not the module it stands in, the way it was imported, its layout,
annotations, docstrings, comments or the wording of its errors. So a stored trial is run again when a number, an
operator, a default or a called function changed, and not when a file was moved. The machinery of ``lab/engine`` moves
rows and does not make them; it is not followed.
"""

from __future__ import annotations

import ast
import gc
import hashlib
import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from netvitals_lab.engine.study import Study
from netvitals_lab.engine.versions import names
from netvitals_lab.engine.versions.meaning import Meaning, meaning_of, meanings_of_effects
from netvitals_lab.engine.versions.names import Definition

MACHINERY = "netvitals_lab.engine"


def code_version(study: Study) -> str:
    """A short hash of the code behind the study's trials."""
    trial = study.trial
    if names.file_of(trial.__module__) is None:  # a notebook's cell: nothing but the function itself can be read
        return _digest([_source_of(trial)])
    return _version(trial.__module__, trial.__qualname__, study.depends)


def reached(study: Study) -> list[Definition]:
    """The definitions behind the study's trials, sorted by module and name."""
    trial = study.trial
    found = _closure(trial.__module__, trial.__qualname__)
    return sorted(place for place in found if _counts(place, trial.__module__, study.depends))


def forget() -> None:
    """Read all source again, for code that changes while this process runs."""
    for cached in (
        _version,
        meaning_of,
        meanings_of_effects,
        names.resolve,
        names.module_of,
        names.is_ours,
        names.file_of,
    ):
        cached.cache_clear()


@lru_cache(maxsize=256)
def _version(module: str, function: str, depends: tuple[str, ...]) -> str:
    with _without_collection():  # syntax trees hold no cycles; looking for some takes half of the time
        found = _closure(module, function)
    return _digest({m.text for place, m in found.items() if _counts(place, module, depends)})


@contextmanager
def _without_collection() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _digest(texts: set[str] | list[str]) -> str:
    return hashlib.sha256("\n".join(sorted(texts)).encode()).hexdigest()[:16]


def _closure(module: str, function: str) -> dict[Definition, Meaning]:
    """Every definition that the function reaches, with its meaning."""
    todo, found, modules = [Definition(module, function.partition(".")[0])], dict[Definition, Meaning](), set[str]()
    while todo:
        place = todo.pop()
        if place in found or _is_machinery(place.module):
            continue
        found[place] = meaning_of(place)
        todo += found[place].names
        if place.module not in modules:  # what importing the module does counts too
            modules.add(place.module)
            for effect, meaning in meanings_of_effects(place.module).items():
                found[effect] = meaning
                todo += meaning.names
    return found


def _is_machinery(module: str) -> bool:
    return module == MACHINERY or module.startswith(MACHINERY + ".")


def _counts(place: Definition, root: str, depends: tuple[str, ...]) -> bool:
    """Whether a reached definition decides: all do, unless the study says which modules do."""
    for module in depends:
        if names.file_of(module) is None:
            raise ValueError(f"a study depends on {module}, and there is no such module; name where its code is now")
    return not depends or any(place.module == m or place.module.startswith(m + ".") for m in (root, *depends))


def _source_of(function: object) -> str:
    try:
        return ast.dump(ast.parse(textwrap.dedent(inspect.getsource(function))))  # type: ignore[arg-type]
    except (OSError, TypeError, SyntaxError):
        return getattr(function, "__qualname__", "")
