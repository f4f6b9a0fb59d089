"""From sites to the model: averages of per-site values under named weights, written once at the end of a step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netvitals.capture import Outline, Sheet

POOLINGS = ("element", "site", "channel")
KINDS = ("bn_direct", "post_add")       # inputs with and without a known Gaussian shape are told apart


class Pool:
    """Averages over the sites of one step, written when it ends.

    Writes ``metric`` (pooled over elements), ``metric:site`` and ``metric:channel`` for the whole model (site
    ``model``) and for each kind of site that occurs (``model/bn_direct``, ``model/post_add``).
    """

    def __init__(self, metrics: Sequence[str]) -> None:
        self._metrics = [m if p == "element" else f"{m}:{p}" for p in POOLINGS for m in metrics]
        self._sheet: Sheet | None = None
        self._sites: list[tuple[str, int, int]] = []        # follows, elements, channels
        self._values: list[np.ndarray] = []
        self._weights: dict[tuple[object, ...], list[tuple[str, np.ndarray, np.ndarray]]] = {}

    def add(self, sheet: Sheet, stack: Outline, values: np.ndarray) -> None:
        """``values`` has one row for each site of the stack and one column for each metric. Call it on the host."""
        if self._sheet is not sheet:
            self._sheet, self._sites, self._values = sheet, [], []
            sheet.on_host((), self._write)
        self._sites += [(site.follows, stack.elements, stack.channels) for site in stack.sites]
        self._values.append(values)

    def _write(self) -> None:
        if self._sheet is None:
            return
        values = np.concatenate(self._values)
        for where, chosen, weights in self._matrices():
            self._sheet.put(where, self._metrics, weights @ values[chosen])
        self._sheet, self._sites, self._values = None, [], []

    def _matrices(self) -> list[tuple[str, np.ndarray, np.ndarray]]:
        """Name, sites and their weights under the three poolings, for the model and for each kind of site in it."""
        key = tuple(self._sites)
        if key not in self._weights:
            follows, elements, channels = zip(*key)
            raw = np.array([elements, [1] * len(key), channels], dtype=float)
            rows = []
            for kind in ("", *(k for k in KINDS if k in follows)):
                chosen = np.array([kind in ("", f) for f in follows])
                weights = raw[:, chosen]
                rows.append((f"model/{kind}" if kind else "model", chosen, weights / weights.sum(1, keepdims=True)))
            self._weights = {key: rows}
        return self._weights[key]
