r"""What one look at a network on its plateau shows: signal, gradients, small layers, and how far the batch is to be
believed.

A batch is a sample. Along its own gradient $\bar g$ the slope of one example is
$s_i=\langle g_i,\bar g\rangle/\lVert\bar g\rVert^2$, whose mean is 1: its standard error is that of the speed at which
the signal grows, and with it of the time that is left. And a direction that was found on a batch fits the batch: of
$\lVert\bar g\rVert^2$ the share $\nu=\operatorname{tr}\operatorname{Cov}(\bar g)/\lVert\bar g\rVert^2$ is not there on
other examples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from netvitals.anatomy import Anatomy, ParameterPart
from netvitals.capture import LossFn, Task, main_output, mapped, task_of
from netvitals.saddle.measure.bottlenecks import bottleneck, layer_scale, usual_scale
from netvitals.saddle.measure.outlook import LEAVES
from netvitals.saddle.measure.plateau import at_rest

SAME = (0.8, 1.25)  # pull of a factor over the signal
IDLE = 0.1  # of a layer that takes no part
BESIDE = 0.1  # share of the fall of the loss that parameters beside the factors may have
PARTS = 16  # of the batch, whose gradients are compared


@dataclass(frozen=True)
class PlateauState:
    """Signal, loss, and gradients at one point of the flow."""

    signal: float
    loss: float
    out: Tensor
    rest: Tensor
    resting: float
    grads: dict[str, Tensor]

    def speed(self) -> float:
        """Σ‖g‖², the fall of the loss per unit of time of the gradient flow."""
        return sum(float(g.double().square().sum()) for g in self.grads.values())


@dataclass(frozen=True)
class Sampling:
    """How far a batch is to be believed."""

    share: float
    stderr: float


def look(model: nn.Module, task: Task, seed: int) -> PlateauState:
    """Look once."""
    torch.manual_seed(seed)
    names, moving = zip(*((n, p) for n, p in model.named_parameters() if p.requires_grad))
    out = main_output(task.forward())
    loss = task.loss(out)
    grads = torch.autograd.grad(loss, moving, allow_unused=True)
    rest = at_rest(task, out).requires_grad_(True)
    resting = task.loss(rest)
    (pull,) = torch.autograd.grad(resting, rest)
    flat, rest = out.detach(), rest.detach()
    signal = -((flat - rest).double() * pull.double()).sum()
    known = {n: g.detach() for n, g in zip(names, grads) if g is not None}
    return PlateauState(float(signal), float(loss.detach()), flat, rest, float(resting.detach()), known)


def weight_parts(anatomy: Anatomy) -> list[ParameterPart]:
    """Weights of the layers, those that hold several projections taken apart."""
    held = [p for heads in anatomy.heads for p in (heads.q, heads.k, heads.v) if p is not None]
    held += [p for gated in anatomy.gated for p in (gated.gate, gated.value)]
    several: dict[str, list[ParameterPart]] = {}
    for p in held:
        if p.weight.index:
            several.setdefault(p.weight.parameter, []).append(p.weight)
    found = [part for layer in anatomy.layers for part in several.get(layer.weight, [layer.part])]
    return list({str(part): part for part in found}.values())


def small_parts(model: nn.Module, seen: PlateauState, anatomy: Anatomy) -> tuple[list[ParameterPart], str]:
    """Weights that are small against the initialiser of their own layer."""
    parameters = dict(model.named_parameters())
    if not (math.isfinite(seen.loss) and math.isfinite(seen.speed())):
        return [], "loss or gradients are not finite numbers"
    parts = [p for p in weight_parts(anatomy) if p.parameter in seen.grads]
    sizes = [layer_scale(p.of(parameters[p.parameter].detach())) / _usual(model, p) for p in parts]
    if not all(v > 0 for v in sizes):
        return [], "a layer is exactly zero"
    small = bottleneck(sizes).layers if len(sizes) > 1 else ()
    if not small:
        return [], "no layer is small against its usual initialisation: there is no plateau of this kind"
    beside = 1 - sum(float(p.of(seen.grads[p.parameter]).double().square().sum()) for p in parts) / seen.speed()
    if beside > BESIDE:
        return [], f"{100 * beside:.0f} % of the fall of the loss is that of biases and the like, beside the product"
    if seen.loss < (1 - LEAVES) * seen.resting:
        return [], "the loss is below its plateau already"
    return [parts[i] for i in small], ""


def _usual(model: nn.Module, part: ParameterPart) -> float:
    return usual_scale(model.get_submodule(part.parameter.rpartition(".")[0]))


def sampling(model: nn.Module, loss_fn: LossFn, batch: Any, examples: int, seed: int) -> Sampling:
    """How far the batch is to be believed, from the spread of its parts."""
    if examples < 2:
        return Sampling(1.0, math.inf)
    cut = lambda i, n: mapped(batch, lambda t: t[i::n] if t.ndim and t.shape[0] == examples else t)
    count = min(PARTS, examples)
    parts = [look(model, task_of(model, loss_fn, cut(i, count)), seed).grads for i in range(count)]
    total = spread = 0.0
    along = torch.zeros(count, dtype=torch.float64)
    for name in parts[0]:
        each = torch.stack([p[name].double() for p in parts]).flatten(1).cpu()
        mean = each.mean(0)
        total += float(mean.square().sum())
        spread += float(each.var(0).sum()) / count
        along += each @ mean
    if not total > 0:
        return Sampling(1.0, math.inf)
    return Sampling(spread / total, float(along.std()) / total / math.sqrt(count))


def factors_of(
    model: nn.Module, seen: PlateauState, anatomy: Anatomy, small: Sequence[ParameterPart]
) -> tuple[list[ParameterPart], str]:
    """The small factors of the output, by their pulls."""
    parameters, factors, beside = dict(model.named_parameters()), [], seen.speed()
    for part in (p for p in weight_parts(anatomy) if p.parameter in seen.grads):
        grad = part.of(seen.grads[part.parameter]).double()
        pull = -float((part.of(parameters[part.parameter].detach()).double() * grad).sum()) / seen.signal
        if SAME[0] < pull < SAME[1]:
            beside -= float(grad.square().sum())
            factors += [part] if part in small else []
        elif abs(pull) > IDLE:
            return [], (
                f"the output is no product with {part} as a factor: by the law of balance it would pull as the signal "
                f"does, and it pulls {pull:.2g} times as strongly"
            )
    if beside > BESIDE * seen.speed():
        return [], f"{100 * beside / seen.speed():.0f} % of the fall of the loss is not that of the product's factors"
    if len(factors) < 2:
        return [], "fewer than two of the layers that multiply are small: this is no plateau of that kind, or its end"
    return factors, ""
