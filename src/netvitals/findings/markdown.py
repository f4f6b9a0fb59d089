"""``docs/findings.md``: every finding with its sentences, its threshold and its source, read off the rules.

The sentences of a rule are made while it runs, so they are taken from its source. What a run fills in is shown by its
name, as in ``‹step›``.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from netvitals import findings
from netvitals.findings.diagnosis import RULES
from netvitals.findings.rules import Rule, percent
from netvitals.vitals import REGISTRY

OTHER = " *Or:* "  # between sentences of which a condition chooses one
FILLED = re.compile("‹[^›]*›")
NUMBERS = ("size", "first", "last", "before", "after", "steps", "times", "count", "summed", "held", "batches", "usual")
NAMED = {  # in the source → as a reader sees it
    **dict.fromkeys(NUMBERS, "N"),
    **dict.fromkeys(("since", "stay", "at", "end", "made_at"), "step"),
    "where": "layers",
    "site": "layer",
    "poles": "operation",
    "word": "name",
    "mode": "label",
    "ranks": "rank",
    "prediction": "shape",
    "compared": "shape",
}
HEAD = f"""# Findings

Netvitals checks a training run with {len(RULES)} rules. This page lists what each rule reports, why it matters and what
to change. Each run fills in the names and numbers shown as ‹step› or ‹N %›.

If you see a symptom but do not know its cause, start with [the list of symptoms](symptoms/index.md). The
[bug benchmark](bugs.md) measures how often findings are right. To see one rule in the terminal, run
`netvitals explain "dead units"`. This page is written by `netvitals explain --reference`."""

Sentences = tuple[str, str, str]  # what, why, fix


def reference() -> str:
    """The page as Markdown: a table of all rules, a section for each, and the kinds of remedies."""
    said = sentences()
    rows = [f"| [{r.name}](#{anchor(r.name)}) | {_cell(r.question)} |" for r in RULES]
    parts = [HEAD, "\n".join(["| finding | question |", "| --- | --- |", *rows])]
    for rule in RULES:
        parts += [f"## {rule.name}", rule.question]
        for what, why, fix in said[rule.name]:
            labelled = [("Finding", what), *((n, text) for n, text in (("Why", why), ("Fix", fix)) if _says(text))]
            lines = [
                f"> **{name}{', or' if other else ''}:** {one}"
                for name, text in labelled
                for other, one in enumerate(map(_shown, text.split(OTHER)))
            ]
            parts.append("\n>\n".join(lines))
        facts = [("reads", _reads(rule)), ("healthy", rule.null), ("reported if", rule.threshold)]
        facts += [("source", rule.source), ("not a problem if", rule.refuted_by)]
        table = [f"| **{name}** | {_cell(text)} |" for name, text in facts if text]
        parts.append("\n".join(["| | |", "| --- | --- |", *table]))
    kinds = [f"| `{kind}` | {_cell(text)} |" for kind, text in findings.REMEDIES.items()]
    parts += [
        "## Remedies",
        "A program can act on a finding: the table below lists the values of `finding.remedy.kind`.",
    ]
    parts.append("\n".join(["| kind | what to do |", "| --- | --- |", *kinds]))
    return "\n\n".join(parts) + "\n"


def anchor(name: str) -> str:
    """The part of an address that leads to a rule's section.

    >>> anchor("dead units")
    'dead-units'
    """
    return name.lower().replace(" ", "-")


def _word(name: str) -> str:
    """A name of the source as a reader sees it."""
    return NAMED.get(name, name.replace("_", " "))


def _shown(text: str) -> str:
    """A text without a last sentence that only a run can make."""
    return re.sub(r"(?<=[.!?])\s*‹[^›]*›$", "", text)


def _says(text: str) -> bool:
    """Whether words are left where the run fills in the rest."""
    return len(re.findall(r"\w+", FILLED.sub("", text))) > 2


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _reads(rule: Rule) -> str:
    if rule.asked is not None:
        return rule.lacks
    pairs = [f"[`{v}/{m}`](reference/vital-signs.md#{v})" if v in REGISTRY else f"`{v}/{m}`" for v, m in rule.needs]
    return " or ".join(pairs) + (f" on {rule.least} steps" if rule.least > 1 else "")


def sentences() -> dict[str, list[Sentences]]:
    """What each rule can say, in the order of its source: (what, why, fix), by the rule's name."""
    found: dict[str, list[Sentences]] = {}
    for info in pkgutil.iter_modules(findings.__path__):
        module = importlib.import_module(f"{findings.__name__}.{info.name}")
        tree = ast.parse(inspect.getsource(module))
        functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)} | _imported(module)
        for function in functions.values():
            name = next((n for d in function.decorator_list if (n := _rule_name(d))), "")
            if name:
                found[name] = list(_of_function(function, functions, module))
        for node in tree.body:
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "TEXTS":
                assert isinstance(node.value, ast.Dict)
                for key, text in zip(node.value.keys, node.value.values):
                    assert isinstance(key, ast.Constant) and isinstance(text, ast.Call)
                    found[str(key.value)] = [_Source(functions, {}, vars(module)).said(*text.args[1:])]
    return found


