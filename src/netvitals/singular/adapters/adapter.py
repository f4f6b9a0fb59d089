r"""Low-rank adapters placed where the old task cannot see them.

A linear layer $z = Wx + b$ with $\Delta W = UD$ changes the old outputs by $U D (x - \mu)$. If the rows of D lie in the
kernel of the old inputs' covariance, that is zero for every U of any size: the directions are tangential, K ≡ 0. Within
the kernel D takes the directions in which the new task's inputs vary most. Layers adapt together: each still sees its
old inputs. Where the covariance has no kernel, the weakest directions are taken and the leak is stated.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from netvitals.capture import Only, Result, batches_of, check_finite, inputs_of, mapped, one_screen, picked

_KERNEL = 1e-10  # of the largest eigenvalue of the old covariance, float64


class LowRank(nn.Module):
    """A frozen linear layer plus ``up @ down @ (x − mean)``; only ``up`` is trained, from zero."""

    down: Tensor
    mean: Tensor

    def __init__(self, linear: nn.Linear, down: Tensor, mean: Tensor) -> None:
        super().__init__()
        self.linear = linear.requires_grad_(False)
        self.register_buffer("down", down.to(linear.weight))
        self.register_buffer("mean", mean.to(linear.weight))
        self.up = nn.Parameter(linear.weight.new_zeros(linear.out_features, len(down)))

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + (x - self.mean) @ self.down.T @ self.up.T

    def merged(self) -> nn.Linear:
        """One linear layer that computes the same."""
        out = copy.deepcopy(self.linear)
        with torch.no_grad():
            change = self.up @ self.down
            out.weight.add_(change)
            if out.bias is not None:
                out.bias.sub_(change @ self.mean)
        return out.requires_grad_(True)


@dataclass(frozen=True, kw_only=True)
class Placement(Result):
    """Where the adapter of one layer goes."""

    layer: str
    down: Tensor  # (rank, in), orthonormal rows
    mean: Tensor  # (in,) what is subtracted first; zero where the layer has no bias to take it up
    leak: float  # largest variance of the old inputs along a row, over their mean variance
    reach: tuple[float, ...]  # variance of the new inputs along each row, over their mean variance; () without
    kernel: int  # dimension of the kernel of the old covariance

    @property
    def exact(self) -> bool:
        """Whether the old task cannot change, however the adapter is trained."""
        return len(self.down) <= self.kernel

    def __str__(self) -> str:
        words = (
            "the old task cannot change"
            if self.exact
            else f"not exact: the old inputs leave {self.kernel} free directions, variance {self.leak:.1e} leaks"
        )
        sentence = (
            f"; the new inputs vary by {', '.join(f'{r:.2g}' for r in self.reach)} of their mean" if self.reach else ""
        )
        return f"{self.layer}: rank {len(self.down)}, {words}{sentence}"


@dataclass(frozen=True)
class TangentialLoRA(Result):
    """Placements for a model; ``attach`` puts the adapters in.

    Returned by :func:`tangential_lora`.

    Attributes:
        placements: the layers that get an adapter, each with its directions.
        skipped: layer that gets none → reason.
    """

    placements: tuple[Placement, ...]
    skipped: dict[str, str] = field(default_factory=dict)

    def attach(self, model: nn.Module) -> list[nn.Parameter]:
        """Replace the layers of ``model`` by adapted ones, in place, freeze everything else, and return what is to be
        trained.
        """
        layers = {p.layer: model.get_submodule(p.layer) for p in self.placements}
        if wrong := [n for n, m in layers.items() if not isinstance(m, nn.Linear)]:
            raise ValueError(
                f"{wrong[0]} is not a linear layer any more, perhaps because adapters are already attached; attach "
                "must be called once on the original model"
            )
        model.requires_grad_(False)
        out = []
        for p in self.placements:
            linear = layers[p.layer]
            assert isinstance(linear, nn.Linear)
            adapted = LowRank(linear, p.down, p.mean)
            model.set_submodule(p.layer, adapted)
            out.append(adapted.up)
        return out

    def __str__(self) -> str:
        return one_screen([*map(str, self.placements), *(f"left out: {n}: {w}" for n, w in self.skipped.items())])


def tangential_lora(
    model: nn.Module,
    batch: Any,
    *,
    only: Only = None,
    rank: int = 4,
    new: Any = None,
    exact: bool = False,
) -> TangentialLoRA:
    """Make low-rank adapters (LoRA) that leave the outputs on ``batch`` unchanged while they train on ``new``.

    Args:
        model: the model; a copy of it in float64 is run, in eval mode.
        batch: the old task's data, a batch of any kind or a loader; more examples than the widest layer has inputs, or
            the kernel is too large.
        only: names or patterns of linear layers, or a function of a name; by default all.
        rank: rows of each adapter.
        new: data of the task to be learned, of any kind.
        exact: leave out layers whose kernel is smaller than ``rank`` instead of letting some variance leak.

    Returns:
        One adapter for each layer, with the variance of the old task that it can still change.

    >>> net = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2))
    >>> print(tangential_lora(net, torch.randn(100, 4), rank=1, only="2"))
    2: rank 1, the old task cannot change
    """
    if rank < 1:
        raise ValueError(f"rank= is the number of rows of each adapter and must be at least 1, got {rank}")
    linear = {n: m for n, m in model.named_modules() if isinstance(m, nn.Linear)}
    if not linear:
        raise ValueError(f"{type(model).__name__} has no linear layer; adapters need at least one")
    wanted = picked(linear, only, "linear layer")
    twin = copy.deepcopy(model).double().eval()
    old = _moments(twin, batch, "the batch")
    fresh = _moments(twin, new, "new") if new is not None else None
    placements, skipped = [], {}
    for name in wanted:
        module = linear[name]
        if name not in old or (fresh is not None and name not in fresh):
            skipped[name] = "not called on these inputs"
            continue
        placement = _place(name, module, old[name], fresh[name] if fresh is not None else None, rank)
        if exact and not placement.exact:
            skipped[name] = f"its old inputs leave {placement.kernel} free directions, fewer than the rank {rank}"
        elif rank > module.in_features:
            skipped[name] = f"the rank {rank} exceeds its {module.in_features} inputs"
        else:
            placements.append(placement)
    return TangentialLoRA(tuple(placements), skipped)


def _place(
    name: str, module: nn.Linear, old: tuple[Tensor, Tensor], new: tuple[Tensor, Tensor] | None, rank: int
) -> Placement:
    mean = old[0] if module.bias is not None else torch.zeros_like(old[0])
    covariance = old[1] - torch.outer(mean, mean)
    values, vectors = torch.linalg.eigh(covariance)
    kernel = int((values <= _KERNEL * values[-1].clamp_min(torch.finfo(torch.float64).tiny)).sum())
    chosen = vectors[:, :rank]
    reach: tuple[float, ...] = ()
    if new is not None:
        spread = new[1] - torch.outer(new[0], mean) - torch.outer(mean, new[0]) + torch.outer(mean, mean)
        room = vectors[:, : max(kernel, rank)]
        inner, turn = torch.linalg.eigh(room.T @ spread @ room)
        chosen = room @ turn.flip(1)[:, :rank]
        level = spread.trace().clamp_min(torch.finfo(torch.float64).tiny) / len(spread)
        reach = tuple(float(v / level) for v in inner.flip(0)[:rank].clamp_min(0))
    leak = (chosen.T @ covariance @ chosen).diagonal().clamp_min(0).max()
    level = covariance.trace().clamp_min(torch.finfo(torch.float64).tiny) / len(covariance)
    return Placement(
        layer=name,
        down=chosen.T.contiguous(),
        mean=mean,
        leak=float(leak / level),
        reach=reach,
        kernel=kernel,
    )


def _moments(twin: nn.Module, batch: Any, what: str) -> dict[str, tuple[Tensor, Tensor]]:
    """Mean and second moment of every linear layer's inputs over all batches, in float64."""
    sums: dict[str, tuple[Tensor, Tensor, int]] = {}

    def keeper(name: str) -> Callable[..., None]:
        def keep(_: nn.Module, args: tuple[Tensor, ...]) -> None:
            u = args[0].detach().flatten(0, -2)
            mean, second, rows = sums.get(name, (0.0, 0.0, 0))
            sums[name] = (mean + u.sum(0), second + u.T @ u, rows + len(u))

        return keep

    handles = [m.register_forward_pre_hook(keeper(n)) for n, m in twin.named_modules() if isinstance(m, nn.Linear)]
    try:
        for one in batches_of(batch):
            task = inputs_of(twin, one)
            if not task.examples:
                raise ValueError(f"{what} is empty: give at least one batch of data")
            check_finite((task.args, dict(task.kwargs)), what)
            cast = mapped((task.args, dict(task.kwargs)), lambda t: t.double() if t.is_floating_point() else t)
            with torch.no_grad():
                twin(*cast[0], **cast[1])
    finally:
        for handle in handles:
            handle.remove()
    return {name: (first / rows, second / rows) for name, (first, second, rows) in sums.items()}
