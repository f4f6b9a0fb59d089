"""Whether the ranks of a data-parallel training hold the same weights, by one 128-bit sum a tensor."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from netvitals.capture import is_distributed
from netvitals.checks import Record

WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
CHUNK = 1 << 20  # words that are widened at a time


def fingerprint(t: Tensor) -> Tensor:
    """Two 64-bit sums over the bits of a tensor, of the words and of their squares, which stay on its device.

    >>> a = torch.tensor([1.0, 2.0, 3.0]); b = a.clone(); b[1] = torch.nextafter(b[1], b[2])
    >>> bool((fingerprint(a) == fingerprint(a.clone())).all()), bool((fingerprint(a) == fingerprint(b)).all())
    (True, False)
    """
    t = torch.view_as_real(t.detach()) if t.is_complex() else t.detach()
    words = t.contiguous().view(-1).view(WORDS[t.element_size()])
    parts = [w.to(torch.int64) for w in words.split(CHUNK)]
    return torch.stack([torch.stack([w.sum(), w.square().sum()]) for w in parts]).sum(0)


class Replicas:
    """Tensors that every rank holds, and what the ranks tell each other of them."""

    def __init__(self, model: nn.Module) -> None:
        ignored = getattr(model, "_ddp_params_and_buffers_to_ignore", ())
        held = {n: p for n, p in model.named_parameters() if n not in ignored and p.numel()}
        self._held = {n: p for n, p in held.items() if not is_distributed(p)}
        self.record: Record | None = None  # of the rank that writes

    def facts(self) -> np.ndarray:
        """The fingerprints of this rank, four exact numbers a tensor."""
        with torch.no_grad():
            sums = [fingerprint(p) for p in self._held.values()]
            table = torch.stack([s.to(sums[0].device) for s in sums]).cpu().numpy()
        return np.stack([table & 0xFFFFFFFF, table >> 32], -1).reshape(-1).astype(float)  # halves, which floats hold

    def compare(self, step: int, rows: Mapping[int, np.ndarray]) -> None:
        """Compare the fingerprints of all ranks with those of the first that is here."""
        if self.record is None or len(rows) < 2:
            return
        (first, reference), *others = sorted(rows.items())
        self.record.ask("replicas differ")
        names = list(self._held)
        for rank, row in others:
            if len(row) != len(reference):
                continue
            differ = np.flatnonzero((row != reference).reshape(-1, 4).any(1))
            if len(differ):
                apart = [names[i] for i in differ]
                self.record.fail("replicas differ", step=step, parameters=apart, ranks=[first, rank], of=len(names))
                return
