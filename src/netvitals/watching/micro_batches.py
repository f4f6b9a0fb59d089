"""Micro-batches of a step: one loss for all of them, and how many there usually are.

The loss of a step is the mean of the losses that were given during it. A caller may give one after each micro-batch or
one after each step of the optimizer, before it steps or after.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from netvitals.capture import detached_context, scalar

SEEN_OFTEN = 2  # so many steps have the usual number of micro-batches before it is relied upon


class MicroBatches:
    r"""$\bar L_t = \frac{1}{m} \sum_{i=1}^{m} L_{t,i}$ over the losses of step $t$.

    >>> noted = {}
    >>> batches = MicroBatches(noted.__setitem__)
    >>> for loss in (1.0, 2.0, 6.0):
    ...     batches.add(0, loss)
    >>> batches.flush(); noted
    {0: 3.0}
    """

    def __init__(self, note: Callable[[int, Any], None]) -> None:
        self._note = note
        self._step = -1
        self._losses: list[Tensor | float] = []
        self._calls = 0  # since an optimizer stepped
        self.calls_before = 0  # between that step and the one before
        self._usual: Counter[int] = Counter()
        self._last: tuple[int, list[Tensor | float]] = (-1, [])
        self.early = False  # losses come before the optimizer steps

    def add(self, step: int, loss: Any, last: bool = False) -> None:
        """A micro-batch of ``step`` is over, which may be its last; ``loss`` may be None."""
        self._calls += 1
        if loss is not None:
            value = scalar(loss)
            if last and not self._losses:  # the usual case
                self._step, self._last = step, (step, [value])
                self._note(step, value)
                return
            if step != self._step:
                if self._losses:
                    self.flush()
                self._step = step
            self._losses.append(value)
        if last and self._losses:
            self.flush()

    def flush(self) -> None:
        """No loss of this step will come any more."""
        losses, self._losses = self._losses, []
        if losses:
            self._last = (self._step, losses)
            self._note(self._step, losses[0] if len(losses) == 1 else _mean(losses))

    def given(self, step: int) -> list[Tensor | float]:
        """The losses of the micro-batches of a step, where it was the last that had any."""
        return self._last[1] if self._last[0] == step else []

    def stepped(self, passes: int) -> None:
        """An optimizer has stepped."""
        if not self._usual:  # a call after each of m passes has come m - 1 times by now if it comes after the step
            self.early = 0 < self._calls != passes - 1
        self._usual[self._calls] += 1
        self.calls_before, self._calls = self._calls, 0

    def rested(self, steps: int, calls: int, since: int) -> None:
        """Steps of an optimizer that nobody heard of."""
        self._usual[calls] += steps
        self._calls = since

    @property
    def left_out(self) -> int:
        """Steps that were expected of the optimizer and did not come, as a GradScaler leaves them out."""
        calls, times = max(self._usual.items(), key=lambda item: item[1], default=(0, 0))
        if not calls or times < SEEN_OFTEN:
            return 0
        return sum((n // calls - 1) * k for n, k in self._usual.items() if n > calls)


def _mean(losses: list[Tensor | float]) -> Tensor | float:
    """On the device they are on; nobody waits for it."""
    numbers = [value for value in losses if not isinstance(value, Tensor)]
    if len(numbers) == len(losses):
        return sum(numbers) / len(numbers)
    device = next(value.device for value in losses if isinstance(value, Tensor))
    with detached_context():
        return torch.stack([torch.as_tensor(v, dtype=torch.float32, device=device) for v in losses]).mean()
