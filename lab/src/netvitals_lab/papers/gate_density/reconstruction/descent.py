r"""Descent in the unit box: projected gradient, momentum, Nesterov, Adam, the oracle rescaling, L-BFGS-B.

Every method projects on $[0, 1]^N$ after each step. All but L-BFGS-B run the whole batch as one tensor program.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from netvitals_lab.papers.gate_density.reconstruction import stencil
from netvitals_lab.papers.gate_density.reconstruction.problem import Reconstruction, overlap

RATES = {"pgd": 0.1, "momentum": 0.1, "nesterov": 0.1, "adam": 0.03, "oracle": 0.03, "lbfgsb": 1.0}
METHODS = tuple(RATES)


@dataclass(frozen=True)
class DescentSolution:
    """Where the descent ended, per problem."""

    x: Tensor
    loss: Tensor
    iou: Tensor  # output against target
    iou_input: Tensor  # x against target
    active: Tensor  # F_α
    reduction: Tensor  # (J(x0) − J(x)) / J(x0)
    losses: Tensor  # (iterations, batch), empty unless asked for
    method: str


def solve(
    problem: Reconstruction,
    x0: Tensor,
    method: str = "adam",
    *,
    iterations: int = 200,
    lr: float | None = None,
    beta: float = 0.9,
    beta2: float = 0.999,
    second: Tensor | None = None,
    trace: bool = False,
) -> DescentSolution:
    """Minimise J over the box from ``x0``."""
    if method not in METHODS:
        raise ValueError(f"there is no method {method!r}; there are {', '.join(METHODS)}")
    if x0.shape != (problem.batch, *problem.y.shape[-2:]):
        raise ValueError(
            f"the start has shape {tuple(x0.shape)}, but {problem.batch} problems of "
            f"{tuple(problem.y.shape[-2:])} pixels are to be solved; use problem.start()"
        )
    gradient = _gradient(problem, second)
    output: Callable[[Tensor], Tensor] = (
        problem.forward if second is None else lambda x: problem.two_layers(x, second)[0]
    )
    rate = RATES[method] if lr is None else lr
    start = problem.loss(output(x0))
    if method == "lbfgsb":
        x, losses = _lbfgsb(problem, second, x0, iterations), torch.empty(0)
    elif second is None and not trace and stencil.fits(problem):
        x, losses = stencil.descend(problem, x0, method, iterations, rate, beta, beta2), torch.empty(0)
    else:
        x, losses = _first_order(problem, gradient, x0, method, iterations, rate, beta, beta2, trace)
    h = output(x)
    loss = problem.loss(h)
    return DescentSolution(
        x=x,
        loss=loss,
        iou=problem.iou(h),
        iou_input=overlap(x > 0.5, problem.y > 0.5),
        active=problem.active(h),
        reduction=(start - loss) / start,
        losses=losses,
        method=method,
    )


def _first_order(
    problem: Reconstruction,
    gradient: Callable[[Tensor], tuple[Tensor, Tensor]],
    x: Tensor,
    method: str,
    iterations: int,
    lr: float,
    beta: float,
    beta2: float,
    trace: bool,
) -> tuple[Tensor, Tensor]:
    m, v = torch.zeros_like(x), torch.zeros_like(x)
    losses = []
    for t in range(1, iterations + 1):
        g, h = gradient((x - lr * beta * m).clamp(0, 1) if method == "nesterov" else x)
        if trace:
            losses.append(problem.loss(h))
        if method == "pgd":
            step = lr * g
        elif method in ("momentum", "nesterov"):
            m = beta * m + g
            step = lr * m
        else:
            v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
            denominator = (v / (1 - beta2**t)).sqrt_().add_(1e-8)
            if method == "adam":
                m.lerp_(g, 1 - beta)
                g = m / (1 - beta**t)
            step = lr * g / denominator
        x = (x - step).clamp_(0, 1)
    return x, torch.stack(losses) if trace else torch.empty(0)


def _gradient(problem: Reconstruction, second: Tensor | None) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    return problem.gradient if second is None else lambda x: problem.gradient_two_layers(x, second)


def _lbfgsb(problem: Reconstruction, second: Tensor | None, x0: Tensor, iterations: int) -> Tensor:
    """scipy's L-BFGS-B, one problem after the other: a line search cannot be shared."""
    from scipy.optimize import minimize

    found = []
    for i in range(problem.batch):
        one = problem.part(slice(i, i + 1))
        gradient = _gradient(
            one, second if second is None or second.ndim == 2 or len(second) == 1 else second[i : i + 1]
        )

        def value(
            flat: np.ndarray, one: Reconstruction = one, gradient: Callable[[Tensor], tuple[Tensor, Tensor]] = gradient
        ) -> tuple[float, np.ndarray]:
            g, h = gradient(torch.as_tensor(flat.reshape(1, *x0.shape[1:])).to(x0.dtype))
            return float(one.loss(h)), g.double().numpy().ravel()

        end = minimize(
            value,
            x0[i].double().numpy().ravel(),
            jac=True,
            method="L-BFGS-B",
            bounds=[(0, 1)] * x0[i].numel(),
            options={"maxiter": iterations},
        )
        found.append(torch.as_tensor(end.x.reshape(x0.shape[1:])).to(x0.dtype))
    return torch.stack(found)
