"""Docstrings as Markdown: examples become fenced blocks, Sphinx roles become code."""

from __future__ import annotations

import re
from typing import Any

from griffe import Docstring, Extension

ROLE = re.compile(r":(?:mod|class|func|meth|attr|data|exc|obj):`~?([^`]+)`")
FLAGS = re.compile(r" *# *doctest:.*$")


def as_markdown(text: str) -> str:
    """The same docstring, with what Markdown would not understand put in its words.

    Args:
        text: a docstring, without its indentation.

    Returns:
        Roles as code, and every run of lines from ``>>>`` to the next blank line as a fenced block.
    """
    lines: list[str] = []
    indent: str | None = None  # of the example that is open
    for line in ROLE.sub(r"`\1`", text).splitlines():
        body = line.lstrip()
        if indent is None and body.startswith(">>>"):
            indent = line[: len(line) - len(body)]
            lines += ["", f"{indent}```pycon"]
        elif indent is not None and not body:
            lines += [f"{indent}```", ""]
            indent = None
        lines.append(FLAGS.sub("", line) if indent is not None else line)
    if indent is not None:
        lines.append(f"{indent}```")
    return "\n".join(lines)


def field_table(cls: Any) -> str:
    """The fields of a class that have no docstring of their own, with the comments behind them in the source.

    Args:
        cls: a class, as griffe read it; these fields are taken out of its members.

    Returns:
        A section ``Attributes:``, or nothing.
    """
    bare = [m for m in cls.members.values() if m.is_attribute and not m.is_alias and not m.has_docstring]
    rows = []
    for field in bare:
        if not field.name.startswith("_"):
            line = field.source.splitlines()[-1] if field.source else ""
            comment = line.rpartition("  # ")[2] if "  # " in line else ""
            kind = f" ({field.annotation})" if field.annotation else ""
            rows.append(f"    {field.name}{kind}: {comment.removeprefix('type: ignore')}")
        del cls.members[field.name]
    return "\n\nAttributes:\n" + "\n".join(rows) if rows else ""


class Docstrings(Extension):
    """Rewrites each docstring once, when its object has been read."""

    def on_object(self, *, obj: Any, **kwargs: Any) -> None:
        """Called by griffe for every object.

        Args:
            obj: a module, a class, a function or an attribute.
            kwargs: what else griffe hands over.
        """
        if obj.docstring is not None and ("`" in obj.docstring.value or ">>>" in obj.docstring.value):
            obj.docstring.value = as_markdown(obj.docstring.value)

    def on_class(self, *, cls: Any, **kwargs: Any) -> None:
        """Called by griffe for every class, after its members.

        Args:
            cls: the class.
            kwargs: what else griffe hands over.
        """
        table = field_table(cls)
        if cls.docstring is None:
            cls.docstring = Docstring("", parent=cls, parser="google")
        if table and "Attributes:" not in cls.docstring.value:
            head, mark, example = cls.docstring.value.partition("\n```pycon")
            cls.docstring.value = f"{head.rstrip()}{table}\n{mark}{example}"
