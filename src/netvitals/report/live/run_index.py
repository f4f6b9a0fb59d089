"""The runs of some folders as they stand: looked at again and again, each answer made once however many ask for it."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from netvitals.findings import Findings, diagnose
from netvitals.report.forecast_panel import forecast_panel
from netvitals.report.live.remote import Mirror
from netvitals.report.live.series import RunNumbers
from netvitals.runs import FILE_NAME, Summary, file_state, open_run, runs_below, status_of

OPEN = 24  # runs whose numbers are kept in memory
FRESH_S = 0.25  # what was seen of the folders so long ago is told again
SHARE = 0.2  # of the time may go into diagnoses of one run that goes on


def shown_name(name: str) -> str:
    """A name as text can hold it: bytes that are no text are written out."""
    return name.encode("utf-8", "backslashreplace").decode()


class OpenRun:
    """One run: its numbers, its findings, and the answers made of them so far."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = threading.RLock()
        self.numbers = RunNumbers(path)
        self._answers: dict[Any, Any] = {}
        self._found: Findings | None = None
        self._judged = -1
        self._took = self._when = 0.0

    def refresh(self) -> None:
        """Take in what is new."""
        if self.numbers.refresh():
            self._answers.clear()

    @property
    def findings(self) -> Findings:
        """What the rules say now; a run that goes on is judged anew as often as that may cost."""
        commits = self.numbers.summary.commits
        waits = self.numbers.status == "running" and time.monotonic() - self._when < self._took / SHARE
        if self._found is None or (commits != self._judged and not waits):
            began = time.monotonic()
            self._found, self._judged = diagnose(self.numbers.table), commits
            self._when = time.monotonic()
            self._took = self._when - began
        return self._found

    def answer(self, key: Any, make: Callable[[], Any]) -> Any:
        """What was answered to ``key`` since the last change, or what ``make`` says."""
        if key not in self._answers:
            self._answers[key] = make()
        return self._answers[key]


class Shelf:
    """Runs below one or several folders."""

    def __init__(self, folders: Iterable[str | os.PathLike[str]]) -> None:
        folders = list(folders)
        self._mirrors = {str(f): Mirror(str(f)) for f in folders if "://" in str(f)}
        given = [self._mirrors[str(f)].folder if str(f) in self._mirrors else Path(f) for f in folders]
        self.roots = [f.resolve() for f in given]
        self._open: OrderedDict[str, OpenRun] = OrderedDict()
        self._rows: dict[str, tuple[Any, dict[str, Any], Summary | None]] = {}
        self._lock, self._look = threading.Lock(), threading.Lock()
        self.judged = 0  # so many verdicts have come
        self._verdicts: dict[str, tuple[int, dict[str, Any]]] = {}  # commits judged; verdict, forecast in force
        self.failures: dict[str, str] = {}  # place → why it cannot be looked through now
        self._state: tuple[float, dict[str, Any]] = (-float("inf"), {})
        for root in self.roots:  # a wrong folder is said now, not at the first request
            runs_below(root)

    def names(self) -> dict[str, Path]:
        """The runs that are there now, by the name under which they are shown."""
        found: dict[str, Path] = {}
        failures: dict[str, str] = {}
        for address, mirror in self._mirrors.items():
            mirror.sync()
            if mirror.failure:
                failures[address] = mirror.failure
        for i, root in enumerate(self.roots):
            try:
                for name in runs_below(root):
                    shown = shown_name(name)
                    found.setdefault(shown if i == 0 else f"{root.name}/{shown}", root / name)
            except OSError as error:  # removed or unmounted while it is shown
                failures[shown_name(str(root))] = shown_name(str(error))
        self.failures = failures
        return found

    def run(self, name: str) -> OpenRun:
        """A run by its name, with everything that it holds now; a ``LookupError`` where there is none."""
        path = self.names().get(name)  # also keeps a request inside the folders
        if path is None:
            raise LookupError(f"There is no run named {name} in this folder.")
        with self._lock:
            known = self._open.pop(name, None)
            known = self._open[name] = OpenRun(path) if known is None or known.path != path else known
            while len(self._open) > OPEN:
                self._open.popitem(last=False)
        with known.lock:
            known.refresh()
        return known

    def rows(self) -> list[dict[str, Any]]:
        """The list of runs, out of their summaries: measurements are touched only of runs that are open already."""
        found = [self._row(name, path) for name, path in self.names().items()]
        return [{"name": place, "damage": why} for place, why in self.failures.items()] + found

    def judge(self) -> None:
        """Judge one run that stored no verdict, or goes on since its last one; the list shows it from then on."""
        for row in self.rows():
            name = row["name"]
            if "damage" in row or row["stored"] or self._verdicts.get(name, (-1, {}))[0] == row["commits"]:
                continue
            try:
                run = self.run(name)
                with run.lock:
                    verdict, stated = run.findings.verdict, forecast_panel(run.numbers.table)
            except Exception as error:
                verdict = {"severity": "", "what": f"findings could not be computed: {type(error).__name__}: {error}"}
                stated = None
            self._verdicts[name] = (row["commits"], {"finding": verdict, "ahead": stated and stated["ahead"]})
            self.judged += 1
            return

    def state(self) -> dict[str, Any]:
        """What tells that a run has changed, by name; looked at once for all who ask at the same time."""
        with self._look:
            if time.monotonic() - self._state[0] > FRESH_S:
                state: dict[str, Any] = {name: file_state(path / FILE_NAME) for name, path in self.names().items()}
                self._state = (time.monotonic(), state | self.failures)
            return self._state[1]

    def _row(self, name: str, path: Path) -> dict[str, Any]:
        """What is known of a run; its file is read only when it has changed, also where it cannot be read."""
        file = path / FILE_NAME
        state = (str(path), *file_state(file))
        known = self._rows.get(name)
        if known is None or known[0] != state:
            try:
                run = open_run(path)
                summary = run.summary
                known = (state, self._summarised(name, run, summary), summary)
            except Exception as error:  # whatever a file holds, the others are shown
                known = (state, {"name": name, "damage": shown_name(str(error))}, None)
            self._rows[name] = known
        _, row, known_summary = known
        if known_summary is None:
            return row
        judged = {} if row["stored"] else self._verdicts.get(name, (0, {}))[1]
        return row | {"status": shown_name(status_of(known_summary, file)), **judged}

    def _summarised(self, name: str, run: Any, summary: Any) -> dict[str, Any]:
        meta = run.meta
        stored = meta.get("verdict")
        verdict = (
            {k: shown_name(str(stored.get(k, ""))) for k in ("severity", "what")} if isinstance(stored, dict) else None
        )
        began, ended = str(meta.get("started", "")), str(meta.get("ended", ""))
        return {
            "name": name,
            "commits": summary.commits,
            "model": shown_name(str(summary.shown.get("model", ""))),
            "last": summary.last_step,
            "measurements": summary.measurements,
            "began": began,
            "seconds": _seconds(began, ended, float(summary.shown.get("heartbeat", 0.0))),
            "loss": summary.shown.get("loss"),
            "lr": summary.shown.get("lr"),
            "tags": [str(t) for t in meta.get("tags") or ()],
            "stored": verdict is not None,
            "finding": verdict,
            "ahead": None,
        }


def _seconds(began: str, ended: str, heartbeat: float) -> float | None:
    from datetime import datetime

    try:
        start = datetime.fromisoformat(began).timestamp()
        return max(0.0, (datetime.fromisoformat(ended).timestamp() if ended else heartbeat) - start)
    except ValueError:
        return None
