r"""What the optimisers that respect gauges share: options, groups, state, and steps of what no gauge covers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from netvitals.optim.gauges import Gauge, Rescale, Shift
from netvitals.optim.precondition import AdamBase, Preconditioner, adam_step, begin

VERTICAL = ("frozen", "sgd", "base")
CLAMP = 0.5  # largest move of a log norm along the orbit in one step; an un-normalised 'sgd' step can diverge


class Equivariant(Optimizer):
    """A base preconditioner made to respect gauges; a subclass says in which coordinates, in ``_assign`` and
    ``_covered_step``.
    """

    _free: list[list[Tensor]]

    def __init__(
        self,
        params: Iterable[Any],
        gauges: Sequence[Gauge],
        base: Preconditioner,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        vertical: str = "frozen",
        lr_vertical: float | None = None,
        lr_radial: float | None = None,
        reproject: bool = True,
        maximize: bool = False,
        **more: Any,
    ) -> None:
        name = type(self).__name__
        rates = (lr, weight_decay, *(r for r in (lr_vertical, lr_radial) if r is not None))
        if not (all(r >= 0 for r in rates) and eps > 0 and len(betas) == 2 and all(0 <= b < 1 for b in betas)):
            raise ValueError(
                f"{name} needs lr, lr_vertical, lr_radial and weight_decay ≥ 0, eps > 0 and both betas in [0, 1), got "
                f"lr={lr}, lr_vertical={lr_vertical}, lr_radial={lr_radial}, weight_decay={weight_decay}, eps={eps}, "
                f"betas={betas}"
            )
        if vertical not in self.verticals:
            raise ValueError(f"vertical= must be one of {', '.join(self.verticals)}, got {vertical!r}")
        if isinstance(base, type) or not callable(getattr(base, "descent", None)):
            raise TypeError(
                "base= must be an object with a method descent(value, state, group), got "
                f"{base.__name__ + ' itself, not an instance of it' if isinstance(base, type) else base!r}"
            )
        if wrong := [g for g in gauges if not isinstance(g, Shift | Rescale)]:
            raise TypeError(
                "gauges= must come from find_gauges or from the functions of netvitals.optim, got "
                f"{type(wrong[0]).__name__}"
            )
        defaults = {
            "lr": lr,
            "betas": tuple(betas),
            "eps": eps,
            "weight_decay": weight_decay,
            "vertical": vertical,
            "lr_vertical": lr_vertical,
            "lr_radial": lr_radial,
            "reproject": reproject,
            "maximize": maximize,
            **more,
        }
        super().__init__(params, defaults)
        self.base = base
        self.gauges = list(gauges)
        self._assign()

    @property
    def verticals(self) -> tuple[str, ...]:
        return VERTICAL

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        for name in ("lr_vertical", "lr_radial"):  # kept as a share of lr, so that it follows a schedule
            rate = group[name]
            group[f"{name}_share"] = 1.0 if rate is None or not group["lr"] else float(rate / group["lr"])
        if "gauges" in self.__dict__:  # after construction: the new parameters take part from the next step
            self._assign()

    def _assign(self) -> None:
        """Looked up on every step, so made once: the group of each parameter."""
        self._group: dict[Tensor, dict[str, Any]] = {p: g for g in self.param_groups for p in g["params"]}
        for gauge in self.gauges:
            gauge.check()
            if any(p not in self._group for p in gauge.params):
                raise ValueError(
                    f"the gauge symmetry {gauge.name!r} covers a parameter that was not given to this optimizer: give "
                    "all its parameters"
                )
        covered = {p for gauge in self.gauges for p in gauge.params}
        self._free = [[p for p in g["params"] if p not in covered] for g in self.param_groups]

    def _covered_step(self) -> None:
        """Move every parameter that a gauge covers and that has a gradient."""
        raise AssertionError("subclasses must implement _covered_step()")

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "base": self.base, "gauges": self.gauges}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "gauges" in self.__dict__:  # a copy, a pickle, or a loaded state with groups of its own
            self._assign()

    def state_dict(self) -> dict[str, Any]:
        out = super().state_dict()
        out["gauges"] = [str(g) for g in self.gauges]
        return out

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        state_dict = dict(state_dict)
        theirs, ours = state_dict.pop("gauges", []), [str(g) for g in self.gauges]
        if theirs != ours:
            raise ValueError(f"this optimizer state was saved with other gauges: expected {ours}, got {theirs}")
        super().load_state_dict(state_dict)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        # all are checked before the first is moved, so that a refusal leaves the parameters as they were
        for gauge in self.gauges:
            check_gradients(gauge)
        for group in self.param_groups:
            moving = [p for p in group["params"] if p.grad is not None]
            if group["weight_decay"] and moving:
                torch._foreach_mul_(moving, 1 - group["lr"] * group["weight_decay"])
        self._covered_step()
        for group, free in zip(self.param_groups, self._free):
            if plain := [p for p in free if p.grad is not None]:
                self._plain(plain, group)
        return loss

    def _plain(self, params: list[Tensor], group: dict[str, Any]) -> None:
        """What no gauge covers: the base optimiser itself."""
        grads = [grad_of(p, group) for p in params]
        for p, step in zip(params, self._descents(params, "plain", grads, group)):
            p.add_(step, alpha=group["lr"])

    def _descents(
        self,
        owners: Sequence[Tensor],
        key: str,
        values: list[Tensor],
        group: dict[str, Any],
        out: list[Tensor] | None = None,
    ) -> list[Tensor]:
        states = [self.state[owner].setdefault(key, {}) for owner in owners]
        if isinstance(self.base, AdamBase):
            return self.base.descents(values, states, group, out)
        several = getattr(self.base, "descents", None)
        if several is not None:
            return several(values, states, group)
        return [self.base.descent(v, s, group) for v, s in zip(values, states)]

    def _along(self, owner: Tensor, key: str, q: Tensor, group: dict[str, Any]) -> Tensor:
        """The step along the orbit, in its own coordinates."""
        return (
            group["lr"]
            * group["lr_vertical_share"]
            * (-q if group["vertical"] == "sgd" else self._descents([owner], key, [q], group)[0])
        )


def check_gradients(gauge: Gauge) -> None:
    """A sentence where a part of a gauge is frozen."""
    missing = [p.grad is None for p in gauge.params]
    if any(missing) and not all(missing):
        raise ValueError(
            f"gauge symmetry {gauge.name!r}: some of its parameters have no gradient; all of them must be trained, or "
            "all frozen"
        )


def grad_of(p: Tensor, group: dict[str, Any]) -> Tensor:
    """The gradient that is gone down."""
    assert p.grad is not None
    return -p.grad if group["maximize"] else p.grad


class AdamFamily(Equivariant):
    """Adam as the base, and plain batched AdamW for what no gauge covers."""

    def __init__(
        self,
        params: Iterable[Any],
        gauges: Sequence[Gauge] = (),
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        vertical: str = "frozen",
        lr_vertical: float | None = None,
        lr_radial: float | None = None,
        reproject: bool = True,
        maximize: bool = False,
        amsgrad: bool = False,
        foreach: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            gauges,
            AdamBase(),
            lr,
            betas,
            eps,
            weight_decay,
            vertical=vertical,
            lr_vertical=lr_vertical,
            lr_radial=lr_radial,
            reproject=reproject,
            maximize=maximize,
            amsgrad=amsgrad,
            foreach=foreach,
        )

    @property
    def verticals(self) -> tuple[str, ...]:
        return ("frozen", "sgd", "adam")

    def _plain(self, params: list[Tensor], group: dict[str, Any]) -> None:
        """Plain AdamW for what no gauge covers, in one batched update."""
        states = [self.state[p] for p in params]
        begin(states, params, group)
        grads = [p.grad for p in params if p.grad is not None]
        adam_step(params, [-g for g in grads] if group["maximize"] else grads, states, group, group["lr"])
