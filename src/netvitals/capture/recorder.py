"""Readings: what a measurement leaves behind, and the recorder that takes them off the device in one transfer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from netvitals._help import hint
from netvitals.capture.reduce_over_ranks import Kind, Message, RankScale, ReduceOverRanks, message_of, pooled
from netvitals.capture.reduce_over_ranks import PooledArrays as Pooled
from netvitals.capture.site import Site
from netvitals.capture.tensor_shard import TensorShard

ALONE = "cannot be computed from the numbers of single ranks; those of rank 0 are shown"


class Measurement(NamedTuple):
    """One measured number: ``metric`` of the vital sign ``vital`` at ``site`` on training step ``step``.

    This is a tuple for speed, because every measured step makes hundreds of them.

    >>> Measurement(step=0, vital="gates", site="1", metric="mean", value=0.5).value
    0.5
    """

    step: int
    vital: str
    site: str
    metric: str
    value: float


@dataclass(frozen=True)
class ArrayMeasurement:
    """A measured array, for example one number per channel: the ``value`` of ``metric`` of ``vital`` at ``site`` and
    ``step``.

    >>> ArrayMeasurement(0, "gates", site="1", metric="density@0.01", value=np.array([0.5, 0.25])).value.tolist()
    [0.5, 0.25]
    """

    step: int
    vital: str
    site: str
    metric: str
    value: np.ndarray


class Recorder:
    """Collects the measurements of one step on the device, and moves them to the host in a single transfer.

    Args:
        step: the training step.

    >>> recorder = Recorder(step=3)
    >>> recorder.vital = "gates"
    >>> recorder.write("act", ("density", "mean"), torch.tensor([0.5, 0.25]))
    >>> [(r.metric, r.value) for r in recorder.measurements()[0]]
    [('density', 0.5), ('mean', 0.25)]
    """

    def __init__(self, step: int) -> None:
        self.step = step
        self.vital = ""  # the engine sets it before it calls a vital sign
        self.skipped: dict[str, str] = {}  # place → why a vital sign could not measure it
        self.ranks = 1  # processes whose numbers these will be
        self.examples_of = 0  # which share of the batch this process sees
        self.part = TensorShard(0, 1)  # of layers that are cut over processes
        self.channels = 0  # of the site that is measured
        self.growth = RankScale()  # of all ranks over this one, behind the numbers that are being finished
        self.same = False  # what is written now is the same on every rank, unless it says otherwise
        self._later: list[tuple[str, bool, Callable[[], None]]] = []
        self._on_device: list[tuple[str, list[Tensor], Callable[..., None], ReduceOverRanks]] = []
        self._moved: list[tuple[Moved, list[tuple[str, list[int], Callable[..., None], ReduceOverRanks]]]] = []
        self._on_host: list[tuple[Pooled, Callable[..., None], RankScale]] = []
        self._narrow: np.dtype[Any] = np.dtype(np.float32)  # the precision the tensors had
        self._numbers: list[tuple[Entry, np.ndarray]] = []
        self._arrays: list[tuple[Entry, np.ndarray]] = []

    def write(
        self,
        site: Site | str | Sequence[Site | str],
        metrics: Sequence[str],
        values: Tensor,
        over: ReduceOverRanks | None = None,
    ) -> None:
        """Record ``values`` of ``metrics`` at ``site``; the tensors stay on the device, without synchronisation.

        With several sites, ``values`` has a row for each. ``over`` has the same meaning as in :meth:`on_host`.
        """
        sites = _names(site)
        self._check(sites, metrics, values.numel())
        self.on_host((values,), partial(self.put, sites, metrics), over)

    def write_array(self, site: Site | str | Sequence[Site | str], metric: str, values: Tensor) -> None:
        """Record a small array ``values`` as ``metric`` at ``site``, for example one number per channel. With several
        sites, ``values`` has a row for each.
        """
        sites = _names(site)
        if isinstance(site, str | Site):
            values = values[None]
        if len(sites) != len(values):
            raise ValueError(
                f"{self.vital}: got {len(values)} arrays {metric!r} for {len(sites)} places in the model; give one "
                f"array for each place {hint('vital-unsound')}"
            )
        self.on_host((values,), partial(self.put_array, sites, metric))

    def on_host(
        self, tensors: Sequence[Tensor], finish: Callable[..., None], over: ReduceOverRanks | None = None
    ) -> None:
        """Call ``finish(*arrays)`` with these ``tensors`` as float64 arrays after they have been moved to the host.

        Small reductions, such as a mean over channels, are cheaper on the host than as separate device operations.
        ``finish`` records its results with :meth:`put` and :meth:`put_array`. In distributed training, ``finish``
        receives the arrays of all ranks, pooled as ``over`` says. Without ``over``, ``finish`` receives the arrays of
        rank 0 only, and ``skipped`` says so.
        """
        if over is None:
            word: Kind = "same" if self.same else "alone"
            over = ReduceOverRanks((word,) * len(tensors))
        if self.part.places > 1 and self.channels and not over.pieces:
            over = over._replace(part=self.part._replace(channels=self.channels))
        self._on_device.append((self.vital, [t.detach() if t.requires_grad else t for t in tensors], finish, over))

    def put(self, site: Site | str | Sequence[Site | str], metrics: Sequence[str], values: np.ndarray) -> None:
        """Record ``values`` of ``metrics`` at ``site``, like :meth:`write` but for numbers already on the host."""
        sites, values = _names(site), np.asarray(values, dtype=np.float64)
        self._check(sites, metrics, values.size)
        self._numbers.append(((self.vital, sites, tuple(metrics)), values.reshape(-1)))

    def put_array(self, sites: Sequence[Site | str], metric: str, values: np.ndarray) -> None:
        """Record ``values`` of ``metric`` with a row for each of ``sites``, like :meth:`write_array` but for host
        arrays.
        """
        self._arrays.append(((self.vital, _names(sites), (metric,)), values))

    def later(self, work: Callable[[], None]) -> None:
        """Call ``work`` just before the measurements are moved to the host."""
        self._later.append((self.vital, self.same, work))

    def leave_device(self) -> None:
        """Move all recorded tensors to the host, in one transfer per device, and release them.

        Nothing can be recorded afterwards. :meth:`columns` computes the final numbers, now or later.
        """
        with torch.no_grad(), np.errstate(all="ignore"):
            while self._later:
                self.channels = 0
                self.vital, self.same, work = self._later.pop(0)
                self._guarded(work)
            if self._on_device:
                # what several ask for goes once
                tensors = {id(t): t for _, given, *_ in self._on_device for t in given}
                place = {key: i for i, key in enumerate(tensors)}
                entries = [(v, [place[id(t)] for t in given], work, over) for v, given, work, over in self._on_device]
                self._moved.append((Moved(list(tensors.values())), entries))
        self._on_device = []

    def _arrive(self) -> None:
        """Take what was moved apart: later than it is moved, where several looks are finished in one go."""
        for moved, entries in self._moved:
            arrays = moved.arrays()
            self._narrow = moved.narrow
            self._on_host += [
                (Pooled(vital, [arrays[i] for i in at], over), finish, RankScale())
                for vital, at, finish, over in entries
            ]
        self._moved = []

    def message(self, rank: int, facts: np.ndarray | None = None) -> Message:
        """Pack the numbers of this ``rank`` and its row of ``facts`` into a message that is summed over all ranks."""
        self._arrive()
        return message_of([entry for entry, *_ in self._on_host], rank, facts, self.examples_of)

    def take(self, message: Message | None) -> None:
        """Continue with the summed ``message`` of all ranks; None means that only this rank's numbers are available."""
        self._arrive()
        if message is None:
            self._on_host = [one for one in self._on_host if not one[0].over.pieces]
            return
        found = pooled([entry for entry, *_ in self._on_host], message)
        self._on_host = [
            (entry._replace(arrays=arrays), finish, growth)
            for (entry, finish, _), (arrays, growth) in zip(self._on_host, found)
        ]
        for entry, *_ in self._on_host:
            if "alone" in entry.over.kinds and entry.arrays:
                what = f"{entry.vital}: {entry.over.alone}" if entry.over.alone else entry.vital
                self.skipped[f"{what} (other ranks)"] = ALONE

    def columns(self) -> StepColumns:
        """Return everything recorded so far as columns of numbers."""
        self.leave_device()
        self._arrive()
        queue, self._on_host = self._on_host, []
        with np.errstate(all="ignore"):
            while queue:
                entry, finish, self.growth = queue.pop(0)
                self.vital = entry.vital
                self._guarded(finish, *entry.arrays)
                # what is asked for on the host comes last
                queue += [(Pooled(vital, [], over), work, RankScale()) for vital, _, work, over in self._on_device]
                self._on_device = []
        return StepColumns(
            step=self.step,
            layout=tuple(entry for entry, _ in self._numbers),
            values=np.concatenate([v for _, v in self._numbers]) if self._numbers else np.empty(0),
            array_layout=tuple(entry for entry, _ in self._arrays),
            arrays=[array.astype(self._narrow) for _, array in self._arrays],
        )

    def measurements(self) -> tuple[list[Measurement], list[ArrayMeasurement]]:
        """Return everything recorded so far as a list of measurements."""
        columns = self.columns()
        return columns.measurements(), columns.array_measurements()

    def _check(self, sites: tuple[str, ...], metrics: Sequence[str], size: int) -> None:
        if size != len(metrics) * len(sites):
            raise ValueError(
                f"{self.vital}: got {size} values for {len(metrics)} metrics {tuple(metrics)} at {len(sites)} sites; "
                f"each metric needs one value per site {hint('vital-unsound')}"
            )

    def _guarded(self, work: Callable[..., None], *args: np.ndarray) -> None:
        try:
            work(*args)
        except Exception as error:
            from netvitals.capture.engine.schedule import warn  # it imports this file

            warn(
                f"some measurements of {self.vital!r} at step {self.step} are missing: {type(error).__name__}: {error}",
                "measurement-failed",
            )


