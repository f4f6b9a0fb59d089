"""``netvitals reproduce [STUDY…]``: run studies; each claim gets a verdict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from netvitals_lab.commands._words import coloured, note_of

if TYPE_CHECKING:
    from rich.console import Console

    from netvitals_lab import StudyRun

MOST = 40  # a longer list of claims that hold is counted, not shown
SMOKE = "smoke: seconds of a reduced run, to see that everything works; it decides no claim. Verdicts: --scale small"


def register(app: typer.Typer) -> None:
    app.command("reproduce", rich_help_panel="The papers")(reproduce_studies)


def reproduce_studies(
    studies: Annotated[
        list[str] | None,
        typer.Argument(metavar="[STUDY]...", help="Names of studies or papers. [default: all]"),
    ] = None,
    claim: Annotated[
        list[str] | None, typer.Option(help="Only check this claim, and only run the trials it needs; may be repeated.")
    ] = None,
    scale: Annotated[
        str,
        typer.Option(
            help="Size of the trials: smoke (seconds), small (minutes), medium (hours on Ray) or paper (full size)."
        ),
    ] = "small",
    engine: Annotated[
        str, typer.Option(help="How trials are run: local (worker processes), ray, or inline (for debugging).")
    ] = "local",
    jobs: Annotated[
        int | None, typer.Option(help="Number of trials to run in parallel. [default: one per core]")
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="Address of a Ray cluster. [default: start a local cluster]")
    ] = None,
    device: Annotated[
        str,
        typer.Option(help="Device for networks and data: cpu, cuda, cuda:1 or mps."),
    ] = "cpu",
    resume: Annotated[
        bool, typer.Option("--resume/--fresh", help="Use stored trials, or run all trials again.")
    ] = True,
    results: Annotated[Path, typer.Option(help="File in which results are stored.")] = Path("runs/studies.sqlite"),
    html: Annotated[Path | None, typer.Option(help="Also write an HTML page of the claims to this file.")] = None,
) -> None:
    """Run the studies of a paper and check its claims; an interrupted command continues where it stopped."""
    from rich.console import Console

    import netvitals_lab as lab

    console = Console(emoji=False)
    try:
        runs = lab.reproduce(
            studies or (),
            claims=claim or (),
            scale=scale,
            engine=engine,
            jobs=jobs,
            address=address,
            device=device,
            resume=resume,
            results=results,
            each=lambda r: _show(console, r),
        )
    except KeyboardInterrupt:
        typer.echo(
            f"\nstopped; the trials done so far are in {results}, and the same command goes on from there", err=True
        )
        raise typer.Exit(130) from None
    if html is not None:
        ran = {lab.find_study(r.study, next(iter(r.verdicts), "")).paper for r in runs}
        asked = [c for paper in sorted(ran) for c in lab.all_claims(folder=paper)]
        with lab.Results(results, write=False) as store:
            page = lab.write_page(lab.standings(asked, store, recorded=True), html, store)
        typer.echo(page)
    if any(r.failed for r in runs):
        raise typer.Exit(1)


def _show(console: Console, run: StudyRun) -> None:
    """What came of one study: printed beside measured; all of its claims if they fit, else those that do not hold."""
    from rich.markup import escape
    from rich.table import Table

    import netvitals_lab as lab

    smoke = run.scale == "smoke"
    console.print(f"[bold]{run.study}[/bold] {str(run).split(' ', 1)[1]}", highlight=False)
    for key, value in run.summary.items():
        console.print(f"  {key}: {value:.6g}" if isinstance(value, float) else f"  {key}: {value}", highlight=False)
    few = len(run.verdicts) <= MOST
    shown = {name: v for name, v in run.verdicts.items() if few or smoke or v.status != "holds"}
    if not shown:
        return
    printed = {c.id: c for c in lab.claims_of(lab.find_study(run.study, next(iter(run.verdicts))))}
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("claim", "paper says", "measured", "verdict", "note"):
        short = column in ("claim", "verdict")
        table.add_column(column, overflow="fold", no_wrap=short, max_width=None if short or column == "note" else 24)
    for name, verdict in shown.items():
        claim = printed.get(name)
        says = str(claim.expected) if claim is not None and claim.whose == "paper" else "–"
        word = "[bright_black]smoke[/]" if smoke else coloured(verdict)
        table.add_row(name, escape(says), escape(verdict.number), word, note_of(verdict))
    console.print(table, highlight=False)
    if smoke:
        console.print(SMOKE, style="dim", highlight=False)
