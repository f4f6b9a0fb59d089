"""Everything public says what it takes and what it gives, and what people import first shows how it is used.

The *front door* of a room is what its ``__all__`` lists. The rules, for docstrings in Google's sections:

* **Example.** A function or class at a front door has one that runs (``>>>``; the doctests run it). A class that nobody
  builds by hand may instead name who does: ``Returned by :func:`f`.``, ``Part of :class:`C`.``,
  ``Raised by :func:`f`.``, ``Shown to :meth:`C.m`.``, and there the example, or the next name, must be found.
* **Args.** Functions and constructors at a front door name each parameter in ``Args:``; a dataclass names its fields in
  ``Attributes:`` (or ``Args:``). A method or a dataclass may name them in its sentences instead, between two backticks.
  The constructor of a class that a function returns may take what that function describes. ``*args`` and ``**kwargs``
  may be left out, and a name that begins with ``_`` is private.
* **Returns.** A function at a front door that has parameters and gives something back says what in ``Returns:`` (or
  ``Yields:``), and so does any other that has ``Args:``; a method, a property, or a function without either is
  described by its sentence.
* **Overriding.** A method that takes over what a base class describes needs no docstring of its own.

Front doors keep all of it, classes and methods included. A file or folder that begins with ``_`` is private.
"""

import ast
import importlib
import inspect
import pathlib
import pkgutil
import re
from dataclasses import dataclass, field
from functools import cache

import pytest

import netvitals

HOME = pathlib.Path(netvitals.__file__).parent
NOT_ROOMS = {"cli", "watching"}  # commands, and the inside of `watch`
ROOMS = ["netvitals", "netvitals.curvature.dag"]
ROOMS += sorted(f"netvitals.{m.name}" for m in pkgutil.iter_modules(netvitals.__path__) if m.ispkg)
ROOMS = [name for name in ROOMS if name.rpartition(".")[2] not in NOT_ROOMS]
HEADING = re.compile(r"^(Args|Attributes|Returns|Yields|Raises|Examples?|Notes?|References?):\s*$")
DELEGATES = re.compile(r"(?:Returned by|Part of|Raised by|Shown to)((?:[\s,]|and|or|:\w+:`[\w.~]+`)+)")
PLAIN = {"object", "Protocol", "ABC", "Generic", "NamedTuple", "TypedDict", "Enum", "StrEnum"}


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


def named(found: dict[str, list[str]], *headings: str) -> set[str]:
    """What the entries of these sections are called; one entry, one name."""
    lines = [line for heading in headings for line in found.get(heading, ())]
    return {m[1] for line in lines if (m := re.match(r" {4}\*{0,2}(\w+)(?: \([^)]*\))?: *\S", line))}


def parameters(f: ast.FunctionDef, bound: bool) -> list[str]:
    names = [a.arg for a in f.args.posonlyargs + f.args.args][bound:] + [a.arg for a in f.args.kwonlyargs]
    return [name for name in names if not name.startswith("_")]


def gives(f: ast.FunctionDef) -> bool:
    return f.returns is not None and ast.unparse(f.returns) not in ("None", "NoReturn", "'None'", "Never")


def lacking(f: ast.FunctionDef) -> list[str]:
    """What the docstring of a function leaves out: names of parameters, and Returns where something is given back."""
    doc = ast.get_docstring(f) or ""
    found = sections(doc)
    takes = parameters(f, bound=False)
    out = [] if doc else ["a docstring"]
    out += [name for name in takes if name not in named(found, "Args")]
    if takes and gives(f) and not (found.get("Returns") or found.get("Yields")):
        out.append("Returns")
    return out


def mentioned(doc: str) -> set[str]:
    """Words between two backticks, and the names of ``Args``."""
    quoted = {word for text in re.findall(r"``(.+?)``", doc) for word in re.findall(r"\w+", text)}
    return quoted | named(sections(doc), "Args", "Attributes")


