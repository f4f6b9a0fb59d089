"""From sites to the model: averages of per-site values under named weights, written once at the end of a step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netvitals.capture import ActivationStack, Sheet

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

    def add(self, sheet: Sheet, stack: ActivationStack, values: np.ndarray) -> None:
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
        elements, channels = (np.array([site[i] for site in self._sites], dtype=float) for i in (1, 2))
        for kind in ("", *KINDS):
            chosen = np.array([kind in ("", follows) for follows, *_ in self._sites], dtype=float)
            if not chosen.any():
                continue
            weights = np.stack([elements, np.ones_like(elements), channels]) * chosen
            pooled = (weights / weights.sum(1, keepdims=True))[:, chosen > 0] @ values[chosen > 0]
            self._sheet.put(f"model/{kind}" if kind else "model", self._metrics, pooled)
        self._sheet, self._sites, self._values = None, [], []
