r"""Training without drift: three ways to hold the mean of the weights or to take away its cause, each one line.

===========================  ================================================================================
:func:`centre_weights`       $W = V - \bar V_{i\cdot}$: every row of a weight is stored uncentred and used centred
:func:`project_gradients`    $G \leftarrow G - \bar G_{i\cdot}$: descent cannot move the mean of a row
:func:`centre_activations`   $\varphi \leftarrow \varphi - E\varphi(z),\ z\sim N(0,1)$: no mean enters the next layer
===========================  ================================================================================

A row belongs to one output unit; its mean times the mean of the input is the part of the unit's pre-activation that
drifts. The readout is left alone: it shuts no gate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.optim import Optimizer

from netvitals.activations import QuantileReLU, TopK, ZeroMean
from netvitals.anatomy import by_output, chart, layer_kind
from netvitals.capture import Only, Result, inputs_of, lets_through, picked, skipped_lines
from netvitals.layers import replace_activation

BY_ORDER = "taken for the readout because it is registered last: give batch= to find the readout by dataflow"


@dataclass(frozen=True)
class Suppression(Result):
    """What was changed; ``remove()`` undoes it, and so does leaving a ``with`` block.

    Returned by :func:`centre_weights`.

    Attributes:
        kind: of change.
        names: of the places that were changed.
        skipped: place that was asked for and left as it is → reason.
    """

    kind: str
    names: tuple[str, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)
    _undo: list[Callable[[], Any]] = field(default_factory=list, repr=False, compare=False)

    def remove(self) -> None:
        """Put everything back as it was."""
        while self._undo:
            self._undo.pop()()

    def __enter__(self) -> Suppression:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def __str__(self) -> str:
        return "\n".join([f"{self.kind} in {', '.join(self.names) or 'no layer'}", *skipped_lines(self.skipped)])


class RowCentred(nn.Module):
    """A weight whose rows have mean zero, whatever the parameter behind it is."""

    def __init__(self, out_dim: int = 0) -> None:
        super().__init__()
        self.out_dim = out_dim

    def forward(self, weight: Tensor) -> Tensor:
        return centred(weight, self.out_dim)


def centred(weight: Tensor, out_dim: int = 0) -> Tensor:
    r"""Subtract from a weight matrix the mean of each row: $W_{ik} - \frac1n\sum_k W_{ik}$.

    Args:
        weight: (outputs, inputs), or a convolution's kernel (outputs, inputs, ...).
        out_dim: the dimension that counts outputs, where it is not the first (Hugging Face's Conv1D).

    Returns:
        A new tensor of the same shape whose mean is 0 for each output.

    >>> centred(torch.tensor([[1.0, 3.0], [0.0, 4.0]]))
    tensor([[-1.,  1.],
            [-2.,  2.]])
    """
    return weight - weight.mean([d for d in range(weight.ndim) if d != out_dim], keepdim=True)


def centre_weights(model: nn.Module, batch: Any = None, *, only: Only = None) -> Suppression:
    """Parametrise the hidden weights so that every row keeps mean zero; call before making the optimizer.

    Args:
        model: changed in place; the first forward pass already uses centred rows.
        batch: one batch as a data loader yields it, to find the readout by dataflow; without it the layer that is
            registered last is taken for it, and ``skipped`` says so.
        only: layers, by names or patterns (``"blocks.*"``) or a function of a name; by default all linear and
            convolution layers but the readout and those whose weight is tied to another module.

    Returns:
        A handle that undoes it.

    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> print(centre_weights(net), bool(net[0].weight.mean(1).abs().max() < 1e-7))
    row-centred weights in 0
    skipped 2: taken for the readout because it is registered last: give batch= to find the readout by dataflow True
    """
    layers, skipped = _layers(model, batch, only)
    done = Suppression("row-centred weights", tuple(layers), skipped)
    for layer in layers.values():
        if parametrize.is_parametrized(layer, "weight") and any(
            isinstance(p, RowCentred) for p in layer.parametrizations["weight"]
        ):
            raise ValueError(
                "the weight rows of this model are already centred; call remove() on that suppression of drift "
                "before you start another"
            )
        parametrize.register_parametrization(layer, "weight", RowCentred(_out_dim(layer)))
        done._undo.append(partial(parametrize.remove_parametrizations, layer, "weight"))
    return done


def project_gradients(
    model: nn.Module,
    optimizer: Optimizer | Iterable[Optimizer] | None = None,
    *,
    batch: Any = None,
    only: Only = None,
) -> Suppression:
    """Remove the mean of every row from the gradients of the hidden weights, with hooks in the backward pass.

    With SGD, this keeps the mean of every weight row exactly constant. Adam, sign descent and Muon change the gradient
    and bring back part of the mean. If the optimizer is passed as ``optimizer``, the row means are restored after each
    of its steps.

    Args:
        model: hooks are put on its weights.
        optimizer: one or several that scale or turn gradients; None for SGD.
        batch: the same as for :func:`centre_weights`.
        only: layers, as for :func:`centre_weights`.

    Returns:
        A handle that takes the hooks away; ``skipped`` has the layers whose weight is frozen.

    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> with project_gradients(net) as held:
    ...     net(torch.ones(3, 4)).square().sum().backward()
    >>> bool(net[0].weight.grad.mean(1).abs().max() < 1e-6), held.names
    (True, ('0',))
    """
    layers, skipped = _layers(model, batch, only)
    frozen = {name: "its weight does not train" for name, layer in layers.items() if not layer.weight.requires_grad}
    names = tuple(n for n in layers if n not in frozen)
    done = Suppression("gradients without row means", names, {**skipped, **frozen})
    weights: list[tuple[Tensor, int]] = []
    for name, layer in layers.items():
        if parametrize.is_parametrized(layer, "weight"):
            raise ValueError(
                f"the weight of {name} is parametrised, so its gradient cannot be projected: leave this "
                "layer out with only="
            )
        weight = layer.weight
        if not weight.requires_grad:
            continue
        weights.append((weight, _out_dim(layer)))
        done._undo.append(weight.register_hook(partial(centred, out_dim=_out_dim(layer))).remove)
    given = [optimizer] if isinstance(optimizer, Optimizer) else list(optimizer or ())
    for each in given:
        kept: list[Tensor] = []

        def note(*_: Any, kept: list[Tensor] = kept) -> None:
            kept[:] = [w.detach() - centred(w.detach(), dim) for w, dim in weights]

        @torch.no_grad()
        def restore(*_: Any, kept: list[Tensor] = kept) -> None:
            for (w, dim), mean in zip(weights, kept):
                w.copy_(centred(w, dim) + mean)

        done._undo.append(each.register_step_pre_hook(note).remove)
        done._undo.append(each.register_step_post_hook(restore).remove)
    return done


def centre_activations(model: nn.Module, *, only: Only = None) -> Suppression:
    """Subtract from every activation its mean under N(0, 1) inputs, so that its initial mean is zero.

    Subtracting a constant does not change which functions the network can represent, because a bias in the next layer
    can add it back. A centred ReLU has no exact zeros, so hard sparsity is suppressed together with drift.

    Args:
        model: changed in place.
        only: activations, by names or patterns or a function of a name; by default all modules.

    Returns:
        A handle that undoes it; ``skipped`` has the activations that surgery cannot reach.

    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> print(centre_activations(net)); net[1](torch.zeros(1)).item()        # doctest: +ELLIPSIS
    zero-mean activations in 1
    -0.398...
    """

    def wanted(name: str, module: nn.Module) -> bool:
        return lets_through(only, name) and not isinstance(module, (ZeroMean, TopK, QuantileReLU))

    surgery = replace_activation(model, None, lambda old: ZeroMean(old), only=wanted)
    if not surgery:
        why = "; ".join(f"{name}: {reason}" for name, reason in surgery.skipped.items())
        raise ValueError("no activation module of the model could be centred" + (f" ({why})" if why else ""))
    done = Suppression("zero-mean activations", tuple(r.name for r in surgery), dict(surgery.skipped))
    for r in surgery:
        for place in (r.name, *r.also):
            done._undo.append(partial(_put, model, place, r.old))
    return done


def _put(model: nn.Module, place: str, part: Any) -> None:
    """Put a module, or a function that was kept in an attribute, back where it was."""
    owner, _, key = place.rpartition(".")
    parent = model.get_submodule(owner)
    delattr(parent, key)
    setattr(parent, key, part)


def _layers(model: nn.Module, batch: Any, only: Only) -> tuple[dict[str, Any], dict[str, str]]:
    """The hidden layers, and what was left out and why."""
    found = {n: m for n, m in model.named_modules() if layer_kind(m) in ("linear", "convolution")}
    if only is not None:
        return {n: found[n] for n in picked(found, only, "linear or convolution layer")}, {}
    if len(found) < 2:
        raise ValueError("the model has no hidden linear or convolution layer whose drift could be suppressed")
    uses = Counter(id(p) for m in model.modules() for p in m._parameters.values())
    skipped = {n: "its weight is tied to another module" for n, m in found.items() if uses[id(m.weight)] > 1}
    if batch is None:
        skipped.setdefault(list(found)[-1], BY_ORDER)
    else:
        readouts = {layer.name for layer in chart(model, inputs_of(model, batch).inputs).readouts}
        skipped |= {n: "the readout: it shuts no gate" for n in found if n in readouts}
    return {n: m for n, m in found.items() if n not in skipped}, skipped


def _out_dim(layer: nn.Module) -> int:
    weight = layer.get_parameter("weight")
    return 0 if by_output(layer, weight) is weight else 1
