r"""What is special about softmax: its curvature $H = \mathrm{diag}(p) - p p^\top$ is blind to a shift of all logits.

The head's factor G therefore always has the kernel $\mathbf 1$, and in linear chains every layer has its pull-back
(erratum E3): take it out before reading $\lambda_{\min}$. On its complement $\bar H \ge c_0$ is what the cross-entropy
rates rest on (assumption 34); memorisation sends $c_0$ to zero. Per sample, with $p_y = 1 - \varepsilon$,
$\|p - e_y\|^2$ lies in $[\varepsilon^2, 2\varepsilon^2]$ and $\mathrm{tr} H$ in
$[\varepsilon(1-\varepsilon), 2\varepsilon]$.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from netvitals.capture import Result
from netvitals.singular.moments.factors import lambda_min


def without_logit_shift(g: Tensor, jacobian: Tensor | None = None) -> Tensor:
    r"""G of the head (C × C) on $\mathbf 1^\perp$, or of a layer whose gradients are ``jacobian``ᵀ·δ (C × width).

    Returned is the matrix in an orthonormal basis of the complement, one dimension smaller, so that its smallest
    eigenvalue means something. For a layer below, the removed direction is $J^{+} \mathbf 1$, where there is one.

    >>> p = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    >>> torch.linalg.eigvalsh(without_logit_shift(torch.diag(p) - torch.outer(p, p)))[0] > 0.1
    tensor(True)
    """
    ones = torch.ones(len(g) if jacobian is None else len(jacobian), dtype=torch.float64)
    direction = ones if jacobian is None else torch.linalg.pinv(jacobian.double()) @ ones
    basis = torch.linalg.svd(direction[:, None], full_matrices=True)[0][:, 1:]
    return basis.T @ g.double() @ basis


@dataclass(frozen=True)
class SoftmaxHead(Result):
    """Mean curvature of a batch of logits."""

    c0: float  # smallest eigenvalue of E[diag(p) − ppᵀ] off the shift
    trace: float  # E tr H: size of the expected Fisher
    empirical: float  # E‖p − e_y‖²: size of the empirical one
    epsilon: float  # mean 1 − p_y
    bounds_hold: bool  # both per-sample bounds, on every sample
    examples: int

    @property
    def contrast(self) -> float:
        """Empirical over expected: of order ε once the labels are memorised."""
        return self.empirical / self.trace

    def __str__(self) -> str:
        return (
            f"c₀ = {self.c0:.3g}, 1 − p_y = {self.epsilon:.3g}, empirical/expected Fisher = {self.contrast:.3g} "
            f"({self.examples} examples)"
        )


def softmax_head(logits: Tensor, labels: Tensor) -> SoftmaxHead:
    """c₀ and the memorisation contrast of a batch."""
    flat, y = logits.detach().double().flatten(0, -2), labels.flatten().long()
    if len(flat) != len(y) or not len(y):
        raise ValueError(f"each row of logits needs one label: got {len(y)} labels for {len(flat)} rows")
    if int(y.min()) < 0 or int(y.max()) >= flat.shape[1]:
        raise ValueError(
            f"labels= must be whole numbers from 0 to {flat.shape[1] - 1}, got {int(y.min())} to {int(y.max())}"
        )
    if not torch.isfinite(flat).all():
        raise ValueError("the logits contain NaN or infinity: check the batch and the parameters")
    p = flat.softmax(-1)
    # 1 − p_y without cancellation, from the other classes
    others = p.scatter(1, y[:, None], 0.0)
    eps = others.sum(1)
    mean = torch.diag(p.mean(0)) - p.T @ p / len(p)
    squared = eps.square() + others.square().sum(1)
    # Σ p_i(1 − p_i), with 1 − p_y taken from the other classes as well
    traces = (1 - eps) * eps + (others * (1 - others)).sum(1)
    slack = 1e-12
    holds = bool(
        (
            (squared >= eps**2 * (1 - slack))
            & (squared <= 2 * eps**2 * (1 + slack))
            & (traces >= eps * (1 - eps) * (1 - slack))
            & (traces <= 2 * eps * (1 + slack))
        ).all()
    )
    return SoftmaxHead(
        c0=lambda_min(without_logit_shift(mean), floor=0.0)[0],
        trace=float(traces.mean()),
        empirical=float(squared.mean()),
        epsilon=float(eps.mean()),
        bounds_hold=holds,
        examples=len(y),
    )
