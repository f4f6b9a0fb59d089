r"""Find the gauges of a model by itself, and prove each of them before use.

Looked for: units between two layers joined by positively homogeneous operations (ReLU and its square, LeakyReLU, PReLU,
pooling, reshaping), norms whose scale is undone by the layers that read them, the value branch of gated MLPs, values
with outputs and queries with keys of attention, and the shift of all logits under cross-entropy. Every candidate is
moved along its orbit on a float64 copy of the model; only those that leave the loss unchanged are kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.nn import Parameter

from netvitals.capture import LossFn, Result, one_screen, undisturbed
from netvitals.optim.candidates import found_candidates
from netvitals.optim.gauges import Gauge, shared_weights
from netvitals.optim.invariance import Invariant, invariant_of

_TOLERANCE = 1e-8  # relative change of the loss, in float64, that still counts as none


@dataclass(frozen=True)
class Gauges(Result):
    """The symmetries (gauges) found in a model, the loss change measured for each, and the parameters for which no
    symmetry was found.

    Returned by :func:`find_gauges`.

    Attributes:
        gauges: specs, to be given to :class:`BalancedAdam`.
        residuals: relative change of the loss along the orbit of each, by name.
        skipped: parameter or candidate → reason.
    """

    gauges: tuple[Gauge, ...]
    residuals: dict[str, float]
    skipped: dict[str, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Gauge]:
        return iter(self.gauges)

    def __len__(self) -> int:
        return len(self.gauges)

    def disjoint(self) -> tuple[Gauge, ...]:
        """Select gauges that share no weights, as :class:`DDCAdam` needs; most free directions first."""
        kept: list[Gauge] = []
        for gauge in sorted(self.gauges, key=lambda g: -g.modes):
            if shared_weights([*kept, gauge]) is None:
                kept.append(gauge)
        return tuple(kept)

    def rows(self) -> list[dict[str, Any]]:
        """One row per gauge."""
        return [
            {
                "gauge": g.name,
                "kind": type(g).__name__.lower(),
                "modes": g.modes,
                "parameters": sum(p.numel() for p in g.params),
                "residual": self.residuals[g.name],
            }
            for g in self.gauges
        ]

    def to_dict(self) -> dict[str, Any]:
        """Convert to a dict: the table of gauges and what was skipped, without the parameter tensors."""
        return {"gauges": self.rows(), "skipped": dict(self.skipped)}

    def __str__(self) -> str:
        lines = [f"{g} (loss changes by {self.residuals[g.name]:.1e} along the orbit)" for g in self.gauges]
        return one_screen(
            [
                *(lines or ["no gauge found: BalancedAdam is AdamW here"]),
                *(f"left to AdamW: {n}: {why}" for n, why in self.skipped.items()),
            ]
        )


@undisturbed
def find_gauges(model: nn.Module, loss_fn: LossFn = "ce", batch: Any = None, *, seed: int = 0) -> Gauges:
    """Find parameter symmetries (gauges) that leave the loss unchanged, for :class:`BalancedAdam`.

    Args:
        model: a model; it is run in eval mode (dropout off) and not changed.
        loss_fn: "ce", "mse", torch's losses of that kind, or any function of (output, target).
        batch: one batch as a data loader yields it; without it an input is guessed from the first layer. A loss of
            one's own needs a target.
        seed: seed of the random move along each symmetry.

    Returns:
        The gauges, each verified on a float64 copy, and the parameters without one, with the reason.

    >>> print(find_gauges(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), "mse"))
    no gauge found: BalancedAdam is AdamW here
    left to AdamW: 0 → 2: tanh in between does not scale
    """
    net = invariant_of(model, loss_fn, batch)
    candidates, skipped, unlinked = found_candidates(net, guessed=batch is None)
    kept, residuals = proved(net, candidates, skipped, seed)
    covered = {p for gauge in kept for p in gauge.params}
    skipped |= {n: why for n, (weight, why) in unlinked.items() if weight not in covered}
    return Gauges(tuple(kept), residuals, skipped)


def proved(
    net: Invariant, candidates: Iterable[Gauge], skipped: dict[str, str], seed: int
) -> tuple[list[Gauge], dict[str, float]]:
    """The candidates that hold, and the change of the loss along their orbits."""
    names = {p: n for n, p in net.task.model.named_parameters()}
    tied = _tied(net.task.model)
    kept: list[Gauge] = []
    residuals: dict[str, float] = {}
    for gauge in candidates:
        residual = math.nan
        why = _unfit(gauge, names, tied)
        if not why:
            residual = net.change_along(gauge, seed)
            if not residual <= _TOLERANCE:
                why = f"the loss changes by {residual:.1e} along this symmetry"
        if why:
            skipped[gauge.name] = why
            continue
        kept.append(gauge)
        residuals[gauge.name] = residual
    return kept, residuals


def _unfit(gauge: Gauge, names: dict[Parameter, str], tied: set[Parameter]) -> str:
    """Why a gauge cannot be used whatever the loss does along it; empty where it can."""
    if shared := [names[p] for p in gauge.params if p in tied]:
        return f"{', '.join(shared)} is tied: scaling it changes both of its uses"
    if still := [names[p] for p in gauge.params if not p.requires_grad]:
        return f"{', '.join(still)} is frozen: a gauge moves all of its parameters"
    try:
        gauge.check()
    except ValueError as error:
        return str(error)
    return ""


@undisturbed
def orbit_change(model: nn.Module, loss_fn: LossFn, batch: Any, *, gauge: Gauge, seed: int = 0) -> float:
    """Measure the relative loss change when a float64 copy of the model is moved along a symmetry (gauge).

    Args:
        model: a model; it is run in eval mode and not changed.
        loss_fn: "ce", "mse", torch's losses of that kind, or any function of (output, target).
        batch: one batch as a data loader yields it.
        gauge: a symmetry of parameters of ``model``.
        seed: seed of the random move.

    Returns:
        Zero, up to rounding, if the loss really has this symmetry.

    >>> import torch
    >>> from netvitals.optim import relu_rescale
    >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> gauge = relu_rescale(net[0].weight, net[2].weight, net[0].bias)
    >>> orbit_change(net, "ce", (torch.randn(8, 3), torch.zeros(8, dtype=torch.long)), gauge=gauge) < 1e-9
    True
    """
    return invariant_of(model, loss_fn, batch).change_along(gauge, seed)


def _tied(model: nn.Module) -> set[Parameter]:
    seen: dict[Parameter, int] = {}
    for _, p in model.named_parameters(remove_duplicate=False):
        seen[p] = seen.get(p, 0) + 1
    return {p for p, count in seen.items() if count > 1}
