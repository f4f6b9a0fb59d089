"""The command line: one file per command, one folder per group of commands.

Every module of this room has a function ``register(app)`` that adds its command to the typer app; those that begin with
an underscore are shared. Heavy imports
belong inside the command, so that ``netvitals --help`` answers at once.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
import os
import pkgutil
import sys
from typing import Any

import typer

from netvitals._extras import PARTS, missing
from netvitals._version import __version__

LAB = ("reproduce", "claims", "studies")  # commands of netvitals-lab
app = typer.Typer(
    name="netvitals",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Watches a PyTorch model while it trains and tells you what is wrong and why.",
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"netvitals {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    pass


FIRST = ("demo", "runs", "preflight")  # the panels stand in the order of their first commands
for _module in sorted(
    (m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")),
    key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name),
):
    importlib.import_module(f"{__name__}.{_module}").register(app)
for _plugin in importlib.metadata.entry_points(group="netvitals.commands"):  # netvitals-lab adds its own
    _plugin.load()(app)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line. Wrong input gives one sentence on stderr and exit code 2.

    ``NETVITALS_DEBUG=1`` shows the traceback instead of the sentence.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    command = typer.main.get_command(app)
    _without_type_of_flags(command)
    names = list(getattr(command, "commands", {}))
    if arguments and arguments[0] in LAB and arguments[0] not in names:
        _refuse(f"{arguments[0]} is a command of the papers' studies: pip install netvitals-lab")
    if arguments and not arguments[0].startswith("-") and arguments[0] not in names:
        near = difflib.get_close_matches(arguments[0], names, 3, 0.5) or names
        _refuse(f"there is no command {arguments[0]!r}; did you mean {', '.join(near)}?")
    try:
        command(args=arguments, prog_name="netvitals")
    except (ValueError, TypeError, LookupError, OSError, ImportError) as error:
        if os.environ.get("NETVITALS_DEBUG"):
            raise
        _refuse(_sentence(error))


def _without_type_of_flags(command: Any) -> None:
    """Help says ``--json``, not ``--json <bool>``."""
    for option in (*command.params, command.get_help_option(typer.Context(command))):
        if getattr(option, "is_flag", False):
            option.metavar = ""
    for inner in getattr(command, "commands", {}).values():
        _without_type_of_flags(inner)


def _sentence(error: Exception) -> str:
    """What to tell of an error: its own words, or what to install where an extra is missing."""
    if isinstance(error, ModuleNotFoundError) and (part := (error.name or "").split(".")[0]) in PARTS:
        return str(missing("this command", part))
    message = error.args[0] if isinstance(error, KeyError) and error.args else error
    return str(message) or type(error).__name__


def _refuse(sentence: str) -> None:
    typer.echo(f"netvitals: {sentence}", err=True)
    raise SystemExit(2)
