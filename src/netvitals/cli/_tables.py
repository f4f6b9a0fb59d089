"""Tables that several commands print."""

from __future__ import annotations

from collections.abc import Sequence


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None) -> None:
    """A table with a title, on stdout."""
    from rich.console import Console
    from rich.table import Column, Table

    table = Table(*(Column(name, overflow="fold") for name in head), title=title)
    for row in rows:
        table.add_row(*row)
    Console(emoji=False).print(table)
