"""``netvitals view RUNS``: a live page of a folder of runs."""

from __future__ import annotations

from typing import Annotated

import typer

from netvitals._extras import missing


def register(app: typer.Typer) -> None:
    app.command("view")(serve_page)


def serve_page(
    runs: Annotated[
        list[str] | None, typer.Argument(help="Folders of runs, or one run; also s3://… and the like. [default: runs]")
    ] = None,
    port: Annotated[int, typer.Option(help="Port to listen on, on this machine only.")] = 8722,
) -> None:
    """Serve a live page of the runs below one or several folders; it follows each run while it is written."""
    try:
        import uvicorn
    except ImportError:
        raise missing("the live page", "uvicorn") from None
    from netvitals.report import create_app

    folders = runs or ["runs"]
    application = create_app(folders)
    places = ", ".join(folders)
    typer.echo(f"runs below {places} at http://127.0.0.1:{port}/?token={application.token} (Ctrl-C ends it)")
    uvicorn.run(application, host="127.0.0.1", port=port, log_level="warning", proxy_headers=False, server_header=False)
