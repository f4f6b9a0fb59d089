r"""Gauge or singular? Both have a vanishing Fisher form at the point; only a gauge direction keeps it along the way.

Along a gauge direction the model does not change at all: $K(\theta_0 + t v) = 0$ for every t. Along a singular one it
changes at order $t^{2k}$, k ≥ 2. A single-layer K-FAC bottom of a dead unit is of the first kind, the joint mode of its
row and column of the second (dead-directions Corollary 28).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from netvitals.anatomy import plain_kernels
from netvitals.capture import Result, Task, in_double, inputs_of, output_tensor
from netvitals.singular.orders.likelihood import Likelihood
from netvitals.singular.orders.order import DEFAULT_TS, KLOrder, Outputs, kl_order


@dataclass(frozen=True)
class Nature(Result):
    """What a direction is."""

    verdict: str  # "gauge", "singular", "regular", "unclear"
    order: int | None
    scan: KLOrder

    def __str__(self) -> str:
        return (
            self.verdict
            + (f" of order {self.order}" if self.order and self.order > 1 else "")
            + (f": {self.scan.note}" if self.scan.note else "")
        )


def gauge_or_singular(
    outputs: Outputs,
    theta0: Tensor,
    direction: Tensor,
    likelihood: str | Likelihood = "gaussian",
    *,
    ts: Sequence[float] = DEFAULT_TS,
    shift: bool = False,
) -> Nature:
    """Decide whether a direction is a gauge symmetry, singular or regular, by measuring the divergence along it.

    Args:
        outputs: θ (D,) → outputs (n, d) on fixed inputs.
        theta0: the point (D,), ideally on the singular set.
        direction: any non-zero vector (D,); it is normalised.
        likelihood: ``"gaussian"`` (``"mse"``), ``"categorical"`` (``"ce"``), or an object with ``fisher`` and ``kl``.
        ts: distances t > 0 along the direction at which to look; 10 from 0.001 to 0.05 by default.
        shift: ``theta0`` is only near the singular set: its distance is fitted.

    Returns:
        "gauge", "singular", "regular" or "unclear", with the order and the scan.

    >>> f = lambda th: (th[0] * th[1]).reshape(1, 1)
    >>> axis, both = torch.eye(2, dtype=torch.float64)[0], torch.ones(2, dtype=torch.float64)
    >>> zero = torch.zeros(2, dtype=torch.float64)
    >>> gauge_or_singular(f, zero, axis).verdict, str(gauge_or_singular(f, zero, both))
    ('gauge', 'singular of order 2')
    """
    scan = kl_order(outputs, theta0, direction, likelihood, ts=ts, shift=shift)
    return Nature(verdict_of(scan), scan.order, scan)


def verdict_of(scan: KLOrder) -> str:
    """The kind of direction that a scan shows."""
    if scan.note.startswith("gauge"):
        return "gauge"
    if scan.order is None:
        return "unclear"
    if scan.order == 1:
        return "regular"
    asymptotic = not any("shift is as large" in f for f in scan.fisher_fit.flags)
    return "singular" if asymptotic else "unclear"


def along(model: nn.Module, batch: Any, *, direction: Mapping[str, Tensor]) -> tuple[Outputs, Tensor, Tensor]:
    """A model as a function of the parameters that ``direction`` moves; the model itself is not touched.

    Args:
        model: a copy of it in float64 is run, in the mode it is in.
        batch: one batch as a data loader yields it; a target is not used.
        direction: by parameter name, of the parameter's shape.

    Returns:
        Outputs as a function of the flat parameters, θ0, and the flat direction. Positions of a sequence count as
        examples.

    >>> net = nn.Linear(2, 1)
    >>> outputs, theta, v = along(net, torch.randn(8, 2), direction={"weight": torch.ones(1, 2)})
    >>> tuple(outputs(theta).shape), theta.shape == v.shape
    ((8, 1), True)
    """
    return along_task(in_double(inputs_of(model, batch)), {n: v.double() for n, v in direction.items()})


def along_task(task: Task, direction: Mapping[str, Tensor]) -> tuple[Outputs, Tensor, Tensor]:
    """The same for a batch that was taken apart before."""
    model = task.model
    params = dict(model.named_parameters(remove_duplicate=False))  # a tied weight moves wherever it is used
    if missing := [n for n in direction if n not in params]:
        raise ValueError(
            f"direction= has an entry for {missing[0]!r}, which is not a parameter of {type(model).__name__}; use "
            "names from model.named_parameters()"
        )
    if wrong := [n for n in direction if direction[n].shape != params[n].shape]:
        raise ValueError(
            f"direction[{wrong[0]!r}] has shape {tuple(direction[wrong[0]].shape)}, but the parameter has shape "
            f"{tuple(params[wrong[0]].shape)}; both must be equal"
        )
    names = list(direction)
    shapes = [params[n].shape for n in names]
    theta = torch.cat([params[n].detach().flatten() for n in names])
    v = torch.cat([direction[n].flatten() for n in names])
    if len({id(params[n]) for n in names}) < len(names):
        raise ValueError(
            "two entries of direction= name the same tied parameter: give only one of them. The entries are "
            f"{', '.join(names)}"
        )
    moved_ids = {id(params[n]) for n in names}
    rest = {n: p.detach() for n, p in model.named_parameters() if id(p) not in moved_ids}

    def outputs(flat: Tensor) -> Tensor:
        pieces = torch.split(flat, [s.numel() for s in shapes])
        moved = {n: p.reshape(s) for n, p, s in zip(names, pieces, shapes)}
        with plain_kernels():
            found = functional_call(model, {**rest, **moved}, task.args, dict(task.kwargs))
        return output_tensor(found, model).flatten(0, -2)

    return outputs, theta, v
