"""``netvitals ls [FOLDER...]``: the runs below some folders, and what is wrong with them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from netvitals.cli import _groups

UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def register(app: typer.Typer) -> None:
    app.command("ls", rich_help_panel=_groups.RUNS)(list_runs)


def list_runs(
    folders: Annotated[
        list[Path] | None, typer.Argument(help="Folders that contain runs.", show_default="runs")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
) -> None:
    """List all runs in a folder, newest first, with status, steps, loss, most severe finding and age."""
    from netvitals.runs import runs_below

    given = folders or [Path("runs")]
    rows = [_row(folder, name, len(given) > 1) for folder in given for name in runs_below(folder)]
    if as_json:
        typer.echo(json.dumps(rows, ensure_ascii=False))
        return
    if not rows:
        typer.echo(
            f"no runs below {', '.join(map(str, given))}; nv.watch(model, optimizer, run='runs/first') writes one"
        )
        return
    from netvitals.cli._tables import print_table

    head = ("run", "status", "steps", "loss", "most severe finding", "age")
    print_table(head, [[_shown(key, row[key]) for key in head] for row in rows])


def _row(folder: Path, name: str, several: bool) -> dict[str, Any]:
    from netvitals.runs import open_run

    shown = str(folder / name) if several or name == "." else name
    try:
        run = open_run(folder / name)
        summary, meta = run.summary, run.meta
        line = summary.shown.get("loss") or {}
        verdict = meta.get("verdict")
        finding = "findings not computed yet" if verdict is None else _told(verdict)
        age = time.time() - float(meta.get("heartbeat") or run.path.stat().st_mtime)
        return {
            "run": shown,
            "status": run.status,
            "steps": summary.last_step + 1,
            "loss": line.get("last"),
            "most severe finding": finding,
            "age": max(0, round(age)),
        }
    except Exception as error:  # whatever one file holds, the others are listed
        return dict.fromkeys(("steps", "loss", "age")) | {
            "run": shown,
            "status": "damaged",
            "most severe finding": str(error),
        }


def _told(verdict: dict[str, str]) -> str:
    return f"{verdict['severity'].upper()} {verdict['what']}" if verdict.get("severity") else verdict.get("what", "")


def _shown(key: str, value: Any) -> str:
    if value is None:
        return ""
    if key == "age":
        size, unit = next(((s, u) for s, u in UNITS if value >= s), UNITS[-1])
        return f"{value // size} {unit}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
