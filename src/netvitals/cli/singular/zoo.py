"""``netvitals singular zoo``: models whose answers are known."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer


def run(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Compare the estimators of the learning coefficient with exact values, on small models whose answer is known."""
    from rich.progress import track

    from netvitals.capture import plain
    from netvitals.singular import zoo as room

    found = [room.examine(s) for s in track(room.specimens(), "examining", transient=True, disable=as_json)]
    rows: list[dict[str, Any]] = [
        {
            "model": e.specimen.name,
            "order": e.specimen.order,
            "estimate": plain(e.estimate),
            "ratio": plain(e.ratio),
            "lambda": e.specimen.lam,
            "m": e.specimen.m,
            "lambda_found": plain(e.lam),
            "m_found": e.m,
            "nu": e.specimen.nu,
            "agrees": e.agrees,
            "verdict": e.verdict,
            "note": e.specimen.note,
        }
        for e in found
    ]
    if as_json:
        typer.echo(json.dumps(rows))
    else:
        _table(
            ["model", "order k", "found", "F t²/K (2k²)", "λ, m", "found", "ν", ""],
            [
                [
                    r["model"],
                    _text(r["order"], "gauge"),
                    _text(r["estimate"], "gauge", ".4f"),
                    "" if r["ratio"] is None else f"{r['ratio']:.4g} ({2 * (r['order'] or 0) ** 2})",
                    f"{r['lambda']:.4g}, {r['m']}",
                    "not determined" if r["lambda_found"] is None else f"{r['lambda_found']:.4g}, {r['m_found']}",
                    _text(r["nu"], "", ".6f"),
                    r["verdict"],
                ]
                for r in rows
            ],
            "models with known answers",
        )
    if not all(e.agrees for e in found):
        raise typer.Exit(1)


def _text(value: float | None, missing: str, form: str = "") -> str:
    return missing if value is None else format(value, form)


def _table(head: list[str], rows: list[list[str]], title: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*head, title=title)
    for row in rows:
        table.add_row(*row)
    Console(emoji=False).print(table)
