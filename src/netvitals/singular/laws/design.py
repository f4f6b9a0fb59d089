r"""The rate profile of a design as an objective: how steep is its ladder (dead-directions §15)?

The exponents of $G_\ell$ say how fast a dead direction loses its gradient with depth. A skip or a LayerNorm makes the
ladder shallow, depth alone makes it steep. Designs are compared before training, from their anatomy alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from netvitals.capture import Result, one_screen
from netvitals.singular.laws.prediction import Rates, predict_rates

OBJECTIVES = ("shallow", "steep")


@dataclass(frozen=True, kw_only=True)
class DesignProfile(Result):
    """One design and the steepness of its ladder.

    Part of :class:`DesignRanking`.

    Attributes:
        name: of the design.
        rates: what its anatomy predicts.
    """

    name: str
    rates: Rates

    @property
    def exponents(self) -> tuple[float, ...]:
        """Of G, by layer; layers without a law are left out."""
        return tuple(v for v in self.rates.G.values() if v is not None)

    @property
    def steepness(self) -> float:
        """The mean exponent of G over the layers that have one."""
        return sum(self.exponents) / len(self.exponents) if self.exponents else 0.0

    @property
    def deepest(self) -> float:
        """The largest exponent."""
        return max(self.exponents, default=0.0)


@dataclass(frozen=True, kw_only=True)
class DesignRanking(Result):
    """Designs by the objective, the best first.

    Returned by :func:`rank_designs`.

    Attributes:
        designs: with their profiles.
        objective: ``shallow`` or ``steep``.
        skipped: design → why it has no profile.
    """

    designs: tuple[DesignProfile, ...]
    objective: str
    skipped: Mapping[str, str] = field(default_factory=dict)

    @property
    def best(self) -> DesignProfile:
        """The first."""
        return self.designs[0]

    def rows(self) -> list[dict[str, Any]]:
        """One row a design."""
        return [
            {"design": d.name, "steepness": d.steepness, "deepest": d.deepest, "exponents": list(d.exponents)}
            for d in self.designs
        ]

    def __str__(self) -> str:
        lines = [f"  {d.name:24s} mean exponent {d.steepness:.2f}, largest {d.deepest:g}" for d in self.designs]
        refused = [f"  not here: {name}, {why}" for name, why in self.skipped.items()]
        return one_screen([f"designs, the most {self.objective} ladder first", *lines, *refused])


def rank_designs(designs: Mapping[str, nn.Module], batch: Any, *, objective: str = "shallow") -> DesignRanking:
    """Order designs by the mean exponent of their gradient factors, from their anatomy; nothing is trained.

    Args:
        designs: modules by name.
        batch: inputs that all of them take.
        objective: "shallow" (dead directions keep their gradient) or "steep".

    Returns:
        The designs, the best first; those with a part that has no law are in ``skipped``.

    >>> import torch
    >>> plain = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    >>> normed = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    >>> [(d.name, d.steepness) for d in rank_designs({"plain": plain, "normed": normed}, torch.ones(2, 3)).designs]
    [('normed', 0.0), ('plain', 2.0)]
    """
    if objective not in OBJECTIVES:
        raise ValueError(f"objective= must be one of {', '.join(OBJECTIVES)}, got {objective!r}")
    if not designs:
        raise ValueError("designs= is empty: give a mapping from name to module with at least one entry")
    found: list[DesignProfile] = []
    skipped: dict[str, str] = {}
    for name, model in designs.items():
        try:
            found.append(DesignProfile(name=name, rates=predict_rates(model, batch)))
        except ValueError as error:
            skipped[name] = str(error)
    if not found:
        raise ValueError(
            f"rates cannot be predicted for any of the designs. For the first one: {next(iter(skipped.values()))}"
        )
    ordered = sorted(found, key=lambda d: d.steepness, reverse=objective == "steep")
    return DesignRanking(designs=tuple(ordered), objective=objective, skipped=skipped)
