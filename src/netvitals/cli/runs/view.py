"""``netvitals view RUNS``: a live page of a folder of runs."""

from __future__ import annotations

import contextlib
import os
import threading
from types import FrameType
from typing import Annotated, Any

import typer

from netvitals._extras import missing
from netvitals.cli import _groups

PATIENCE_S = 3  # from the signal until the process is gone


def register(app: typer.Typer) -> None:
    app.command("view", rich_help_panel=_groups.RUNS)(serve_page)


def serve_page(
    runs: Annotated[
        list[str] | None,
        typer.Argument(help="Folders that contain runs, or a single run; s3:// addresses also work. [default: runs]"),
    ] = None,
    port: Annotated[int, typer.Option(help="Port of the web page, which is reachable from this machine only.")] = 8722,
) -> None:
    """Show all runs in one or several folders as a live web page, updated while runs are written."""
    try:
        import uvicorn
    except ImportError:
        raise missing("the live page", "uvicorn") from None
    from netvitals.report import create_app

    folders = runs or ["runs"]
    application = create_app(folders)

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            if not application.ending.is_set():
                typer.echo("netvitals view ends", err=True)
                application.ending.set()  # an open tab holds a stream, for whose end the server waits
                last = threading.Timer(PATIENCE_S, os._exit, (128 + sig,))  # a thread may wait for a disk or a network
                last.daemon = True
                last.start()
            super().handle_exit(sig, frame)

    places = ", ".join(folders)
    typer.echo(f"runs below {places} at http://127.0.0.1:{port}/?token={application.token} (Ctrl-C ends it)")
    options: Any = {"log_level": "warning", "proxy_headers": False, "server_header": False}
    server = Server(
        uvicorn.Config(application, host="127.0.0.1", port=port, timeout_graceful_shutdown=PATIENCE_S - 1, **options)
    )
    with contextlib.suppress(KeyboardInterrupt):  # raised again when the server has ended
        server.run()
