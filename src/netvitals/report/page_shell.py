"""The shell that every page has: one HTML file with its style and its script inside, and a policy that lets in nothing
else.

A page is a frozen dataclass (its fields are the names that the template knows) and a template that extends
``shell.html.j2``. Values are escaped; what is markup already says so with ``markupsafe.Markup``.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from netvitals._plot import style as plot_style
from netvitals._version import __version__

TEMPLATES = Path(__file__).with_name("templates")
APP = Path(__file__).with_name("app")  # the page that draws a run, live or out of a file
SCRIPTS = (
    "vendor/htm-preact.js",
    *(f"{name}.js" for name in ("core", "colour", "lines", "map", "site", "run", "table", "compare", "main")),
)
SUPPLIED = frozenset({"version", "style", "script", "script_hash"})  # names that the shell adds to those of the model


def render_html(
    template: str, model: Any, *, styles: Sequence[str] = (), script: str = "", folder: Path = TEMPLATES
) -> str:
    """The page of ``model`` as text."""
    from markupsafe import Markup

    style = shared_style() + "".join((folder / name).read_text(encoding="utf-8") for name in styles)
    code = app_script() if script == "app" else (folder / script).read_text(encoding="utf-8") if script else ""
    return str(
        environment(folder)
        .get_template(template)
        .render(
            {f.name: getattr(model, f.name) for f in fields(model)},
            version=__version__,
            style=Markup(style),
            script=Markup(code),
            script_hash=base64.b64encode(hashlib.sha256(code.encode()).digest()).decode(),
        )
    )


@cache
def shared_style() -> str:
    """The style sheet of every page."""
    return (TEMPLATES / "style.css").read_text(encoding="utf-8") + plot_style()


@cache
def app_script() -> str:
    """The script that draws runs, in one piece."""
    return "\n".join((APP / name).read_text(encoding="utf-8") for name in SCRIPTS)


def app_files() -> dict[str, tuple[str, str]]:
    """What the live page loads: media type and text by name."""
    return {"app.js": ("text/javascript", app_script()), "app.css": ("text/css", shared_style())}


def app_page() -> str:
    """The live page: a shell that asks for everything else."""
    return (
        '<!doctype html><html lang="en" data-theme="light"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>netvitals</title>'
        '<link rel="stylesheet" href="/app/app.css"></head><body><div id="app"></div>'
        '<script src="/app/app.js"></script></body></html>'
    )


def write_html(text: str, path: str | os.PathLike[str], name: str) -> Path:
    """Write a page, whole or not at all."""
    target = Path(path)
    if target.is_dir():
        target = target / name
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(target.name + ".part")
    draft.write_text(text, encoding="utf-8")
    draft.replace(target)
    return target


@cache
def environment(folder: Path = TEMPLATES) -> Any:
    """The templates of ``folder`` with the shell beside them: escaped, and strict about unknown names."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader([folder, TEMPLATES])
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
