"""Reference pages of what registers itself: vital signs, metrics, commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer.main

from netvitals import vitals
from netvitals.cli import app
from netvitals.findings import RULES, anchor
from netvitals.report.glossary import CHECKUP


def cell(text: str) -> str:
    """Text inside a table.

    Args:
        text: any.

    Returns:
        One line, with bars that do not end the cell.
    """
    return " ".join(text.split()).replace("|", "\\|")


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A Markdown table.

    Args:
        head: names of the columns.
        rows: cells.

    Returns:
        The table.
    """
    lines = [head, ("---",) * len(head), *(tuple(cell(c) for c in row) for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def vital_signs() -> str:
    """Every vital sign: what it tells, its metrics with their units, and how to read them.

    Returns:
        Markdown; what is good and what is not is taken from the rules that read the vital sign.
    """
    parts = [
        "# Vital signs",
        "This page explains every metric that `nv.watch` measures. Pure numbers have no unit. A metric of the whole "
        "model has the same name as that of a layer; it is the average over elements. If its name ends in `:site` or "
        "`:channel`, it is the average over sites or channels. `netvitals vitals spikes` prints one vital sign.",
        table(
            ("vital sign", "what it measures", "on by default"),
            [
                (f"[`{name}`](#{name})", kind.meaning, "yes" if kind.default else "no")
                for name, kind in vitals.REGISTRY.items()
            ],
        ),
    ]
    for name, kind in vitals.REGISTRY.items():
        state = "On by default" if kind.default else "Off by default"
        needs = f"; needs {kind.needs}" if kind.needs else ""
        parts += [
            f"## {kind.title} (`{name}`) {{ #{name} data-toc-label='{name}' }}",
            kind.meaning,
            f"{state}{needs}. Measured {vitals.how_often(kind)}.",
            table(
                ("metric", "meaning", "unit"),
                [(f"`{metric}`", meaning, unit) for metric, (meaning, unit) in kind.metrics.items()],
            ),
        ]
        readers = [r for r in RULES if name in {r.vital, *r.also, *(v for v, _ in r.needs)}]
        if readers:
            rows = [
                (f"[{r.name}](../findings.md#{anchor(r.name)})", r.null or r.question, r.threshold) for r in readers
            ]
            parts += [
                f"### How to read {kind.title.lower()} {{ #read-{name} data-toc-label='How to read' }}",
                table(("finding", "healthy", "reported if"), rows),
            ]
        else:
            parts.append("No finding uses this vital sign.")
    parts += ["## Only in a checkup { #checkup }", "Only `nv.checkup(…, singular=True)` measures these metrics."]
    for name, shown in CHECKUP.items():
        parts += [
            f"### {shown.title} (`{name}`) {{ #checkup-{name} data-toc-label='{name}' }}",
            shown.meaning,
            table(("metric", "meaning", "unit"), [(f"`{m}`", s, u) for m, (s, u) in shown.metrics.items()]),
        ]
    return "\n\n".join(parts) + "\n"


def metrics() -> str:
    """Every metric by its name, with all vital signs that write it: what a search for the name leads to.

    Returns:
        Markdown with a heading for each metric.
    """
    found: dict[str, list[tuple[str, str, str]]] = {}
    for vital, kind in vitals.REGISTRY.items():
        for name, (meaning, unit) in kind.metrics.items():
            found.setdefault(name, []).append((f"[`{vital}`](vital-signs.md#{vital})", meaning, unit))
    parts = [
        "# Metrics from A to Z",
        f"This page explains all {len(found)} metrics and names their vital signs.",
    ]
    for name in sorted(found, key=str.lower):
        parts += [f"## `{name}` {{ #{anchor(name)} }}", table(("vital sign", "meaning", "unit"), found[name])]
    return "\n\n".join(parts) + "\n"


def every_command(command: Any = None, path: str = "netvitals") -> Iterator[tuple[str, Any]]:
    """All commands, groups and their commands, with the words that call them.

    Args:
        command: where to begin; by default the whole command line.
        path: the words that lead there.

    Yields:
        (words, command), the parent before its children.
    """
    command = typer.main.get_command(app) if command is None else command
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from every_command(child, f"{path} {name}")


def commands() -> str:
    """Every command with every option, from what `--help` prints.

    Returns:
        Markdown.
    """
    parts = [
        "# Commands",
        "This page lists every command of `netvitals`, as `netvitals COMMAND --help` prints it. "
        "On wrong input, a command prints one sentence and ends with exit code 2. "
        "Set `NETVITALS_DEBUG=1` to see the traceback.",
        table(
            ("command", "what it does"),
            [(f"[`{path}`](#{anchor(path)})", c.help or "") for path, c in every_command() if " " in path],
        ),
    ]
    for path, command in every_command():
        context = command.context_class(command, info_name=path)
        usage = " ".join(command.collect_usage_pieces(context))
        parts += [f"## `{path}` {{ #{anchor(path)} data-toc-label='{path.removeprefix('netvitals ')}' }}"]
        parts += [command.help or "", f"```text\n{path} {usage}\n```"]
        rows = [_parameter(p, context) for p in command.params]
        if rows:
            parts.append(table(("argument or option", "meaning"), rows))
    return "\n\n".join(parts) + "\n"


def _parameter(p: Any, context: Any) -> tuple[str, str]:
    names, meaning = p.get_help_record(context)
    kind = re.search(r"<[^<>]+>", names)  # what it takes, as the help says it
    shown = [names.split("  ")[0].split(" <")[0]] if p.param_type_name == "argument" else [*p.opts, *p.secondary_opts]
    return ", ".join(f"`{name}`" for name in shown) + (f" `{kind[0]}`" if kind else ""), meaning
