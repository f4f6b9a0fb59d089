r"""A copy carried along the optimizer's path by strides of a tenth of its weights, until it leaves the plateau.

A plateau is slow: weights that grow by a factor of a hundred do so in fifty strides, whatever the learning rate. Under
SGD the path is the flow $dw=-(g+\lambda w)\,d\tau$, under Adam $dw=-(g/(\sqrt{\hat v}+\epsilon)+\lambda w)\,d\tau$,
where v begins as training has left it and follows the squares of the gradients, those of batches of B examples: by
$1+\nu n/B$ larger than those of the n that are measured.
Where the strides run out before the end, the law

$$\dot\gamma=c\,(\gamma^2+b^2)^{1-1/r}\,(1-x),\qquad x=\gamma/2R,$$

tells the rest; for r = 2 it is exact with b from the conserved difference of norms. R is what the output can take of
the loss in the direction in which it grows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from netvitals.anatomy import ParameterPart
from netvitals.capture import Task
from netvitals.saddle.measure.outlook import LEAVES
from netvitals.saddle.rollout.looks import PlateauState, look

STRIDE = 0.1  # of its norm that a layer moves in one stride
GROWN = 4.0  # by this factor the speed has grown where the factors are counted
LEAST = 1.3  # and at least
STRIDES = 60  # at most
RISES = (0.8, 1.25)  # rise of the signal over that which the gradients say
REACH = 1.5  # the output must be able to take so many times the fall that counts as leaving


class Flow:
    """How an optimizer moves weights, per unit of learning rate."""

    scale = 1.0  # of the gradient in the running mean

    def __init__(self, lr: float, momentum: float = 0.0, decay: float = 0.0, cold: bool = False) -> None:
        self.lr, self.momentum, self.decay, self.cold = lr, momentum, decay, cold

    def push(self, name: str, weight: Tensor, grad: Tensor) -> Tensor:
        """Where the weight ``name`` goes, with a minus sign."""
        return grad + self.decay * weight if self.decay else grad

    def spend(self, rate: float, first: dict[str, Tensor], last: dict[str, Tensor]) -> None:
        """A stride was taken, from one gradient to another."""

    def steps(self, strides: np.ndarray, paces: np.ndarray) -> float:
        r"""Steps that take this much learning rate: a gradient that grows by $e^{a\tau}$ along the flow grows in a step
        by $1+\delta$, $\delta\,(1-\mu/(1+\delta))=\eta a$; for slow growth that is $\eta/(1-\mu)$ a step. Momentum that
        has still to build up costs $\mu/(1-\mu)$ steps.
        """
        a = self.lr * self.scale * paces
        half = 1 - self.momentum - a
        delta = (np.sqrt(half**2 + 4 * a) - half) / 2
        still = strides * (1 - self.momentum) / (self.lr * self.scale)
        grows = a > 1e-9
        needed = np.where(grows, strides * paces / np.where(grows, np.log1p(delta), 1.0), still)
        return float(needed.sum()) + (self.momentum / (1 - self.momentum) if self.cold else 0.0)


class AdamFlow(Flow):
    """The same for Adam, whose second moments are carried along."""

    def __init__(
        self, lr: float, decay: float, seconds: dict[str, Tensor], beta1: float, beta2: float, eps: float, taken: float,
        noisy: float = 1.0,
    ) -> None:  # fmt: skip
        super().__init__(lr, beta1, decay)
        self.scale = 1 - beta1
        self.seconds, self.beta2, self.eps, self.taken, self.noisy = seconds, beta2, eps, taken, noisy

    def push(self, name: str, weight: Tensor, grad: Tensor) -> Tensor:
        root = (self.seconds[name] / (1 - self.beta2**self.taken)).sqrt()
        return grad / (root + self.eps) + self.decay * weight

    def spend(self, rate: float, first: dict[str, Tensor], last: dict[str, Tensor]) -> None:
        kept = self.beta2 ** (rate / self.lr)
        self.taken += rate / self.lr
        for name, g in last.items():
            square = 0.5 * (first[name].square() + g.square())
            square = square + (self.noisy - 1) * square.mean()  # noise spreads over all weights of a layer
            self.seconds[name] = kept * self.seconds[name] + (1 - kept) * square


@dataclass
class EscapeRollout:
    """Looks along the path and the learning rate between them; ``reason`` is empty, or why it is not the law's."""

    looks: list[PlateauState]
    strides: list[float] = field(default_factory=list)
    grown: int | None = None
    reason: str = ""


def begin(model: nn.Module, task: Task, parts: Sequence[ParameterPart], flow: Flow, seed: int) -> EscapeRollout:
    """Carry the copy along until the speed has grown, and check that the signal rises as the gradients say."""
    found = EscapeRollout([look(model, task, seed)])
    while len(found.strides) < STRIDES:
        now = found.looks[-1]
        expected = _falls(model, flow, now)
        after = _stride(model, task, parts, flow, found, seed)
        expected = 0.5 * found.strides[-1] * (expected + _falls(model, flow, after))
        rises = (after.signal - now.signal) / expected if expected else math.nan
        if not RISES[0] < rises < RISES[1]:
            found.reason = f"in a look-ahead the signal grew by {rises:.2g} of what the gradients predict"
            return found
        if left(after) or (after.signal > 0 and after.speed() > GROWN * min(s.speed() for s in found.looks)):
            break
    now = found.looks[-1]
    found.grown = len(found.strides)
    if not now.signal > 0:
        found.reason = "the signal is not positive: the network has not begun to fit its target"
    elif not now.speed() > LEAST * min(s.speed() for s in found.looks):
        found.reason = "in a look-ahead the slope of the loss did not grow"
    return found


