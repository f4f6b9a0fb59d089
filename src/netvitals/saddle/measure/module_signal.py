r"""Signal energy of a module, biases and all: how strongly its output follows the first mode of its data.

$\gamma=E[\langle u_1,f\rangle\,v_1^\top x]$ with $(u_1,v_1)$ the leading singular pair of $E[yx^\top]$;
$G_\theta=\nabla_\theta\gamma$, $T=\sum_\theta\lVert G_\theta\rVert^2$. Under gradient flow on $\frac12E|f-y|^2$

$$\dot\gamma=\sum_\theta\langle G_\theta,E[\partial_\theta f^\top y]\rangle-S,\qquad
  S=\sum_\theta\langle G_\theta,E[\partial_\theta f^\top f]\rangle,$$

exactly, on the batch; on a plateau $S\ll\dot\gamma$ and $\dot\gamma\propto T$.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from netvitals._plot import Plot, Series
from netvitals.anatomy import by_output, layer_kind
from netvitals.capture import (
    Mode,
    Only,
    Result,
    in_mode,
    inputs_of,
    one_screen,
    output_tensor,
    picked,
    preserved,
    skipped_lines,
    undisturbed,
)


@dataclass(frozen=True, kw_only=True)
class ModuleSignal(Result):
    """Signal quantities of a module on one batch.

    Returned by :func:`signal_energy`.

    Attributes:
        gamma: E[⟨u₁, f⟩ v₁ᵀx].
        energy: T, the sum of ‖G‖² over parameters.
        self_interaction: S.
        teacher_term: what the target feeds γ with.
        scale: M, the largest operator norm among ``scales``.
        by_parameter: parameter -> ‖G‖².
        scales: layer -> operator norm of its weight (of a convolution's, unfolded).
        output_norm: √E|f|².
        correlation: the leading singular value of E[y xᵀ].
        skipped: parameter that does not move γ, or layer without a norm → reason.
    """

    gamma: float
    energy: float
    self_interaction: float
    teacher_term: float
    scale: float
    by_parameter: dict[str, float]
    scales: dict[str, float]
    output_norm: float
    correlation: float
    skipped: Mapping[str, str] = field(default_factory=dict)

    @property
    def gamma_dot(self) -> float:
        """dγ/dt under gradient flow on ½E|f − y|², exact on this batch."""
        return self.teacher_term - self.self_interaction

    @property
    def self_ratio(self) -> float:
        r"""$S/(\gamma T)$, bounded on the plateau (Lemma 10)."""
        return self.self_interaction / (self.gamma * self.energy) if self.gamma and self.energy else math.nan

    def am_gm(self, r: int) -> float:
        r"""$T/|\gamma|^{2-2/r}$, bounded below on the plateau.

        Args:
            r: the number of small layers, from :func:`bottleneck`.
        """
        return self.energy / abs(self.gamma) ** (2 - 2 / r) if self.gamma else math.nan

    def rows(self) -> list[dict[str, Any]]:
        """One row a parameter: its part of the signal energy."""
        return [
            {"parameter": n, "energy": v, "share": v / self.energy if self.energy else math.nan}
            for n, v in self.by_parameter.items()
        ]

    def plot(self) -> Plot:
        """Each parameter's part of T, in the order of the model."""
        at = [float(i + 1) for i in range(len(self.by_parameter))]
        return Plot(
            "parameter, in the order of the model", "‖∇γ‖²", [Series("T", at, list(self.by_parameter.values()))]
        )

    def __str__(self) -> str:
        lines = [
            f"γ = {self.gamma:.4g}, T = {self.energy:.4g}, S = {self.self_interaction:.4g}, M = {self.scale:.4g}",
            f"dγ/dt = {self.gamma_dot:.4g} = {self.teacher_term:.4g} (target) − {self.self_interaction:.4g} (S)",
        ]
        top = sorted(self.by_parameter.items(), key=lambda kv: -kv[1])[:8]
        lines += [f"  {n}: {v / self.energy:.0%} of T" for n, v in top if self.energy]
        return one_screen(lines + skipped_lines(self.skipped))


@undisturbed
def signal_energy(
    model: nn.Module, batch: Any, *, mode: Mode = "as_is", only: Only = None, seed: int = 0
) -> ModuleSignal:
    """Measure how strongly a module's output follows the main direction of its data, and how fast this signal γ grows.

    Args:
        model: any module with one output tensor, (examples, outputs); it is not changed.
        batch: ``(x, y)`` with floating inputs. Whole numbers as y are classes: one-hot, less the mean of a class.
        mode: ``"as_is"``, ``"train"`` or ``"eval"``.
        only: layers whose operator norms count for M, the small ones: names or patterns, or a function of a name.
        seed: seed of the random numbers that the model draws.

    Returns:
        The signal, its energy by parameter, and both terms of its exact rate of change for the squared error.

    >>> _ = torch.manual_seed(0)
    >>> net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
    >>> x = torch.randn(64, 3)
    >>> found = signal_energy(net, (x, x[:, :1]))
    >>> list(found.by_parameter), list(found.scales)
    (['0.weight', '0.bias', '2.weight', '2.bias'], ['0', '2'])
    """
    task = inputs_of(model, batch)
    inputs = task.args[0] if task.args else next(iter(dict(task.kwargs).values()), None)
    if not isinstance(inputs, Tensor) or not inputs.is_floating_point():
        raise ValueError(
            "signal_energy correlates the target with the input: give a batch (x, y) with a floating-point x, not "
            "token ids"
        )
    target = task.targets[0] if task.targets else None
    if not isinstance(target, Tensor):
        raise ValueError("signal_energy needs a target: give the batch as (x, y)")
    with preserved(model), in_mode(model, mode), torch.enable_grad():
        torch.manual_seed(seed)
        params = {n: p for n, p in model.named_parameters() if p.requires_grad}
        out = output_tensor(task.forward(), model).flatten(1)
        x, y = inputs.detach().flatten(1).double(), _values(target, out)
        if y.shape != out.shape:
            raise ValueError(f"output and target must have the same shape, got {tuple(out.shape)} and {tuple(y.shape)}")
        u, s, v = torch.linalg.svd(y.T @ x / len(x), full_matrices=False)
        g = ((x @ v[0])[:, None] * u[:, 0]).to(out)
        pulled = [
            torch.autograd.grad(out, list(params.values()), c.to(out) / len(x), retain_graph=True, allow_unused=True)
            for c in (g, y, out.detach())
        ]
        f = out.detach().double()
    skipped = {n: "it does not move the output" for n, grad in zip(params, pulled[0]) if grad is None}
    big = {n: [p[i] for p in pulled] for i, n in enumerate(params) if pulled[0][i] is not None}
    dot = lambda a, b: float((a.double() * b.double()).sum())
    layers = {
        n: by_output(m).detach().double().flatten(1)
        for n, m in model.named_modules()
        if layer_kind(m) in ("linear", "convolution", "transposed convolution")
    }
    names = picked(list(layers), only, "layer")
    scales = {n: float(torch.linalg.matrix_norm(layers[n], 2)) for n in names}
    by_parameter = {n: dot(gs[0], gs[0]) for n, gs in big.items()}
    return ModuleSignal(
        gamma=float((f * g.double()).sum(1).mean()),
        energy=sum(by_parameter.values()),
        self_interaction=sum(dot(gs[0], gs[2]) for gs in big.values()),
        teacher_term=sum(dot(gs[0], gs[1]) for gs in big.values()),
        scale=max(scales.values(), default=math.nan),
        by_parameter=by_parameter,
        scales=scales,
        output_norm=float(f.square().sum(1).mean().sqrt()),
        correlation=float(s[0]),
        skipped=skipped,
    )


def _values(target: Tensor, out: Tensor) -> Tensor:
    """The target as numbers by example and output."""
    if target.is_floating_point():
        return target.detach().flatten(1).double() if target.ndim > 1 else target.detach()[:, None].double()
    if target.ndim != 1:
        raise ValueError(
            "signal_energy is not defined for one class per position (a language model): give floating-point targets"
        )
    return F.one_hot(target, out.shape[1]).double() - 1 / out.shape[1]
