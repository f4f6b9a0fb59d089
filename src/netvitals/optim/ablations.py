r"""Optimisers for ablation: how much of Adam is needed for an effect?

- :class:`EpsFloor`: Adam without momentum, $g/(\sqrt v + \epsilon)$; ε runs from Adam-like (1e−8) to SGD-like (large).
- :class:`HomogeneityDial`: $\mathrm{sign}(g)|g|^{1-\alpha}$, α = 0 is SGD and α = 1 is sign descent.
- :class:`MomentumSign`: the sign of a running mean, no second moment and no bias correction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


class _Elementwise(Optimizer):
    """One line of arithmetic per parameter; subclasses give ``direction``."""

    def __init__(self, params: Iterable[Any], lr: float, **options: float) -> None:
        if not lr >= 0:
            raise ValueError(f"lr= must not be negative, got {lr}")
        for name, good in (("eps", lambda v: v > 0), ("beta2", lambda v: 0 <= v < 1), ("beta", lambda v: 0 <= v < 1)):
            if name in options and not good(options[name]):
                raise ValueError(f"{name} must be {'above 0' if name == 'eps' else 'in [0, 1)'}, got {options[name]}")
        super().__init__(params, {"lr": lr, **options})

    def direction(self, g: Tensor, state: dict[str, Any], group: dict[str, Any]) -> Tensor:
        raise AssertionError("subclasses of _Elementwise must implement direction()")

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.add_(self.direction(p.grad, self.state[p], group), alpha=-group["lr"])
        return loss


class EpsFloor(_Elementwise):
    r"""$v \leftarrow \beta_2 v + (1-\beta_2) g^2$, step $g/(\sqrt v + \epsilon)$.

    Args:
        params: as for any torch optimiser.
        lr: learning rate.
        eps: floor added to the root of the squares.
        beta2: decay of the running mean of squares.

    >>> p = torch.nn.Parameter(torch.ones(2)); opt = EpsFloor([p], lr=0.1, eps=1.0)
    >>> p.sum().backward(); opt.step(); bool((p < 1).all())
    True
    """

    def __init__(self, params: Iterable[Any], lr: float = 1e-3, eps: float = 1e-8, beta2: float = 0.999) -> None:
        super().__init__(params, lr, eps=eps, beta2=beta2)

    def direction(self, g: Tensor, state: dict[str, Any], group: dict[str, Any]) -> Tensor:
        v = state.setdefault("v", torch.zeros_like(g))
        v.mul_(group["beta2"]).addcmul_(g, g, value=1 - group["beta2"])
        return g / (v.sqrt() + group["eps"])


class HomogeneityDial(_Elementwise):
    r"""Step $\mathrm{sign}(g)\,|g|^{1-\alpha}$.

    Args:
        params: as for any torch optimiser.
        lr: learning rate.
        alpha: 0 is SGD, 1 sign descent.

    >>> p = torch.nn.Parameter(torch.ones(2)); opt = HomogeneityDial([p], lr=0.1, alpha=1.0)
    >>> (4 * p).sum().backward(); opt.step(); round(float(p.detach()[0]), 3)
    0.9
    """

    def __init__(self, params: Iterable[Any], lr: float = 1e-3, alpha: float = 0.5) -> None:
        if not 0 <= alpha <= 1:
            raise ValueError(f"alpha= must lie between 0 (SGD) and 1 (sign descent), got {alpha}")
        super().__init__(params, lr, alpha=alpha)

    def direction(self, g: Tensor, state: dict[str, Any], group: dict[str, Any]) -> Tensor:
        return g.sign() * g.abs().pow(1 - group["alpha"])


class MomentumSign(_Elementwise):
    r"""$m \leftarrow \beta m + (1-\beta) g$, step $\mathrm{sign}(m)$.

    Args:
        params: as for any torch optimiser.
        lr: learning rate.
        beta: decay of the running mean.

    >>> p = torch.nn.Parameter(torch.ones(2)); opt = MomentumSign([p], lr=0.1)
    >>> (4 * p).sum().backward(); opt.step(); round(float(p.detach()[0]), 3)
    0.9
    """

    def __init__(self, params: Iterable[Any], lr: float = 1e-4, beta: float = 0.9) -> None:
        super().__init__(params, lr, beta=beta)

    def direction(self, g: Tensor, state: dict[str, Any], group: dict[str, Any]) -> Tensor:
        return state.setdefault("m", torch.zeros_like(g)).lerp_(g, 1 - group["beta"]).sign()
