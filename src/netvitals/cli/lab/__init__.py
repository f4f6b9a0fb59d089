"""Commands of the laboratory: studies, reproduce, claims."""

from __future__ import annotations

import typer

from netvitals.cli.lab import claims, reproduce, studies


def register(app: typer.Typer) -> None:
    for command in (studies, reproduce, claims):
        command.register(app)