def _imported(module: ModuleType) -> dict[str, ast.FunctionDef]:
    """Functions of other modules of this package that make part of a sentence."""
    found = {}
    for name in ("set_rate", "in_worst"):
        if inspect.isfunction(function := vars(module).get(name)) and function.__module__ != module.__name__:
            node = ast.parse(inspect.getsource(function)).body[0]
            assert isinstance(node, ast.FunctionDef)
            found[name] = node
    return found


def _rule_name(decorator: ast.expr) -> str:
    if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "rule":
        return str(ast.literal_eval(decorator.args[0]))
    return ""


def _of_function(
    start: ast.FunctionDef, functions: Mapping[str, ast.FunctionDef], module: ModuleType
) -> Iterator[Sentences]:
    """Of each finding that the function makes, itself or by a function of its module."""
    seen, waiting = set(), [start]
    while waiting:
        function = waiting.pop(0)
        if function.name in seen:
            continue
        seen.add(function.name)
        source = _Source(functions, _assigned(function), vars(module))
        for node in _in_order(function):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            named = {k.arg: k.value for k in node.keywords}
            if called in ("Finding", "together") and ("what" in named or len(node.args) > 2):
                what = named["what"] if "what" in named else node.args[2]
                yield source.said(what, named.get("why"), named.get("advice"))
            elif called in functions:
                waiting.append(functions[called])


def _assigned(function: ast.FunctionDef) -> dict[str, list[ast.expr]]:
    """Everything that each local name is set to."""
    found: dict[str, list[ast.expr]] = {}
    for node in _in_order(function):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if not isinstance(value, ast.List):
                found.setdefault(name, []).append(value)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append"), args=[value]):
                found.setdefault(name, []).append(value)
    return found


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _in_order(child)


