"""Worker processes of this machine, one torch thread each.

A pool of the standard library breaks as a whole when one worker is killed (out of memory, a signal); here the lost
trial is reported, a new worker takes the place of the dead one, and the others go on.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import ModuleType

from netvitals_lab.engine.workers.task import Outcome, TrialTask, perform

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# what others send; a trial that breaks its own worker ends it with SIGSEGV, SIGABRT and the like, or with an exit code
FROM_OUTSIDE = frozenset(getattr(signal, name) for name in ("SIGKILL", "SIGTERM", "SIGHUP") if hasattr(signal, name))
STILLBORN = 3  # workers in a row that die before their first sign of life


class LocalEngine:
    """As many workers as jobs, started when first needed and kept until ``close``."""

    name = "local"

    def __init__(self, jobs: int | None = None) -> None:
        self.slots = jobs or _cores()
        self._context = multiprocessing.get_context("spawn")
        self._workers: list[_Worker] = []
        self._stillborn = 0

    @property
    def free(self) -> int:
        return self.slots - self.running

    @property
    def running(self) -> int:
        return sum(w.task is not None for w in self._workers)

    def submit(self, task: TrialTask) -> None:
        try:
            message = pickle.dumps(task)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ValueError(
                f"a trial must be a function at the top level of a module that other processes can "
                f"import, got {task.function!r} ({error})"
            ) from None
        home = task.function.__module__ == "__main__"
        idle = [w for w in self._workers if w.task is None]
        worker = next((w for w in idle if w.knows_main or not home), None)
        if worker is None:
            if idle and len(self._workers) >= self.slots:
                self._workers.remove(idle[0])
                idle[0].dismiss()
                idle[0].bury(2.0)
            worker = _Worker(self._context, home)
            self._workers.append(worker)
        worker.start(task, message)

    def poll(self, timeout: float) -> list[Outcome]:
        busy = [w for w in self._workers if w.task is not None]
        if not busy:
            return []
        wait([w.pipe for w in busy] + [w.process.sentinel for w in busy], timeout)
        outcomes = []
        for worker in busy:
            outcome = worker.receive()
            if worker.dead:
                self._workers.remove(worker)
                self._stillborn = 0 if worker.awake else self._stillborn + 1
            elif worker.awake:
                self._stillborn = 0
            if outcome is not None:
                outcomes.append(outcome)
        if self._stillborn >= STILLBORN:
            raise ChildProcessError(
                "worker processes die as they start; a script that holds its own trials must run "
                "them under if __name__ == '__main__':, and memory must hold one worker per job"
            )
        return outcomes

    def close(self) -> None:
        for worker in self._workers:
            worker.dismiss()
        deadline = time.monotonic() + 2.0
        for worker in self._workers:
            worker.bury(max(0.0, deadline - time.monotonic()))
        self._workers.clear()


class _Worker:
    def __init__(self, context: multiprocessing.context.SpawnContext, knows_main: bool) -> None:
        self.pipe, theirs = context.Pipe()
        self.process: SpawnProcess = context.Process(target=_work, args=(theirs,), daemon=True, name="netvitals-worker")
        self.knows_main = knows_main
        with _one_thread(), nullcontext() if knows_main else _main_hidden():
            self.process.start()
        theirs.close()
        self.task: TrialTask | None = None
        self.since = 0.0
        self.awake = self.dead = False

    def start(self, task: TrialTask, message: bytes) -> None:
        self.task, self.since = task, time.perf_counter()
        with suppress(OSError):  # a worker that died idle is noticed at the next poll
            self.pipe.send((task.key, message))

    def receive(self) -> Outcome | None:
        """What the worker said, or how it died; None while it is still at work."""
        alive = self.process.is_alive()  # asked first: what it sent before it died is still in the pipe
        with suppress(EOFError, OSError):
            while self.pipe.poll():
                text = self.pipe.recv()
                self.awake = True
                if isinstance(text, Outcome):
                    self.task = None
                    return text
        if alive or self.task is None:
            return None
        self.dead = True
        self.process.join()
        task, self.task = self.task, None
        code = self.process.exitcode
        return Outcome(
            task.key,
            [],
            _cause(code),
            time.perf_counter() - self.since,
            lost=code is not None and -code in FROM_OUTSIDE,
        )

    def dismiss(self) -> None:
        if self.task is None:
            with suppress(OSError):
                self.pipe.send(None)
        else:
            self.process.terminate()

    def bury(self, patience: float) -> None:
        self.process.join(patience)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.pipe.close()


def _work(pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's business
    _follow_parent()
    import torch

    torch.set_num_threads(1)
    pipe.send("awake")
    while True:
        try:
            order = pipe.recv()
        except (EOFError, OSError):
            return
        if order is None:
            return
        pipe.send(_open_and_perform(*order))


def _open_and_perform(key: str, message: bytes) -> Outcome:
    try:
        task = pickle.loads(message)
    except Exception:  # the study's module cannot be imported here: say so, and live on
        return Outcome(key, [], traceback.format_exc(), 0.0)
    return perform(task)


def _follow_parent() -> None:
    """Leave at once when the driver is gone, also in the middle of a trial."""
    parent = multiprocessing.parent_process()
    if parent is not None:

        def watch() -> None:
            wait([parent.sentinel])
            os._exit(1)

        threading.Thread(target=watch, daemon=True).start()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cause(code: int | None) -> str:
    if code is not None and code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else "unknown"
        hint = "; the system kills processes that use too much memory" if -code == signal.SIGKILL else ""
        return f"the worker was killed by signal {-code} ({name}){hint}"
    return f"the worker left with exit code {code} before the trial was done"


@contextmanager
def _main_hidden() -> Iterator[None]:
    """A spawned process imports the caller's main module again, which runs an unguarded script twice and cannot work
    in a shell or notebook; a worker whose trials live in other modules has no need of it.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextmanager
def _one_thread() -> Iterator[None]:
    """The environment a worker is born with; read by OpenMP when torch is loaded, so it must be set before."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
