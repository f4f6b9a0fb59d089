"""Steps between two looks. Where a loop goes on as it did, the optimizer's hook only counts them: the code that would
find out what each call means has been pushed out of the caches by the time the next step comes, and reading it again
costs more than all that it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from netvitals.capture import OptimizerHooks
from netvitals.watching.micro_batches import MicroBatches


class StepCounter:
    """How many steps have ended, and whose losses have come.

    A loop is known when one optimizer has stepped and the watch's ``step`` was called once, right after it (or has
    never been called). From then to the step before the next look nothing but these two is counted; a call that does
    not come in turn brings everything back that is found out on other steps.
    """

    def __init__(self, hooks: OptimizerHooks, batches: MicroBatches, note: Callable[[int, Any], None]) -> None:
        self._hooks, self._batches, self._note = hooks, batches, note
        self._ended = 0  # steps, but for those that are counted now
        self._resting = False
        self._heard = -1  # of the steps that are counted, the last whose loss has come; −1 is that of the step before
        self._called = False  # ever
        self._silent = False  # no call was expected
        self.plain = False  # the last call came right after the optimizer's step

    @property
    def step(self) -> int:
        """Steps that have ended."""
        return self._ended + self._hooks.passed

    @step.setter
    def step(self, value: int) -> None:
        self.settle()
        self._ended = value

    def take(self, loss: Any) -> bool:
        """A call of the watch's ``step``; whether it came in turn, so that nothing else is to be done."""
        self._called = True
        if not self._resting:
            return False
        passed = self._hooks.passed
        if self._silent or self._heard != passed - 1:
            self.settle()
            return False
        if loss is not None:
            self._note(self._ended + passed - 1, loss)
        self._heard = passed
        return True

    def rest(self, steps: int) -> None:
        """A step has ended as others did; the next ``steps`` need no look."""
        known = self.plain if self._called else self._batches.calls_before == 0
        if known and self._batches.calls_before <= 1 and steps > 0 and self._hooks.rest(steps):
            self._resting, self._silent, self._heard = True, not self._called, -1

    def settle(self, stepped: bool = False) -> None:
        """As if every step had been heard of."""
        if not self._resting:
            return
        self._resting = False
        passed, heard = self._hooks.passed, self._heard
        self._hooks.wake(None if stepped else heard == passed)
        self._batches.rested(passed, calls=int(heard >= 0), since=int(heard == passed))
        self._ended += passed
