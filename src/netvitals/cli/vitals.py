"""``netvitals vitals``: every vital sign, what it means, its metrics and how often it is measured."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from netvitals.cli import _groups


def register(app: typer.Typer) -> None:
    app.command("vitals", rich_help_panel=_groups.START)(list_vitals)


def list_vitals(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Names of vital signs to describe, with all their metrics. [default: all]"),
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a table of all vital signs in Markdown.")] = False,
    reference: Annotated[
        bool, typer.Option("--reference", help="Print the reference of all vital signs and metrics in Markdown.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
) -> None:
    """List the vital signs with their meaning, their metrics, and how often they are measured."""
    from rich.console import Console
    from rich.text import Text

    from netvitals import vitals

    if markdown or reference:
        typer.echo(vitals.table() if markdown else vitals.reference(), nl=markdown)
        return
    chosen = [type(vitals.get(name)) for name in names] if names else list(vitals.REGISTRY.values())
    if as_json:
        typer.echo(json.dumps([vitals.entry(kind) for kind in chosen], ensure_ascii=False))
        return
    console = Console(emoji=False)
    for kind in chosen:
        state = "on by default" if kind.default else "off by default"
        needs = f"; needs {kind.needs}" if kind.needs else ""
        console.print(Text.assemble((kind.name, "bold"), f"  {kind.title}", (f"  ({state}{needs})", "dim")))
        console.print(Text(f"  {kind.meaning}"))
        console.print(Text(f"  measured {vitals.how_often(kind)}", style="dim"))
        if names:
            for metric, (meaning, unit) in kind.metrics.items():
                console.print(Text(f"  {metric:18} {meaning}{f' ({unit})' if unit else ''}"))
        else:
            console.print(Text(f"  {', '.join(kind.metrics)}", style="dim"))
        console.print()