def lacking_of_method(f: ast.FunctionDef, bound: bool = True) -> list[str]:
    doc = ast.get_docstring(f) or ""
    takes = parameters(f, bound and not decorated(f, "staticmethod"))
    return ([] if doc else ["a docstring"]) + [name for name in takes if name not in mentioned(doc)]


@dataclass
class Public:
    """A public function or class, as its file has it."""

    module: str
    node: ast.FunctionDef | ast.ClassDef
    bases: list[str] = field(default_factory=list)

    @property
    def doc(self) -> str:
        return ast.get_docstring(self.node) or ""

    def methods(self) -> dict[str, ast.FunctionDef]:
        defined = [n for n in self.node.body if isinstance(n, ast.FunctionDef)]
        return {n.name: n for n in defined if not n.name.startswith("_") or n.name == "__init__"}

    def fields(self) -> list[str]:
        """What the constructor of a dataclass takes."""
        if not any("dataclass" in ast.unparse(d) for d in self.node.decorator_list):
            return []
        own = [n for n in self.node.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)]
        given = [n for n in own if "ClassVar" not in ast.unparse(n.annotation)]
        given = [n for n in given if n.value is None or "init=False" not in ast.unparse(n.value)]
        return [n.target.id for n in given if not n.target.id.startswith("_")]


def decorated(f: ast.FunctionDef, *words: str) -> bool:
    return any(word in ast.unparse(d) for d in f.decorator_list for word in words)


@cache
def files() -> dict[str, dict[str, Public]]:
    """Module → name → what is public in it."""
    found: dict[str, dict[str, Public]] = {}
    for path in sorted(HOME.rglob("*.py")):
        parts = path.relative_to(HOME.parent).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        here = found.setdefault(module, {})
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef):
                here[node.name] = Public(module, node)
            elif isinstance(node, ast.ClassDef):
                bases = [ast.unparse(b).split("[")[0] for b in node.bases]
                here[node.name] = Public(module, node, bases)
    return found


@cache
def classes() -> dict[str, Public]:
    return {n: p for here in files().values() for n, p in here.items() if isinstance(p.node, ast.ClassDef)}


def described_above(public: Public, method: str) -> bool:
    """Whether a base class describes the method, or is not ours to describe (``nn.Module.forward``)."""
    for base in public.bases:
        above = classes().get(base)
        if above is None and base in PLAIN:
            continue
        own = None if above is None else above.methods().get(method)
        if above is None or (own is not None and ast.get_docstring(own)) or described_above(above, method):
            return True
    return False


def lacking_of_class(public: Public) -> list[str]:
    """Fields or parameters of the constructor, and what each public method leaves out."""
    found = sections(public.doc)
    out = [name for name in public.fields() if name not in mentioned(public.doc)]
    for name, f in public.methods().items():
        if name == "__init__":
            known = named(found, "Args", "Attributes") | named(sections(ast.get_docstring(f) or ""), "Args")
            for maker in makers(public.doc):
                known |= named(sections(resolved(maker, "netvitals") or ""), "Args")
            out += [p for p in parameters(f, True) if p not in known]
        elif not decorated(f, "property", "overload", ".setter") and (
            ast.get_docstring(f) or not described_above(public, name)
        ):
            gaps = lacking_of_method(f)
            out += [f"{name}({', '.join(gaps)})"] if gaps else []
    return out


@cache
def front_door(room: str) -> dict[str, Public]:
    """What a room lists in ``__all__``; a function behind a cache or another decorator counts."""
    module = importlib.import_module(room)
    found = {}
    for name in getattr(module, "__all__", ()):
        thing = getattr(module, name)
        if not callable(thing) or not hasattr(thing, "__module__"):
            continue
        f = inspect.unwrap(thing)
        if inspect.isfunction(f) or inspect.isclass(f):
            public = files().get(f.__module__, {}).get(f.__qualname__)
            if public is not None:
                found[name] = public
    return found


