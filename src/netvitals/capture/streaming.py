"""Run a meter over the batches of a loader: one pass, the model left as it was, nothing kept from batch to batch."""

from __future__ import annotations

from collections.abc import Callable, Sized
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from netvitals._help import hint
from netvitals.capture.engine.observer import Observer
from netvitals.capture.engine.roles import uncompiled
from netvitals.capture.engine.schedule import Schedule
from netvitals.capture.nested import check_finite, tensors
from netvitals.capture.observation import Mode, probe
from netvitals.capture.recorder import Recorder
from netvitals.capture.task import Task, batches_of, task_of
from netvitals.capture.vital import Vital

Progress = Callable[[int, int | None], None]  # batches done, batches planned (None where the loader does not say)


UNREACHED = "nothing was handed to it: an expert without tokens?"


@dataclass(frozen=True)
class Streamed:
    """How much went past a meter, and what it could not see."""

    examples: int
    batches: int
    skipped: dict[str, str]


def stream_over(
    model: nn.Module,
    batch: Any,
    meter: Vital,
    *,
    mode: Mode = "as_is",
    seed: int = 0,
    progress: Progress | None = None,
    first: Callable[[Task], int | None] | None = None,
) -> Streamed:
    """Show every batch to ``meter``; an error in the meter is raised."""
    schedule = Schedule([_Strict(meter)])
    schedule.select(0)
    observer = Observer(uncompiled(model), schedule, passive=False)
    planned = _planned(batch)
    examples = batches = 0
    dim: int | None = 0
    for one in batches_of(batch):
        task = task_of(model, None, one)
        tensor = next(tensors((task.args, dict(task.kwargs))), None)
        if tensor is None or tensor.numel() == 0:
            raise ValueError(
                f"batch {batches} of the loader (a {type(one).__name__}) contains no tensor, or only empty ones; "
                f"give batches with at least one example {hint('batch-empty')}"
            )
        check_finite((task.args, dict(task.kwargs)), f"batch {batches} of the loader")
        if first is not None and not batches:
            dim = first(task)
        strict = schedule.vitals[0]
        with torch.inference_mode(False):
            probe(observer, Recorder(examples), task, mode=mode, parameters=False, gradients=False, seed=seed)
        if strict.error is not None:
            raise strict.error
        examples += tensor.shape[dim or 0] if tensor.ndim else 1
        batches += 1
        if progress is not None:
            progress(batches, planned)
    if batches == 0:
        raise ValueError(
            "the loader yields no batches: if it is an iterator, it may be exhausted; give a DataLoader or a list "
            f"{hint('batch-empty')}"
        )
    return Streamed(examples, batches, dict(observer.skipped))


def _planned(batch: Any) -> int | None:
    """How many batches a loader will give, where it says so before it begins."""
    if isinstance(batch, tuple | list | Tensor | dict):
        return sum(1 for _ in batches_of(batch))
    try:
        return len(batch) if isinstance(batch, Sized) else None
    except TypeError:  # a DataLoader over an iterable data set has a length that it cannot tell
        return None


class _Strict(Vital):
    """Passes everything on, and keeps the first error instead of letting the engine turn it into a warning."""

    def __init__(self, meter: Vital) -> None:
        self.meter = meter
        self.name = meter.name
        self.error: Exception | None = None

    def activation(self, recorder: Recorder, view: Any) -> None:
        self._pass("activation", recorder, view)

    def linear(self, recorder: Recorder, view: Any) -> None:
        self._pass("linear", recorder, view)

    def tensor(self, recorder: Recorder, view: Any) -> None:
        self._pass("tensor", recorder, view)

    def _pass(self, method: str, recorder: Recorder, view: Any) -> None:
        if self.error is None:
            try:
                getattr(self.meter, method)(recorder, view)
            except Exception as error:
                self.error = error
