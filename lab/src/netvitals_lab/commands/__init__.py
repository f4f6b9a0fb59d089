"""Commands that the lab adds to ``netvitals``: studies, reproduce, claims."""

from __future__ import annotations

import typer

from netvitals_lab.commands import claims, reproduce, studies


def register(app: typer.Typer) -> None:
    for command in (studies, reproduce, claims):
        command.register(app)
