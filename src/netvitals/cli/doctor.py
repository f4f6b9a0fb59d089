"""``netvitals doctor``: what is installed, what can be done with it, and a self-check of a few seconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from netvitals._extras import PARTS
from netvitals._version import __version__
from netvitals.cli import _groups

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
COMPILERS = ("c++", "g++", "clang++")
CORE = ("torch", "numpy", "scipy", "networkx", "polars", "typer", "rich", "jinja2", "fsspec")


def register(app: typer.Typer) -> None:
    app.command("doctor", rich_help_panel=_groups.START)(run_doctor)


def run_doctor(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print versions, optional packages, capabilities and checks as JSON.")
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            help="Test the installation by training a small network, once with netvitals watching and once without."
        ),
    ] = True,
) -> None:
    """Check the installation: list installed packages, and test training, measuring and reporting."""
    from netvitals.cli._self_check import self_check

    seen = examine()
    if as_json:
        checks = self_check() if check else []
        seen |= {"checks": [vars(c) for c in checks], "ok": all(c.ok for c in checks)}
        typer.echo(json.dumps(seen, indent=1))
    else:
        _show(seen)
        checks = self_check(lambda name: typer.echo(f"  … {name}")) if check else []
        for done in checks:
            typer.echo(f"  {'ok    ' if done.ok else 'BROKEN'} {done.name} ({done.seconds} s): {done.sentence}")
        if checks:
            typer.echo("All is well." if all(c.ok for c in checks) else "Something is broken: see above what to do.")
    if not all(c.ok for c in checks):
        raise typer.Exit(1)


def examine() -> dict[str, Any]:
    """What is here: versions, extras with the command that brings them, and capabilities in a few words."""
    import platform

    core = {name: _version(name) or "not installed" for name in CORE}
    extras: dict[str, dict[str, str]] = {}
    for package, extra in PARTS.values():
        extras.setdefault(extra, {})[package] = _version(package) or "not installed"
    return {
        "netvitals": __version__,
        "folder": str(Path(__file__).parents[1]),
        "python": platform.python_version(),
        "core": core,
        "extras": extras,
        "capabilities": capabilities(),
    }


def capabilities() -> dict[str, str]:
    """By name: what there is, or what is missing and what to do about it."""
    import shutil

    import torch

    from netvitals._device import names

    compiler = next((c for c in COMPILERS if shutil.which(c)), None)
    browser = next((b for b in BROWSERS if shutil.which(b)), None)
    distributed = torch.distributed.is_available()
    backends = [b for b in ("gloo", "nccl", "mpi") if distributed and torch.distributed.is_backend_available(b)]
    trackers = [part for part, (_, extra) in PARTS.items() if extra == "trackers" and _version(PARTS[part][0])]
    return {
        "devices": ", ".join(names()),
        "threads": str(torch.get_num_threads()),
        "torch.compile": f"{compiler} is there"
        if compiler
        else f"no C++ compiler ({', '.join(COMPILERS)}): install one to compile models; watching does not need it",
        "several ranks": ", ".join(backends) or "this torch was built without torch.distributed",
        "pictures of pages": f"{browser} is there"
        if browser
        else "no chromium: only our own screenshot tests need it; reports open in any browser",
        "trackers": ", ".join(trackers) or "none: pip install 'netvitals[trackers]', or give watch(log=) a function",
        "live page": "netvitals view"
        if _version("starlette") and _version("uvicorn")
        else "no server: pip install 'netvitals[serve]'; netvitals report needs none",
    }


def _version(package: str) -> str:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _show(seen: dict[str, Any]) -> None:
    typer.echo(f"netvitals {seen['netvitals']} in {seen['folder']}, Python {seen['python']}")
    typer.echo("  " + ", ".join(f"{name} {version}" for name, version in seen["core"].items()))
    typer.echo("Extras")
    for extra, parts in seen["extras"].items():
        missing = [name for name, version in parts.items() if version == "not installed"]
        there = ", ".join(f"{name} {version}" for name, version in parts.items() if name not in missing)
        lacking = f"no {', '.join(missing)}: pip install 'netvitals[{extra}]'" if missing else ""
        typer.echo(f"  {extra:<10} {'; '.join(filter(None, (there, lacking)))}")
    typer.echo("Capabilities")
    for name, words in seen["capabilities"].items():
        typer.echo(f"  {name:<18} {words}")
    typer.echo("Self-check")