def resolved(reference: str, room: str) -> str | None:
    """The docstring of a function, class or method that a docstring names; None where there is none of that name."""
    path = reference.lstrip("~").removeprefix("netvitals.").split(".")
    doors = [front_door(room), *map(front_door, ROOMS)]
    for name, *rest in (path, path[-2:], path[-1:]):
        for door in doors:
            if name in door:
                public = door[name]
                if not rest:
                    return public.doc
                if rest[0] in public.methods():
                    return f"{ast.get_docstring(public.methods()[rest[0]])} {public.doc}"
    return None


def makers(doc: str) -> list[str]:
    """Who returns, holds or raises the class of this docstring."""
    delegates = DELEGATES.search(doc)
    return [] if delegates is None else re.findall(r"`([\w.~]+)`", delegates[1])


def shows_use(doc: str, room: str, hops: int = 4) -> bool:
    if ">>>" in doc:
        return True
    if hops == 0:
        return False
    return any(shows_use(text, room, hops - 1) for maker in makers(doc) if (text := resolved(maker, room)) is not None)


def listed(gaps: dict[str, list[str]]) -> str:
    return "\n".join(f"  {name}: {', '.join(what)}" for name, what in gaps.items())


@pytest.mark.parametrize("room", ROOMS)
def test_front_door_shows_how_it_is_used(room):
    door = front_door(room)
    without = [f"{name} ({public.module})" for name, public in door.items() if not shows_use(public.doc, room)]
    assert not without, f"{room}: {len(without)} of {len(door)} have no example that runs: {', '.join(without)}"


@pytest.mark.parametrize("room", ROOMS)
def test_front_door_describes_what_it_takes_and_gives(room):
    gaps = {}
    for name, public in front_door(room).items():
        is_class = isinstance(public.node, ast.ClassDef)
        gaps[name] = lacking_of_class(public) if is_class else lacking(public.node)
    gaps = {name: what for name, what in gaps.items() if what}
    assert not gaps, f"{room}: {len(gaps)} of {len(front_door(room))} leave something out\n{listed(gaps)}"


def test_rooms_have_front_doors():
    counts = {room: len(front_door(room)) for room in ROOMS}
    assert len(ROOMS) >= 18
    assert sum(counts.values()) > 200, f"too few definitions were found for the rules to mean anything: {counts}"


def function(source: str) -> ast.FunctionDef:
    return ast.parse(inspect.cleandoc(source)).body[0]


WHOLE = '''
    def whole(x: float, *rest: float, mode: str = "a") -> float:
        """x.

        Args:
            x: a number.
            mode: ``"a"``.

        Returns:
            The number.
        """
'''
HALF = '''
    def half(x: float, y: float, mode: str = "a") -> float:
        """x, given y: something.

        Args:
            x: a number
                mode: not a parameter, but the second line of one.

        y: outside the section.
        """
'''
SILENT = '''
    def silent(x: float) -> None:
        """Nothing comes back.

        Args:
            x: a number.
        """
'''


def test_rule_finds_what_is_left_out():
    assert lacking(function(WHOLE)) == []
    assert lacking(function(SILENT)) == []
    assert lacking(function(HALF)) == ["y", "mode", "Returns"]
    assert lacking(function("def bare(x: float) -> float: ...")) == ["a docstring", "x", "Returns"]


def test_rule_finds_fields_and_methods_without_words():
    source = '''
    @dataclass(frozen=True)
    class Result:
        """A result.

        Attributes:
            value: a number.
        """

        value: float
        error: float

        @property
        def relative(self) -> float:
            return 0.0

        def at(self, step: int) -> float:
            """The value at a step."""
    '''
    assert lacking_of_class(Public("here", function(source))) == ["error", "at(step)"]


def test_an_example_elsewhere_must_exist():
    assert shows_use(">>> 1", "netvitals")
    assert shows_use("Returned by :func:`watch`.", "netvitals")
    assert not shows_use("Returned by :func:`nobody`.", "netvitals")
    assert not shows_use("Something.", "netvitals")
