"""``netvitals demo``: a reported bug that the loss curve hides, and the same training with the printed fix.

The script is ``volume_generator_one_class_after_other`` of the benchmark's published half (docs/bugs.md): a generator
hands out all volumes of one class, then all of the other.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from netvitals.cli import _groups

BATCH, HALF, EPOCHS = 6, 120, 2  # examples of a batch, batches of a class, passes over the data
STEPS = 2 * HALF * EPOCHS
ASKED = (10, 20, 30, 40, 50)  # steps at which the demo asks for findings
EVERY = 20


def register(app: typer.Typer) -> None:
    app.command("demo", rich_help_panel=_groups.START)(run_demo)


def run_demo(
    out: Annotated[Path, typer.Option(help="Folder in which runs and reports are written.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(help="Random seed of weights and data.")] = 0,
    show: Annotated[bool, typer.Option("--open", help="Open the report in the browser.")] = False,
) -> None:
    """Train a network with a hidden bug, print the finding, and train it again with the fix."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console = Console(emoji=False)
    folder = free(out)
    console.print(
        "A small 3-D convolutional network learns to tell two kinds of volumes apart. "
        f"The script and its bug come from a real report. Runs go to {folder}.",
        highlight=False,
        soft_wrap=True,
    )
    results = {}
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("loss {task.fields[loss]:.3f}"))
    with Progress(*columns, console=console) as progress:
        for name, shuffled in (("as reported", False), ("with the fix", True)):
            task = progress.add_task(f"{name:<12}", total=STEPS, loss=float("nan"))

            def tell(done: int, loss: float, task: Any = task) -> None:
                progress.update(task, completed=done, loss=loss)

            results[name] = train(folder / name.replace(" ", "-"), shuffled, seed, tell)
    pages = conclude(console, results, folder)
    typer.echo("The reports open offline in any browser:")
    for page in pages:
        typer.echo(f"  {page}")
    if show:
        typer.launch(pages[0].resolve().as_uri())


def train(path: Path, shuffled: bool, seed: int, tell: Callable[[int, float], None]) -> dict[str, Any]:
    """One watched training, as its author wrote it; the run's path, its last loss and its accuracy on new volumes."""
    import torch
    from torch import nn
    from torch.nn.functional import cross_entropy

    import netvitals as nv

    torch.set_num_threads(1)  # so small a network gains nothing from threads and suffers when cores are busy
    torch.manual_seed(seed)
    order = random.Random(seed)
    labels = [0] * HALF * BATCH + [1] * HALF * BATCH
    model = nn.Sequential(
        *(nn.Conv3d(1, 8, 3), nn.ReLU(), nn.MaxPool3d(2), nn.Conv3d(8, 8, 3, padding=1), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(8 * 27, 16), nn.ReLU(), nn.Linear(16, 2)),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    step, losses, named = 0, [], None
    with nv.watch(model, optimizer, run=path, every=EVERY) as watch:
        for _ in range(EPOCHS):
            if shuffled:
                order.shuffle(labels)
            for start in range(0, len(labels), BATCH):
                y = torch.tensor(labels[start : start + BATCH])
                loss = cross_entropy(model(volumes(y)), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                watch.step(loss)
                step += 1
                losses.append(loss.item())
                if step in ASKED and named is None and watch.findings().alarming:
                    named = step
                if step % EVERY == 0:
                    tell(step, losses[-1])
    truth = torch.arange(400) % 2
    with torch.no_grad():
        accuracy = (model(volumes(truth)).argmax(1) == truth).float().mean().item()
    return {"path": watch.path, "accuracy": accuracy, "loss": sum(losses[-20:]) / 20, "named": named}


def volumes(labels: Any) -> Any:
    """Noise of 8×8×8 voxels, brighter where the label is 0."""
    import torch

    return 0.3 * (1 - labels.float()).view(-1, 1, 1, 1, 1) + 0.6 * torch.randn(len(labels), 1, 8, 8, 8)


def conclude(console: Any, results: dict[str, dict[str, Any]], folder: Path) -> list[Path]:
    """Findings in the terminal, one table over both runs, and the reports; that of the bug comes first."""
    from rich.box import SIMPLE
    from rich.table import Table

    from netvitals import findings, report, runs

    table = Table(title="The two trainings side by side", title_justify="left", box=SIMPLE, pad_edge=False)
    for name in ("", "loss at the end", "accuracy on new volumes", "bug named at step"):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    pages: list[Path] = []
    for name, result in results.items():
        run = runs.open_run(result["path"])
        found = findings.diagnose(run)
        console.rule(f"[bold]{name}", align="left")
        console.print(found)
        named = "–" if result["named"] is None else str(result["named"])
        table.add_row(name, f"{result['loss']:.3f}", f"{result['accuracy']:.0%}", named)
        file = "report.html" if not pages else "report-fixed.html"
        pages.append(report.write(run, folder / file, title=f"Demo, {name}", findings=found))
    console.print(table)
    return pages


def free(folder: Path) -> Path:
    """``folder``, or the first of ``folder-2``, ``folder-3``, … that does not exist."""
    candidate, number = folder, 1
    while candidate.exists():
        number += 1
        candidate = folder.with_name(f"{folder.name}-{number}")
    return candidate
