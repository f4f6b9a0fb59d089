"""From sites to the model: averages of per-site values under named weights, written once at the end of a step."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

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
        self._values: list[Tensor] = []
        self._weights: dict[tuple[object, ...], tuple[list[str], Tensor]] = {}

    def add(self, sheet: Sheet, stack: ActivationStack, values: Tensor) -> None:
        """``values`` has one row for each site of the stack and one column for each metric."""
        if self._sheet is not sheet:
            self._sheet, self._sites, self._values = sheet, [], []
            sheet.later(self._write)
        self._sites += [(site.follows, stack.elements, stack.channels) for site in stack.sites]
        self._values.append(values)

    def _write(self) -> None:
        if self._sheet is None:
            return
        values = self._values[0] if len(self._values) == 1 else \
            torch.cat([v.to(self._values[0]) for v in self._values])
        where, weights = self._matrix(values)
        self._sheet.write(where, self._metrics, (weights @ values).view(len(where), -1))
        self._sheet, self._sites, self._values = None, [], []

    def _matrix(self, like: Tensor) -> tuple[list[str], Tensor]:
        key = (tuple(self._sites), like.device, like.dtype)
        if key not in self._weights:
            table, where = [], []
            for kind in ["", *(k for k in KINDS if any(follows == k for follows, *_ in self._sites))]:
                where.append(f"model/{kind}" if kind else "model")
                for raw in ([e for _, e, _ in self._sites], [1] * len(self._sites), [c for *_, c in self._sites]):
                    weight = [w if kind in ("", follows) else 0 for w, (follows, *_) in zip(raw, self._sites)]
                    table.append([w / sum(weight) for w in weight])
            self._weights = {key: (where, torch.tensor(table, dtype=like.dtype, device=like.device))}
        return self._weights[key]
