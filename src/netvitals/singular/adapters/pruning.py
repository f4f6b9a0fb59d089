r"""What it costs to take a hidden unit out, read from its rate: $K \approx F_v t^2 / 2k^2$ (dead-directions §15).

Scaling a unit's incoming row and outgoing column to zero together leads to a singular point at distance
$t = \|(a, c)\|$. Along that ray the Fisher form falls as $t^{2(k-1)}$, and $F_v t^2 / K = 2k^2$ (Theorem 2): the form
at the checkpoint and its exponent give the divergence that pruning will cost, in nats, without pruning anything. With
k = 1, the regular guess, it would be $\tfrac12 F_v t^2$, four times too much for a unit of order 2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from netvitals.anatomy import chart, plain_kernels
from netvitals.capture import (
    LossFn,
    Only,
    Result,
    Task,
    check_finite,
    in_double,
    inputs_of,
    likelihood_of,
    one_screen,
    picked,
    resolve_loss,
    undisturbed,
)
from netvitals.singular.checkpoint.candidates import layer_pairs
from netvitals.singular.checkpoint.pairs import Moves, Pair
from netvitals.singular.orders.nature import along_task
from netvitals.singular.orders.order import directional_fisher

_SHOWN = 12  # units in the text
_INWARD = 0.5  # of the way to the singular point, where the exponent is read


@dataclass(frozen=True, kw_only=True)
class UnitCost(Result):
    """One hidden unit, and what taking it out is predicted to cost.

    Part of :class:`PruningPlan`.

    Attributes:
        place: ``writer → reader``.
        unit: its index.
        cost: predicted divergence from the model as it is, in nats per example.
        fisher: the Fisher form along the ray at the checkpoint.
        distance: t, the length of row and column together.
        order: k, from the exponent of the form half way in.
    """

    place: str
    unit: int
    cost: float
    fisher: float
    distance: float
    order: float
    _removal: Moves = field(repr=False, default_factory=dict)

    @property
    def regular_cost(self) -> float:
        """With k = 1: ½ F t²."""
        return self.fisher * self.distance**2 / 2

    def row(self) -> dict[str, Any]:
        """Names and numbers, for a table."""
        names = ("place", "unit", "cost", "regular_cost", "fisher", "distance", "order")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, kw_only=True)
class PruningPlan(Result):
    """Hidden units by what taking them out costs, the cheapest first.

    Returned by :func:`pruning_plan`.

    Attributes:
        units: one entry a unit.
        likelihood: ``gaussian`` or ``categorical``.
        skipped: place → why it has none.
    """

    units: tuple[UnitCost, ...]
    likelihood: str
    skipped: Mapping[str, str] = field(default_factory=dict)

    def under(self, budget: float) -> tuple[UnitCost, ...]:
        """The cheapest units whose costs add up to no more than ``budget`` nats; of one unit they are exact to the
        order, of several an estimate, because units answer for each other.
        """
        taken, total = [], 0.0
        for unit in self.units:
            total += unit.cost
            if total > budget:
                break
            taken.append(unit)
        return tuple(taken)

    def without(self, model: nn.Module, units: Iterable[UnitCost]) -> dict[str, Tensor]:
        """The state dict of ``model`` with rows, biases and columns of some units set to zero.

        Args:
            model: the one that the plan is of; it stays as it is.
            units: of this plan.

        Returns:
            A state dict to load.
        """
        state = {name: value.clone() for name, value in model.state_dict().items()}
        for unit in units:
            for name, move in unit._removal.items():
                if name not in state or state[name].shape != move.shape:
                    raise ValueError(
                        f"this pruning plan was made for another model: {name} does not fit {type(model).__name__}; "
                        "make a new plan"
                    )
                state[name][move.to(state[name].device) != 0] = 0
        return state

    def rows(self) -> list[dict[str, Any]]:
        """One row a unit."""
        return [u.row() for u in self.units]

    def __str__(self) -> str:
        lines = [
            f"  {u.place}, unit {u.unit}: {u.cost:.3g} nats (order {u.order:.2f}, t = {u.distance:.3g})"
            for u in self.units[:_SHOWN]
        ]
        more = [f"  … {len(self.units) - _SHOWN} more"] if len(self.units) > _SHOWN else []
        return one_screen([f"{len(self.units)} units, the cheapest to take out first", *lines, *more])


@undisturbed
def pruning_plan(model: nn.Module, loss_fn: LossFn, batch: Any, *, only: Only = None) -> PruningPlan:
    """Rank the hidden units of a model by the predicted KL divergence of removing each of them.

    Args:
        model: any; a float64 copy of it is run in eval mode.
        loss_fn: "ce", "mse", or torch's losses of that kind: it fixes the likelihood.
        batch: one batch as a data loader yields it; a target is not used.
        only: names or patterns of places ``writer → reader``, or a function of a name.

    Returns:
        The units, the smallest predicted divergence first; ``without`` returns a model without some of them.

    >>> net = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Tanh(), nn.Linear(4, 2))
    >>> with torch.no_grad():
    ...     net[0].weight[2] = 0
    >>> plan = pruning_plan(net, "mse", torch.randn(20, 3))
    >>> plan.units[0].unit, plan.units[0].cost
    (2, 0.0)
    >>> int((plan.without(net, plan.units[:2])["2.weight"] == 0).all(0).sum())
    2
    """
    resolve_loss(loss_fn)
    task = inputs_of(model, batch)
    kind = likelihood_of(loss_fn, task.targets[0] if task.targets else None)
    if not task.examples:
        raise ValueError("the batch is empty: give at least one example")
    check_finite((task.args, dict(task.kwargs)), "the batch")
    family = {"ce": "categorical", "mse": "gaussian"}[kind]
    task = in_double(task)
    task.model.eval()
    with plain_kernels():
        given = (task.args, dict(task.kwargs))
        anatomy = chart(task.model, given, forward=lambda net, data: net(*data[0], **data[1]))
    known: dict[str, Tensor] = dict(task.model.named_parameters(remove_duplicate=False))
    skipped: dict[str, str] = {}
    pairs = {p.name: p for p in layer_pairs(anatomy, known, skipped) if p.kind == "unit"}
    if not pairs:
        raise ValueError(
            f"{type(model).__name__} has no hidden units to prune: pruning needs two layers with hidden units between "
            "them"
        )
    found = [
        _cost(task, family, pairs[name], known, unit)
        for name in picked(pairs, only, "place")
        for unit in range(len(pairs[name].reader.at))
    ]
    return PruningPlan(units=tuple(sorted(found, key=lambda u: u.cost)), likelihood=family, skipped=skipped)


def _cost(task: Task, family: str, pair: Pair, known: Mapping[str, Tensor], unit: int) -> UnitCost:
    chosen = torch.zeros(len(pair.reader.at), 1, dtype=torch.float64)
    chosen[unit] = 1
    removal = pair.moves(known, -pair.rows(known) * chosen, -pair.columns(known) * chosen)
    distance = math.sqrt(sum(float(v.square().sum()) for v in removal.values()))
    if distance == 0:
        return UnitCost(place=pair.name, unit=unit, cost=0.0, fisher=0.0, distance=0.0, order=2.0, _removal=removal)
    outputs, theta, ray = along_task(task, removal)
    v = ray / distance
    here, inward = (float(directional_fisher(outputs, theta + s * ray, v, family)) for s in (0.0, _INWARD))
    order = 1.0
    if here > 0 and inward > 0:  # F ~ t^{2(k−1)}; a form that does not fall is that of a regular direction
        order = max(1.0, 1 + math.log(here / inward) / math.log(1 / (1 - _INWARD)) / 2)
    cost = here * distance**2 / (2 * order**2)
    return UnitCost(
        place=pair.name, unit=unit, cost=cost, fisher=here, distance=distance, order=order, _removal=removal
    )
