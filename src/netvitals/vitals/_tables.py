"""Parameter tensors of equal size as rows of one table, with the norms and differences that vital signs share."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from netvitals.capture import ParameterSight

BIG = 1 << 20           # a bigger tensor is a table of its own


class Table:
    """k parameter tensors of n elements each, at least float32: (k, n) as they are, and as far as they are known their
    gradients, their initial values and their values before the step."""

    def __init__(self, names: list[str], sight: ParameterSight) -> None:
        self.names = names
        sources = [m for m in (sight.params, sight.grads, sight.initial, sight.before) if names[0] in m]
        known = [names[0] in m for m in (sight.grads, sight.initial, sight.before)]
        self.has_grads, self.has_initial, self.has_before = known
        rows = [source[name].detach().reshape(-1) for source in sources for name in names]
        if rows[0].dtype in (torch.float16, torch.bfloat16):
            rows = [row.float() for row in rows]
        self._all = torch.stack(rows).view(len(sources), len(names), -1)

    @property
    def n(self) -> int:
        return self._all.shape[2]

    @property
    def values(self) -> Tensor:
        return self._all[0]

    @property
    def grads(self) -> Tensor:
        return self._all[1]

    @cached_property
    def _norms(self) -> Tensor:
        return torch.linalg.vector_norm(self._all, dim=2)

    @cached_property
    def _differences(self) -> Tensor:
        """Since the beginning, and since before the step, as far as known."""
        return self.values - self._all[1 + self.has_grads:]

    @cached_property
    def _difference_norms(self) -> Tensor:
        return torch.linalg.vector_norm(self._differences, dim=2)

    @property
    def norm(self) -> Tensor:
        return self._norms[0]

    @property
    def grad_norm(self) -> Tensor:
        return self._norms[1]

    @property
    def norm_before(self) -> Tensor:
        return self._norms[-1] if self.has_before else self._norms[0]

    @property
    def drift(self) -> Tensor:
        """W_t − W_0, (k, n)."""
        return self._differences[0]

    @property
    def initial(self) -> Tensor:
        return self._all[1 + self.has_grads]

    @property
    def update_norm(self) -> Tensor:
        return self._difference_norms[-1]


def tables(sight: ParameterSight) -> list[Table]:
    """All floating-point parameters of a step, grouped by size; made once for all vital signs."""
    made: list[Table] | None = sight.__dict__.get("_tables")
    if made is None:
        groups: dict[tuple[object, ...], list[str]] = {}
        for name, p in sight.params.items():
            if p.numel() and p.is_floating_point():
                key = (p.numel(), p.dtype, p.device, name in sight.initial, name in sight.grads, name in sight.before)
                groups.setdefault(key if p.numel() <= BIG else (*key, name), []).append(name)
        made = sight.__dict__["_tables"] = [Table(names, sight) for names in groups.values()]
    return made
