"""Which code does a trial depend on, and has it changed?

The version of a study's code is a hash over the source of every module of the study's own package that the trial's
module imports, directly or through others; a name imported from a room leads to the file that defines it. Comments,
blank lines and docstrings do not count: a stored trial is run again only when code that could change its numbers did.
The machinery of this folder does not count either.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from netvitals.lab.engine.study import Study

MACHINERY = "netvitals.lab.engine"


def code_version(study: Study) -> str:
    """A short hash of the code behind the study's trials."""
    return _version(study.trial.__module__, study.trial.__qualname__, study.depends)


@lru_cache(maxsize=256)
def _version(module: str, function: str, depends: tuple[str, ...]) -> str:
    digest = hashlib.sha256(function.encode())
    names = {name for root in depends for name in _package(root)} | {module} if depends else _closure(module)
    for name in sorted(names):
        path = _file(name)
        if path is not None:
            digest.update(name.encode() + b"\0" + _meaning(path).encode())
    return digest.hexdigest()[:16]


def _closure(root: str) -> set[str]:
    """The modules that ``root`` imports from its own top-level package, and what they import, and so on."""
    top, seen, todo = root.split(".")[0], set[str](), [root]
    while todo:
        name = todo.pop()
        path = _file(name)
        if name in seen or path is None:
            continue
        seen.add(name)
        todo += [n for n in _imports(path, name) if n.split(".")[0] == top and not _is_machinery(n)]
    return seen


def _imports(path: Path, name: str) -> Iterator[str]:
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _base(node, path, name)
            yield from (_home(base, alias.name) for alias in node.names)


def _home(base: str, name: str) -> str:
    """The module that ``from base import name`` takes the name from: a room's front door is seen through."""
    if _file(f"{base}.{name}"):
        return f"{base}.{name}"
    path = _file(base)
    for node in _tree(path).body if path else []:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _home(_base(node, path, base), alias.name)
    return base


def _base(node: ast.ImportFrom, path: Path | None, name: str) -> str:
    if not node.level:
        return node.module or ""
    package = name if path and path.name == "__init__.py" else name.rpartition(".")[0]
    return importlib.util.resolve_name("." * node.level + (node.module or ""), package)


def _is_machinery(name: str) -> bool:
    """The runner and its parts, which move rows but do not make them; a paper's folder is not machinery."""
    return name in ("netvitals.lab", "netvitals.lab.studies", MACHINERY) or name.startswith(MACHINERY + ".")


def _package(root: str) -> list[str]:
    path = _file(root)
    if path is None:
        raise ValueError(f"a study depends on {root}, and there is no such module")
    if path.name != "__init__.py":
        return [root]
    inside = (f.relative_to(path.parent).with_suffix("").parts for f in sorted(path.parent.rglob("*.py")))
    return [".".join([root, *parts]).removesuffix(".__init__") for parts in inside]


@lru_cache(maxsize=4096)
def _file(name: str) -> Path | None:
    """The source file of a module, found without importing anything."""
    top, *rest = name.split(".")
    if name == "__main__":  # a script has a file and no spec; a notebook has neither
        script = getattr(sys.modules[name], "__file__", None)
        return Path(script) if script else None
    spec = importlib.util.find_spec(top) if top else None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    path = Path(spec.origin)
    if not rest:
        return path
    if path.name != "__init__.py":
        return None
    inside = path.parent.joinpath(*rest)
    return next((f for f in (inside / "__init__.py", inside.with_suffix(".py")) if f.is_file()), None)


@lru_cache(maxsize=1024)
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@lru_cache(maxsize=1024)
def _meaning(path: Path) -> str:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and ast.get_docstring(node, clean=False) is not None
        ):
            node.body = node.body[1:]
    return ast.dump(tree)
