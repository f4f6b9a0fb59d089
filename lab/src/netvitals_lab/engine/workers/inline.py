"""Trials one after the other in the calling process: for debugging, and for trials of milliseconds."""

from __future__ import annotations

from collections import deque

from netvitals_lab.engine.workers.task import Outcome, TrialTask, perform


class InlineEngine:
    name = "inline"
    slots = 1

    def __init__(self) -> None:
        self._waiting: deque[TrialTask] = deque()

    @property
    def free(self) -> int:
        return 1 - len(self._waiting)

    @property
    def running(self) -> int:
        return len(self._waiting)

    def submit(self, task: TrialTask) -> None:
        self._waiting.append(task)

    def poll(self, timeout: float) -> list[Outcome]:
        from netvitals.capture import rng_state, set_rng_state

        if not self._waiting:
            return []
        state = rng_state()
        try:
            return [perform(self._waiting.popleft())]
        finally:
            set_rng_state(state)

    def close(self) -> None:
        self._waiting.clear()
