"""Send a finished run to a tracker: Weights & Biases, TensorBoard, MLflow. Needs the extra ``trackers``.

It becomes a run of its own there; a run that the user has open is left open. While a model trains,
``nv.watch(…, log=…)`` sends into the user's own run. The run store stays the source; sending it twice sends the same
numbers twice.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from netvitals._extras import missing
from netvitals.capture import warn
from netvitals.integrations.live import STEP, allowed
from netvitals.runs import open_run

Log = Callable[[dict[str, float], int], None]
TRACKERS = ("wandb", "tensorboard", "mlflow")


def send(run: str | os.PathLike[str], to: str, *, sites: bool = False, **options: Any) -> int:
    """Log the measurements of a run step by step; returns how many numbers were sent.

    Args:
        run: path of the run.
        to: "wandb", "tensorboard" or "mlflow".
        sites: every layer; by default only what is said of the whole model, which no dashboard minds.
        options: passed to ``wandb.init``, ``SummaryWriter`` or ``mlflow.start_run``.

    Returns:
        How many numbers were sent.

    >>> import tempfile
    >>> from netvitals.capture import Measurement
    >>> from netvitals.runs import RunWriter
    >>> folder = tempfile.mkdtemp()
    >>> with RunWriter(folder + "/run") as writer:
    ...     writer.write([Measurement(step, "gates", "model", "density@0.01", 0.5) for step in range(3)])
    >>> send(folder + "/run", "tensorboard", log_dir=folder + "/board")
    3
    """
    openers = {"wandb": _wandb, "tensorboard": _tensorboard, "mlflow": _mlflow}
    if to not in openers:
        raise ValueError(
            f"to= must be one of {', '.join(TRACKERS)}, got {to!r}; for another tracker, use netvitals.watch(…, "
            "log=…) during training"
        )
    known = open_run(run)
    if known.status == "running":
        warn(
            f"the run {run} is still being written, so only its measurements up to now are sent; use nv.watch(…, "
            "log=…) to send all",
            "run-unfinished",
        )
    frame = known.frame().sort("step")
    if not sites:
        frame = frame.filter(frame["site"] == "model")
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

    if wandb.run is not None:  # init would end the run that the user has open, or hand it out
        options.setdefault("reinit", "create_new")
    with wandb.init(**options) as session:
        session.define_metric(STEP)
        session.define_metric("*", step_metric=STEP)
        yield lambda numbers, step: session.log({STEP: step, **numbers})


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

    if mlflow.active_run() is not None:  # a child of the run that the user has open, which stays open
        options.setdefault("nested", True)
    with mlflow.start_run(**options):
        yield lambda numbers, step: mlflow.log_metrics(allowed(numbers), step=step)
