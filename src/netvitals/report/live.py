"""A small server for a folder of runs: a list, and each run's report as it stands now."""

from __future__ import annotations

import html
import os
from pathlib import Path
from typing import Any

from netvitals._extras import missing
from netvitals.report import render
from netvitals.runs import open_run

RUN_FILE = "run.sqlite"
REFRESH = 10  # seconds between redraws of a run that is still written


def runs_below(folder: str | os.PathLike[str]) -> list[str]:
    """Names of the runs below ``folder``, the latest first; a run's own folder counts as one run named ``.``."""
    root = Path(folder)
    if not root.exists():
        raise FileNotFoundError(f"there is no folder {str(root)!r} to look for runs in")
    files = sorted(root.rglob(RUN_FILE), key=lambda f: f.stat().st_mtime, reverse=True)
    return [str(f.parent.relative_to(root)) for f in files]


def create_app(folder: str | os.PathLike[str]) -> Any:
    """The ASGI application. Needs the extra ``serve``."""
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
        return HTMLResponse(_list(root))

    def page(request: Request) -> HTMLResponse:
        name = request.path_params["name"]
        if name not in runs_below(root):  # also keeps a request inside the folder
            return HTMLResponse(f"<p>There is no run {html.escape(name)} here. <a href='/'>All runs</a></p>", 404)
        run = open_run(root / name)
        text = render(run)
        if run.status == "running":
            text = text.replace("<head>", f'<head><meta http-equiv="refresh" content="{REFRESH}">', 1)
        return HTMLResponse(text, headers={"Cache-Control": "no-store"})

    return Starlette(routes=[Route("/", index), Route("/run/{name:path}", page)])


def _list(root: Path) -> str:
    rows = []
    for name in runs_below(root):
        run = open_run(root / name)
        last = run.steps[-1] if run.steps else 0
        rows.append(
            f"<tr><td><a href='/run/{html.escape(name, quote=True)}'>{html.escape(name)}</a></td>"
            f"<td>{html.escape(str(run.status))}</td><td>{last}</td>"
            f"<td>{html.escape(str(run.meta.get('model', '')))}</td></tr>"
        )
    body = "".join(rows) or "<tr><td colspan=4>no run yet</td></tr>"
    return (
        "<!doctype html><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        "<title>netvitals</title>"
        "<style>body{font:16px system-ui;margin:2rem;max-width:60rem;color-scheme:light dark}"
        "td,th{padding:.3rem 1rem .3rem 0;text-align:left}</style><h1>Runs</h1>"
        f"<table><tr><th>run<th>status<th>last step<th>model</tr>{body}</table>"
    )
