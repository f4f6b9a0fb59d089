r"""The drift dial: one number at the start, $\langle o, \nabla_o\ell\rangle_0$, sets how the weights will drift.

Scaling the readout by α scales the outputs of a fresh model, and with them the push: for a convex loss
$\alpha \mapsto \langle \alpha o, \nabla\ell(\alpha o)\rangle$ rises wherever it is positive. A small push lets learning
reverse the drift at once (dense activations), a large one drives pre-activations down first (sparse activations).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from netvitals.capture import in_mode, preserved, split_batch, uncompiled

READOUTS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
LARGEST = 1e6  # scales beyond this are not looked for
PRECISION = 1e-6  # relative, of the scale

# mean hard sparsity of layers 2–4 after 400 steps of Adam 1e-3 on digits, MLP 64-128×4-10 with He weights, by the push
# at the start: the reference run of the dial in the weight-drift specification
REFERENCE = ((0.0, 0.23), (0.004, 0.24), (0.049, 0.29), (0.52, 0.37), (2.9, 0.47), (6.7, 0.53), (11.5, 0.56))


@dataclass(frozen=True)
class Dial:
    """A readout that was rescaled, and the push before and after."""

    readout: str  # name of the layer
    scale: float  # its weight (and bias) were multiplied by this
    before: float  # ⟨o, ∇ℓ⟩ of a sample, as it was
    after: float
    stderr: float  # of ``after`` over the samples of the batch
    samples: int
    evaluations: int  # forward passes that were made

    @property
    def reference_sparsity(self) -> float:
        """Hard sparsity that this push led to in the reference run (a four-layer MLP on digits)."""
        return expected_sparsity(self.after)

    def __str__(self) -> str:
        return (
            f"{self.readout} × {self.scale:.4g}: ⟨o, ∇ℓ⟩ {self.before:+.4g} → {self.after:+.4g} ± "
            f"{self.stderr:.1g} over {self.samples} samples; in the reference run such a push led to "
            f"{self.reference_sparsity:.0%} sparsity"
        )


def set_drift(
    model: nn.Module,
    batch: Any,
    loss_fn: Callable[..., Tensor],
    *,
    target: float | None = None,
    scale: float | None = None,
    readout: str | None = None,
) -> Dial:
    r"""Rescale the readout in place, by ``scale`` or so that ⟨o, ∇ℓ⟩ on ``batch`` becomes ``target``.

    Everything else of the model stays as it was. Call it on a fresh model, before the optimiser is made or after.

    Args:
        model: the model.
        batch: ``(x, y)``, a few hundred samples.
        loss_fn: ``loss_fn(model(x), y)``, mean over the batch.
        target: the push to reach; 0 makes the readout zero.
        scale: or the factor itself.
        readout: name of the layer; by default the last linear or convolution layer of the model.

    >>> _ = torch.manual_seed(0)
    >>> net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 5, bias=False))
    >>> x, y = torch.randn(256, 8), torch.randint(5, (256,))
    >>> round(set_drift(net, (x, y), nn.functional.cross_entropy, target=2.0).after, 3)
    2.0
    """
    if (target is None) == (scale is None):
        raise ValueError("give either the target ⟨o, ∇ℓ⟩ or the scale of the readout")
    for name, value in (("target", target), ("scale", scale)):
        if value is not None and not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name} must be a number that is not negative, got {value}")
    name, layer = _readout(model, readout)
    parameters = [p for p in (layer.weight, layer.bias) if isinstance(p, Tensor)]
    start = [p.detach().clone() for p in parameters]
    count = 0

    def turn(factor: float) -> Tensor:
        nonlocal count
        count += 1
        with torch.no_grad():
            for p, first in zip(parameters, start):
                p.copy_(first * factor)
        return push(model, batch, loss_fn)

    try:
        before = turn(1.0)
        if scale is None:
            assert target is not None
            scale = _solve(lambda factor: float(turn(factor).mean()), target, float(before.mean()))
        after = turn(scale)
    except BaseException:
        with torch.no_grad():
            for p, first in zip(parameters, start):
                p.copy_(first)
        raise
    n = after.numel()
    error = float(after.std() / n**0.5) if n > 1 else math.nan
    return Dial(name, scale, float(before.mean()), float(after.mean()), error, n, count)


def push(model: nn.Module, batch: Any, loss_fn: Callable[..., Tensor]) -> Tensor:
    """⟨o, ∇ℓ⟩ of every sample of a mean-reduced loss, shape (samples,); the model is left as it was."""
    x, (y,) = split_batch(batch, loss_fn)
    model = uncompiled(model)
    with preserved(model), in_mode(model, "train"), torch.no_grad():
        output = model(*x) if isinstance(x, tuple | list) else model(**x) if isinstance(x, dict) else model(x)
        with torch.enable_grad():
            o = output.detach().requires_grad_()
            loss = loss_fn(o, y)
            if not bool(torch.isfinite(loss)):
                raise ValueError(f"the loss on this batch is {float(loss)}; scale the readout down or check the data")
            (g,) = torch.autograd.grad(loss, o)
    return (o.detach() * g).double().reshape(o.shape[0], -1).sum(1) * o.shape[0]


def expected_sparsity(push: float) -> float:
    """Hard sparsity of the reference run at a push, interpolated in log(1 + 10·push).

    >>> expected_sparsity(0.52), round(expected_sparsity(1.0), 2)
    (0.37, 0.41)
    """
    at = [math.log1p(10 * max(0.0, p)) for p in (push, *(p for p, _ in REFERENCE))]
    here, knots, values = at[0], at[1:], [s for _, s in REFERENCE]
    if here >= knots[-1]:
        return values[-1]
    i = max(1, next(i for i, k in enumerate(knots) if here < k))
    weight = (here - knots[i - 1]) / (knots[i] - knots[i - 1])
    return values[i - 1] + weight * (values[i] - values[i - 1])


def _readout(model: nn.Module, name: str | None) -> tuple[str, Any]:
    layers = {n: m for n, m in model.named_modules() if isinstance(m, READOUTS)}
    if name is not None and name not in layers:
        raise ValueError(f"there is no linear or convolution layer {name!r}; there are {', '.join(layers) or 'none'}")
    if not layers:
        raise ValueError("the model has no linear or convolution layer to use as a readout")
    chosen = name if name is not None else list(layers)[-1]
    layer = layers[chosen]
    owners = [m for m in model.modules() if any(p is layer.weight for p in m._parameters.values())]
    if len(owners) > 1:
        raise ValueError(
            f"the weight of {chosen} is tied to {type(owners[0]).__name__}; scaling it would change both. "
            "Untie them, or scale the logits in the loss"
        )
    return chosen, layer


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
                    f"no readout scale up to {LARGEST:g} reaches ⟨o, ∇ℓ⟩ = {target:g} on this batch: it "
                    f"is {at_one:+.3g} as the model stands. A model that has learned the batch pushes its "
                    "outputs up; the dial is for fresh ones"
                )
    else:
        while value(low) > target:
            low, high = low / 2, low
            if low < 1 / LARGEST:
                raise ValueError(f"no readout scale down to {1 / LARGEST:g} reaches ⟨o, ∇ℓ⟩ = {target:g} on this batch")
    while high / low - 1 > PRECISION:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if value(middle) < target else (low, middle)
    return math.sqrt(low * high)
