r"""A look at a network on its plateau: the numbers from which the end of the plateau can be told.

On a probe batch, with $o_0$ the output at input zero (what the biases alone say) and $\ell$ any loss:

- signal $\gamma=-\langle o-o_0,\nabla\ell(o_0)\rangle$: how far the loss has begun to fall, to first order. For squared
  loss and no biases this is $E[fy]$, which grows with what the theory calls the signal energy.
- $\lVert g_\ell\rVert_2$, $\lVert g_\ell\rVert_1$: gradients of the layers, which set how fast γ grows.
- gain $y_\ell=\lVert W_\ell\rVert_F/\sqrt{\min(n_{in},n_{out})}$ of every layer on a random vector.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from netvitals.anatomy import Anatomy, Links, chart, find_links
from netvitals.capture import (
    LossFn,
    Mode,
    Result,
    Task,
    in_mode,
    main_output,
    preserved,
    resolve_loss,
    task_of,
    undisturbed,
)
from netvitals.saddle.measure.bottlenecks import bottleneck, usual_scale
from netvitals.saddle.students.network import Stack, output

NORMS = ("batch_norm", "layer_norm", "group_norm", "rms_norm", "rsqrt")  # parts of aten names


@dataclass(frozen=True, kw_only=True)
class Snapshot(Result):
    """One look. ``reason`` is empty, or says why no forecast can rest on this network.

    Returned by :func:`measure_plateau`.

    Attributes:
        step: number of the training step.
        signal: how much of the resting loss the first order takes away.
        loss: on the probe batch.
        resting: loss of the constant output o_0.
        names: of the layers of the chain.
        grads: ‖g_ℓ‖₂ per layer.
        signs: ‖g_ℓ‖₁ per layer.
        gains: y_ℓ, norm of each layer's weight over the root of its smaller side.
        scales: ‖W_ℓ‖_F over its value at He-normal initialisation.
        initial: the same at the initialisation that the layer's own class has.
        speed: −dℓ/dt under the optimizer's rule with a learning rate of 1.
        skipped: layer outside of the chain → reason.
    """

    step: int
    signal: float
    loss: float
    resting: float
    names: tuple[str, ...]
    grads: tuple[float, ...]
    signs: tuple[float, ...]
    gains: tuple[float, ...]
    scales: tuple[float, ...]
    initial: tuple[float, ...] = ()
    speed: float = math.nan
    reason: str = ""
    skipped: Mapping[str, str] = field(default_factory=dict)

    @property
    def progress(self) -> float:
        """Share of the resting loss that is already gone."""
        return 1 - self.loss / self.resting if self.resting > 0 else math.nan

    def __str__(self) -> str:
        if self.reason:
            return f"step {self.step}: {self.reason}"
        return (
            f"step {self.step}: signal {self.signal:.4g}, loss {self.loss:.5g} of {self.resting:.5g} at rest, "
            f"{len(self.names)} layers"
        )

    @property
    def small(self) -> tuple[int, ...]:
        """Indices of the small layers, by their scales now against their own initialiser; empty when none is small."""
        if len(self.scales) < 2 or not all(s > 0 for s in self.scales):
            return ()
        usual = self.initial or (1.0,) * len(self.scales)
        return bottleneck([s / max(u, 1e-300) for s, u in zip(self.scales, usual)]).layers


@undisturbed
def measure_plateau(
    model: nn.Module,
    loss_fn: LossFn,
    batch: Any,
    *,
    mode: Mode = "as_is",
    seed: int = 0,
    step: int = 0,
    anatomy: Anatomy | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> Snapshot:
    """Measure signal, loss and gradients of a model once, as input of a plateau forecast; the model is left unchanged.

    Args:
        model: a network whose layers form one chain from input to output.
        loss_fn: a function of (output, target), a mean over the batch; or its name.
        batch: a fixed probe batch, (x, y); mirror-symmetric inputs (x and −x) give the cleanest signal.
        mode: ``"as_is"``, ``"train"`` or ``"eval"``.
        seed: seed of the random numbers that the model draws.
        step: the training step of this measurement.
        anatomy: the result of ``anatomy.chart`` for this model; computed if left out.
        optimizer: the optimizer whose update rule gives the speed of the loss; plain gradient descent if left out.

    Returns:
        Signal, losses, and gradients and gains by layer; or the reason why no forecast can rest on this network.

    >>> _ = torch.manual_seed(0)
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    >>> seen = measure_plateau(net, "mse", (torch.randn(16, 4), torch.randn(16, 1)))
    >>> seen.names, seen.reason
    (('0', '2'), '')
    """
    task = task_of(model, loss_fn, batch)
    if task.loss_fn is None:
        raise TypeError("a plateau forecast needs a loss: give loss_fn, a function of (output, target) or its name")
    with preserved(model), in_mode(model, mode), torch.enable_grad():
        torch.manual_seed(seed)
        anatomy = chart(model, task.inputs) if anatomy is None else anatomy
        for p in model.parameters():
            p.requires_grad_(True)
        out = main_output(task.forward())
        if not isinstance(out, Tensor):
            return _refused(step, f"the model returns a {type(out).__name__}, not a tensor of outputs")
        loss = task.loss(out)
        links = find_links(anatomy)
        names, reason = _single_chain(anatomy, links)
        moving = [p for p in model.parameters() if p.is_floating_point()]
        pulls = torch.autograd.grad(loss, moving, allow_unused=True, retain_graph=True)
        speed = fall_speed(optimizer, moving, pulls)
        if reason:
            known = torch.stack([v.detach().double() for v in (loss, task.loss(_mean_output(out)), speed)]).tolist()
            return replace(_refused(step, reason, links.skipped), loss=known[0], resting=known[1], speed=known[2])
        layers = {layer.name: layer for layer in anatomy.layers}
        weights = [model.get_parameter(layers[n].weight) for n in names]
        grads = torch.autograd.grad(loss, weights)
        flat, rest = out.detach(), at_rest(task, out).requires_grad_(True)
        resting = task.loss(rest)
        (pull,) = torch.autograd.grad(resting, rest)
        signal = -((flat - rest.detach()) * pull).sum()
        numbers = [
            signal,
            loss.detach(),
            resting.detach(),
            *(g.norm() for g in grads),
            *(g.abs().sum() for g in grads),
            *(w.detach().norm() for w in weights),
            speed,
        ]
        *values, rate = torch.stack([v.detach().double() for v in numbers]).tolist()
    turned = (w.transpose(0, layers[n].out_dim) for n, w in zip(names, weights))
    seen = _snapshot(step, values, names, [(w.shape[0], w[0].numel()) for w in turned])
    owners = [layers[n].weight.rpartition(".")[0] for n in names]
    return replace(seen, speed=rate, initial=tuple(usual_scale(model.get_submodule(o)) for o in owners))


def fall_speed(
    optimizer: torch.optim.Optimizer | None, parameters: Sequence[Tensor], grads: Sequence[Tensor | None]
) -> Tensor:
    r"""$-\dot\ell$ at learning rate 1: $\sum g^2/(1-\mu)$ for SGD, $\sum g^2/(\sqrt{\hat v}+\epsilon)$ for Adam."""
    groups = [] if optimizer is None else optimizer.param_groups
    by_id = {id(p): group for group in groups for p in group["params"]}
    first = float(groups[0]["lr"]) if groups else 1.0
    total = torch.zeros((), dtype=torch.float64)
    for p, g in zip(parameters, grads):
        group = by_id.get(id(p))
        if g is None or (group is None and groups):
            continue
        share = 1.0 if group is None or not first else float(group["lr"]) / first
        g = g.detach().double()
        state = {} if optimizer is None else optimizer.state.get(p) or {}
        if group is not None and "exp_avg_sq" in state:
            corrected = 1 - group["betas"][1] ** float(state.get("step", 1))
            root = (state["exp_avg_sq"].detach().double() / corrected).sqrt()
            pushed = (g * g / (root + group.get("eps", 1e-8))).sum()
        elif group is not None and "betas" in group:
            pushed = g.abs().sum()  # the first step of Adam, and all of Lion
        else:
            pushed = g.square().sum() / (1 - float((group or {}).get("momentum", 0.0) or 0.0))
        total = total + share * pushed.cpu()
    return total


def measure_plateaus(
    weights: Stack,
    loss_fn: Callable[[Tensor, Tensor], Tensor],
    batch: tuple[Tensor, Tensor],
    *,
    f: Callable[[Tensor], Tensor],
    step: int = 0,
) -> list[Snapshot]:
    """The same for a stack of networks (copies, n_out, n_in), one snapshot per copy."""
    if resolve_loss(loss_fn) is not loss_fn or loss_fn is None:
        raise TypeError(f"loss_fn= must be a function that returns one loss per copy of the network, got {loss_fn!r}")
    x, y = batch
    with torch.enable_grad():
        leaves = [w.detach().requires_grad_(True) for w in weights]
        out = output(leaves, x, f)
        loss = loss_fn(out, y)
        grads = torch.autograd.grad(loss.sum(), leaves)
        flat = out.detach()
        rest = output([w.detach() for w in weights], torch.zeros_like(x[..., :1, :]), f).expand_as(flat).clone()
        rest.requires_grad_(True)
        resting = loss_fn(rest, y)
        (pull,) = torch.autograd.grad(resting.sum(), rest)
    signal = -((flat - rest.detach()) * pull).sum((1, 2))
    per_layer = lambda items: torch.stack(list(items), 1)
    table = (
        torch.cat(
            [
                torch.stack([signal, loss.detach(), resting.detach()], 1),
                per_layer(g.flatten(1).norm(dim=1) for g in grads),
                per_layer(g.abs().sum((1, 2)) for g in grads),
                per_layer(w.detach().flatten(1).norm(dim=1) for w in weights),
            ],
            1,
        )
        .double()
        .tolist()
    )
    shapes = [(w.shape[1], w.shape[2]) for w in weights]
    names = tuple(str(i + 1) for i in range(len(weights)))
    return [_snapshot(step, v, names, shapes) for v in table]


def _snapshot(
    step: int, values: Sequence[float], names: tuple[str, ...], shapes: Sequence[tuple[int, int]]
) -> Snapshot:
    """From signal, loss and resting loss, then three numbers a layer: ‖g‖₂ of all, ‖g‖₁ of all, ‖W‖ of all."""
    n = len(names)
    grads, signs, norms = (tuple(values[3 + i * n : 3 + (i + 1) * n]) for i in range(3))
    return Snapshot(
        step=step,
        signal=values[0],
        loss=values[1],
        resting=values[2],
        names=names,
        grads=grads,
        signs=signs,
        gains=tuple(v / math.sqrt(min(s)) for v, s in zip(norms, shapes)),
        scales=tuple(v / math.sqrt(2 * s[0]) for v, s in zip(norms, shapes)),
        reason=_finite(values),
    )


def at_rest(task: Task, out: Tensor) -> Tensor:
    """Output at input zero, once per example; the batch mean of the outputs where zero is not an input."""
    inputs = [*task.args, *task.kwargs.values()]
    if len(inputs) == 1 and isinstance(inputs[0], Tensor) and inputs[0].is_floating_point():
        zero = torch.zeros_like(inputs[0][:1])
        with torch.no_grad():
            still = task.model(**dict.fromkeys(task.kwargs, zero)) if task.kwargs else task.model(zero)
            return main_output(still).expand_as(out).clone()
    return _mean_output(out)


def _mean_output(out: Tensor) -> Tensor:
    return out.detach().mean(0, keepdim=True).expand_as(out).clone()


def _finite(values: Sequence[float]) -> str:
    return "" if all(math.isfinite(v) for v in values) else "loss or gradients are not finite numbers"


def _refused(step: int, reason: str, skipped: Mapping[str, str] | None = None) -> Snapshot:
    return Snapshot(
        step=step,
        signal=math.nan,
        loss=math.nan,
        resting=math.nan,
        names=(),
        grads=(),
        signs=(),
        gains=(),
        scales=(),
        reason=reason,
        skipped={"model": reason, **(skipped or {})},
    )


def _single_chain(anatomy: Anatomy, links: Links) -> tuple[tuple[str, ...], str]:
    """The chain that carries the whole function, or why there is none: the law is for a product of layers."""
    chains, ran = links.chains, list(dict.fromkeys(layer.name for layer in anatomy.layers))
    if not ran:
        return (), "no layer ran that multiplies with a parameter"
    if not chains:
        return (), "no chain of layers was found: " + ("; ".join(links.skipped.values()) or "only one layer ran")
    chain = max(chains, key=len)
    outside = [n for n in ran if n not in chain]
    if outside:
        return (), (
            f"the layers do not form one chain from input to output ({', '.join(outside[:3])} "
            f"{'are' if len(outside) > 1 else 'is'} outside of {chain[0]} … {chain[-1]}): "
            f"with a residual or branching path the output is not a product of layers"
        )
    for link in links.links:
        norm = next((b for b in link.between if any(k in b for k in NORMS)), None)
        if norm is not None:
            return (), f"{norm} between {link.first} and {link.second} removes the scale of {link.first}"
    return chain, ""