def go_on(
    model: nn.Module, task: Task, parts: Sequence[ParameterPart], flow: Flow, seed: int, found: EscapeRollout
) -> None:
    """Carry the copy on until it leaves the plateau, or the strides run out."""
    while len(found.strides) < STRIDES and not left(found.looks[-1]) and math.isfinite(found.looks[-1].loss):
        _stride(model, task, parts, flow, found, seed)


def left(seen: PlateauState) -> bool:
    """Whether the loss has left the plateau."""
    return seen.loss < (1 - LEAVES) * seen.resting


def _falls(model: nn.Module, flow: Flow, seen: PlateauState) -> float:
    """−dγ/dτ to first order, as the gradients say."""
    weights = dict(model.named_parameters())
    return sum(float((g.double() * flow.push(n, weights[n].data, g).double()).sum()) for n, g in seen.grads.items())


def _stride(
    model: nn.Module, task: Task, parts: Sequence[ParameterPart], flow: Flow, found: EscapeRollout, seed: int
) -> PlateauState:
    """The path for one stride by Heun's rule."""
    weights, now = dict(model.named_parameters()), found.looks[-1]
    pushes = {n: flow.push(n, weights[n].data, g) for n, g in now.grads.items()}
    sizes = [(p.of(weights[p.parameter].data).norm(), p.of(pushes[p.parameter]).norm()) for p in parts]
    h = STRIDE * min(float(w / g) for w, g in sizes)
    for name, push in pushes.items():
        weights[name].data = weights[name].data - h * push  # other memory: the model's own is put back
    then = look(model, task, seed)
    flow.spend(h, now.grads, then.grads)
    for name, push in pushes.items():
        again = flow.push(name, weights[name].data, then.grads[name])
        weights[name].data = weights[name].data - 0.5 * h * (again - push)
    found.looks.append(look(model, task, seed))
    found.strides.append(h)
    return found.looks[-1]


def path(found: EscapeRollout, task: Task, r: int) -> tuple[np.ndarray, np.ndarray, float, str]:
    """Learning rates to be spent until the plateau is left, and how fast the gradients grow meanwhile."""
    walked, looks = np.array(found.strides), found.looks
    speeds = np.log([max(s.speed(), 1e-300) for s in looks])
    paces = np.maximum(0.5 * np.diff(speeds) / walked, 0.0)
    if left(looks[-1]):
        end = LEAVES * looks[-1].resting
        before, after = (max(s.resting - s.loss, 1e-3 * end) for s in looks[-2:])
        walked[-1] *= min(1.0, math.log(end / before) / math.log(after / before)) if after > before else 1.0
        return walked, paces, 0.0, ""
    taus, growth, why = _law(looks, task, r)
    return np.append(walked, taus), np.append(paces, growth), float(taus.sum()), why


def _law(looks: Sequence[PlateauState], task: Task, r: int) -> tuple[np.ndarray, np.ndarray, str]:
    """The same from the last look on, by the law."""
    now, before, none = looks[-1], looks[-2], np.empty(0)
    resting, power = now.resting, 1 - 1 / r
    reach = _reach(task, now)
    if reach < REACH * LEAVES * resting:
        most = f"{100 * reach / resting:.1f} %"
        return none, none, f"what grows takes at most {most} of the loss away, which alone does not end this plateau"
    free = lambda s: s.speed() / max(1 - s.signal / (2 * reach), 0.05)
    ratio = (free(now) / free(before)) ** (1 / power)
    if not ratio > 1:
        return none, none, "in a look-ahead the slope of the loss did not grow"
    b2 = max((now.signal**2 - ratio * before.signal**2) / (ratio - 1), 0.0)
    end = 2 * reach * (1 - math.sqrt(1 - LEAVES * resting / reach))
    if end <= now.signal:
        return none, none, ""
    c = free(now) / (now.signal**2 + b2) ** power
    edges = np.geomspace(now.signal, end, 401)
    grid = np.sqrt(edges[1:] * edges[:-1])
    speeds = c * (grid**2 + b2) ** power * (1 - grid / (2 * reach))
    return np.diff(edges) / speeds, power * speeds / np.sqrt(grid**2 + b2), ""


def _reach(task: Task, seen: PlateauState) -> float:
    """What of the resting loss is gone where the output has grown furthest in the direction that it has now."""
    way = seen.out - seen.rest
    with torch.no_grad():
        losses = [float(task.loss(seen.rest + s * way)) for s in np.geomspace(1, 1e9, 181)]
    best = min(v for v in losses if math.isfinite(v))
    return seen.resting - best
