"""Several processes that train one model with DistributedDataParallel: the first writes one run for all of them.

Gradients are those of the whole model on every rank already. What depends on the batch is pooled over ranks on measured
steps: each rank puts its numbers into the store that torch keeps for the processes, and the first waits a while.
No collective is called, so that nothing of the training's own communication is touched.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import torch.distributed as dist

from netvitals.capture import StepColumns, warn

PATIENCE_S = 10.0  # how long the first rank waits for the others on a measured step

_numbers = itertools.count()  # of the watches of this process: the n-th of each rank belong together


def ranks_of(model: Any) -> Ranks | None:
    """The ranks that train ``model`` together; None where it is trained by one process."""
    if type(model).__name__ != "DistributedDataParallel" or not dist.is_initialized() or dist.get_world_size() < 2:
        return None
    return Ranks(dist.distributed_c10d._get_default_store(), dist.get_rank(), dist.get_world_size(), next(_numbers))


class Ranks:
    r"""$\bar v = \frac{1}{R} \sum_r v_r$ of each number over the ranks; largest and smallest ones keep that meaning.

    Args:
        store: where all ranks can put a value under a key.
        rank: of this process.
        world: how many there are.
        number: of the watch.

    >>> store = dist.HashStore()
    >>> first, second = (Ranks(store, rank, 2, 0) for rank in range(2))
    >>> page = lambda *values: StepColumns(0, (("gates", ("1",), ("density", "max")),), np.array(values))
    >>> second.pooled(page(0.5, 9.0)).values.tolist(), first.pooled(page(0.3, 2.0)).values.tolist()
    ([0.5, 9.0], [0.4, 9.0])
    """

    def __init__(self, store: Any, rank: int, world: int, number: int) -> None:
        self.rank, self.world = rank, world
        self.notes: dict[str, str] = {"loss of other ranks": "the loss is that of rank 0"}
        self._store, self._prefix = store, f"netvitals/{number}"
        self._together: bool | None = None  # whether every rank has a watch
        store.set(f"{self._prefix}/watched/{rank}", "1")

    def first_step(self, step: int) -> int:
        """The step at which all ranks begin: that of the first, which alone knows the run."""
        key = f"{self._prefix}/begins"
        if self.rank == 0:
            self._store.set(key, str(step))
            return step
        try:
            self._store.wait([key], timedelta(seconds=PATIENCE_S))
            return int(self._store.get(key))
        except Exception:  # the first rank is not watched
            return step

    def pooled(self, columns: StepColumns) -> StepColumns:
        """A measured step over all ranks on the first; the others keep their own."""
        if self._together is None:  # a step is over, which no rank can be without having begun
            self._together = self._store.check([f"{self._prefix}/watched/{r}" for r in range(self.world)])
            if not self._together:
                self._stop("not every rank is watched; numbers of activations are those of this rank")
        if not self._together:
            return columns
        try:
            return self._exchanged(columns)
        except Exception as error:
            self._stop(f"rank 0 stands alone from step {columns.step} on: {type(error).__name__}: {error}"[:200])
            return columns

    def _stop(self, why: str) -> None:
        self._together = False
        self.notes["ranks"] = why
        if self.rank == 0:
            warn(why)

    def _exchanged(self, columns: StepColumns) -> StepColumns:
        keys = [f"{self._prefix}/step/{columns.step}/{r}" for r in range(self.world)]
        digest = hashlib.sha256(repr(columns.layout).encode()).digest()
        mine = np.asarray(columns.values, dtype=np.float64)
        if self.rank:
            self._store.set(keys[self.rank], base64.b64encode(digest + mine.tobytes()).decode())
            return columns
        self._store.wait(keys[1:], timedelta(seconds=PATIENCE_S))
        given = [base64.b64decode(self._store.get(key)) for key in keys[1:]]
        for key in keys[1:]:
            self._store.delete_key(key)
        if any(one[: len(digest)] != digest for one in given):
            self.notes["ranks"] = f"ranks saw different places on step {columns.step}; it is that of rank 0"
            return columns
        rows = np.stack([mine, *(np.frombuffer(one[len(digest) :], dtype=np.float64) for one in given)])
        metrics = [metric.lower() for _, _, metric in columns.names()]
        values = rows.mean(0)
        for word, pool in (("max", np.max), ("min", np.min)):
            where = np.array([word in metric for metric in metrics], dtype=bool)
            values[where] = pool(rows[:, where], axis=0)
        return replace(columns, values=values)
