"""A definition as text that changes when, and only when, what it does may have changed.

Left out are docstrings, annotations, imports and ``pass``; the wording of errors, warnings and log lines; and the way
in which a name got into the module. A name of ours reads as the name of the definition that it leads to, a foreign one
as its dotted name: ``np.mean``, ``numpy.mean`` and an imported ``mean`` are one text.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from netvitals_lab.engine.versions import names
from netvitals_lab.engine.versions.names import Definition, Foreign, Import, Target, Whole

SPEAKS = frozenset(("warn", "warn_explicit", "print", "debug", "info", "warning", "error", "critical", "exception"))
IGNORED = frozenset(("ctx", "annotation", "returns", "type_comment", "type_params", "kind", "decorator_list"))
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
CLOSED = {ast.Lambda, *COMPREHENSIONS, ast.Constant, int, type(None), str}  # nothing in it binds a name around it
CLAIMS = Definition("netvitals_lab.engine.declaring", "Claims")
Scope = dict[str, Import | None]  # a local name → what it was imported from there, or None


@dataclass(frozen=True)
class Meaning:
    """What a definition says, and the definitions that it names."""

    text: str
    names: tuple[Definition, ...]


@lru_cache(maxsize=16384)
def meaning_of(place: Definition) -> Meaning:
    """The meaning of a definition: of every statement of its module that binds its name."""
    module = names.module_of(place.module)
    statements = module.defined.get(place.name, []) if module is not None else []
    return _read(place.module, place.name, statements)


@lru_cache(maxsize=1024)
def meanings_of_effects(module: str) -> dict[Definition, Meaning]:
    """What importing a module does beyond binding names: calls at its top level, and decorators of ours, which may
    enter what they decorate into a table; that of claims is none of them."""
    here = names.module_of(module)
    if here is None:
        return {}
    found = {}
    for number, statement in enumerate(here.effects):
        found[Definition(module, f"effect {number}")] = _read(module, "effect", [statement])
    for name, statements in here.defined.items():
        decorators = [d for s in statements if isinstance(s, names.DEFINES) for d in s.decorator_list]
        targets = [_Reader(module).target(_callee(d)) for d in decorators]
        if any(isinstance(t, Definition) and not _declares_claims(t) for t in targets):
            found[Definition(module, name)] = meaning_of(Definition(module, name))
    return found


def _declares_claims(place: Definition) -> bool:
    """Whether a name is bound to ``Claims(...)``: what it decorates judges rows, and makes none."""
    here = names.module_of(place.module)
    values = [getattr(s, "value", None) for s in here.defined.get(place.name, [])] if here is not None else []
    return any(isinstance(v, ast.Call) and _Reader(place.module).target(v.func) == CLAIMS for v in values)


def _callee(decorator: ast.expr) -> ast.expr:
    return decorator.func if isinstance(decorator, ast.Call) else decorator


def _read(module: str, name: str, statements: Iterable[ast.stmt]) -> Meaning:
    reader = _Reader(module)
    text = name + "".join(reader.text(s) for s in statements)
    return Meaning(text, tuple(dict.fromkeys(reader.found)))


class _Reader:
    """Reads the statements of one module; remembers the definitions of ours that they name."""

    def __init__(self, module: str) -> None:
        self.module = module
        here = names.module_of(module)
        self.is_package = here is not None and here.is_package
        self.scopes: list[Scope] = []
        self.found: list[Definition] = []

    def text(self, node: object) -> str:
        """A node and everything below it."""
        if isinstance(node, list):
            return "[" + ",".join(filter(None, map(self.text, node))) + "]"
        if not isinstance(node, ast.AST):
            return repr(node)
        special = _SPECIAL.get(type(node))
        return self._plain(node) if special is None else special(self, node)

    def _nothing(self, node: ast.AST) -> str:
        return ""

    def _expression(self, node: ast.Expr) -> str:
        return "" if isinstance(node.value, ast.Constant) else self._plain(node)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> str:
        return self._inside(_locals(node.generators, self.module, self.is_package), node)

    def _assert(self, node: ast.Assert) -> str:
        return f"Assert({self.text(node.test)})"

    def _raise(self, node: ast.Raise) -> str:
        return f"Raise({self._speech(node.exc) if isinstance(node.exc, ast.Call) else self.text(node.exc)})"

    def _call(self, node: ast.Call) -> str:
        return self._speech(node) if _last_name(node.func) in SPEAKS else self._plain(node)

    def _plain(self, node: ast.AST) -> str:
        values = [self.text(getattr(node, name, None)) for name in node._fields if name not in IGNORED]
        return f"{type(node).__name__}({','.join(values)})"

    def target(self, node: ast.expr) -> Target | None:
        """What a name or a dotted name stands for, where it leads out of the scope it is used in."""
        if isinstance(node, ast.Name):
            for scope in reversed(self.scopes):
                if node.id in scope:
                    imported = scope[node.id]
                    return None if imported is None else names.follow(imported)
            return names.resolve(self.module, node.id)
        if isinstance(node, ast.Attribute):
            base = self.target(node.value)
            if isinstance(base, Foreign):
                return Foreign(f"{base.name}.{node.attr}")
            if isinstance(base, Whole):
                return names.resolve(base.module, node.attr)
        return None

    def _name(self, node: ast.Name | ast.Attribute) -> str:
        target = self.target(node) if isinstance(node.ctx, ast.Load) else None
        if isinstance(target, Definition):
            self.found.append(target)
            called = node.attr if isinstance(node, ast.Attribute) else node.id
            return f"Name({called if target.name == '__getattr__' else target.name!r})"
        if isinstance(target, Foreign):
            return f"Name({target.name!r})"
        if isinstance(target, Whole):  # the module itself is handed on: anything in it may be used
            here = names.module_of(target.module)
            everything = [*here.defined, *here.imports] if here is not None else []
            reached = (names.resolve(target.module, name) for name in everything)
            self.found += [r for r in reached if isinstance(r, Definition)]
            return "Module()"
        if isinstance(node, ast.Attribute):
            return f"Attribute({self.text(node.value)},{node.attr!r})"
        return f"Name({node.id!r})"

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> str:
        named = "" if isinstance(node, ast.Lambda) else node.name + self.text(node.decorator_list)
        arguments = node.args
        defaults = self.text(arguments.defaults) + self.text(arguments.kw_defaults)
        signature = ",".join(
            f"{kind}:{[a.arg for a in given if a is not None]}"
            for kind, given in (
                ("only", arguments.posonlyargs),
                ("args", arguments.args),
                ("star", [arguments.vararg]),
                ("keys", arguments.kwonlyargs),
                ("more", [arguments.kwarg]),
            )
        )
        body = node.body if isinstance(node.body, list) else [node.body]
        scope = _locals([arguments, *body], self.module, self.is_package)
        return f"{type(node).__name__}({named},{signature},{defaults},{self._inside(scope, body)})"

    def _class(self, node: ast.ClassDef) -> str:
        head = node.name + self.text(node.decorator_list) + self.text(node.bases) + self.text(node.keywords)
        own = _locals(node.body, self.module, self.is_package)
        parts = []
        for statement in node.body:  # methods do not see the names of the class
            inner = isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            parts.append(self.text(statement) if inner else self._inside(own, statement))
        return f"ClassDef({head},[{','.join(filter(None, parts))}])"

    def _annotated(self, node: ast.AnnAssign) -> str:
        """A type is left out; that a field is there, and whether it is the class's own, is not."""
        kind = ast.unparse(node.annotation)
        special = next((word for word in ("ClassVar", "InitVar", "KW_ONLY") if word in kind), "")
        return f"Assign([{self.text(node.target)}],{self.text(node.value)}{special})"

    def _inside(self, scope: Scope, node: object) -> str:
        self.scopes.append(scope)
        try:
            return self._plain(node) if isinstance(node, COMPREHENSIONS) else self.text(node)
        finally:
            self.scopes.pop()

    def _speech(self, call: ast.Call) -> str:
        """A call that speaks to a person: what is said is left out, whom it is said through is not."""
        given = [a for a in call.args if not _is_words(a)]
        named = [k for k in call.keywords if not _is_words(k.value)]
        return f"Call({self.text(call.func)},{self.text(given)},{self.text(named)})"


