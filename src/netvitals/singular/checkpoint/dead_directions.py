r"""Dead directions of one checkpoint that need no rate: norm kernels, the stream's floor, V–O, redundancy of units.

These measurements are static: they hold in any phase of training and for any optimiser (dead-directions §12.1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from netvitals.capture import LossFn, Measurement, Result, inputs_of, likelihood_of, one_screen, undisturbed
from netvitals.singular.checkpoint.attention import ValueOutput, value_output
from netvitals.singular.checkpoint.layernorm import KernelTest, ln_kernel_test
from netvitals.singular.checkpoint.stream import StreamSigma, sigma_stream
from netvitals.singular.moments.schur import SchurProfile, schur_profile


@dataclass(frozen=True, kw_only=True)
class DeadDirections(Result):
    """What could be measured, and for the rest why not.

    Returned by :func:`measure`.

    Attributes:
        kernels: directions that a norm takes out, layer by layer.
        stream: the weakest direction that is active in the residual stream.
        attention: value and output projections, head by head.
        schur: how much of each layer's input the others explain.
        skipped: what could not be measured → reason.
    """

    kernels: tuple[KernelTest, ...] = ()
    stream: StreamSigma | None = None
    attention: tuple[ValueOutput, ...] = ()
    schur: tuple[SchurProfile, ...] = ()
    skipped: dict[str, str] = field(default_factory=dict)

    def measurements(self) -> tuple[Measurement, ...]:
        """The numbers, as a checkup stores them."""
        out = [
            _reading("norm_kernel", t.norm, m, v)
            for t in self.kernels
            for m, v in (("overlap", t.overlap), ("variance", t.variance), ("passes", float(t.passes)))
        ]
        if self.stream is not None:
            s = self.stream
            out += [
                _reading("stream_floor", node, m, v)
                for i, node in enumerate(s.nodes)
                for m, v in (
                    ("sigma_r", s.sigma[i]),
                    ("sigma_1", s.largest[i]),
                    ("rank", float(s.ranks[i])),
                    ("ratio", s.ratio[i]),
                )
            ]
        out += [
            _reading("value_output", f"{a.layer}, head {a.head}", m, v)
            for a in self.attention
            for m, v in (("difference", a.difference), ("weakest", a.weakest))
        ]
        out += [
            _reading("schur", p.layer, m, v)
            for p in self.schur
            for m, v in (("share", p.median), ("reference", p.reference), ("silent", float(p.silent)))
        ]
        return tuple(out)

    def rows(self) -> list[dict[str, Any]]:
        """One row a measurement: what was read, where, and the value."""
        return [{"reading": r.vital, "site": r.site, "metric": r.metric, "value": r.value} for r in self.measurements()]

    def __str__(self) -> str:
        lines = [
            *map(str, self.kernels),
            *([str(self.stream)] if self.stream is not None else []),
            *map(str, self.attention),
            *map(str, self.schur),
        ]
        return one_screen([*lines, *(f"not measured: {n}: {why}" for n, why in self.skipped.items())])


def _reading(vital: str, site: str, metric: str, value: float) -> Measurement:
    return Measurement(step=0, vital=vital, site=site, metric=metric, value=value)


@undisturbed
def measure(model: nn.Module, loss_fn: LossFn, batch: Any, *, seed: int = 0) -> DeadDirections:
    """All static measurements of ``model`` on one batch; the model is run in eval mode and not changed.

    Args:
        model: the model.
        loss_fn: "ce", "mse", or torch's losses of that kind; it fixes the likelihood that V–O is read under.
        batch: one batch as a data loader yields it. Without a target the attention layers are skipped.
        seed: of the networks drawn anew, beside which redundancy is read.

    Returns:
        What could be measured, and for the rest why not.

    >>> import torch
    >>> net = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.ReLU(), nn.Linear(6, 3))
    >>> found = measure(net, "ce", (torch.randn(40, 4), torch.zeros(40, dtype=torch.long)))
    >>> found.kernels[0].passes, found.stream is None, [p.layer for p in found.schur]
    (True, True, ['3'])
    """
    task = inputs_of(model, batch)
    kind = likelihood_of(loss_fn, task.targets[0] if task.targets else None)
    skipped: dict[str, str] = {}

    def attempt(name: str, reading: Callable[[], Any]) -> Any:
        try:
            found = reading()
        except (ValueError, RuntimeError, TypeError) as error:  # one that does not apply must not hide the others
            skipped[name] = str(error).split("\n")[0]
            return None
        skipped.update({f"{name}: {place}": why for place, why in found.skipped.items()})
        return found

    return DeadDirections(
        kernels=tuple(attempt("norm kernels", lambda: ln_kernel_test(model, batch)) or ()),
        stream=attempt("stream", lambda: sigma_stream(model, batch)),
        attention=tuple(attempt("attention", lambda: value_output(model, kind, batch)) or ()),
        schur=tuple(attempt("redundancy", lambda: schur_profile(model, batch, seed=seed)) or ()),
        skipped=skipped,
    )
