"""A task, its outcome, and what every engine can do."""

from __future__ import annotations

import hashlib
import random
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from netvitals_lab.engine.plain_values import plain_rows
from netvitals_lab.engine.study import Config, Row, canonical


@dataclass(frozen=True)
class TrialTask:
    """One trial to run."""

    key: str
    function: Callable[[Config], Any]
    config: Config
    cpus: int = 1  # on a cluster; worker processes of this machine have one each
    memory_gb: float = 0.0
    device: str = "cpu"  # where its networks and data are


@dataclass(frozen=True)
class Outcome:
    """How a task ended: with rows, or with an error (a traceback, or how its worker died)."""

    key: str
    rows: list[Row]
    error: str
    seconds: float  # that passed
    lost: bool = False  # its worker was killed from outside
    computing: float | None = None  # seconds of processors, which a busy machine does not lengthen; where known

    @property
    def ok(self) -> bool:
        return not self.error


class Engine(Protocol):
    """Runs tasks somewhere. The caller submits while ``free`` is positive and polls for outcomes."""

    name: str

    @property
    def free(self) -> int:
        """Tasks that can be submitted now."""

    @property
    def running(self) -> int:
        """Tasks submitted whose outcome was not handed out yet."""

    @property
    def slots(self) -> int:
        """Tasks that run at a time."""

    def submit(self, task: TrialTask) -> None: ...

    def poll(self, timeout: float) -> list[Outcome]:
        """Outcomes that are there; waits at most ``timeout`` seconds for the first one."""

    def close(self) -> None:
        """Stop everything now; tasks still running are abandoned."""


def perform(task: TrialTask) -> Outcome:
    """Run one task in this process. Every generator starts from the configuration, so that a trial that forgot to
    seed itself still gives the same rows in whatever worker and order it runs.
    """
    import numpy as np
    import torch

    from netvitals_lab.device import placed

    seed = int.from_bytes(hashlib.sha256(canonical(task.config).encode()).digest()[:4], "big")
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    start, computing = time.perf_counter(), time.process_time()
    try:
        with placed(task.device):
            rows, error = plain_rows(task.function(dict(task.config))), ""
    except (Exception, SystemExit):
        rows, error = [], traceback.format_exc()
    passed, spent = time.perf_counter() - start, time.process_time() - computing
    return Outcome(task.key, rows, error, passed, computing=spent)
