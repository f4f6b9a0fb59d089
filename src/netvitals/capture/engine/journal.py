"""The journal of a watch: takes losses and looks as they come, finishes them in bundles, keeps a bounded memory.

Looks are finished several at a time, because the code that does it is then warm. What is finished goes into memory
(everything recent, the past thinned out evenly) and, when there is one, to the writer of a run.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from netvitals.capture.engine.history import History
from netvitals.capture.reading import ArrayReading, Page, Reading, Sheet

LOOKS_KEPT = 400            # measured steps whose readings stay in memory, fewer for a model with very many
NUMBERS_KEPT = 4_000_000    # readings in memory
LOSSES_KEPT = 400           # bundles of losses that stay in memory
LOSSES_WAITING = 1024       # losses that wait on the device at most
LOOKS_WAITING = 16          # looks that wait to be finished at most
WAITING_S = 1.0             # and how long the first of them waits, in seconds
ARRAY_CADENCE = 5           # values by channel are written on every so many looks, and at the end
LAYOUTS_KEPT = 256          # of pages and arrays; a model that changes all the time must not fill the memory

_NOTHING = np.empty(0)


class Writer(Protocol):
    """What a journal needs of the writer of a run."""

    def write(self, readings: Iterable[Reading]) -> None: ...

    def write_page(self, page: Page) -> None: ...


class Losses(NamedTuple):
    """Losses of several steps, in columns: kept as objects they would keep the garbage collector busy."""

    steps: np.ndarray
    values: np.ndarray

    def readings(self) -> list[Reading]:
        return [Reading(step, "loss", "model", "loss", value)
                for step, value in zip(self.steps.tolist(), self.values.tolist())]


class Journal:
    """Readings of one watch.

    >>> journal = Journal()
    >>> for step in range(3):
    ...     journal.loss(step, 1.0 / (1 + step))
    >>> [r.value for r in journal.readings()]
    [1.0, 0.5, 0.3333333333333333]
    """

    def __init__(self) -> None:
        self.writer: Writer | None = None
        self._steps: list[int] = []
        self._waiting: list[Tensor | float] = []        # losses of those steps
        self._looks = 0
        self._unfinished: list[tuple[Sheet, bool]] = []     # looks that have left the device; are their arrays written?
        self._since = 0.0
        self._losses: History[Losses] = History(LOSSES_KEPT)
        self._pages: History[Page] | None = None
        self._layouts: dict[Any, Any] = {}
        self._arrays: dict[Any, Page] = {}              # the latest of each layout
        self._unwritten: Page | None = None             # the last look, if the run has not got its arrays

    def loss(self, step: int, loss: Any) -> None:
        """Note a loss; nobody waits for an accelerator."""
        self._waiting.append(_scalar(loss))
        self._steps.append(step)
        if len(self._steps) > LOSSES_WAITING:
            self.settle()

    def look(self, sheet: Sheet) -> None:
        """Take over the sheet of a measured step, which leaves the device now and is finished later."""
        sheet.leave_device()
        self._unfinished.append((sheet, self._looks % ARRAY_CADENCE == 0))
        self._looks += 1
        now = time.monotonic()
        if len(self._unfinished) == 1:
            self._since = now
        if len(self._unfinished) >= LOOKS_WAITING or now - self._since > WAITING_S or self._looks < 3:
            self.settle()

    def settle(self) -> None:
        """Finish everything that waits, keep it, and hand it to the writer."""
        losses = self._moved_losses()
        if losses is not None:
            self._losses.add([losses])
            if self.writer is not None:
                self.writer.write(losses.readings())
        unfinished, self._unfinished = self._unfinished, []
        for sheet, arrays in unfinished:
            page = sheet.page()
            self._keep(page)
            if self.writer is not None:
                self.writer.write_page(page if arrays else Page(page.step, page.layout, page.values))
                self._unwritten = None if arrays else page

    def close(self) -> None:
        """Settle, and write the arrays of the last look."""
        self.settle()
        last, self._unwritten = self._unwritten, None
        if last is not None and self.writer is not None:
            self.writer.write_page(Page(last.step, (), _NOTHING, last.array_layout, last.arrays))

    def readings(self) -> list[Reading]:
        """Readings in memory."""
        self.settle()
        return [*(reading for losses in self._losses for reading in losses.readings()),
                *(reading for page in self._pages or () for reading in page.readings())]

    def arrays(self) -> list[ArrayReading]:
        """The latest array of each series."""
        self.settle()
        latest: dict[tuple[str, str, str], ArrayReading] = {}
        for page in sorted(self._arrays.values(), key=lambda page: page.step):
            latest.update(((a.vital, a.site, a.metric), a) for a in page.array_readings())
        return list(latest.values())

    def _keep(self, page: Page) -> None:
        """The numbers in columns, one copy of their equal layouts, and only the latest arrays."""
        if self._pages is None:
            self._pages = History(max(LOOKS_KEPT // 10, min(LOOKS_KEPT, NUMBERS_KEPT // max(1, len(page.values)))))
        for known in (self._layouts, self._arrays):
            if len(known) > LAYOUTS_KEPT:
                known.clear()
        self._pages.add([Page(page.step, self._layouts.setdefault(page.layout, page.layout), page.values)])
        for layout, array in zip(page.array_layout, page.arrays):
            self._arrays[layout] = Page(page.step, (), _NOTHING, (layout,), (array,))

    def _moved_losses(self) -> Losses | None:
        steps, losses = self._steps, self._waiting
        self._steps, self._waiting = [], []
        if not losses:
            return None
        tensors = [v for v in losses if isinstance(v, Tensor)]
        if len(tensors) == len(losses) and len({t.device for t in tensors}) == 1:
            values = torch.stack(tensors).double().cpu().numpy()        # one transfer, however many steps went by
        else:
            values = np.array([float(v) for v in losses])
        return Losses(np.array(steps), values)


def _scalar(loss: Any) -> Tensor | float:
    """The loss as a number, or as a tensor where a number would mean to wait for the device."""
    if isinstance(loss, Tensor):
        if loss.is_cpu:
            try:
                return loss.item()
            except RuntimeError:        # more than one number, or none
                pass
        elif loss.numel() == 1:
            return loss.detach().reshape(())
        raise ValueError(f"loss must be one number, got a tensor of shape {tuple(loss.shape)}; take its mean first")
    try:
        return float(loss)
    except (TypeError, ValueError):
        raise TypeError(f"loss must be a number or a tensor with one, got a {type(loss).__name__}") from None
