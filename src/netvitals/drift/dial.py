r"""The drift dial: one number at the start, $\langle o, \nabla_o\ell\rangle_0$, sets how the weights will drift.

Scaling the readout by α scales the outputs of a fresh model, and with them the push: for a convex loss
$\alpha \mapsto \langle \alpha o, \nabla\ell(\alpha o)\rangle$ rises wherever it is positive. A small push lets learning
reverse the drift at once (dense activations), a large one drives pre-activations down first (sparse activations).

A readout whose weight is tied to the embedding cannot be scaled without scaling the embedding too: there the logits are
scaled, by a hook on the layer that makes them. How sparse a push makes a network depends on network and data, and
nothing is promised here. Measured (study ``weight-drift-dial``, five seeds, 200 steps of Adam; F23-mlp and F23-gpt2):

==========================  ========================================  =================================
push at the start           zeros, accuracy: an MLP on photographs    zeros, loss: GPT-2 on text
==========================  ========================================  =================================
0.15                        0.518, 0.408                              0.705, 2.442
1.2                         0.576, 0.384                              0.679, 2.423
4.5                         0.627, 0.341                              0.641, 2.438
as it is (0.75 and −0.01)   0.561, 0.389                              0.711, 2.547
==========================  ========================================  =================================

In the MLP a larger push makes more zeros, at a cost in accuracy; in a transformer with a tied head it makes fewer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from netvitals.anatomy import Anatomy, chart, layer_kind
from netvitals.capture import LossFn, Mode, Result, Task, in_mode, main_output, preserved, task_of, uncompiled

LARGEST = 1e6  # scales beyond this are not looked for
PRECISION = 1e-6  # relative, of the scale


class LogitScale:
    """A forward hook that multiplies what a layer returns by a constant.

    >>> layer = nn.Linear(2, 2, bias=False)
    >>> x, handle = torch.ones(1, 2), layer.register_forward_hook(LogitScale(0.5))
    >>> bool(torch.equal(layer(x), 0.5 * torch.nn.functional.linear(x, layer.weight)))
    True
    """

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        return output * self.factor


@dataclass(frozen=True, kw_only=True)
class Dial(Result):
    """A readout that was rescaled, and the push before and after.

    Returned by :func:`set_drift`.

    Attributes:
        readout: name of the layer.
        scale: its weight (and bias), or the logits it makes, were multiplied by this.
        before: ⟨o, ∇ℓ⟩ of an example, as it was.
        after: the same after rescaling.
        stderr: of ``after`` over the examples of the batch.
        examples: of the batch.
        evaluations: forward passes that were made.
        by: "weight", or "logits" where the weight is tied and a hook scales what the layer returns.
        skipped: what could not be rescaled → reason.
    """

    readout: str
    scale: float
    before: float
    after: float
    stderr: float
    examples: int
    evaluations: int
    by: str = "weight"
    skipped: Mapping[str, str] = field(default_factory=dict)
    _undo: Callable[[], Any] | None = field(default=None, repr=False, compare=False)

    def remove(self) -> None:
        """Undo it: divide the weights by the scale, or take the hook of the logits away."""
        if self._undo is not None:
            self._undo()

    def __str__(self) -> str:
        what = self.readout if self.by == "weight" else f"logits of {self.readout} (its weight is tied)"
        return (
            f"{what} × {self.scale:.4g}: ⟨o, ∇ℓ⟩ {self.before:+.4g} → {self.after:+.4g} ± "
            f"{self.stderr:.1g} over {self.examples} examples"
        )


def set_drift(
    model: nn.Module,
    loss_fn: LossFn,
    batch: Any,
    *,
    mode: Mode = "as_is",
    seed: int = 0,
    target: float | None = None,
    scale: float | None = None,
    readout: str | None = None,
) -> Dial:
    r"""Rescale the readout layer in place, so that weights drift more or less in training.

    The readout weight is multiplied by ``scale``, or by the factor for which ⟨o, ∇ℓ⟩ on ``batch`` becomes ``target``.
    All other parameters stay unchanged. Call this function on a freshly initialised model, before or after making the
    optimizer. If the readout weight is tied to the embedding (GPT-2), a forward hook scales the logits instead. The
    hook on the logits stays until ``remove()`` is called, and is not part of the ``state_dict``.

    Args:
        model: the model.
        loss_fn: a function of (output, target), a mean over the batch; or its name.
        batch: one batch as a data loader yields it, a few hundred examples.
        mode: ``"as_is"``, ``"train"`` (dropout modules off) or ``"eval"``: how the push is measured.
        seed: seed of the random numbers that the model draws.
        target: the push to reach; 0 makes the readout zero.
        scale: or the factor itself.
        readout: name of the layer; by default the one that makes the output, found by dataflow.

    Returns:
        What was scaled by how much, and the push before and after.

    >>> _ = torch.manual_seed(0)
    >>> net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 5, bias=False))
    >>> x, y = torch.randn(256, 8), torch.randint(5, (256,))
    >>> round(set_drift(net, nn.functional.cross_entropy, (x, y), target=2.0).after, 3)
    2.0
    """
    if (target is None) == (scale is None):
        raise ValueError("give exactly one of target (the value of ⟨o, ∇ℓ⟩) and scale (the factor on the readout)")
    for name, value in (("target", target), ("scale", scale)):
        if value is not None and not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name} must be a non-negative number, got {value}")
    name, layer, tied = _readout(task_of(uncompiled(model), loss_fn, batch), readout)
    put, undo = _scaled_logits(layer) if tied else _scaled_weights(layer)
    count = 0

    def turn(factor: float) -> Tensor:
        nonlocal count
        count += 1
        put(factor)
        return push(model, loss_fn, batch, mode=mode, seed=seed)

    try:
        before = turn(1.0)
        if scale is None:
            assert target is not None
            scale = _solve(lambda factor: float(turn(factor).mean()), target, float(before.mean()))
        after = turn(scale)
    except BaseException:
        undo()
        raise
    n = after.numel()
    error = float(after.std() / n**0.5) if n > 1 else math.nan
    return Dial(
        readout=name,
        scale=scale,
        before=float(before.mean()),
        after=float(after.mean()),
        stderr=error,
        examples=n,
        evaluations=count,
        by="logits" if tied else "weight",
        _undo=undo,
    )


def _scaled_weights(layer: Any) -> tuple[Callable[[float], None], Callable[[], None]]:
    """How to scale a layer of its own, and how to undo it."""
    parameters = [p for p in (layer.weight, layer.bias) if isinstance(p, Tensor)]
    start = [p.detach().clone() for p in parameters]

    @torch.no_grad()
    def put(factor: float) -> None:
        for p, first in zip(parameters, start):
            p.copy_(first * factor)

    return put, lambda: put(1.0)


def _scaled_logits(layer: Any) -> tuple[Callable[[float], None], Callable[[], None]]:
    """The same for a layer whose weight has another owner: what it returns is scaled."""
    factor = LogitScale(1.0)
    handle = layer.register_forward_hook(factor)

    def put(value: float) -> None:
        factor.factor = value

    return put, handle.remove


def push(model: nn.Module, loss_fn: LossFn, batch: Any, *, mode: Mode = "as_is", seed: int = 0) -> Tensor:
    """Compute ⟨o, ∇ℓ⟩, the inner product of output and loss gradient, for every example of a batch.

    Args:
        model: any model whose output is a tensor, or holds logits.
        loss_fn: a function of (output, target), or its name.
        batch: one batch as a data loader yields it.
        mode: ``"as_is"``, ``"train"`` or ``"eval"``.
        seed: seed of the random numbers that the model draws.

    Returns:
        A tensor of shape (examples,), in float64.

    >>> net = nn.Linear(3, 2)
    >>> tuple(push(net, "mse", (torch.randn(5, 3), torch.zeros(5, 2))).shape)
    (5,)
    """
    task = task_of(model, loss_fn, batch)
    if task.loss_fn is None:
        raise TypeError(
            "push() computes ⟨o, ∇ℓ⟩ and needs a loss: give loss_fn, a function of (output, target) or its name"
        )
    model = uncompiled(model)
    with preserved(model), in_mode(model, mode), torch.no_grad():
        torch.manual_seed(seed)
        output = main_output(model(*task.args, **task.kwargs))
        if not isinstance(output, Tensor):
            raise TypeError(f"the model must return a tensor, or an output with logits, got a {type(output).__name__}")
        with torch.enable_grad():
            o = output.detach().requires_grad_()
            loss = task.loss(o)
            if not bool(torch.isfinite(loss)):
                raise ValueError(
                    f"the loss on this batch is {float(loss)}: use a smaller readout scale, or check the data"
                )
            (g,) = torch.autograd.grad(loss, o)
    return (o.detach() * g).double().reshape(o.shape[0], -1).sum(1) * o.shape[0]


def _readout(task: Task, name: str | None) -> tuple[str, Any, bool]:
    """The layer that makes the output, by dataflow, or the one that was named; and whether its weight is tied."""
    model = task.model
    layers = {n: m for n, m in model.named_modules() if layer_kind(m) in ("linear", "convolution")}
    if name is not None and name not in layers:
        raise ValueError(f"there is no linear or convolution layer {name!r}; there are {', '.join(layers) or 'none'}")
    if not layers:
        raise ValueError("the model has no linear or convolution layer that could be its readout")
    if name is None:
        name = next(iter(layers)) if len(layers) == 1 else readout_name(chart(model, task.inputs), layers)
    layer = layers[name]
    owners = [m for m in model.modules() if any(p is layer.weight for p in m._parameters.values())]
    return name, layer, len(owners) > 1


def readout_name(anatomy: Anatomy, layers: Mapping[str, nn.Module]) -> str:
    """The one layer that makes a model's output."""
    found = list(dict.fromkeys(layer.name for layer in anatomy.readouts if layer.name in layers))
    if len(found) != 1:
        what = f"{len(found)} layers make the output ({', '.join(found)})" if found else "no layer makes the output"
        raise ValueError(f"{what}, but exactly one is expected: name the readout layer, one of {', '.join(layers)}")
    return found[0]


def _solve(value: Callable[[float], float], target: float, at_one: float) -> float:
    """The scale at which the push is ``target``, by bisection in log scale; the push rises where it is positive."""
    if target == 0:
        return 0.0
    low, high = (1.0, 1.0)
    if at_one < target:
        while value(high) < target:
            low, high = high, high * 2
            if high > LARGEST:
                raise ValueError(
                    f"no readout scale up to {LARGEST:g} reaches ⟨o, ∇ℓ⟩ = {target:g} on this batch; at scale 1 it is "
                    f"{at_one:+.3g}. In a model that has learned the batch, ⟨o, ∇ℓ⟩ is negative: use a freshly "
                    "initialised model"
                )
    else:
        while value(low) > target:
            low, high = low / 2, low
            if low < 1 / LARGEST:
                raise ValueError(
                    f"no readout scale down to {1 / LARGEST:g} reaches ⟨o, ∇ℓ⟩ = {target:g} on this batch: choose "
                    "another target"
                )
    while high / low - 1 > PRECISION:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if value(middle) < target else (low, middle)
    return math.sqrt(low * high)
