"""Several processes that train one model: the first writes one run, whose numbers are those of all of them.

On a measured step the ranks add their numbers up along a tree: rank r hands what it has to r without its lowest set
bit, so that the first hears of all after log2 of them. That is the one exchange of a measured step; it goes through a
process group of its own, made once, so that nothing of the training's own communication is touched, and a rank that
does not answer is waited for only a while. Between measured steps nothing is exchanged.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from netvitals.capture import Message, Recorder, TensorShard, is_distributed, pieces_of, tensor_parallel_groups, warn

PATIENCE_S = 10.0  # how long a rank is waited for on a measured step
ALONE = "numbers that depend on the batch are those of rank 0"

_numbers = itertools.count()  # of the watches of this process: the n-th of each rank belong together


class Mail(Protocol):
    """How ranks reach each other."""

    def send(self, rank: int, given: bytes) -> None: ...

    def receive(self, rank: int) -> bytes: ...


class GlooMail:
    """A process group of our own, which no other part of the program knows."""

    def __init__(self, store: Any, rank: int, world: int, group: str) -> None:
        patience = timedelta(seconds=PATIENCE_S)
        self._group: Any = dist.ProcessGroupGloo(dist.PrefixStore(group, store), rank, world, patience)
        self._patience = patience

    def send(self, rank: int, given: bytes) -> None:
        for part in (torch.tensor([len(given)]), torch.frombuffer(bytearray(given), dtype=torch.uint8)):
            self._group.send([part], rank, 0).wait(self._patience)

    def receive(self, rank: int) -> bytes:
        size = torch.zeros(1, dtype=torch.int64)
        self._group.recv([size], rank, 0).wait(self._patience)
        body = torch.empty(int(size), dtype=torch.uint8)
        self._group.recv([body], rank, 0).wait(self._patience)
        return body.numpy().tobytes()


class OneRank:
    """A model that is trained by one process."""

    rank, world, together, looks, examples_of = 0, 1, False, True, 0

    def __init__(self) -> None:
        self.part = TensorShard(0, 1)
        self.notes: dict[str, str] = {}
        self.pieces: dict[str, Any] = {}

    def first_step(self, step: int) -> int:
        return step

    def own_losses(self) -> dict[int, Tensor | float]:
        return {}

    def pooled(self, recorder: Recorder | None, step: int, facts: np.ndarray | None = None) -> dict[int, np.ndarray]:
        return {}


def ranks_of(model: Any) -> Ranks | None:
    """The ranks that train ``model`` together; None where it is trained by one process."""
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() < 2:
        return None
    model = getattr(model, "_orig_mod", model)  # compiled after it was wrapped
    kind = type(model).__name__
    sharded = isinstance(model, nn.Module) and any(
        is_distributed(p) or type(p).__name__ == "FlatParameter" for p in model.parameters()
    )
    wrapped = kind in ("DistributedDataParallel", "FullyShardedDataParallel")
    if not sharded and not wrapped and not _is_replicated(model):
        return None
    store, rank, world = dist.distributed_c10d._get_default_store(), dist.get_rank(), dist.get_world_size()
    ranks = Ranks(store, rank, world, next(_numbers))
    ranks.pieces = pieces_of(model.module if kind == "DistributedDataParallel" else model, world)
    try:
        groups = tensor_parallel_groups(model)
    except NotImplementedError:
        groups, ranks.looks = set(), False
    if len(groups) == 1:
        (group,) = groups
        ranks.part = TensorShard(group.index(rank), len(group))
        beside = group == tuple(range(group[0], group[0] + len(group)))
        ranks.examples_of = group[0] // len(group) if beside else group[0]
    ranks.looks = ranks.looks and len(groups) < 2
    return ranks


def _is_replicated(model: Any) -> bool:
    """Whether a model, as a trainer hands it out, stands inside a DistributedDataParallel that somebody holds."""
    return any(
        type(one).__name__ == "DistributedDataParallel" and any(m is model for m in one.modules())
        for one in gc.get_objects()
        if issubclass(type(one), nn.Module)
    )


class Ranks:
    """All ranks of a model, as one of them sees them."""

    def __init__(
        self, store: Any, rank: int, world: int, number: int, mail: Callable[[Any, int, int, str], Mail] = GlooMail
    ) -> None:
        self.rank, self.world = rank, world
        self.notes: dict[str, str] = {}
        self.pieces: dict[str, Any] = {}
        self.part = TensorShard(0, 1)  # of layers that are cut over ranks
        self.examples_of = rank  # which share of the batch this rank sees
        self.looks = True  # at activations
        self._store, self._prefix = store, f"netvitals/{number}"
        self._make, self._mail = mail, None if mail is GlooMail else mail(store, rank, world, self._prefix)
        self._together: bool | None = None  # whether every rank has a watch
        self._losses: dict[int, Tensor | float] = {}  # of steps since the last exchange
        try:
            store.add(f"{self._prefix}/watched", 1)
        except Exception as error:
            self.stop(f"ranks have no store to meet in: {type(error).__name__}"[:200])

    @property
    def together(self) -> bool:
        """Numbers are exchanged, as far as is known."""
        return self._together is not False

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

    # ---------------------------------------------------------------- losses

    def loss(self, step: int, value: Tensor | float) -> None:
        """Keep the loss of a step on this rank until the next exchange."""
        self._losses[step] = value

    def own_losses(self) -> dict[int, Tensor | float]:
        """Losses that were not exchanged, and will not be."""
        found, self._losses = self._losses, {}
        return found

    # ---------------------------------------------------------------- a measured step

    def pooled(self, recorder: Recorder | None, step: int, facts: np.ndarray | None = None) -> dict[int, np.ndarray]:
        """Give the recorder of a measured step the numbers of all ranks, on the first rank."""
        if not self._agreed():
            if recorder is not None:
                recorder.take(None)
            return {}
        try:
            return self._exchanged(recorder, facts)
        except Exception as error:
            self.stop(f"rank {self.rank} stands alone from step {step} on: {type(error).__name__}: {error}"[:200])
            if recorder is not None:
                recorder.take(None)
            return {}

    def stop(self, why: str) -> None:
        """Exchange nothing any more."""
        self._together = False
        self.notes["ranks"] = f"{why}; {ALONE}"
        if self.rank == 0:
            warn(self.notes["ranks"], "ranks-apart")

    def _agreed(self) -> bool:
        """Whether every rank is watched, as the first has found; asked once, when a step is over, which no rank can be
        without having begun."""
        if self._together is None:
            key = f"{self._prefix}/together"
            try:
                if self.rank == 0:
                    watched = self._store.add(f"{self._prefix}/watched", 0)
                    self._store.set(key, "yes" if watched >= self.world else "no")
                    self._together = watched >= self.world
                else:
                    self._store.wait([key], timedelta(seconds=PATIENCE_S))
                    self._together = self._store.get(key) == b"yes"
                if not self._together:
                    self.stop("not every rank is watched")
                elif self._mail is None:
                    self._mail = self._make(self._store, self.rank, self.world, self._prefix)
            except Exception as error:
                self.stop(f"ranks could not meet: {type(error).__name__}: {error}"[:200])
        return bool(self._together)

    def _exchanged(self, recorder: Recorder | None, facts: np.ndarray | None) -> dict[int, np.ndarray]:
        losses = np.array([float(v) for v in self._losses.values()])
        own = np.concatenate([[len(losses)], losses, np.empty(0) if facts is None else facts])
        message = (Recorder(0) if recorder is None else recorder).message(self.rank, own)
        total = added_up(message, self.rank, self.world, self._mail)
        if total is None:
            return {}
        if recorder is not None:
            recorder.take(total)
        return total.ranks


def added_up(message: Message, rank: int, world: int, mail: Any) -> Message | None:
    """The sum of the messages of all ranks, on the first; None on the others, which hand theirs on."""
    for child in children(rank, world):
        message = message + Message.from_bytes(mail.receive(child))
    if rank == 0:
        return message
    mail.send(rank & (rank - 1), message.to_bytes())
    return None


def children(rank: int, world: int) -> list[int]:
    """The ranks that hand on to this one.

    >>> children(0, 8), children(4, 8), children(6, 7)
    ([1, 2, 4], [5, 6], [])
    """
    bits = itertools.takewhile(lambda bit: not rank & bit and bit < world, (1 << i for i in itertools.count()))
    return [rank | bit for bit in bits if rank | bit < world]