@dataclass(frozen=True)
class _Source:
    """Expressions of one function, read as the sentences that they make."""

    functions: Mapping[str, ast.FunctionDef]
    local: Mapping[str, list[ast.expr]]
    values: Mapping[str, Any]  # what the module's names stand for

    def said(self, *parts: ast.expr | None) -> Sentences:
        """What, why and fix; sentences that a condition chooses from are all given."""
        what, why, fix = (OTHER.join(self.choices(part)) if part is not None else "" for part in parts)
        return what, why, fix

    def choices(self, node: ast.expr) -> list[str]:
        """The sentences that an expression chooses from."""
        match node:
            case ast.Lambda(body=body):
                return self.choices(body)
            case ast.IfExp(body=body, orelse=other):
                found = self.choices(body) + self.choices(other)
            case ast.Subscript(value=ast.Dict(values=values)):
                found = [one for value in values for one in self.choices(value)]
            case ast.Name(id=name) if name in self.local:
                inner = self.without(name)
                found = [one for value in self.local[name] for one in inner.choices(value)]
            case ast.Name(id=name) | ast.Call(func=ast.Name(id=name)) if ends := self.returned(name):
                inner = self.inside(name)
                found = [one for end in ends for one in inner.choices(end)]
            case _:
                found = [" ".join(self.text(node).split())]
        return list(dict.fromkeys(one for one in found if FILLED.sub("", one).strip(" ."))) or ["‹text›"]

    def without(self, name: str) -> _Source:
        """The same where a local name is not looked up again: it may be set from itself."""
        return replace(self, local={k: v for k, v in self.local.items() if k != name})

    def text(self, node: ast.expr) -> str:
        """One sentence, or a part of it; of two that a condition chooses from, the first that is not empty."""
        match node:
            case ast.Constant(value=value):
                return str(value)
            case ast.JoinedStr(values=parts):
                return "".join(self.text(part) for part in parts)
            case ast.FormattedValue(value=ast.Name(id=name), format_spec=spec) if self.number(name) is not None:
                return format(self.number(name), self.text(spec) if spec else "")
            case ast.FormattedValue(value=value, format_spec=spec):
                kind = self.text(spec)[-1:] if spec else ""
                return {"%": "‹N %›", "f": "‹N›", "g": "‹N›", "e": "‹N›"}.get(kind) or self.text(value)
            case ast.Call(func=ast.Attribute(attr="join"), args=[ast.Name(id=name)]) if name in self.local:
                return " ".join(self.without(name).text(value) for value in self.local[name])
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self.text(left) + self.text(right)
            case ast.IfExp(body=body, orelse=other):
                return self.text(body) or self.text(other)
            case ast.Name(id=name) if name in self.local:
                values = self.local[name]
                inner = self.without(name).text(values[0]) if len(values) == 1 else ""
                return inner if FILLED.sub("", inner).strip() else f"‹{_word(name)}›"
            case ast.Name(id=name) if isinstance(self.values.get(name), str):
                return str(self.values[name])
            case ast.Call(func=ast.Name(id="percent"), args=[ast.Name(id=name)]) if self.number(name) is not None:
                return percent(float(self.values[name]))
            case ast.Name(id=name) | ast.Call(func=ast.Name(id=name)) if len(ends := self.returned(name)) == 1:
                inner = self.inside(name).text(ends[0])
                return inner if FILLED.sub("", inner).strip() else f"‹{_word(name.strip('_'))}›"
        return f"‹{self.filled(node)}›"

    def filled(self, node: ast.expr) -> str:
        """The name of what a run fills in: of the variable, the field or the kind of number."""
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Subscript(slice=ast.Constant(value=str(name))):
                return _word(name)
            case ast.Call(func=ast.Name(id="names"), args=[ast.Subscript(slice=ast.Constant(value=str(name)))]):
                return _word(name)
            case ast.Call(func=ast.Name(id="names"), args=[ast.Name(id="ops")]):
                return "activation"
            case ast.Call(func=ast.Name(id="names")):
                return "layers"
            case ast.Call(func=ast.Name(id="called")):
                return "layer"
            case ast.Call(func=ast.Name(id="percent")):
                return "N %"
            case ast.Call(func=ast.Name(id="int" | "round" | "tuple" | "abs" | "max"), args=[one, *_]):
                return self.filled(one)
            case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(name)), *_]):
                return name.replace("_", " ")
            case ast.Call(func=ast.Name(id=name)) if name in self.functions:
                return name.strip("_").replace("_", " ")
            case ast.Subscript(value=one) | ast.BoolOp(values=[one, *_]):
                return self.filled(one)
        return "N"

    def number(self, name: str) -> float | None:
        """The constant of that name, where the module has one."""
        value = self.values.get(name)
        return value if isinstance(value, (int, float)) and name not in self.local else None

    def returned(self, name: str) -> list[ast.expr]:
        """What a function of the module that makes a sentence returns."""
        function = self.functions.get(name)
        if function is None or function.returns is None or ast.unparse(function.returns) != "str":
            return []
        return [n.value for n in _in_order(function) if isinstance(n, ast.Return) and n.value is not None]

    def inside(self, name: str) -> _Source:
        """The expressions of that function, which is not entered again."""
        others = {other: f for other, f in self.functions.items() if other != name}
        return _Source(others, _assigned(self.functions[name]), self.values)
