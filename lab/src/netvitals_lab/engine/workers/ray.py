"""The same trials on a Ray cluster. Workers compute; results come back to the driver, which alone writes."""

from __future__ import annotations

import os
import socket
import sys
import time
from contextlib import suppress
from typing import Any

from netvitals_lab.engine.workers.task import Outcome, TrialTask, perform


class RayEngine:
    """Tasks on Ray, each with the CPUs and the memory that its study declares.

    Ray's own retries are off: a task whose worker or node is lost comes back as an outcome with an error, and the
    runner decides about the second attempt, so that it is recorded like any other.
    """

    name = "ray"

    def __init__(self, jobs: int | None = None, address: str | None = None) -> None:
        try:
            import ray
        except ImportError:
            raise ImportError("the engine ray needs Ray: pip install 'netvitals[ray]'") from None
        self._ray = ray
        self._jobs = jobs
        self._own = not ray.is_initialized()
        if self._own:
            self._connect(address)
        self._remote = ray.remote(num_cpus=1, max_retries=0)(_perform_on_its_threads)
        self._tasks: dict[Any, tuple[TrialTask, float]] = {}

    def _connect(self, address: str | None) -> None:
        environment = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if address is None:
            # workers of a local cluster see the modules that this process sees
            environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(p for p in sys.path if p))
            options |= {"address": "local", "num_cpus": self._jobs, "include_dashboard": False}
        else:
            _knock(address)
            options["address"] = address
        try:
            self._ray.init(runtime_env={"env_vars": environment}, **options)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise ConnectionError(
                f"no Ray cluster could be reached at {address or 'this machine'} ({str(error).splitlines()[0]})"
            ) from None

    @property
    def slots(self) -> int:
        # asked every time: a cluster may grow or lose nodes
        return self._jobs or max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    @property
    def free(self) -> int:
        return self.slots - sum(task.cpus for task, _ in self._tasks.values())

    @property
    def running(self) -> int:
        return len(self._tasks)

    def submit(self, task: TrialTask) -> None:
        needs: dict[str, Any] = {"num_cpus": min(task.cpus, self.slots)}
        if task.device.startswith("cuda"):
            needs["num_gpus"] = 1
        room = self._ray.cluster_resources().get("memory", 0.0)
        if task.memory_gb * 2**30 <= room:  # a cluster too small for it would wait for ever
            needs["memory"] = int(task.memory_gb * 2**30)
        self._tasks[self._remote.options(**needs).remote(task)] = (task, time.perf_counter())

    def poll(self, timeout: float) -> list[Outcome]:
        if not self._tasks:
            return []
        ready, _ = self._ray.wait(list(self._tasks), num_returns=1, timeout=timeout)
        return [self._outcome(ref) for ref in ready]

    def _outcome(self, ref: Any) -> Outcome:
        task, since = self._tasks.pop(ref)
        try:
            return self._ray.get(ref)
        except self._ray.exceptions.RayError as error:
            first = str(error).strip().splitlines()[0]
            words = f"the Ray worker was lost: {type(error).__name__}: {first}"
            return Outcome(task.key, [], words, time.perf_counter() - since, lost=True)

    def close(self) -> None:
        for ref in self._tasks:
            with suppress(Exception):
                self._ray.cancel(ref, force=True)
        self._tasks.clear()
        if self._own:
            self._ray.shutdown()


def _knock(address: str) -> None:
    """Refuse an address where nobody listens now; Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except OSError as error:
            raise ConnectionError(f"no Ray cluster could be reached at {address} ({error})") from None


def _perform_on_its_threads(task: TrialTask) -> Outcome:
    import torch

    torch.set_num_threads(task.cpus)
    return perform(task)