_SPECIAL: dict[type[ast.AST], Callable[[_Reader, Any], str]] = {
    ast.Import: _Reader._nothing,
    ast.ImportFrom: _Reader._nothing,
    ast.Pass: _Reader._nothing,
    ast.Expr: _Reader._expression,
    ast.Name: _Reader._name,
    ast.Attribute: _Reader._name,
    ast.FunctionDef: _Reader._function,
    ast.AsyncFunctionDef: _Reader._function,
    ast.Lambda: _Reader._function,
    ast.ClassDef: _Reader._class,
    ast.AnnAssign: _Reader._annotated,
    ast.Assert: _Reader._assert,
    ast.Raise: _Reader._raise,
    ast.Call: _Reader._call,
    **dict.fromkeys(COMPREHENSIONS, _Reader._comprehension),
}


def _is_words(node: ast.expr) -> bool:
    """Whether an expression is a sentence: a literal text, or texts put together."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod | ast.Mult):
        return _is_words(node.left) or _is_words(node.right)
    if isinstance(node, ast.IfExp):
        return _is_words(node.body) and _is_words(node.orelse)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in ("join", "format") and _is_words(node.func.value)
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _locals(nodes: Iterable[ast.AST], module: str, is_package: bool) -> Scope:
    """The names that belong to a scope, and where the ones imported in it come from."""
    scope: Scope = {}
    outside: set[str] = set()
    todo: list[Any] = list(nodes)
    while todo:
        node = todo.pop()
        kind = type(node)
        if kind is list:
            todo += node
        elif kind is ast.Name:
            if type(node.ctx) is not ast.Load:
                scope.setdefault(node.id)
        elif kind in CLOSED or not issubclass(kind, ast.AST):
            continue
        elif kind is ast.arg:
            scope.setdefault(node.arg)
        elif kind in names.DEFINES:
            scope.setdefault(node.name)
        elif kind is ast.Import or kind is ast.ImportFrom:
            scope.update(names.imports_in(node, module, is_package))
        elif kind is ast.Global or kind is ast.Nonlocal:
            outside.update(node.names)
        else:
            caught = getattr(node, "name", None) or getattr(node, "rest", None)  # except … as name, case {**rest}
            if isinstance(caught, str):
                scope.setdefault(caught)
            todo += vars(node).values()
    return {name: origin for name, origin in scope.items() if name not in outside}
