"""A disease as data: how it is planted, where, since when, how grave, and which finding should name it."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from netvitals_lab.clinic.patients import patient
from netvitals_lab.clinic.session import Session

GRADES = ("mild", "moderate", "gross")
FAMILIES = (
    "step size",
    "initialisation",
    "nonlinearity",
    "signal",
    "optimisation bug",
    "data",
    "precision",
    "dynamics",
)


@dataclass(frozen=True, kw_only=True)
class Disease:
    """One way in which training goes wrong."""

    name: str
    family: str
    hosts: tuple[str, ...]
    dial: tuple[float, float, float]
    plant: Callable[[Session, float], None]
    cause: tuple[str, ...]
    symptoms: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    onset: int = 0
    curable: bool = True

    def session(self, seed: int, grade: str = "moderate", size: int = 0) -> Session:
        """A session that has it."""
        found = self.host(seed, size)
        self.plant(found, self.dial[GRADES.index(grade)])
        return found

    def host(self, seed: int, size: int = 0) -> Session:
        """The same session without the disease."""
        return patient(self.hosts[seed % len(self.hosts)], seed, size)

    def is_at(self, places: tuple[str, ...]) -> bool:
        """Whether some of the places that a finding names are where the disease sits."""
        return not self.where or any(fnmatch.fnmatch(place, pattern) for place in places for pattern in self.where)


def layers(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Linear and convolution layers in the order of the model, with their names."""
    return [(n, m) for n, m in model.named_modules() if isinstance(m, nn.Linear | nn.Conv2d)]


def middle(model: nn.Module) -> nn.Module:
    """A hidden layer in the middle of a model."""
    found = layers(model)
    return found[len(found) // 2 - (len(found) == 2)][1]
