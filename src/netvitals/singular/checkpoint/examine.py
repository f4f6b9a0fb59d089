r"""Dead directions of one checkpoint that need no rate: norm kernels, the stream's floor, V–O, redundancy of units.

These readings are static: they hold in any phase of training and for any optimiser (dead-directions §12.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from netvitals.capture import Reading
from netvitals.singular.checkpoint.attention import ValueOutput, value_output
from netvitals.singular.checkpoint.layernorm import KernelTest, ln_kernel_test
from netvitals.singular.checkpoint.stream import StreamSigma, sigma_stream
from netvitals.singular.moments.schur import SchurProfile, schur_profile


@dataclass(frozen=True)
class Examination:
    """What could be measured, and for the rest why not."""

    kernels: tuple[KernelTest, ...] = ()
    stream: StreamSigma | None = None
    attention: tuple[ValueOutput, ...] = ()
    schur: tuple[SchurProfile, ...] = ()
    skipped: dict[str, str] | None = None

    def readings(self) -> tuple[Reading, ...]:
        """The numbers, as a checkup stores them."""
        out = [
            Reading(0, "norm_kernel", t.norm, m, v)
            for t in self.kernels
            for m, v in (("overlap", t.overlap), ("variance", t.variance), ("passes", float(t.passes)))
        ]
        if self.stream is not None:
            s = self.stream
            out += [
                Reading(0, "stream_floor", node, m, v)
                for i, node in enumerate(s.nodes)
                for m, v in (
                    ("sigma_r", s.sigma[i]),
                    ("sigma_1", s.largest[i]),
                    ("rank", float(s.ranks[i])),
                    ("ratio", s.ratio[i]),
                )
            ]
        out += [
            Reading(0, "value_output", f"{a.layer}, head {a.head}", m, v)
            for a in self.attention
            for m, v in (("difference", a.difference), ("weakest", a.weakest))
        ]
        out += [
            Reading(0, "schur", p.layer, m, v)
            for p in self.schur
            for m, v in (("share", p.median), ("reference", p.reference), ("silent", float(p.silent)))
        ]
        return tuple(out)

    def __str__(self) -> str:
        lines = [
            *map(str, self.kernels),
            *([str(self.stream)] if self.stream is not None else []),
            *map(str, self.attention),
            *map(str, self.schur),
        ]
        return "\n".join([*lines, *(f"not measured: {n}: {why}" for n, why in (self.skipped or {}).items())])


def examination(model: nn.Module, batch: tuple[Any, Tensor], loss: str = "ce") -> Examination:
    """All static readings of ``model`` on one batch (inputs, targets); the model is left as it was.

    >>> import torch
    >>> net = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.ReLU(), nn.Linear(6, 3))
    >>> found = examination(net, (torch.randn(40, 4), torch.zeros(40, dtype=torch.long)))
    >>> found.kernels[0].passes, found.stream is None, [p.layer for p in found.schur]
    (True, True, ['3'])
    """
    skipped: dict[str, str] = {}

    def attempt(name: str, measure: Any) -> Any:
        try:
            return measure()
        except (ValueError, RuntimeError, TypeError) as error:  # one that does not apply must not hide the others
            skipped[name] = str(error).split("\n")[0]
            return None

    kernels = attempt("norm kernels", lambda: ln_kernel_test(model, batch))
    stream = attempt("stream", lambda: sigma_stream(model, batch))
    attention = attempt("attention", lambda: value_output(model, batch, loss))
    schur = attempt("redundancy", lambda: schur_profile(model, batch))
    return Examination(kernels or (), stream, attention or (), schur or (), skipped)
