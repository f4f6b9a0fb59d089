"""A small server for a folder of runs: a list, and each run's report as it stands now."""

from __future__ import annotations

import html
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from netvitals._extras import missing
from netvitals.report import render
from netvitals.report.guard import FRAME, POLICY, Guard, page_policy
from netvitals.runs import open_run, status_of

RUN_FILE = "run.sqlite"
REFRESH = 10  # seconds between redraws of a run that is still written


def runs_below(folder: str | os.PathLike[str]) -> list[str]:
    """Names of the runs below ``folder``, the latest first; a run's own folder counts as one run named ``.``.

    A link that leads out of the folder is no run of it.
    """
    root = Path(folder)
    if not root.exists():
        raise FileNotFoundError(f"there is no folder {str(root)!r} to look for runs in")
    home = root.resolve()
    found = []
    for place, _, files in os.walk(root):
        file = Path(place) / RUN_FILE
        if RUN_FILE in files and file.resolve().is_relative_to(home):
            try:
                found.append((file.stat().st_mtime, str(file.parent.relative_to(root))))
            except OSError:
                continue  # a link to nothing, or removed just now
    return [name for _, name in sorted(found, key=lambda pair: (-pair[0], pair[1]))]


def create_app(folder: str | os.PathLike[str], token: str | None = None) -> Any:
    """The ASGI application. Needs the extra ``serve``.

    Args:
        folder: of runs, or of one.
        token: the secret that a request must know; made anew if left out.

    Returns:
        The guarded application; its ``token`` belongs into the address that is printed.
    """
    try:
        from starlette.applications import Starlette
        from starlette.requests import Request
        from starlette.responses import HTMLResponse
        from starlette.routing import Route
    except ImportError:
        raise missing("the live page", "starlette") from None

    root = Path(folder).resolve()
    runs_below(root)  # a wrong folder is said now, not at the first request

    def index(_: Request) -> HTMLResponse:
        return HTMLResponse(_list(root), headers={"Content-Security-Policy": POLICY + FRAME})

    def page(request: Request) -> HTMLResponse:
        wanted = request.path_params["name"] or "."
        name = {_shown(n): n for n in runs_below(root)}.get(wanted)  # also keeps a request inside the folder
        if name is None:
            return HTMLResponse(_notice(f"There is no run {wanted} here."), 404)
        try:
            run = open_run(root / name)
            text = _shown(render(run))
            status = run.status
        except Exception as error:  # whatever a file holds, the server goes on
            return HTMLResponse(_notice(f"{wanted} cannot be shown: {error}"), 422)
        if status == "running":
            text = text.replace("<head>", f'<head><meta http-equiv="refresh" content="{REFRESH}">', 1)
        return HTMLResponse(text, headers={"Content-Security-Policy": page_policy(text)})

    return Guard(Starlette(routes=[Route("/", index), Route("/run/{name:path}", page)]), token)


def _shown(name: str) -> str:
    """A name as text can hold it: bytes that are no text are written out."""
    return name.encode("utf-8", "backslashreplace").decode()


def _notice(sentence: str) -> str:
    return f"<!doctype html><meta charset=utf-8><p>{html.escape(_shown(sentence))} <a href='/'>All runs</a></p>"


def _list(root: Path) -> str:
    body = "".join(_row(root, name) for name in runs_below(root)) or "<tr><td colspan=5>no run yet</td></tr>"
    return (
        "<!doctype html><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        "<title>netvitals</title>"
        "<style>body{font:16px system-ui;margin:2rem;max-width:70rem;color-scheme:light dark}"
        "td,th{padding:.3rem 1rem .3rem 0;text-align:left;vertical-align:top}</style><h1>Runs</h1>"
        f"<table><tr><th>run<th>status<th>last step<th>readings<th>model</tr>{body}</table>"
    )


def _row(root: Path, name: str) -> str:
    """One run of the list, out of its summary: the readings are not touched."""
    shown = html.escape(_shown(name))
    link = f"<a href='/run/{quote(_shown(name))}'>{shown}</a>"
    try:
        summary = open_run(root / name).summary
    except (ValueError, OSError) as error:
        return f"<tr><td>{link}</td><td colspan=4>{html.escape(_shown(str(error)))}</td></tr>"
    cells = (status_of(summary), summary.last_step, f"{summary.readings:,}", summary.shown.get("model", ""))
    return f"<tr><td>{link}</td>" + "".join(f"<td>{html.escape(_shown(str(c)))}</td>" for c in cells) + "</tr>"
