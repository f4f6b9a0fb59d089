"""A watch that sends what it measures to the tracker that a user has open, while it trains.

Everything is sent from the training thread, after the step it belongs to. An error of the tracker is said, and training
goes on; its random numbers are not taken from the training's generators.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

from netvitals.capture import StepColumns, rng_state, set_rng_state, warn
from netvitals.watching.alerts import Heard, LivePanel, listener_of

if TYPE_CHECKING:
    from netvitals.findings import Findings
    from netvitals.integrations import Target
    from netvitals.watching.api import Watch

PATIENCE = 3  # failures in a row after which nothing is sent any more
WAITING = 64  # measured steps that wait to be sent at most
OFTEN = 16  # findings are looked for on the first measured steps 1, 2, 4, 8, then on every so many


def live_log(watch: Watch, log: Any, on_finding: Any = None, panel: bool = False) -> LiveLog | None:
    """The log of a watch; None where nothing is to be sent and nobody to be told."""
    heard = listener_of(on_finding)
    if log is None and heard is None and not panel:
        return None
    from netvitals.integrations import target_of

    target = None if log is None else target_of(log)
    found = LiveLog(watch, target, heard, LivePanel(watch) if panel else None)
    watch._buffer.finished.append(found.add)
    return found


class LiveLog:
    """Sends what is said of the whole model on each measured step, and each finding when it is first made."""

    def __init__(
        self, watch: Watch, target: Target | None, heard: Heard | None = None, panel: LivePanel | None = None
    ) -> None:
        self._watch = weakref.ref(watch)
        self._target, self._heard, self._panel = target, heard, panel
        self._waiting: deque[StepColumns] = deque(maxlen=WAITING)
        self._looks = self._failures = 0
        self._known: set[tuple[str, str, str]] = set()
        self._found: Findings | None = None  # as of the last diagnosis

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
            numbers = {f"netvitals/{r.vital}/{r.metric}": r.value for r in columns.measurements() if r.site == "model"}
            loss = watch._buffer.loss_of(columns.step)
            if loss is not None:
                numbers["netvitals/loss"] = loss
            due = self._looks % OFTEN == 0 or (self._looks < OFTEN and self._looks & (self._looks - 1) == 0)
            self._to_target(columns.step, numbers, self._news(watch) if due else [])
            if self._panel is not None and self._found is not None:
                self._safely(self._panel.show, watch, self._found)

    def close(self) -> None:
        """Send what is left, and the findings that were made since."""
        self.send()
        watch = self._watch()
        if watch is not None and self._looks:
            news = self._news(watch)
            if news:
                self._to_target(max(0, watch._step - 1), {}, news)
        end = getattr(self._target, "close", None)
        if end is not None and self._failures < PATIENCE:
            self._tried("what was left", end)
        if self._panel is not None:
            if watch is not None and self._found is not None:
                self._safely(self._panel.show, watch, self._found)
            self._panel.close()

    def _news(self, watch: Watch) -> list[str]:
        """Findings that were not sent before, as text."""
        from netvitals.findings import diagnose

        try:
            found = self._found = diagnose(watch)
        except Exception as error:
            warn(f"computing the findings failed: {type(error).__name__}: {error}", "findings-failed")
            return []
        new = [f for f in found if (f.rule, f.severity, f.site) not in self._known]
        self._known.update((f.rule, f.severity, f.site) for f in new)
        for finding in new if self._heard is not None else ():
            self._safely(self._heard, finding)
        return [f"{f.severity}: {f.what} {f.advice}".strip() for f in new]

    def _safely(self, tell: Any, *args: Any) -> None:
        """A user's function may fail or draw random numbers; training must feel neither."""
        state = rng_state()
        try:
            tell(*args)
        except Exception as error:
            warn(f"reporting a finding to on_finding failed: {type(error).__name__}: {error}", "alert-failed")
        finally:
            set_rng_state(state)

    def _to_target(self, step: int, numbers: dict[str, float], findings: list[str]) -> None:
        if self._target is not None:
            self._tried(f"step {step}", self._target, step, numbers, findings)

    def _tried(self, what: str, call: Any, *args: Any) -> None:
        state = rng_state()
        try:
            call(*args)
            self._failures = 0
        except Exception as error:
            self._failures += 1
            last = "; nothing is sent any more" if self._failures >= PATIENCE else ""
            warn(f"{what} could not be sent to the tracker: {type(error).__name__}: {error}{last}", "tracker-failed")
        finally:
            set_rng_state(state)
