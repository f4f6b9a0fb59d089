"""What mkdocs calls while it builds the site: reference pages from the code, folders in the navigation, formulas.

Nothing is written into the sources: generated pages exist in the build only, so they cannot be of yesterday.
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import registries
import rooms
from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

SHIM = "https://unpkg.com/iframe-worker/shim"
ASKED_FOR = ("findings.md", "reference/netvitals.md")  # what a search for a name should lead to
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.S)


def on_config(config: Any) -> Any:
    """Expand entries of the navigation that name a folder into the pages that the folder holds.

    Args:
        config: of mkdocs.

    Returns:
        The same.
    """
    config["nav"] = _expanded(config["nav"], Path(config["docs_dir"]))
    return config


def _expanded(nav: list[Any], docs: Path) -> list[Any]:
    out: list[Any] = []
    for entry in nav:
        if isinstance(entry, str) and entry.endswith("/"):
            pages = sorted((docs / entry).glob("*.md"), key=lambda p: (p.name != "index.md", p.name))
            out += [p.relative_to(docs).as_posix() for p in pages]
            continue
        if isinstance(entry, dict):
            title, inside = next(iter(entry.items()))
            if isinstance(inside, list):
                inside = _expanded(inside, docs)
                if not inside:
                    continue
            elif inside.endswith(".md") and not inside.startswith("reference/") and not (docs / inside).exists():
                continue
            entry = {title: inside}
        out.append(entry)
    return out


def generated() -> dict[str, str]:
    """Every page that is made from the code.

    Returns:
        Markdown by path below docs/.
    """
    pages = {
        "reference/index.md": rooms.index(),
        "reference/netvitals.md": rooms.page(""),
        "reference/vital-signs.md": registries.vital_signs(),
        "reference/metrics.md": registries.metrics(),
        "reference/commands.md": registries.commands(),
    }
    pages |= {f"reference/{room}.md": rooms.page(room) for room in rooms.ROOMS}
    return pages


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages.

    Args:
        files: what mkdocs found.
        config: of mkdocs.

    Returns:
        The same, and the generated ones.
    """
    for path, text in generated().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **kwargs: Any) -> str:
    """Leave long tables of papers out of the search, and rank findings and the public API first.

    Args:
        markdown: the source of the page.
        page: its description.
        kwargs: what else mkdocs hands over.

    Returns:
        The source as it is.
    """
    if page.file.src_uri.startswith(("papers/", "coverage/")):
        page.meta["search"] = {"exclude": True}
    elif page.file.src_uri in ASKED_FOR:
        page.meta["search"] = {"boost": 3}
    return markdown


def on_page_content(content: str, **kwargs: Any) -> str:
    """Formulas as MathML, which browsers draw by themselves: nothing is loaded from anywhere.

    Args:
        content: a page as HTML.
        kwargs: the page and what else mkdocs hands over.

    Returns:
        The page with its formulas.
    """
    return FORMULA.sub(lambda m: as_mathml(html.unescape(m[3]), block=m[1] == "div"), content)


def as_mathml(latex: str, *, block: bool = False) -> str:
    """One formula.

    Args:
        latex: its source.
        block: whether it has a line of its own.

    Returns:
        A ``math`` element; the source as code where it cannot be read.
    """
    try:
        return convert(latex.strip(), display="block" if block else "inline")
    except Exception:  # a formula that the converter does not know is shown as it was written
        return f"<code>{html.escape(latex)}</code>"


def on_post_template(output_content: str, template_name: str, **kwargs: Any) -> str:
    """The same for the page that says that there is no such page.

    Args:
        output_content: the finished page.
        template_name: its name.
        kwargs: what else mkdocs hands over.

    Returns:
        The page, which loads nothing from outside.
    """
    return output_content.replace(SHIM, "/js/search-from-disk.js")


def on_post_page(output: str, page: Any, **kwargs: Any) -> str:
    """The theme's search wants a small script from the network when a page is opened as a file: ours is in the site.

    Args:
        output: the finished page.
        page: its description.
        kwargs: what else mkdocs hands over.

    Returns:
        The page, which loads nothing from outside.
    """
    up = "../" * page.file.dest_uri.count("/")
    return output.replace(SHIM, f"{up}js/search-from-disk.js")
