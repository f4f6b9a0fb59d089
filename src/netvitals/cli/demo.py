"""``netvitals demo``: one network trained twice, watched all the way, and what the vital signs say.

The two trainings differ in nothing but the weight decay, which is far too strong in the second one: its accuracy is
worse, and the first finding names the decay.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from netvitals.cli import _groups

CLASSES, PIXELS, WIDTH, DEPTH = 10, 64, 128, 4
DECAYS = {"careful": 1e-4, "stressed": 0.1}  # the report of the last one is the demo's report
BATCH, RATE, EVERY = 128, 0.05, 10
SHARES = {"open gates": ("gates", "density@0.01"), "dead units": ("sparsity", "dead_units")}


def register(app: typer.Typer) -> None:
    app.command("demo", rich_help_panel=_groups.START)(run_demo)


def run_demo(
    out: Annotated[Path, typer.Option(help="Folder for the runs and reports.")] = Path("runs/demo"),
    steps: Annotated[int, typer.Option(min=50, help="Training steps of each network.")] = 600,
    seed: Annotated[int, typer.Option(help="Seed of weights and batches.")] = 0,
    show: Annotated[bool, typer.Option("--open", help="Open the report in the browser.")] = False,
) -> None:
    """Train a small network with every vital sign, twice, and write the reports."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(emoji=False)
    folder = free(out)
    console.print(
        f"One residual network of {DEPTH} blocks on pictures of {CLASSES} shapes, trained twice with SGD: "
        f"once with little weight decay, once with far too much.\nRuns go to {folder}.",
        highlight=False,
        soft_wrap=True,
    )
    results = {}
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("loss {task.fields[loss]:.3f}"),
        TimeRemainingColumn(),
        console=console,
    ) as progress:
        for name, decay in DECAYS.items():
            task = progress.add_task(f"{name:<9} decay {decay:g}", total=steps, loss=float("nan"))

            def tell(done: int, loss: float, task: Any = task) -> None:
                progress.update(task, completed=done, loss=loss)

            results[name] = train(folder / name, decay, steps, seed, tell)
    pages = conclude(console, results, folder)
    typer.echo("The reports open offline in any browser:")
    for page in pages:
        typer.echo(f"  {page}")
    if show:
        typer.launch(pages[0].resolve().as_uri())


def train(path: Path, decay: float, steps: int, seed: int, tell: Callable[[int, float], None]) -> dict[str, Any]:
    """One watched training run, written as a user would write it; returns its path and held-out accuracy."""
    import torch
    from torch.nn.functional import cross_entropy

    import netvitals as nv

    torch.set_num_threads(1)  # so small a network gains nothing from threads and suffers when cores are busy
    torch.manual_seed(seed)
    (x, y), (x_test, y_test) = pictures(2000), pictures(500)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9, nesterov=True, weight_decay=decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    with nv.watch(model, optimizer=optimizer, run=path, every=EVERY) as vitals:
        for step in range(steps):
            rows = torch.randint(len(x), (BATCH,))
            loss = cross_entropy(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            vitals.step(loss)
            if step % EVERY == 0 or step == steps - 1:
                tell(step + 1, loss.item())
    model.eval()
    with torch.no_grad():
        accuracy = (model(x_test).argmax(1) == y_test).float().mean().item()
    return {"path": vitals.path, "accuracy": accuracy}


def pictures(count: int) -> tuple[Any, Any]:
    """8×8 pictures of ten fixed random shapes, each moved by a pixel and covered with noise; and their classes."""
    import torch

    shapes = torch.rand(CLASSES, 8, 8, generator=torch.Generator().manual_seed(0)).gt(0.6).float()
    y = torch.randint(CLASSES, (count,))
    moved = [torch.roll(shapes[c], tuple(by), (0, 1)) for c, by in zip(y, torch.randint(-1, 2, (count, 2)).tolist())]
    return torch.stack(moved).flatten(1) + 0.6 * torch.randn(count, PIXELS), y


def network() -> Any:
    """Linear, residual blocks of LayerNorm and a ReLU perceptron, LayerNorm, linear."""
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(WIDTH)
            self.up, self.act, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, WIDTH)

        def forward(self, x: Any) -> Any:
            return x + self.down(self.act(self.up(self.norm(x))))

    blocks = nn.Sequential(*(Block() for _ in range(DEPTH)))
    return nn.Sequential(nn.Linear(PIXELS, WIDTH), blocks, nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES))


def conclude(console: Any, results: dict[str, dict[str, Any]], folder: Path) -> list[Path]:
    """Findings in the terminal, one table over both runs, and the reports; that of the last run comes first."""
    from rich.box import SIMPLE
    from rich.table import Table

    from netvitals import findings, report, runs

    table = Table(title="The two trainings side by side", title_justify="left", box=SIMPLE, pad_edge=False)
    for name in ("", "accuracy", "loss", *SHARES, "critical", "warnings"):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    pages: list[Path] = []
    for name, result in results.items():
        run = runs.open_run(result["path"])
        measurements, found = findings.table(run), findings.diagnose(run)
        console.rule(f"[bold]{name}", align="left")
        console.print(found)
        loss = measurements.loss
        count = {severity: sum(f.severity == severity for f in found) for severity in ("critical", "warning")}
        table.add_row(
            name,
            f"{result['accuracy']:.1%}",
            f"{loss.end:.3f}" if loss else "–",
            *(change(measurements, *key) for key in SHARES.values()),
            *map(str, count.values()),
        )
        file = "report.html" if name == list(results)[-1] else f"report-{name}.html"
        pages.insert(0, report.write(run, folder / file, title=f"Demo, {name}", findings=found))
    console.print(table)
    return pages


def change(measurements: Any, vital: str, metric: str) -> str:
    """Mean share over layers at the start and at the end."""
    series = measurements.at(vital, metric)
    if not series:
        return "–"
    start, end = (sum(getattr(s, name) for s in series) / len(series) for name in ("start", "end"))
    return f"{start:.0%} → {end:.0%}"


def free(folder: Path) -> Path:
    """``folder``, or the first of ``folder-2``, ``folder-3``, … that does not exist."""
    candidate, number = folder, 1
    while candidate.exists():
        number += 1
        candidate = folder.with_name(f"{folder.name}-{number}")
    return candidate
