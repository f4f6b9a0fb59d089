"""What a name in a module stands for, found by reading source; nothing is imported."""

from __future__ import annotations

import ast
import importlib.util
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

Statement = ast.stmt
DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
FOREIGN = tuple({str(Path(sysconfig.get_path(kind)).resolve()) for kind in ("stdlib", "purelib", "platlib")})
INSTALLED = {"site-packages", "dist-packages"}


@dataclass(frozen=True, order=True)
class Definition:
    """A function, class or constant at the top level of a module."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(frozen=True)
class Foreign:
    """Something of the standard library or of another project, by its dotted name."""

    name: str


@dataclass(frozen=True)
class Whole:
    """A module of ours, as a value."""

    module: str


Target = Definition | Foreign | Whole


@dataclass(frozen=True)
class Import:
    """``from module import name``, or the module itself where ``name`` is empty."""

    module: str
    name: str = ""


@dataclass
class Module:
    """The top level of one file."""

    name: str
    is_package: bool
    defined: dict[str, list[Statement]] = field(default_factory=dict)  # a name → the statements that bind it
    imports: dict[str, Import] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)  # modules of `from module import *`
    effects: list[Statement] = field(default_factory=list)  # what importing it does besides binding names

    def read(self, body: list[Statement]) -> None:
        for statement in body:
            if isinstance(statement, ast.Import | ast.ImportFrom):
                self.imports.update(imports_in(statement, self.name, self.is_package))
                self.stars += [] if isinstance(statement, ast.Import) else self._star(statement)
            elif isinstance(statement, ast.If) and _is_for_types(statement.test):
                self.read(statement.body)
            elif isinstance(statement, ast.If) and _is_main(statement.test):
                continue
            else:
                bound = list(bound_by(statement))
                for name in bound:
                    self.defined.setdefault(name, []).append(statement)
                for inner in ast.walk(statement) if not isinstance(statement, DEFINES) else ():
                    if isinstance(inner, ast.Import | ast.ImportFrom):
                        self.imports.update(imports_in(inner, self.name, self.is_package))
                if not bound and not _is_inert(statement):
                    self.effects.append(statement)

    def _star(self, statement: ast.ImportFrom) -> list[str]:
        base = absolute(statement, self.name, self.is_package)
        return [base for alias in statement.names if alias.name == "*"]


@lru_cache(maxsize=65536)
def resolve(module: str, name: str) -> Target | None:
    """What ``name`` means in ``module``; None for a builtin or a name that is made at run time."""
    return _resolve(module, name, frozenset())


def _resolve(module: str, name: str, seen: frozenset[tuple[str, str]]) -> Target | None:
    here = module_of(module)
    if here is None:
        return Foreign(f"{module}.{name}")
    if name in here.defined:
        return Definition(module, name)
    if name in here.imports and (module, name) not in seen:
        return follow(here.imports[name], seen | {(module, name)})
    for star in here.stars:
        if (star, name) not in seen and (found := _resolve(star, name, seen | {(star, name)})) is not None:
            return found
    if here.is_package and is_ours(f"{module}.{name}"):
        return Whole(f"{module}.{name}")
    return Definition(module, "__getattr__") if "__getattr__" in here.defined else None


def follow(imported: Import, seen: frozenset[tuple[str, str]] = frozenset()) -> Target | None:
    """What an import statement binds."""
    if not is_ours(imported.module):
        return Foreign(f"{imported.module}.{imported.name}".rstrip("."))
    return _resolve(imported.module, imported.name, seen) if imported.name else Whole(imported.module)


def imports_in(statement: ast.Import | ast.ImportFrom, module: str, is_package: bool) -> dict[str, Import]:
    """The names that an import statement binds, with what it binds them to."""
    if isinstance(statement, ast.Import):
        return {
            alias.asname or alias.name.partition(".")[0]: Import(
                alias.name if alias.asname else alias.name.partition(".")[0]
            )
            for alias in statement.names
        }
    base = absolute(statement, module, is_package)
    return {alias.asname or alias.name: Import(base, alias.name) for alias in statement.names if alias.name != "*"}


def absolute(statement: ast.ImportFrom, module: str, is_package: bool) -> str:
    if not statement.level:
        return statement.module or ""
    package = module if is_package else module.rpartition(".")[0]
    return importlib.util.resolve_name("." * statement.level + (statement.module or ""), package)


def bound_by(statement: ast.AST) -> Iterator[str]:
    """Names that a statement binds in its own scope; a registry that it writes to (``TABLE[k] = v``) is one too."""
    if isinstance(statement, DEFINES):
        yield statement.name
        return
    if isinstance(statement, ast.Name) and isinstance(statement.ctx, ast.Store | ast.Del):
        yield statement.id
    elif isinstance(statement, ast.Subscript | ast.Attribute) and isinstance(statement.ctx, ast.Store | ast.Del):
        root: ast.expr = statement
        while isinstance(root, ast.Subscript | ast.Attribute):
            root = root.value
        if isinstance(root, ast.Name):
            yield root.id
    elif isinstance(statement, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and statement.name:
        yield statement.name
    elif isinstance(statement, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        return
    for child in ast.iter_child_nodes(statement):
        yield from bound_by(child)


@lru_cache(maxsize=4096)
def module_of(name: str) -> Module | None:
    """A module of ours, read; None where it is not ours or has no source."""
    path = file_of(name) if is_ours(name) else None
    if path is None:
        return None
    module = Module(name, path.name == "__init__.py")
    module.read(ast.parse(path.read_text(encoding="utf-8")).body)
    return module


@lru_cache(maxsize=8192)
def is_ours(module: str) -> bool:
    """Whether a module's code is followed: this project's, or a file that is not installed (a study of your own)."""
    path = file_of(module)
    if path is None or module.partition(".")[0] in ("netvitals", "netvitals_lab"):
        return path is not None
    path = path.resolve()  # installed in another environment too: one may lead to the packages of a second
    return not str(path).startswith(FOREIGN) and not INSTALLED & set(path.parts)


@lru_cache(maxsize=8192)
def file_of(module: str) -> Path | None:
    """The source file of a module, found without importing it."""
    top, *rest = module.split(".")
    if module == "__main__":  # a script has a file and no spec; a notebook has neither
        script = getattr(sys.modules[module], "__file__", None)
        return Path(script) if script else None
    if not top or not all(part.isidentifier() for part in rest):
        return None
    try:
        spec = importlib.util.find_spec(top)
    except ValueError:  # a module that was made by hand has no spec
        return None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    path = Path(spec.origin)
    if not rest:
        return path
    if path.name != "__init__.py":
        return None
    inside = path.parent.joinpath(*rest)
    return next((f for f in (inside / "__init__.py", inside.with_suffix(".py")) if f.is_file()), None)


def _is_inert(statement: Statement) -> bool:
    return isinstance(statement, ast.Pass) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )


def _is_for_types(test: ast.expr) -> bool:
    return isinstance(test, ast.Name | ast.Attribute) and ast.unparse(test).endswith("TYPE_CHECKING")


def _is_main(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and ast.unparse(test.left) == "__name__"
