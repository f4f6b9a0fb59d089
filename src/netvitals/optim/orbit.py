"""Where on its orbit a gauge's parameters sit, and what its charge is to be compared with."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from netvitals.optim.gauges import Gauge, Rescale


@dataclass(frozen=True)
class GaugeDrift:
    """One gauge, now against then."""

    gauge: str
    charge: float  # root mean square over modes
    charge_moved: float  # change of the charge, over the energy ‖W‖² it is a difference of (shift: over the spread)
    orbit_moved: float  # root mean square change of the position on the orbit: log scale, or mean of the logits

    def __str__(self) -> str:
        return f"{self.gauge}: moved {self.orbit_moved:.3g} along its orbit, charge by {self.charge_moved:.2%}"


def orbit_position(gauge: Gauge) -> Tensor:
    """Where on its orbit a gauge's parameters sit: half log ratios of neighbouring norms, or means over classes."""
    if isinstance(gauge, Rescale):
        return 0.5 * gauge.norms().clamp_min(1e-30).log().diff(dim=0).reshape(-1)
    return gauge.charge()


def gauge_energy(gauge: Gauge) -> Tensor:
    """What the charge is compared with: the sum of squared norms, or the spread of the logits' parameters."""
    if isinstance(gauge, Rescale):
        return gauge.norms().square().sum() / max(1, gauge.channels)
    return gauge.param.detach().std(correction=0)
