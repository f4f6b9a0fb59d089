"""From channels to sites to the model, for all sites of a step at once when it ends.

On the host an operation on ten numbers takes as long as one on a thousand, so that nothing is finished site by site.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby

import numpy as np
from torch import Tensor

from netvitals.capture import Kind, Layout, Recorder, ReduceOverRanks, Site

POOLINGS = ("element", "site", "channel")
KINDS = ("bn_direct", "post_add")  # inputs with and without a known Gaussian shape are told apart


class Rows:
    """The sites of one step, in the order in which their channels stand in a flat array."""

    def __init__(self, layouts: list[Layout]) -> None:
        self.layouts = layouts
        self.sites: tuple[Site, ...] = tuple(layout.site for layout in layouts)
        self.channels = np.array([layout.channels for layout in layouts])
        self.elements = np.array([layout.elements for layout in layouts])
        self.ends = np.cumsum(self.channels)
        self.starts = self.ends - self.channels
        self._runs: list[tuple[tuple[Site, ...], int, int, int]] = []  # neighbours with as many channels are one block
        for channels, run in groupby(range(len(layouts)), key=lambda i: layouts[i].channels):
            i, *rest = run
            last = rest[-1] if rest else i
            self._runs.append((self.sites[i : last + 1], channels, int(self.starts[i]), int(self.ends[last])))

    def mean(self, by_channel: np.ndarray) -> np.ndarray:
        """Mean over the channels of each site."""
        return np.add.reduceat(by_channel, self.starts) / self.channels

    def spread(self, by_channel: np.ndarray, mean: np.ndarray) -> np.ndarray:
        """Standard deviation over the channels of each site, around its mean."""
        return np.sqrt(self.mean((by_channel - np.repeat(mean, self.channels)) ** 2))

    def write_arrays(self, recorder: Recorder, metric: str, by_channel: np.ndarray) -> None:
        """Note the numbers by channel, one array a site."""
        for sites, channels, start, end in self._runs:
            recorder.put_array(sites, metric, by_channel[start:end].reshape(-1, channels))


class PooledTable:
    """Collects tensors of every site of a step; ``finish(recorder, rows, *columns)`` is called once, when it ends.

    A column is what was given at one place of ``tensors``, by channel or by site, of all sites in one flat array.
    """

    def __init__(self, finish: Callable[..., None]) -> None:
        self._finish = finish
        self._waiting: list[tuple[Layout, Sequence[Tensor], tuple[Kind, ...], str]] = []
        self._writing: Recorder | None = None  # whose sites wait
        self._recorder: Recorder | None = None  # whose numbers are on the host
        self._layouts: list[Layout] = []
        self._parts: list[tuple[np.ndarray, ...]] = []
        self._rows: Rows | None = None

    def add(
        self, recorder: Recorder, layout: Layout, tensors: Sequence[Tensor], kinds: tuple[Kind, ...], alone: str = ""
    ) -> None:
        """``kinds`` and ``alone`` are those of :class:`~netvitals.capture.ReduceOverRanks`: how tensors are pooled
        over ranks."""
        if self._writing is not recorder:
            self._writing, self._waiting = recorder, []
            recorder.later(self._leave)
        self._waiting.append((layout, tensors, kinds, alone))

    def _leave(self) -> None:
        """Sites of one size leave the device in one entry."""
        recorder, waiting = self._writing, self._waiting
        self._writing, self._waiting = None, []
        assert recorder is not None
        cut = recorder.part.places > 1  # then each site says for itself whether it is
        alike = lambda one: (one[0].elements, one[0].channels, one[0].site.name if cut else "", *one[2:])
        for (elements, channels, _, kinds, alone), sites in groupby(waiting, key=alike):
            recorder.channels = channels
            layouts, tensors = zip(*((layout, given) for layout, given, *_ in sites))
            over = ReduceOverRanks(kinds * len(layouts), elements, alone=alone)
            recorder.on_host([t for given in tensors for t in given], partial(self._take, recorder, layouts), over)

    def _take(self, recorder: Recorder, layouts: Sequence[Layout], *arrays: np.ndarray) -> None:
        if self._recorder is not recorder:
            self._recorder, self._layouts, self._parts = recorder, [], []
            recorder.on_host((), self._end)
        self._layouts += [layout.grown(recorder.growth) for layout in layouts]
        width = len(arrays) // len(layouts)
        self._parts += [arrays[i : i + width] for i in range(0, len(arrays), width)]

    def _end(self) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is None:
            return
        if self._rows is None or self._rows.layouts != self._layouts:
            self._rows = Rows(self._layouts)
        self._finish(
            recorder, self._rows, *(np.concatenate([a.reshape(-1) for a in column]) for column in zip(*self._parts))
        )


class Pool:
    """Averages over the sites of one step, written when it ends.

    Writes ``metric`` (pooled over elements), ``metric:site`` and ``metric:channel`` for the whole model (site
    ``model``) and for each kind of site that occurs (``model/bn_direct``, ``model/post_add``).
    """

    def __init__(self, metrics: Sequence[str]) -> None:
        self._metrics = tuple(m if p == "element" else f"{m}:{p}" for p in POOLINGS for m in metrics)
        self._recorder: Recorder | None = None
        self._parts: list[tuple[Rows, np.ndarray]] = []
        self._known: tuple[list[Rows], list[tuple[str, np.ndarray, np.ndarray]]] = [], []

    def add(self, recorder: Recorder, rows: Rows, values: np.ndarray) -> None:
        """``values`` has one row for each site and one column for each metric. Call it on the host."""
        if self._recorder is not recorder:
            self._recorder, self._parts = recorder, []
            recorder.on_host((), self._write)
        self._parts.append((rows, values))

    def _write(self) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is None:
            return
        values = np.concatenate([v for _, v in self._parts])
        parts = [rows for rows, _ in self._parts]
        if parts != self._known[0]:
            self._known = parts, list(_weights(parts))
        for where, chosen, weights in self._known[1]:
            recorder.put(where, self._metrics, weights @ values[chosen])


def _weights(parts: Sequence[Rows]) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Name, sites and their weights under the three poolings, for the model and for each kind of site in it."""
    follows = [site.follows for rows in parts for site in rows.sites]
    elements = np.concatenate([rows.elements for rows in parts])
    channels = np.concatenate([rows.channels for rows in parts])
    raw = np.array([elements, np.ones(len(follows)), channels], dtype=float)
    for kind in ("", *(k for k in KINDS if k in follows)):
        chosen = np.array([kind in ("", f) for f in follows])
        weights = raw[:, chosen]
        yield f"model/{kind}" if kind else "model", chosen, weights / weights.sum(1, keepdims=True)
