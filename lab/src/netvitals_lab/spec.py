"""One grammar for models and data by name.

    NAME[:SIZES][,key=value]...

    mlp:64-128x3-10,act=softplus:20,norm=batch     widths 64, 128, 128, 128, 10
    resnet-mini,width=8,act=gelu
    text:corpus.txt,context=64

A value may itself hold colons (``softplus:20``); ``AxN`` inside sizes means N times A. Options may also be
separated by a colon, since an option is recognised by its equals sign: ``mlp:64-128x3-10:act=gelu:norm=batch``.
"""

from __future__ import annotations

import difflib
import re
import types
import typing
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

_OPTION = re.compile(r"[,:](?=\s*[A-Za-z_]\w*=)")


def split(text: str) -> tuple[str, str, dict[str, str]]:
    """Cut a spec string into its name, its positional part and its options.

    >>> split("mlp:64-128x3-10,act=softplus:20")
    ('mlp', '64-128x3-10', {'act': 'softplus:20'})
    """
    head, *rest = _OPTION.split(text)
    name, _, positional = head.partition(":")
    options: dict[str, str] = {}
    for part in rest:
        key, _, value = part.strip().partition("=")
        if key in options:
            raise ValueError(f"{text!r} gives {key!r} twice; give it once")
        options[key] = value.strip()
    if not name.strip():
        raise ValueError(f"a spec starts with a name, as in 'mlp:64-128x3-10,act=gelu'; got {text!r}")
    return name.strip(), positional.strip(), options


def widths(text: str) -> tuple[int, ...]:
    """Numbers joined by dashes, with ``AxN`` for N times A.

    >>> widths("64-128x3-10")
    (64, 128, 128, 128, 10)
    """
    out: list[int] = []
    for part in text.split("-"):
        size, _, times = part.partition("x")
        try:
            out += [int(size)] * (int(times) if times else 1)
        except ValueError:
            raise ValueError(f"sizes look like 64-128x3-10, got {part!r} in {text!r}") from None
    return tuple(out)


def values(kind: type, given: dict[str, Any], name: str) -> dict[str, Any]:
    """The options of a dataclass ``kind``, each converted from text to the type of its field."""
    hints = typing.get_type_hints(kind)
    known = [f.name for f in fields(kind) if f.init]
    out: dict[str, Any] = {}
    for key, value in given.items():
        if key not in known:
            raise ValueError(
                f"{name} has no option {key!r}; did you mean {nearest(key, known)}? (it has {', '.join(known)})"
            )
        out[key] = _convert(value, hints[key], key, name) if isinstance(value, str) else value
    return out


def nearest(word: str, known: Iterable[str], count: int = 3) -> str:
    """The known names most like ``word``, for an error message; all of them when none is alike."""
    known = list(known)
    return ", ".join(difflib.get_close_matches(word, known, count, 0.4) or known)


def _convert(text: str, hint: Any, key: str, name: str) -> Any:
    options = (
        typing.get_args(hint)
        if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
        else (hint,)
    )
    if type(None) in options and text.lower() in ("none", ""):
        return None
    kind = next(o for o in options if o is not type(None))
    try:
        if typing.get_origin(kind) is tuple:
            inner = typing.get_args(kind)[0]
            return widths(text) if inner is int else tuple(inner(t) for t in text.split("/"))
        if kind is bool:
            return {
                "1": True,
                "true": True,
                "yes": True,
                "on": True,
                "0": False,
                "false": False,
                "no": False,
                "off": False,
            }[text.lower()]
        return kind(text)
    except (KeyError, ValueError):
        wanted = getattr(kind, "__name__", str(kind))
        raise ValueError(f"option {key!r} of {name} is a {wanted}, got {text!r}") from None
