"""From sites to the model: averages of per-site values under named weights, written once at the end of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from netvitals.capture import Sheet, Site

POOLINGS = ("element", "site", "channel")
KINDS = ("bn_direct", "post_add")       # inputs with and without a known Gaussian shape are told apart


@dataclass
class Pool:
    """Values of the sites seen on one step; forgets them when a new sheet arrives."""

    sheet: Sheet | None = None
    sites: list[tuple[str, str, int, int]] = field(default_factory=list)      # name, follows, elements, channels
    values: list[Tensor] = field(default_factory=list)
    _weights: dict[tuple[object, ...], tuple[list[tuple[str, str]], Tensor]] = field(default_factory=dict)

    def add(self, sheet: Sheet, site: Site, elements: int, channels: int, value: Tensor) -> None:
        if self.sheet is not sheet:
            self.clear()
            self.sheet = sheet
        self.sites.append((site.name, site.follows, elements, channels))
        self.values.append(value)

    def clear(self) -> None:
        self.sheet, self.sites, self.values = None, [], []

    def write(self, sheet: Sheet, metrics: Sequence[str]) -> None:
        """Write ``metric`` (pooled over elements), ``metric:site`` and ``metric:channel`` for the whole model
        (site ``model``) and for each kind of site that occurs (``model/bn_direct``, ``model/post_add``)."""
        if self.sheet is sheet and self.values:
            values = torch.stack(self.values).reshape(len(self.values), -1)
            rows, weights = self._matrix(values)
            pooled = weights @ values
            for row, (where, pooling) in zip(pooled.unbind(0), rows):
                suffix = "" if pooling == "element" else f":{pooling}"
                sheet.write(where, [f"{m}{suffix}" for m in metrics], row)
        self.clear()

    def _matrix(self, like: Tensor) -> tuple[list[tuple[str, str]], Tensor]:
        key = (tuple(self.sites), like.device, like.dtype)
        if key not in self._weights:
            rows, table = [], []
            kinds = [k for k in KINDS if any(f == k for _, f, *_ in self.sites)]
            for kind in ["", *kinds]:
                chosen = [kind in ("", follows) for _, follows, *_ in self.sites]
                for pooling, raw in zip(POOLINGS, ([n for *_, n, _ in self.sites], [1] * len(self.sites),
                                                   [c for *_, c in self.sites])):
                    weight = [w if c else 0 for w, c in zip(raw, chosen)]
                    rows.append((f"model/{kind}" if kind else "model", pooling))
                    table.append([w / sum(weight) for w in weight])
            self._weights = {key: (rows, torch.tensor(table, dtype=like.dtype, device=like.device))}
        return self._weights[key]
