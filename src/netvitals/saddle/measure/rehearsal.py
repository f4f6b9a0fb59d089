r"""When does the loss leave its plateau, from one look: factors of the output by the exact laws, and a rehearsal.

Gradient flow moves the square of a layer's norm by twice its pull, $\tfrac{d}{d\tau}\lVert W_\ell\rVert^2=2\rho_\ell$,
$\rho_\ell=-\langle W_\ell,\nabla_\ell\ell\rangle$. The exact laws of the anatomy (V → O, Q against K, the value of a
gated block → its output, neighbours of a chain) say that the pulls of two partners are equal. Where the output is a
product of r factors every one of them has the pull of the signal itself, $\rho_\ell=\gamma$, and a layer that takes no
part in it yet has none: on a tiny attention block V and O pull and Q and K do not, on a tiny gated one gate, value and
output all do. So r is counted on this very network, and

$$\dot\gamma=c\,(\gamma^2+b^2)^{1-1/r}\,(1-x),\qquad x=\gamma/2R,$$

tells the rest: for r = 2 it is exact with b from the conserved difference of norms. R is what the output can take of
the loss in the direction in which it grows. On a plateau the flow is slow, so that a copy can be carried along it by
strides of a tenth of its weights: the first factor of growth is rehearsed and not supposed, and gives c and b.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from netvitals.anatomy import Anatomy, chart
from netvitals.anatomy.parts import ParameterPart
from netvitals.capture import LossFn, Mode, Task, in_mode, preserved, task_of, undisturbed
from netvitals.capture.nested import main_output, mapped
from netvitals.saddle.measure.bottlenecks import bottleneck, layer_scale, usual_scale
from netvitals.saddle.measure.forecasting import EscapeForecast, made_forecast, no_forecast, optimizer_rule
from netvitals.saddle.measure.outlook import HELD_DOWN, LEAVES
from netvitals.saddle.measure.plateau import NORMS, at_rest

SAME = (0.8, 1.25)  # pull of a factor over the signal
IDLE = 0.1  # of a layer that takes no part
BESIDE = 0.1  # share of the fall of the loss that parameters beside the factors may have
STRIDE = 0.1  # of its norm that a layer moves in one stride of the rehearsal
GROWN = 4.0  # by this factor the speed grows in a rehearsal
LEAST = 1.3  # and at least
STRIDES = 40  # at most
PARTS = 8  # of the batch, whose gradients are compared
NOISE = 0.3  # share of the squared gradient that may be the batch's own
RISES = (0.8, 1.25)  # rise of the signal over that which the gradients say
REACH = 1.5  # the output must be able to take so many times the fall that counts as leaving
REHEARSED_SPREAD = 0.12  # standard deviation of ln(time left), on the tuning families of bench/rehearsal.py


@dataclass(frozen=True)
class _Look:
    """Signal, loss, and gradients at one point of the flow."""

    signal: float
    loss: float
    out: Tensor
    rest: Tensor
    resting: float
    grads: dict[str, Tensor]

    def speed(self) -> float:
        return sum(float(g.double().square().sum()) for g in self.grads.values())


@undisturbed
def rehearse_escape(
    model: nn.Module,
    loss_fn: LossFn,
    batch: Any,
    *,
    optimizer: torch.optim.Optimizer | float,
    mode: Mode = "as_is",
    seed: int = 0,
    step: int = 0,
    level: float = 0.8,
    anatomy: Anatomy | None = None,
) -> EscapeForecast:
    """Forecast the end of a plateau from one look at a model, which is left as it was.

    Args:
        model: as it stands.
        loss_fn: a function of (output, target), a mean over the batch; or its name.
        batch: a batch that stands for the data, (x, y).
        optimizer: SGD, whose rule and learning rate count; or the learning rate of plain gradient descent.
        mode: ``"as_is"``, ``"train"`` or ``"eval"``.
        seed: what noise is left in the model is drawn with it.
        step: number of the training step.
        level: nominal coverage of the interval.
        anatomy: of this model, where it is known already.

    Returns:
        When the loss has fallen by a twentieth of what it is at rest, or the reason why nobody can tell from one look.

    >>> _ = torch.manual_seed(0)
    >>> net = nn.Sequential(nn.Linear(4, 16, bias=False), nn.Linear(16, 1, bias=False))
    >>> x = torch.randn(64, 4)
    >>> print(rehearse_escape(net, "mse", (x, x[:, :1]), optimizer=0.1).reason)
    no layer is small against its usual initialisation: there is no plateau of this kind
    >>> with torch.no_grad():
    ...     _ = [p.mul_(0.01) for p in net.parameters()]
    >>> found = rehearse_escape(net, "mse", (x, x[:, :1]), optimizer=0.1)
    >>> found.r, found.low < found.step < found.high
    (2, True)
    """
    refuse = lambda why: no_forecast(step, why, drop=LEAVES, level=level)
    lr, momentum, decay, why = _rate(optimizer)
    if why:
        return refuse(why)
    task = task_of(model, loss_fn, batch)
    if task.loss_fn is None or task.call is not None:
        return refuse("a plateau is one of a loss of (output, target), and a batch that the model takes itself")
    with preserved(model), in_mode(model, mode), torch.enable_grad():
        anatomy = chart(model, task.inputs, keep_tensors=False) if anatomy is None else anatomy
        norm = next((o.name for o in anatomy.operations if any(k in o.name for k in NORMS)), None)
        if norm is not None:
            return refuse(f"{norm} removes the scale of the layers before it, and with it the law")
        small, why = _small(model, task, anatomy, seed)
        if why:
            return refuse(why)
        noise = _noise(model, loss_fn, batch, task.examples, seed)
        if not noise < NOISE:
            return refuse(
                f"{100 * min(noise, 1.0):.0f} % of the slope of the loss is noise of these {task.examples} examples: "
                f"a larger batch can tell"
            )
        looks, strides, why = _rehearsed(model, task, anatomy, seed)
        if why:
            return refuse(why)
        factors, why = _factors(model, looks[-1], anatomy, small)
        if why:
            return refuse(why)
        taus, paces, why = _path(looks, strides, task, len(factors))
    if why:
        return refuse(why)
    if decay * float(taus.sum()) > HELD_DOWN:
        return refuse("weight decay holds the small layers down, and the law knows none")
    found = made_forecast(
        step, _steps(taus, paces, lr, momentum), level, len(factors), LEAVES, "rehearsal", REHEARSED_SPREAD
    )
    return replace(found, rest=looks[0].resting)


def _rate(optimizer: torch.optim.Optimizer | float) -> tuple[float, float, float, str]:
    """Learning rate, momentum, and what a unit of learning rate takes of a weight; or why one look is not enough."""
    if isinstance(optimizer, int | float):
        good = math.isfinite(optimizer) and optimizer > 0
        return float(optimizer), 0.0, 0.0, "" if good else f"the learning rate is {optimizer}"
    arguments, why = optimizer_rule(optimizer)
    if not why and arguments["rule"] != "sgd":
        name = type(optimizer).__name__
        why = f"{name} divides by what the gradients have been, which one look does not show: watch it"
    if not why and not arguments["lr"] > 0:
        why = "the learning rate is zero"
    if why:
        return math.nan, 0.0, 0.0, why
    return arguments["lr"], arguments["momentum"], float(optimizer.param_groups[0].get("weight_decay", 0.0)), ""


def _look(model: nn.Module, task: Task, seed: int) -> _Look:
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
    return _Look(float(signal), float(loss.detach()), flat, rest, float(resting.detach()), known)


def _parts(anatomy: Anatomy) -> list[ParameterPart]:
    """Weights of the layers, those that hold several projections taken apart."""
    held = [p for heads in anatomy.heads for p in (heads.q, heads.k, heads.v) if p is not None]
    held += [p for gated in anatomy.gated for p in (gated.gate, gated.value)]
    several: dict[str, list[ParameterPart]] = {}
    for p in held:
        if p.weight.index:
            several.setdefault(p.weight.parameter, []).append(p.weight)
    found = [part for layer in anatomy.layers for part in several.get(layer.weight, [layer.part])]
    return list({str(part): part for part in found}.values())


def _small(model: nn.Module, task: Task, anatomy: Anatomy, seed: int) -> tuple[list[ParameterPart], str]:
    """Weights that are small against the initialiser of their own layer; or why there is no plateau to speak of."""
    look, parameters = _look(model, task, seed), dict(model.named_parameters())
    if not (math.isfinite(look.loss) and math.isfinite(look.speed())):
        return [], "loss or gradients are not finite numbers"
    parts = [p for p in _parts(anatomy) if p.parameter in look.grads]
    sizes = [layer_scale(p.of(parameters[p.parameter].detach())) / _usual(model, p) for p in parts]
    if not all(v > 0 for v in sizes):
        return [], "a layer is exactly zero"
    small = bottleneck(sizes).layers if len(sizes) > 1 else ()
    if not small:
        return [], "no layer is small against its usual initialisation: there is no plateau of this kind"
    beside = 1 - sum(float(p.of(look.grads[p.parameter]).double().square().sum()) for p in parts) / look.speed()
    if beside > BESIDE:
        return [], f"{100 * beside:.0f} % of the fall of the loss is that of biases and the like, beside the product"
    if look.loss < (1 - LEAVES) * look.resting:
        return [], "the loss is below its plateau already"
    return [parts[i] for i in small], ""


def _noise(model: nn.Module, loss_fn: LossFn, batch: Any, examples: int, seed: int) -> float:
    """Share of the squared gradient that comes of which examples are in the batch, from the spread of its parts."""
    if examples < 2:
        return 1.0
    cut = lambda i, n: mapped(batch, lambda t: t[i::n] if t.ndim and t.shape[0] == examples else t)
    count = min(PARTS, examples)
    parts = [_look(model, task_of(model, loss_fn, cut(i, count)), seed).grads for i in range(count)]
    total = spread = 0.0
    for name in parts[0]:
        each = torch.stack([p[name].double() for p in parts])
        total += float(each.mean(0).square().sum())
        spread += float(each.var(0).sum()) / count
    return spread / total if total > 0 else 1.0


def _usual(model: nn.Module, part: ParameterPart) -> float:
    return usual_scale(model.get_submodule(part.parameter.rpartition(".")[0]))


def _factors(
    model: nn.Module, look: _Look, anatomy: Anatomy, small: Sequence[ParameterPart]
) -> tuple[list[ParameterPart], str]:
    """The small factors of the output, by their pulls at the end of the rehearsal; or why it is no product."""
    parameters, factors, beside = dict(model.named_parameters()), [], look.speed()
    for part in (p for p in _parts(anatomy) if p.parameter in look.grads):
        grad = part.of(look.grads[part.parameter]).double()
        pull = -float((part.of(parameters[part.parameter].detach()).double() * grad).sum()) / look.signal
        if SAME[0] < pull < SAME[1]:
            beside -= float(grad.square().sum())
            factors += [part] if part in small else []
        elif abs(pull) > IDLE:
            return [], (
                f"the output is no product with {part} as a factor: by the law of balance it would pull as the signal "
                f"does, and it pulls {pull:.2g} times as strongly"
            )
    if beside > BESIDE * look.speed():
        return [], f"{100 * beside / look.speed():.0f} % of the fall of the loss is not that of the product's factors"
    if len(factors) < 2:
        return [], "fewer than two of the layers that multiply are small: this is no plateau of that kind, or its end"
    return factors, ""


def _rehearsed(model: nn.Module, task: Task, anatomy: Anatomy, seed: int) -> tuple[list[_Look], list[float], str]:
    """Looks along the flow until its speed has grown, and the learning rate between; or why it is not the law's."""
    parameters, looks = dict(model.named_parameters()), [_look(model, task, seed)]
    spent: list[float] = []
    parts = [p for p in _parts(anatomy) if p.parameter in looks[0].grads]
    for _ in range(STRIDES):
        now = looks[-1]
        sizes = [(p.of(parameters[p.parameter].detach()).norm(), p.of(now.grads[p.parameter]).norm()) for p in parts]
        h = STRIDE * min(float(w / g) for w, g in sizes)
        after = _stride(model, task, parameters, now, h, seed)
        rises = (after.signal - now.signal) / (h * 0.5 * (now.speed() + after.speed()))
        if not RISES[0] < rises < RISES[1]:
            return looks, spent, f"in a rehearsal the signal rose by {rises:.2g} of what the gradients say"
        looks.append(after)
        spent.append(h)
        grown = after.speed() > GROWN * min(s.speed() for s in looks) and after.signal > 0
        if grown or after.loss < (1 - LEAVES) * after.resting:
            break
    if not looks[-1].signal > 0:
        return looks, spent, "the signal is not positive: the network has not begun to follow its target"
    if not looks[-1].speed() > LEAST * min(s.speed() for s in looks):
        return looks, spent, "in a rehearsal the slope of the loss did not grow"
    return looks, spent, ""


