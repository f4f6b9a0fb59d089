"""Send a run to a tracker people already look at: Weights & Biases, TensorBoard, MLflow. Needs the extra ``trackers``.

The run store stays the source; sending it twice sends the same numbers twice.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from netvitals._extras import missing
from netvitals.runs import open_run

Log = Callable[[dict[str, float], int], None]
TRACKERS = ("wandb", "tensorboard", "mlflow")


def send(run: str | os.PathLike[str], to: str, *, sites: bool = False, **options: Any) -> int:
    """Log the readings of a run step by step; returns how many numbers were sent.

    Args:
        run: path of the run.
        to: "wandb", "tensorboard" or "mlflow".
        sites: every layer; by default only what is said of the whole model, which no dashboard minds.
        options: passed to ``wandb.init``, ``SummaryWriter`` or ``mlflow.start_run``.
    """
    openers = {"wandb": _wandb, "tensorboard": _tensorboard, "mlflow": _mlflow}
    if to not in openers:
        raise ValueError(f"readings can be sent to {', '.join(TRACKERS)}, got {to!r}")
    frame = open_run(run).frame().sort("step")
    if not sites:
        frame = frame.filter(frame["site"].str.starts_with("model"))
    sent = 0
    with openers[to](**options) as log:
        for (step,), rows in frame.group_by("step", maintain_order=True):
            table = rows.select("vital", "site", "metric", "value")
            numbers = {_name(*key): value for *key, value in table.iter_rows()}
            log(numbers, int(str(step)))
            sent += len(numbers)
    return sent


def _name(vital: str, site: str, metric: str) -> str:
    return f"{vital}/{metric}" if site == "model" else f"{vital}/{site}/{metric}"


@contextmanager
def _wandb(**options: Any) -> Iterator[Log]:
    try:
        import wandb
    except ImportError:
        raise missing("sending a run to Weights & Biases", "wandb") from None

    with wandb.init(**options) as session:
        yield lambda numbers, step: session.log(numbers, step=step)


@contextmanager
def _tensorboard(**options: Any) -> Iterator[Log]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise missing("sending a run to TensorBoard", "tensorboard") from None

    writer = SummaryWriter(**options)

    def log(numbers: dict[str, float], step: int) -> None:
        for name, value in numbers.items():
            writer.add_scalar(name, value, step)

    try:
        yield log
    finally:
        writer.close()


@contextmanager
def _mlflow(**options: Any) -> Iterator[Log]:
    try:
        import mlflow
    except ImportError:
        raise missing("sending a run to MLflow", "mlflow") from None

    def plain(name: str) -> str:  # MLflow allows letters, digits and a few signs in a name
        return "".join(c if c.isalnum() or c in "/_-. " else "_" for c in name)

    with mlflow.start_run(**options):
        yield lambda numbers, step: mlflow.log_metrics({plain(k): v for k, v in numbers.items()}, step=step)