Entry = tuple[str, tuple[str, ...], tuple[str, ...]]  # vital sign, sites, metrics


@dataclass(frozen=True)
class StepColumns:
    """The measurements of one ``step`` in columns: the ``layout`` (equal from step to step), and the numbers
    ``values`` in
    its order; arrays likewise (``array_layout``, ``arrays``).

    >>> columns = StepColumns(step=0, layout=(("gates", ("1",), ("mean", "q50")),), values=np.array([0.5, 1.0]))
    >>> [(r.metric, r.value) for r in columns.measurements()]
    [('mean', 0.5), ('q50', 1.0)]
    """

    step: int
    layout: tuple[Entry, ...]
    values: np.ndarray
    array_layout: tuple[Entry, ...] = ()
    arrays: Sequence[np.ndarray] = ()

    def names(self) -> Iterator[tuple[str, str, str]]:
        """(vital sign, site, metric) of every number in ``values``."""
        for vital, sites, metrics in self.layout:
            for site in sites:
                for metric in metrics:
                    yield vital, site, metric

    def measurements(self) -> list[Measurement]:
        """The numbers as measurements."""
        step = self.step
        return [
            Measurement(step, vital, site, metric, value)
            for (vital, site, metric), value in zip(self.names(), self.values.tolist())
        ]

    def array_measurements(self) -> list[ArrayMeasurement]:
        """The arrays as measurements."""
        return [
            ArrayMeasurement(self.step, vital, site, metric, value)
            for (vital, sites, (metric,)), values in zip(self.array_layout, self.arrays)
            for site, value in zip(sites, values)
        ]


