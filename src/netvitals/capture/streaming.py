"""Run a meter over a loader: evaluation mode, one pass, the model left as it was, nothing kept from batch to batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from netvitals.capture import Observer, Recorder, Schedule, Vital, probe, split_batch, uncompiled


def stream_over(
    model: nn.Module, loader: Iterable[Any], meter: Vital, progress: Callable[[int], None] | None = None
) -> tuple[int, int]:
    """Show every batch of ``loader`` to ``meter``; (samples, batches) seen. An error in the meter is raised."""
    if isinstance(loader, Tensor) or not isinstance(loader, Iterable):
        raise TypeError(
            f"expected a loader that gives batches (x or (x, y)), got a {type(loader).__name__}; "
            "put a single batch in a list"
        )
    schedule = Schedule([_Strict(meter)])
    schedule.select(0)
    observer = Observer(uncompiled(model), schedule, passive=False)
    samples = batches = 0
    for batch in loader:
        x, _ = split_batch(batch, None)
        first = first_tensor(x)
        if first is None or first.numel() == 0:
            raise ValueError(f"batch {batches} of the loader has no tensor with elements: {type(batch).__name__}")
        check_finite(first, f"batch {batches} of the loader")
        strict = schedule.vitals[0]
        with torch.inference_mode(False):
            probe(observer, Recorder(batches), batch, None, mode="eval", parameters=False)
        if strict.error is not None:
            raise strict.error
        samples += first.shape[0] if first.ndim else 1
        batches += 1
        if progress is not None:
            progress(batches)
    if batches == 0:
        raise ValueError("the loader gave no batches: is it an iterator that has been used up?")
    return samples, batches


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


def first_tensor(x: Any) -> Tensor | None:
    if isinstance(x, Tensor):
        return x
    values: Iterable[Any] = x.values() if isinstance(x, dict) else x if isinstance(x, tuple | list) else ()
    return next((t for t in map(first_tensor, values) if t is not None), None)


def check_finite(x: Tensor, what: str) -> None:
    if x.is_floating_point() and not bool(torch.isfinite(x).all()):
        bad = int((~torch.isfinite(x)).sum())
        raise ValueError(
            f"{what} has {bad} elements that are NaN or infinite out of {x.numel()}; remove or replace them"
        )
