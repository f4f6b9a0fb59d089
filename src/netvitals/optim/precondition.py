r"""Base preconditioners: what turns an invariant component of the gradient into a direction of descent.

A preconditioner is any object with ``descent(value, state, group)``: a tensor, a dict that lives from step to step
(empty at first), and the parameter group with its settings. It returns the direction to move along, for Adam
$-\hat m/(\sqrt{\hat v} + \epsilon)$. What it is handed does not change along a gauge orbit, so whatever it makes of it
is equivariant.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import torch
from torch import Tensor


class Preconditioner(Protocol):
    """What :class:`~netvitals.optim.DDC` needs of its base."""

    def descent(self, value: Tensor, state: dict[str, Any], group: dict[str, Any]) -> Tensor: ...


class AdamBase:
    r"""Bias-corrected $-\hat m / (\sqrt{\hat v} + \epsilon)$; ``betas`` and ``eps`` come from the group.

    >>> group = {"betas": (0.9, 0.999), "eps": 1e-8}
    >>> AdamBase().descent(torch.tensor([2.0, -3.0]), {}, group).round(decimals=3).tolist()
    [-1.0, 1.0]
    """

    def descent(self, value: Tensor, state: dict[str, Any], group: dict[str, Any]) -> Tensor:
        """The step for a gradient ``value``, with its running ``state`` and the options of its ``group``."""
        return self.descents([value], [state], group)[0]

    def descents(
        self, values: list[Tensor], states: list[dict[str, Any]], group: dict[str, Any], out: list[Tensor] | None = None
    ) -> list[Tensor]:
        """The steps for several gradients ``values`` with their ``states`` and one ``group`` in one call, which is
        faster; written to ``out`` where it is given.
        """
        values = [v.contiguous() for v in values]
        begin(states, values, group)
        if out is None:
            out = [torch.zeros_like(v) for v in values]
        else:
            torch._foreach_zero_(out)
        adam_step(out, values, states, group, 1.0)
        return out


class SGDBase:
    r"""$-m$ of a running sum $m \leftarrow \mu m + x$: gradient descent, in whatever coordinates x is.

    Args:
        momentum: μ, as in ``torch.optim.SGD``.

    >>> SGDBase().descent(torch.tensor([2.0, -3.0]), {}, {}).tolist()
    [-2.0, 3.0]
    """

    def __init__(self, momentum: float = 0.0) -> None:
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum= must lie in [0, 1), got {momentum}")
        self.momentum = momentum

    def descent(self, value: Tensor, state: dict[str, Any], group: dict[str, Any]) -> Tensor:
        """The step for a gradient ``value``, with its running ``state`` and the options of its ``group``."""
        if not self.momentum:
            return -value
        total = state.setdefault("momentum", torch.zeros_like(value))
        return -total.mul_(self.momentum).add_(value)


class RMSBase:
    r"""$-x/(\sqrt v + \epsilon)$ with $v \leftarrow \beta_2 v + (1-\beta_2) x^2$, bias-corrected; no momentum.

    >>> group = {"betas": (0.9, 0.999), "eps": 1e-8}
    >>> RMSBase().descent(torch.tensor([2.0, -3.0]), {}, group).round(decimals=3).tolist()
    [-1.0, 1.0]
    """

    def descent(self, value: Tensor, state: dict[str, Any], group: dict[str, Any]) -> Tensor:
        """The step for a gradient ``value``, with its running ``state`` and the options of its ``group``."""
        if "step" not in state:
            state["step"], state["square"] = torch.zeros(()), torch.zeros_like(value)
        state["step"] += 1
        decay = group["betas"][1]
        state["square"].mul_(decay).addcmul_(value, value, value=1 - decay)
        scale = math.sqrt(1 - decay ** float(state["step"]))
        return -value / (state["square"].sqrt() / scale + group["eps"])


class SignBase:
    r"""$-\mathrm{sign}(m)$ of a running mean m: signed momentum.

    >>> SignBase().descent(torch.tensor([2.0, -3.0]), {}, {"betas": (0.9, 0.999)}).tolist()
    [-1.0, 1.0]
    """

    def descent(self, value: Tensor, state: dict[str, Any], group: dict[str, Any]) -> Tensor:
        """The step for a gradient ``value``, with its running ``state`` and the options of its ``group``."""
        mean = state.setdefault("mean", torch.zeros_like(value))
        return -mean.lerp_(value, 1 - group["betas"][0]).sign()


def begin(states: list[dict[str, Any]], like: list[Tensor], group: dict[str, Any]) -> None:
    """Adam's empty state where there is none yet."""
    for state, value in zip(states, like):
        if "step" not in state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=value.device)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(value), torch.zeros_like(value)
            if group.get("amsgrad"):
                state["max_exp_avg_sq"] = torch.zeros_like(value)


def adam_step(
    params: list[Tensor], grads: list[Tensor], states: list[dict[str, Any]], group: dict[str, Any], lr: float
) -> None:
    """Adam on ``params`` in place, decay aside: torch's fused kernel where the memory layout allows it."""
    averages, squares = [s["exp_avg"] for s in states], [s["exp_avg_sq"] for s in states]
    steps = [s["step"] for s in states]
    amsgrad = bool(group.get("amsgrad"))
    largest = [s["max_exp_avg_sq"] for s in states] if amsgrad else []
    b1, b2 = group["betas"]
    torch._foreach_add_(steps, torch.ones((), device=steps[0].device))  # a plain 1 would be wrapped for each
    kind = params[0].dtype
    if params[0].device.type in ("cpu", "cuda") and all(
        p.is_contiguous() and g.is_contiguous() and p.dtype == g.dtype == a.dtype == kind and a.is_contiguous()
        for p, g, a in zip(params, grads, averages)
    ):
        torch._fused_adam_(
            params,
            grads,
            averages,
            squares,
            largest,
            steps,
            lr=lr,
            beta1=b1,
            beta2=b2,
            weight_decay=0.0,
            eps=group["eps"],
            amsgrad=amsgrad,
            maximize=False,
            grad_scale=None,
            found_inf=None,
        )
        return
    torch._foreach_lerp_(averages, grads, 1 - b1)
    torch._foreach_mul_(squares, b2)
    torch._foreach_addcmul_(squares, grads, grads, 1 - b2)
    counts = [float(s) for s in steps]
    if amsgrad:
        torch._foreach_maximum_(largest, squares)
    denominators = torch._foreach_sqrt(largest if amsgrad else squares)
    torch._foreach_div_(denominators, [math.sqrt(1 - b2**t) for t in counts])
    torch._foreach_add_(denominators, group["eps"])
    torch._foreach_addcdiv_(params, averages, denominators, [-lr / (1 - b1**t) for t in counts])