def _names(site: Site | str | Sequence[Site | str]) -> tuple[str, ...]:
    if isinstance(site, Site):
        return (site.name,)
    if isinstance(site, str):
        return (site,)
    return tuple(s if isinstance(s, str) else s.name for s in site)


class Moved:
    """Tensors on the host: one transfer per device."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._shapes = [t.shape for t in tensors]
        self._parts: list[tuple[list[int], Tensor]] = []
        self.narrow: np.dtype[Any] = np.dtype(np.float32)  # the precision they had
        by_device: dict[torch.device, list[int]] = {}
        for i, tensor in enumerate(tensors):
            by_device.setdefault(tensor.device, []).append(i)
        for indices in by_device.values():
            # concatenation promotes to the widest dtype present; counts beyond 2^24 must be written as float64
            self._parts.append((indices, torch.cat([tensors[i].reshape(-1) for i in indices]).cpu()))

    def arrays(self) -> list[np.ndarray]:
        """Each of them, in double precision."""
        out: list[np.ndarray] = [np.empty(0)] * len(self._shapes)
        for indices, moved in self._parts:
            flat = (moved.float() if moved.dtype == torch.bfloat16 else moved).numpy()
            if flat.dtype.itemsize > 4 and flat.dtype.kind == "f":
                self.narrow = flat.dtype
            flat = flat.astype(np.float64)
            start = 0
            for i in indices:
                end = start + self._shapes[i].numel()
                out[i] = flat[start:end].reshape(self._shapes[i])
                start = end
        return out
