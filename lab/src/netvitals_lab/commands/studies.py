"""``netvitals studies``: what can be reproduced."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    app.command("studies", rich_help_panel="The papers")(list_studies)


def list_studies(
    paper: Annotated[str | None, typer.Option(help="Only list studies of this paper.")] = None,
    results: Annotated[
        Path | None, typer.Option(help="File with stored results. [default: runs/studies.sqlite, if it exists]")
    ] = None,
    parquet: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Export the stored results to this folder, one Parquet file per study."),
    ] = None,
    index: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Write one page per paper into this folder, with its tables, figures and experiments.",
        ),
    ] = None,
) -> None:
    """List the studies, with the number of trials at each scale and the number of stored trials."""
    from contextlib import nullcontext

    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    import netvitals_lab as lab
    from netvitals_lab.index import write_indices

    if index is not None:
        for page in write_indices(index):
            typer.echo(page)
        return
    if results is None and (lab.DEFAULT.is_file() or parquet is not None):
        results = lab.DEFAULT
    with lab.Results(results, write=False) if results is not None else nullcontext() as store:
        if parquet is not None and store is not None:
            for file in lab.export(store, parquet, [s.name for s in lab.all_studies(paper)] if paper else None):
                typer.echo(file)
            return
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for column in ("study", *lab.SCALES, "claims", "question"):
            table.add_column(column, justify="right" if column in (*lab.SCALES, "claims") else "left")
        for study in lab.all_studies(paper):
            done = set() if store is None else {k for k, t in store.trials(study=study.name).items() if t.done}
            cells = [_cell(lab.trial_keys(study, scale), done) for scale in lab.SCALES]
            table.add_row(study.name, *cells, str(len(lab.claims_of(study))), escape(study.title))
    console = Console(emoji=False)
    console.print(table, highlight=False)
    console.print(
        "trials stored / trials at that scale; run them with: netvitals reproduce STUDY",
        style="dim",
        highlight=False,
    )


def _cell(keys: list[str], done: set[str]) -> str:
    if not keys:
        return "–"
    return f"{sum(k in done for k in keys)}/{len(keys)}"
