"""The buffer of a watch: takes losses and looks as they come, finishes them in bundles, keeps a bounded memory.

Looks are finished several at a time, because the code that does it is then warm. What is finished goes into memory
(everything recent, the past thinned out evenly) and, when there is one, to the writer of a run.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from netvitals.capture.reading import ArrayReading, Reading, Recorder, StepColumns

STEPS_KEPT = 400  # measured steps whose readings stay in memory, fewer for a model with very many
NUMBERS_KEPT = 4_000_000  # readings in memory
LOSSES_KEPT = 400  # bundles of losses that stay in memory
LOSSES_WAITING = 1024  # losses that wait on the device at most
STEPS_WAITING = 16  # looks that wait to be finished at most
WAITING_S = 1.0  # and how long the first of them waits, in seconds
ARRAYS_EVERY = 5  # values by channel are written on every so many looks, and at the end
LAYOUTS_KEPT = 256  # of pages and arrays; a model that changes all the time must not fill the memory

_NOTHING = np.empty(0)
T = TypeVar("T")


class Writer(Protocol):
    """What a buffer needs of the writer of a run."""

    def write(self, readings: Iterable[Reading]) -> None: ...

    def write_page(self, columns: StepColumns) -> None: ...


class Losses(NamedTuple):
    """Losses of several steps, in columns: kept as objects they would keep the garbage collector busy."""

    steps: np.ndarray
    values: np.ndarray

    def readings(self) -> list[Reading]:
        return [
            Reading(step, "loss", "model", "loss", value)
            for step, value in zip(self.steps.tolist(), self.values.tolist())
        ]


class Recent(Generic[T]):
    """Keeps at most ``limit`` entries: the last half of them whole, and of what came before every 2^k-th.

    The first entry stays for ever, so that a change since the beginning can always be told.

    >>> history = Recent(limit=8)
    >>> for step in range(40):
    ...     history.add([step])
    >>> list(history)
    [0, 16, 32, 36, 37, 38, 39]
    """

    def __init__(self, limit: int) -> None:
        self._half = max(1, limit // 2)
        self._recent: deque[tuple[int, Sequence[T]]] = deque()
        self._past: list[tuple[int, Sequence[T]]] = []
        self._stride = 1
        self._count = 0

    def add(self, entry: Sequence[T]) -> None:
        self._recent.append((self._count, entry))
        self._count += 1
        if len(self._recent) <= self._half:
            return
        oldest = self._recent.popleft()
        if oldest[0] % self._stride == 0:
            self._past.append(oldest)
        while len(self._past) > self._half:
            self._stride *= 2
            self._past = [e for e in self._past if e[0] % self._stride == 0]

    def __iter__(self) -> Iterator[T]:
        for part in (self._past, self._recent):
            for _, entry in part:
                yield from entry

    def __len__(self) -> int:
        return len(self._past) + len(self._recent)


class Buffer:
    """Readings of one watch.

    >>> buffer = Buffer()
    >>> for step in range(3):
    ...     buffer.loss(step, 1.0 / (1 + step))
    >>> [r.value for r in buffer.readings()]
    [1.0, 0.5, 0.3333333333333333]
    """

    def __init__(self) -> None:
        self.writer: Writer | None = None
        self._steps: list[int] = []
        self._waiting: list[Tensor | float] = []  # losses of those steps
        self._observations = 0
        self._unfinished: list[tuple[Recorder, bool]] = []  # looks that have left the device; are their arrays written?
        self._since = 0.0
        self._losses: Recent[Losses] = Recent(LOSSES_KEPT)
        self._pages: Recent[StepColumns] | None = None
        self._layouts: dict[Any, Any] = {}
        self._arrays: dict[Any, StepColumns] = {}  # the latest of each layout
        self._unwritten: StepColumns | None = None  # the last look, if the run has not got its arrays

    def loss(self, step: int, loss: Any) -> None:
        """Note a loss; nobody waits for an accelerator."""
        self._waiting.append(_scalar(loss))
        self._steps.append(step)
        if len(self._steps) > LOSSES_WAITING:
            self.settle()

    def observe(self, recorder: Recorder) -> None:
        """Take over the recorder of a measured step, which leaves the device now and is finished later."""
        recorder.leave_device()
        self._unfinished.append((recorder, self._observations % ARRAYS_EVERY == 0))
        self._observations += 1
        now = time.monotonic()
        if len(self._unfinished) == 1:
            self._since = now
        if len(self._unfinished) >= STEPS_WAITING or now - self._since > WAITING_S or self._observations < 3:
            self.settle()

    def settle(self) -> None:
        """Finish everything that waits, keep it, and hand it to the writer."""
        losses = self._moved_losses()
        if losses is not None:
            self._losses.add([losses])
            if self.writer is not None:
                self.writer.write(losses.readings())
        unfinished, self._unfinished = self._unfinished, []
        for recorder, arrays in unfinished:
            columns = recorder.columns()
            self._keep(columns)
            if self.writer is not None:
                self.writer.write_page(columns if arrays else StepColumns(columns.step, columns.layout, columns.values))
                self._unwritten = None if arrays else columns

    def close(self) -> None:
        """Settle, and write the arrays of the last look."""
        self.settle()
        last, self._unwritten = self._unwritten, None
        if last is not None and self.writer is not None:
            self.writer.write_page(StepColumns(last.step, (), _NOTHING, last.array_layout, last.arrays))

    def readings(self) -> list[Reading]:
        """Readings in memory."""
        self.settle()
        return [
            *(reading for losses in self._losses for reading in losses.readings()),
            *(reading for columns in self._pages or () for reading in columns.readings()),
        ]

    def arrays(self) -> list[ArrayReading]:
        """The latest array of each series."""
        self.settle()
        latest: dict[tuple[str, str, str], ArrayReading] = {}
        for columns in sorted(self._arrays.values(), key=lambda columns: columns.step):
            latest.update(((a.vital, a.site, a.metric), a) for a in columns.array_readings())
        return list(latest.values())

    def _keep(self, columns: StepColumns) -> None:
        """The numbers in columns, one copy of their equal layouts, and only the latest arrays."""
        if self._pages is None:
            self._pages = Recent(max(STEPS_KEPT // 10, min(STEPS_KEPT, NUMBERS_KEPT // max(1, len(columns.values)))))
        for known in (self._layouts, self._arrays):
            if len(known) > LAYOUTS_KEPT:
                known.clear()
        self._pages.add(
            [StepColumns(columns.step, self._layouts.setdefault(columns.layout, columns.layout), columns.values)]
        )
        for layout, array in zip(columns.array_layout, columns.arrays):
            self._arrays[layout] = StepColumns(columns.step, (), _NOTHING, (layout,), (array,))

    def _moved_losses(self) -> Losses | None:
        steps, losses = self._steps, self._waiting
        self._steps, self._waiting = [], []
        if not losses:
            return None
        tensors = [v for v in losses if isinstance(v, Tensor)]
        if len(tensors) == len(losses) and len({t.device for t in tensors}) == 1:
            values = torch.stack(tensors).double().cpu().numpy()  # one transfer, however many steps went by
        else:
            values = np.array([float(v) for v in losses])
        return Losses(np.array(steps), values)


def _scalar(loss: Any) -> Tensor | float:
    """The loss as a number, or as a tensor where a number would mean to wait for the device."""
    if isinstance(loss, Tensor):
        if loss.is_cpu:
            try:
                return loss.item()
            except RuntimeError:  # more than one number, or none
                pass
        elif loss.numel() == 1:
            return loss.detach().reshape(())
        raise ValueError(f"loss must be one number, got a tensor of shape {tuple(loss.shape)}; take its mean first")
    try:
        return float(loss)
    except (TypeError, ValueError):
        raise TypeError(f"loss must be a number or a tensor with one, got a {type(loss).__name__}") from None
