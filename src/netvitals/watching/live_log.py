"""A watch that sends what it measures to the tracker that a user has open, while it trains.

Everything is sent from the training thread, after the step it belongs to. An error of the tracker is said, and training
goes on; its random numbers are not taken from the training's generators.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

from netvitals.capture import StepColumns, rng_state, set_rng_state, warn

if TYPE_CHECKING:
    from netvitals.integrations.live import Target
    from netvitals.watch import Watch

PATIENCE = 3  # failures in a row after which nothing is sent any more
WAITING = 64  # measured steps that wait to be sent at most
OFTEN = 16  # findings are looked for on the first measured steps 1, 2, 4, 8, then on every so many


def live_log(watch: Watch, log: Any) -> LiveLog | None:
    """The log of a watch; None where nothing is to be sent."""
    if log is None:
        return None
    from netvitals.integrations.live import target_of

    found = LiveLog(watch, target_of(log))
    watch._buffer.finished.append(found.add)
    return found


class LiveLog:
    """Sends what is said of the whole model on each measured step, and each finding when it is first made.

    Args:
        watch: whose readings are sent; not kept alive by this.
        target: where they go.
    """

    def __init__(self, watch: Watch, target: Target) -> None:
        self._watch = weakref.ref(watch)
        self._target = target
        self._waiting: deque[StepColumns] = deque(maxlen=WAITING)
        self._looks = self._failures = 0
        self._known: set[tuple[str, str, str]] = set()

    def add(self, columns: StepColumns) -> None:
        """A measured step has left the device."""
        self._waiting.append(columns)

    def send(self) -> None:
        """Send every measured step that is over."""
        watch = self._watch()
        if watch is None or self._failures >= PATIENCE:
            return
        if watch._buffer.unfinished:
            watch._buffer.settle()
        while self._waiting:
            columns = self._waiting.popleft()
            self._looks += 1
            numbers = {f"netvitals/{r.vital}/{r.metric}": r.value for r in columns.readings() if r.site == "model"}
            loss = watch._buffer.loss_of(columns.step)
            if loss is not None:
                numbers["netvitals/loss"] = loss
            due = self._looks % OFTEN == 0 or (self._looks < OFTEN and self._looks & (self._looks - 1) == 0)
            self._to_target(columns.step, numbers, self._news(watch) if due else [])

    def close(self) -> None:
        """Send what is left, and the findings that were made since."""
        self.send()
        watch = self._watch()
        if watch is not None and self._looks:
            news = self._news(watch)
            if news:
                self._to_target(max(0, watch._step - 1), {}, news)

    def _news(self, watch: Watch) -> list[str]:
        """Findings that were not sent before, as text."""
        from netvitals.findings import diagnose

        try:
            found = list(diagnose(watch))
        except Exception as error:
            warn(f"findings could not be made: {type(error).__name__}: {error}")
            return []
        new = [f for f in found if (f.rule, f.severity, f.site) not in self._known]
        self._known.update((f.rule, f.severity, f.site) for f in new)
        return [f"{f.severity}: {f.what} {f.advice}".strip() for f in new]

    def _to_target(self, step: int, numbers: dict[str, float], findings: list[str]) -> None:
        state = rng_state()
        try:
            self._target(step, numbers, findings)
            self._failures = 0
        except Exception as error:
            self._failures += 1
            last = "; nothing is sent any more" if self._failures >= PATIENCE else ""
            warn(f"step {step} could not be sent to the tracker: {type(error).__name__}: {error}{last}")
        finally:
            set_rng_state(state)
