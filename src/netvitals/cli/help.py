"""``netvitals help SLUG``: why a warning or an error was given, and what to do; it needs no network."""

from __future__ import annotations

import difflib
from typing import Annotated

import typer

from netvitals._help import NOT_SEEN, TROUBLES
from netvitals.cli import _groups

HEAD = """# Troubleshooting

Written by `netvitals help --reference`. A warning or an error of netvitals ends with what to ask for more:
`(netvitals help no-loss)`. The command prints the entry below without a network; each entry has its own anchor here.

An error about an argument (*every must be a whole number of steps, 1 or more, got 0*) says itself what was given, what
was expected and what to do, and points nowhere. A warning never ends your training: what failed was ours, it was
caught, and what was not measured is in `skipped`. `NETVITALS_DEBUG=1` before a command shows the traceback behind a
sentence, `netvitals doctor` whether the installation is sound."""

PLACES = """## What could not be measured

A watch and a checkup list in `skipped`, and under *Not measured* of the findings, which places they could not measure,
and why:"""


def register(app: typer.Typer) -> None:
    app.command("help", rich_help_panel=_groups.START)(explain_trouble)


def explain_trouble(
    trouble: Annotated[str, typer.Argument(help="What stands at the end of the sentence, e.g. no-loss.")] = "",
    reference: Annotated[bool, typer.Option("--reference", help="Print docs/troubleshooting.md.")] = False,
) -> None:
    """Say why a warning or an error was given, and what to do; without a name, list all."""
    if reference:
        typer.echo(page(), nl=False)
    elif not trouble:
        typer.echo("What a warning or an error ends with; netvitals --help lists the commands.\n")
        for slug, entry in TROUBLES.items():
            typer.echo(f"{slug:24} {entry.title}")
        typer.echo(f"{'not-seen':24} Places that could not be looked into")
    elif trouble == "not-seen":
        for reason, advice in _not_seen():
            typer.echo(f"{reason}\n  what to do: {advice}\n")
    elif trouble in TROUBLES:
        entry = TROUBLES[trouble]
        typer.echo(f"{entry.title}.\n\nwhy: {entry.why}\n\nwhat to do: {entry.advice}")
    else:
        near = difflib.get_close_matches(trouble, TROUBLES, 3, 0.4)
        hint = f"did you mean {', '.join(near)}?" if near else "netvitals help lists all"
        raise ValueError(f"there is no trouble called {trouble!r}; {hint}")


def page() -> str:
    """``docs/troubleshooting.md``: an anchor for every kind of trouble."""
    parts = [HEAD]
    for slug, entry in TROUBLES.items():
        parts.append(f'<a id="{slug}"></a>\n\n## {entry.title}\n\n`netvitals help {slug}`')
        parts.append(f"{entry.why}\n\n**What to do:** {entry.advice}")
    rows = [f"| {reason} | {advice} |" for reason, advice in _not_seen()]
    parts += [f'<a id="not-seen"></a>\n\n{PLACES}', "\n".join(["| why | what to do |", "|---|---|", *rows])]
    return "\n\n".join(parts) + "\n"


def _not_seen() -> list[tuple[str, str]]:
    from netvitals.capture import REASONS

    return [(reason, NOT_SEEN[kind]) for kind, reason in REASONS.items()]
