"""From channels to sites to the model, for all sites of a step at once when it ends.

On the host an operation on ten numbers takes as long as one on a thousand, so that nothing is finished site by site.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
from torch import Tensor

from netvitals.capture import Outline, Sheet, Site

POOLINGS = ("element", "site", "channel")
KINDS = ("bn_direct", "post_add")       # inputs with and without a known Gaussian shape are told apart


class Rows:
    """The sites of one step, in the order in which their channels stand in a flat array."""

    def __init__(self, outlines: list[Outline]) -> None:
        self.outlines = outlines
        self.sites: tuple[Site, ...] = tuple(site for o in outlines for site in o.sites)
        self.channels = np.array([o.channels for o in outlines for _ in o.sites])
        self.elements = np.array([o.elements for o in outlines for _ in o.sites])
        self.ends = np.cumsum(self.channels)
        self.starts = self.ends - self.channels

    def mean(self, by_channel: np.ndarray) -> np.ndarray:
        """Mean over the channels of each site."""
        return np.add.reduceat(by_channel, self.starts) / self.channels

    def spread(self, by_channel: np.ndarray, mean: np.ndarray) -> np.ndarray:
        """Standard deviation over the channels of each site, around its mean."""
        return np.sqrt(self.mean((by_channel - np.repeat(mean, self.channels)) ** 2))

    def write_arrays(self, sheet: Sheet, metric: str, by_channel: np.ndarray) -> None:
        """Note the numbers by channel, one array a site."""
        start = 0
        for o in self.outlines:
            end = start + o.channels * len(o.sites)
            sheet.put_array(o.sites, metric, by_channel[start:end].reshape(-1, o.channels))
            start = end


class Table:
    """Collects tensors of every stack of a step; ``finish(sheet, rows, *columns)`` is called once, when it ends.

    A column is what was given at one place of ``tensors``, by channel or by site, of all stacks in one flat array.
    """

    def __init__(self, finish: Callable[..., None]) -> None:
        self._finish = finish
        self._sheet: Sheet | None = None
        self._outlines: list[Outline] = []
        self._parts: list[tuple[np.ndarray, ...]] = []
        self._rows: Rows | None = None

    def add(self, sheet: Sheet, outline: Outline, tensors: Sequence[Tensor]) -> None:
        sheet.on_host(tensors, partial(self._take, sheet, outline))

    def _take(self, sheet: Sheet, outline: Outline, *arrays: np.ndarray) -> None:
        if self._sheet is not sheet:
            self._sheet, self._outlines, self._parts = sheet, [], []
            sheet.on_host((), self._end)
        self._outlines.append(outline)
        self._parts.append(arrays)

    def _end(self) -> None:
        sheet, self._sheet = self._sheet, None
        if sheet is None:
            return
        if self._rows is None or self._rows.outlines != self._outlines:
            self._rows = Rows(self._outlines)
        self._finish(sheet, self._rows, *(np.concatenate([a.reshape(-1) for a in column])
                                          for column in zip(*self._parts)))


class Pool:
    """Averages over the sites of one step, written when it ends.

    Writes ``metric`` (pooled over elements), ``metric:site`` and ``metric:channel`` for the whole model (site
    ``model``) and for each kind of site that occurs (``model/bn_direct``, ``model/post_add``).
    """

    def __init__(self, metrics: Sequence[str]) -> None:
        self._metrics = tuple(m if p == "element" else f"{m}:{p}" for p in POOLINGS for m in metrics)
        self._sheet: Sheet | None = None
        self._parts: list[tuple[Rows, np.ndarray]] = []
        self._known: tuple[list[Rows], list[tuple[str, np.ndarray, np.ndarray]]] = [], []

    def add(self, sheet: Sheet, rows: Rows, values: np.ndarray) -> None:
        """``values`` has one row for each site and one column for each metric. Call it on the host."""
        if self._sheet is not sheet:
            self._sheet, self._parts = sheet, []
            sheet.on_host((), self._write)
        self._parts.append((rows, values))

    def _write(self) -> None:
        sheet, self._sheet = self._sheet, None
        if sheet is None:
            return
        values = np.concatenate([v for _, v in self._parts])
        together = [rows for rows, _ in self._parts]
        if together != self._known[0]:
            self._known = together, list(_weights(together))
        for where, chosen, weights in self._known[1]:
            sheet.put(where, self._metrics, weights @ values[chosen])


def _weights(together: Sequence[Rows]) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Name, sites and their weights under the three poolings, for the model and for each kind of site in it."""
    follows = [site.follows for rows in together for site in rows.sites]
    elements = np.concatenate([rows.elements for rows in together])
    channels = np.concatenate([rows.channels for rows in together])
    raw = np.array([elements, np.ones(len(follows)), channels], dtype=float)
    for kind in ("", *(k for k in KINDS if k in follows)):
        chosen = np.array([kind in ("", f) for f in follows])
        weights = raw[:, chosen]
        yield f"model/{kind}" if kind else "model", chosen, weights / weights.sum(1, keepdims=True)