def _stride(
    model: nn.Module, task: Task, parameters: dict[str, nn.Parameter], now: _Look, h: float, seed: int
) -> _Look:
    """The flow for a time h by Heun's rule."""
    for name, g in now.grads.items():
        parameters[name].data = parameters[name].data - h * g  # other memory: the model's own is put back
    then = _look(model, task, seed)
    for name, g in now.grads.items():
        parameters[name].data = parameters[name].data - 0.5 * h * (then.grads[name] - g)
    return _look(model, task, seed)


def _path(looks: Sequence[_Look], strides: Sequence[float], task: Task, r: int) -> tuple[np.ndarray, np.ndarray, str]:
    """Learning rates to be spent, and how fast the factors grow meanwhile: the strides, then the law to its end."""
    now, before, none = looks[-1], looks[-2], np.empty(0)
    resting, power = now.resting, 1 - 1 / r
    reach = _reach(task, now)
    if reach < REACH * LEAVES * resting:
        most = f"{100 * reach / resting:.1f} %"
        return none, none, f"what grows takes at most {most} of the loss away, which alone does not end this plateau"
    free = lambda s: s.speed() / max(1 - s.signal / (2 * reach), 0.05)
    ratio = (free(now) / free(before)) ** (1 / power)
    if not ratio > 1:
        return none, none, "in a rehearsal the slope of the loss did not grow"
    b2 = max((now.signal**2 - ratio * before.signal**2) / (ratio - 1), 0.0)
    pace = lambda speed, signal: speed / (r * np.sqrt(np.square(signal) + b2))
    walked = np.array(strides), np.array([pace(s.speed(), s.signal) for s in looks[1:]])
    end = 2 * reach * (1 - math.sqrt(1 - LEAVES * resting / reach))
    if end <= now.signal:
        return *walked, ""
    c = free(now) / (now.signal**2 + b2) ** power
    edges = np.geomspace(now.signal, end, 401)
    grid = np.sqrt(edges[1:] * edges[:-1])
    speeds = c * (grid**2 + b2) ** power * (1 - grid / (2 * reach))
    return np.append(walked[0], np.diff(edges) / speeds), np.append(walked[1], pace(speeds, grid)), ""


def _steps(taus: np.ndarray, paces: np.ndarray, lr: float, momentum: float) -> float:
    r"""Steps that take this much learning rate: a factor that the flow lets grow by $e^{a\tau}$ grows in a step by
    $1+\delta$, $\delta\,(1-\mu/(1+\delta))=\eta a$; for slow growth that is $\eta/(1-\mu)$ a step."""
    a = lr * paces
    half = 1 - momentum - a
    delta = (np.sqrt(half**2 + 4 * a) - half) / 2
    return float((taus * paces / np.log1p(delta)).sum())


def _reach(task: Task, look: _Look) -> float:
    """What of the resting loss is gone where the output has grown furthest in the direction that it has now."""
    way = look.out - look.rest
    with torch.no_grad():
        losses = [float(task.loss(look.rest + s * way)) for s in np.geomspace(1, 1e9, 181)]
    best = min(v for v in losses if math.isfinite(v))
    return look.resting - best
