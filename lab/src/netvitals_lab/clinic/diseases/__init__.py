"""Every disease of the clinic, one file a family."""

from netvitals_lab.clinic.disease import Disease
from netvitals_lab.clinic.diseases import beginnings, bugs, dynamics, inputs, signals, steps, units

DISEASES: tuple[Disease, ...] = (
    *steps.DISEASES,
    *beginnings.DISEASES,
    *units.DISEASES,
    *signals.DISEASES,
    *bugs.DISEASES,
    *inputs.DISEASES,
    *dynamics.DISEASES,
)

__all__ = ["DISEASES", "Disease"]
