r"""Gauge drift: how far the optimiser has carried the weights along directions that change nothing.

Of a rescale $(W_1, W_2) \to (cW_1, W_2/c)$: the Noether charge $\|W_2\|^2 - \|W_1\|^2$, which gradient flow conserves,
and the position on the orbit $\frac12\log(\rho_1/\rho_2)$. Of a shift of all logits: the mean over classes. SGD moves
none of them but for its step size; Adam does, though no gradient points there (dead-directions Remark 81, X27).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from netvitals.capture import ParameterView, Recorder, Vital
from netvitals.optim import Gauge, Gauges, Rescale, find_gauges

METRICS = ("charge", "charge_moved", "orbit_moved")


@dataclass(frozen=True)
class GaugeDrift:
    """One gauge, now against then."""

    gauge: str
    charge: float  # root mean square over modes
    charge_moved: float  # change of the charge, over the energy ‖W‖² it is a difference of (shift: over the spread)
    orbit_moved: float  # root mean square change of the position on the orbit: log scale, or mean of the logits

    def __str__(self) -> str:
        return f"{self.gauge}: moved {self.orbit_moved:.3g} along its orbit, charge by {self.charge_moved:.2%}"


def position(gauge: Gauge) -> Tensor:
    """Where on its orbit a gauge's parameters sit: half log ratios of neighbouring norms, or means over classes."""
    if isinstance(gauge, Rescale):
        return 0.5 * gauge.norms().clamp_min(1e-30).log().diff(dim=0).reshape(-1)
    return gauge.charge()


def energy(gauge: Gauge) -> Tensor:
    """What the charge is compared with: the sum of squared norms, or the spread of the logits' parameters."""
    if isinstance(gauge, Rescale):
        return gauge.norms().square().sum() / max(1, gauge.channels)
    return gauge.param.detach().std(correction=0)


class GaugeCharges(Vital):
    """``charge``, ``charge_moved`` and ``orbit_moved`` of every gauge, at a site with the gauge's name.

    Args:
        gauges: from :func:`netvitals.optim.find_gauges`, or specs of one's own; or the model, in which they are looked
            for with a guessed input.
    """

    name = "gauge_charges"

    def __init__(self, gauges: Gauges | Iterable[Gauge] | nn.Module) -> None:
        found = find_gauges(gauges) if isinstance(gauges, nn.Module) else gauges
        self.gauges = tuple(found)
        if not self.gauges:
            raise ValueError(
                "no gauge was given or found, so there is no drift to measure; find_gauges(model, loss_fn, batch) "
                "says why"
            )
        self._start = [(g.charge().clone(), position(g).clone()) for g in self.gauges]

    def drifts(self) -> tuple[GaugeDrift, ...]:
        """All gauges now, against when this was made."""
        rows = torch.stack([self._row(i) for i in range(len(self.gauges))]).tolist()
        return tuple(GaugeDrift(g.name, *row) for g, row in zip(self.gauges, rows))

    def _row(self, i: int) -> Tensor:
        gauge, (charge, place) = self.gauges[i], self._start[i]
        now, here = gauge.charge(), position(gauge)
        moved = (now - charge).square().mean().sqrt() / energy(gauge).clamp_min(1e-30)
        return torch.stack([now.square().mean().sqrt(), moved, (here - place).square().mean().sqrt()]).float()

    def parameters(self, recorder: Recorder, view: ParameterView) -> None:
        rows = torch.stack([self._row(i) for i in range(len(self.gauges))])
        recorder.write([g.name for g in self.gauges], METRICS, rows)
