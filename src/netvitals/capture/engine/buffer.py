"""The buffer of a watch: takes losses and looks as they come, finishes them in bundles, keeps a bounded memory.

Looks are finished several at a time, because the code that does it is then warm. What is finished goes into memory
(everything recent, the past thinned out evenly) and, when there is one, to the writer of a run. The thread of the
writer asks for what waits (:meth:`Buffer.hand_over`), so that nothing waits for the next step; it touches no device.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from netvitals._device import sends, to_host
from netvitals.capture.recorder import ArrayMeasurement, Measurement, Recorder, StepColumns

STEPS_KEPT = 400  # measured steps whose measurements stay in memory, fewer for a model with very many
NUMBERS_KEPT = 4_000_000  # measurements in memory
LOSSES_KEPT = 400  # bundles of losses that stay in memory
LOSSES_WAITING = 1024  # losses that wait on the device at most
STEPS_WAITING = 64  # looks that wait to be finished at most
WAITING_S = 1.0  # and how long the first of them waits, in seconds
MOVING_S = 0.25  # losses on an accelerator start on their way to the host this often
ARRAYS_EVERY = 5  # values by channel are written on every so many looks, and at the end
LAYOUTS_KEPT = 256  # of pages and arrays; a model that changes all the time must not fill the memory

_NOTHING = np.empty(0)
T = TypeVar("T")


class Writer(Protocol):
    """What a buffer needs of the writer of a run."""

    def write(self, measurements: Iterable[Measurement]) -> None: ...

    def write_page(self, columns: StepColumns) -> None: ...

    def note(self, key: str, value: Any) -> None: ...


class Moving(NamedTuple):
    """Losses on their way from an accelerator; ``arrived()`` says whether the host has them, without waiting."""

    steps: list[int]
    values: Tensor
    arrived: Callable[[], bool]
    wait: Callable[[], None]


class Losses(NamedTuple):
    """Losses of several steps, in columns: kept as objects they would keep the garbage collector busy."""

    steps: np.ndarray
    values: np.ndarray

    def measurements(self) -> list[Measurement]:
        return [
            Measurement(step, "loss", "model", "loss", value)
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

    def recent(self) -> list[T]:
        """What is kept whole."""
        return [one for _, entry in self._recent for one in entry]

    def __iter__(self) -> Iterator[T]:
        for part in (self._past, self._recent):
            for _, entry in part:
                yield from entry

    def __len__(self) -> int:
        return len(self._past) + len(self._recent)


class Buffer:
    """Measurements of one watch.

    >>> buffer = Buffer()
    >>> for step in range(3):
    ...     buffer.loss(step, 1.0 / (1 + step))
    >>> [r.value for r in buffer.measurements()]
    [1.0, 0.5, 0.3333333333333333]
    """

    def __init__(self) -> None:
        self.writer: Writer | None = None
        self.steps: Callable[[], int] = int  # training steps that have ended
        self.finished: list[Callable[[StepColumns], None]] = []  # hear of each look, perhaps from another thread
        self.heard: list[Callable[[np.ndarray, np.ndarray], None]] = []  # the same of losses
        self.closing: Callable[[], None] | None = None  # asked for a last loss
        self._waiting: deque[tuple[int, Tensor | float] | Moving] = deque()  # losses
        self._moved = 0.0  # when losses last started on their way
        self._observations = 0
        self._unfinished: deque[tuple[Recorder, bool]] = deque()  # looks off the device; are their arrays written?
        self._since = 0.0
        self._settling = threading.RLock()  # the training thread and the writer's finish one at a time
        self._losses: Recent[Losses] = Recent(LOSSES_KEPT)
        self._pages: Recent[StepColumns] | None = None
        self._layouts: dict[Any, Any] = {}
        self._arrays: dict[Any, StepColumns] = {}  # the latest of each layout
        self._unwritten: StepColumns | None = None  # the last look, if the run has not got its arrays
        self._noted = -1

    def loss(self, step: int, loss: Any) -> None:
        """Note the ``loss`` of a ``step``; nobody waits for an accelerator."""
        value = loss if type(loss) is float else scalar(loss)
        self._waiting.append((step, value))
        if isinstance(value, Tensor) and self.writer is not None and time.monotonic() - self._moved > MOVING_S:
            self._start_moving(value.device)
        if len(self._waiting) > LOSSES_WAITING:
            self.settle()

    def observe(self, recorder: Recorder) -> None:
        """Take over the ``recorder`` of a measured step, which leaves the device now and is finished later."""
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
        with self._settling:
            self._keep_losses(wait=True)
            self._finish_looks()

    def hand_over(self) -> None:
        """The same from another thread, but for losses that have not left their device."""
        with self._settling:
            self._keep_losses(wait=False)
            self._finish_looks()
            if self.writer is not None and (steps := self.steps()) != self._noted:
                self._noted = steps
                self.writer.note("steps", steps)

    def close(self) -> None:
        """Settle, and write the arrays of the last look."""
        if self.closing is not None:
            self.closing()
        with self._settling:
            self.settle()
            last, self._unwritten = self._unwritten, None
            if self.writer is not None:
                self.writer.note("steps", self.steps())
                if last is not None:
                    self.writer.write_page(StepColumns(last.step, (), _NOTHING, last.array_layout, last.arrays))

    def _finish_looks(self) -> None:
        while self._unfinished:
            recorder, arrays = self._unfinished.popleft()
            columns = recorder.columns()
            self._keep(columns)
            for listener in self.finished:
                listener(columns)
            if self.writer is not None:
                self.writer.write_page(columns if arrays else StepColumns(columns.step, columns.layout, columns.values))
                self._unwritten = None if arrays else columns

    @property
    def unfinished(self) -> bool:
        """Looks wait to be finished."""
        return bool(self._unfinished)

    def loss_of(self, step: int) -> float | None:
        """The loss of a recent ``step``, where it is known."""
        self.settle()
        with self._settling:
            for losses in reversed(self._losses.recent()):
                at = np.flatnonzero(losses.steps == step)
                if len(at):
                    return float(losses.values[at[-1]])
                if losses.steps.max() < step:
                    return None
        return None

    def measurements(self) -> list[Measurement]:
        """Measurements in memory."""
        with self._settling:
            self.settle()
            losses, pages = list(self._losses), list(self._pages or ())
        return [
            *(reading for part in losses for reading in part.measurements()),
            *(reading for columns in pages for reading in columns.measurements()),
        ]

    def arrays(self) -> list[ArrayMeasurement]:
        """The latest array of each series."""
        with self._settling:
            self.settle()
            known = list(self._arrays.values())
        latest: dict[tuple[str, str, str], ArrayMeasurement] = {}
        for columns in sorted(known, key=lambda columns: columns.step):
            latest.update(((a.vital, a.site, a.metric), a) for a in columns.array_measurements())
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

    def _keep_losses(self, wait: bool) -> None:
        losses = self._arrived_losses(wait)
        if losses is not None:
            self._losses.add([losses])
            for listener in self.heard:
                listener(losses.steps, losses.values)
            if self.writer is not None:
                self.writer.write(losses.measurements())

    def _arrived_losses(self, wait: bool) -> Losses | None:
        """Losses from the front of the queue; without ``wait`` as far as they are on the host."""
        steps: list[int] = []
        values: list[Tensor | float] = []
        while self._waiting:
            first = self._waiting[0]
            if isinstance(first, Moving):
                if not wait and not first.arrived():
                    break
                first.wait()
                steps += first.steps
                values += first.values.tolist()
            else:
                if not wait and isinstance(first[1], Tensor):
                    break
                steps.append(first[0])
                values.append(first[1])
            self._waiting.popleft()
        if not values:
            return None
        tensors = [v for v in values if isinstance(v, Tensor)]
        if len(tensors) == len(values) and len({t.device for t in tensors}) == 1:
            numbers = torch.stack(tensors).cpu().double().numpy()  # one transfer for all; MPS has no float64
        else:
            numbers = np.array([float(v) for v in values])
        return Losses(np.array(steps), numbers)

    def _start_moving(self, device: torch.device) -> None:
        """Send the losses that wait on ``device`` to pinned memory, all at once; the thread takes them when they are
        there."""
        self._moved = time.monotonic()
        if not sends(device):
            return
        with self._settling:
            tail: list[tuple[int, Tensor]] = []
            while self._waiting and not isinstance(self._waiting[-1], Moving):
                step, value = self._waiting[-1]
                if not isinstance(value, Tensor) or value.device != device:
                    break
                self._waiting.pop()
                tail.append((step, value))
            tail.reverse()
            self._waiting.append(Moving([step for step, _ in tail], *to_host([value for _, value in tail])))


def scalar(loss: Any) -> Tensor | float:
    """The ``loss`` as a number, or as a tensor where a number would mean to wait for the device."""
    if isinstance(loss, Tensor):
        if loss.is_cpu:
            try:
                return loss.item()
            except RuntimeError:  # more than one number, or none
                pass
        elif loss.numel() == 1:
            return loss.detach().reshape(())
        raise ValueError(f"loss= must be one number, got a tensor of shape {tuple(loss.shape)}; pass its mean")
    try:
        return float(loss)
    except (TypeError, ValueError):
        raise TypeError(f"loss= must be a number or a tensor with one element, got a {type(loss).__name__}") from None
