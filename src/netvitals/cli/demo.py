"""``netvitals demo``: one network trained twice, watched all the way, and what the vital signs say.

The two networks differ in nothing but the activation. Both are trained with a high learning rate and much weight decay,
so that the variance of the inputs of their activations collapses. Theory says what follows: where inputs sit below the
threshold of ReLU, gates shut; GELU passes gradient below zero too, and stays open.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

MODEL = "mlp:64-128x8-10,norm=batch"
ACTIVATIONS = ("relu", "gelu")
SHARES = (("gates", "density@0.01"), ("sparsity", "hard"), ("sparsity", "dead_units"))
BATCH, RATE, DECAY, EVERY = 128, 0.5, 5e-3, 10


def register(app: typer.Typer) -> None:
    @app.command()
    def demo(out: Annotated[Path, typer.Option(help="Folder for the runs and reports.")] = Path("runs/demo"),
             steps: Annotated[int, typer.Option(min=50, help="Training steps of each network.")] = 600,
             seed: Annotated[int, typer.Option(help="Seed of weights and batches.")] = 0,
             show: Annotated[bool, typer.Option("--open", help="Open the report in the browser.")] = False) -> None:
        """Train a small network with every vital sign, twice, and write the reports."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console()
        folder = free(out)
        console.print(f"One network, two activations, on 8×8 digits: [bold]{MODEL}[/], SGD with a high learning rate "
                      f"({RATE}) and much weight decay ({DECAY}). Runs go to {folder}.", highlight=False)
        results = {}
        with Progress(TextColumn("{task.description}"), BarColumn(), TextColumn("loss {task.fields[loss]:.3f}"),
                      TimeRemainingColumn(), console=console) as progress:
            for act in ACTIVATIONS:
                task = progress.add_task(f"training with {act}", total=steps, loss=float("nan"))
                results[act] = train(act, folder / act, steps, seed,
                                     lambda done, loss, task=task: progress.update(task, completed=done, loss=loss))
        pages = conclude(console, results, folder)
        typer.echo("\nThe report opens offline in any browser:")
        for page in pages:
            typer.echo(f"  {page}")
        if show:
            typer.launch(pages[0].resolve().as_uri())


def train(act: str, path: Path, steps: int, seed: int, tell: Any) -> dict[str, Any]:
    """One watched training run, written as a user would write it; returns its path and held-out accuracy."""
    import torch
    from torch.nn.functional import cross_entropy

    import netvitals as nv
    from netvitals.lab import data, models

    digits = data.load("digits")
    torch.set_num_threads(1)        # so small a network gains nothing from threads and suffers when cores are busy
    torch.manual_seed(seed)
    model = models.build(f"{MODEL},act={act}")
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9, nesterov=True, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    with nv.watch(model, optimizer=optimizer, run=path, every=EVERY) as vitals:
        for step in range(steps):
            rows = torch.randint(len(digits.train.x), (BATCH,))
            loss = cross_entropy(model(digits.train.x[rows]), digits.train.y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            vitals.step(loss)
            if step % EVERY == 0 or step == steps - 1:
                tell(step + 1, loss.item())
    model.eval()
    with torch.no_grad():
        accuracy = (model(digits.test.x).argmax(1) == digits.test.y).float().mean().item()
    return {"path": vitals.path, "accuracy": accuracy}


def conclude(console: Any, results: dict[str, dict[str, Any]], folder: Path) -> list[Path]:
    """Findings in the terminal, one table over both runs, and the reports."""
    from rich.box import SIMPLE
    from rich.table import Table

    from netvitals import findings, report, runs

    table = Table(title="The same training, two activations", title_justify="left", box=SIMPLE, pad_edge=False)
    for name in ("", "accuracy", "σ of inputs", "gate density", "sparsity", "dead units", "findings"):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    pages = []
    for act, result in results.items():
        run = runs.open_run(result["path"])
        found = findings.diagnose(run)
        console.rule(f"[bold]{act}", align="left")
        console.print(found)
        readings = findings.table(run)
        table.add_row(act, f"{result['accuracy']:.1%}", change(readings, "preactivations", "sigma", "{:.2f} → {:.2f}"),
                      *(change(readings, *key, "{:.0%} → {:.0%}") for key in SHARES), str(len(found)))
        name = "report.html" if act == ACTIVATIONS[0] else f"report-{act}.html"
        pages.append(report.write(run, folder / name, title=f"Digits with {act}, under stress", findings=found))
    console.print()
    console.print(table)
    return pages


def change(readings: Any, vital: str, metric: str, form: str) -> str:
    """Mean over layers of a metric at the start and at the end."""
    series = readings.at(vital, metric)
    if not series:
        return "–"
    start, end = (sum(getattr(s, name) for s in series) / len(series) for name in ("start", "end"))
    return form.format(start, end)


def free(folder: Path) -> Path:
    """``folder``, or the first of ``folder-2``, ``folder-3``, … that does not exist."""
    candidate, number = folder, 1
    while candidate.exists():
        number += 1
        candidate = folder.with_name(f"{folder.name}-{number}")
    return candidate
