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
from netvitals.capture import Only, Result, picked, skipped_lines
from netvitals.capture.selection import lets_through
from netvitals.layers import replace_activation

LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True)
class Suppression(Result):
    """What was changed; ``remove()`` undoes it, and so does leaving a ``with`` block."""

    kind: str
    names: tuple[str, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)  # place that was asked for and left as it is → reason
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

    def forward(self, weight: Tensor) -> Tensor:
        return centred(weight)


def centred(weight: Tensor) -> Tensor:
    r"""$W_{ik} - \frac1n\sum_k W_{ik}$ over everything that enters output i.

    Args:
        weight: (outputs, inputs), or a convolution's kernel (outputs, inputs, ...).

    Returns:
        A new tensor of the same shape whose mean is 0 for each output.

    >>> centred(torch.tensor([[1.0, 3.0], [0.0, 4.0]]))
    tensor([[-1.,  1.],
            [-2.,  2.]])
    """
    return weight - weight.mean(tuple(range(1, weight.ndim)), keepdim=True)


def centre_weights(model: nn.Module, *, only: Only = None) -> Suppression:
    """Reparametrise the hidden weights so that every row keeps mean zero. Call it before making the optimiser.

    Args:
        model: changed in place; the first forward pass already uses centred rows.
        only: layers, by names or patterns (``"blocks.*"``) or a function of a name; by default all linear and
            convolution layers but the readout.

    Returns:
        A handle that undoes it.

    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> print(centre_weights(net), bool(net[0].weight.mean(1).abs().max() < 1e-7))
    row-centred weights in 0 True
    """
    done = Suppression("row-centred weights", tuple(name for name, _ in _layers(model, only)))
    for _, layer in _layers(model, only):
        if parametrize.is_parametrized(layer, "weight") and any(
            isinstance(p, RowCentred) for p in layer.parametrizations["weight"]
        ):
            raise ValueError("a layer of this model is row-centred already; remove() the first suppression")
        parametrize.register_parametrization(layer, "weight", RowCentred())
        done._undo.append(partial(parametrize.remove_parametrizations, layer, "weight"))
    return done


def project_gradients(
    model: nn.Module, optimizer: Optimizer | Iterable[Optimizer] | None = None, *, only: Only = None
) -> Suppression:
    """Take the mean of every row out of the gradients of the hidden weights, as backward makes them.

    With SGD that alone holds the means exactly. Optimisers that scale entries one by one (Adam, sign) or turn the
    gradient (Muon) put some of the mean back: give them here, and the means are restored after each of their steps.

    Args:
        model: hooks are put on its weights.
        optimizer: one or several that scale or turn gradients; None for SGD.
        only: layers, as for :func:`centre_weights`.

    Returns:
        A handle that takes the hooks away; ``skipped`` has the layers whose weight is frozen.

    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> with project_gradients(net) as held:
    ...     net(torch.ones(3, 4)).square().sum().backward()
    >>> bool(net[0].weight.grad.mean(1).abs().max() < 1e-6), held.names
    (True, ('0',))
    """
    layers = _layers(model, only)
    frozen = {name: "its weight does not train" for name, layer in layers if not layer.weight.requires_grad}
    done = Suppression("gradients without row means", tuple(n for n, _ in layers if n not in frozen), frozen)
    weights: list[Tensor] = []
    for name, layer in layers:
        if parametrize.is_parametrized(layer, "weight"):
            raise ValueError(f"the weight of {name} is reparametrised; its gradient is not that of a plain parameter")
        weight = layer.weight
        if not weight.requires_grad:
            continue
        weights.append(weight)
        done._undo.append(weight.register_hook(centred).remove)
    given = [optimizer] if isinstance(optimizer, Optimizer) else list(optimizer or ())
    for each in given:
        kept: list[Tensor] = []

        def note(*_: Any, kept: list[Tensor] = kept) -> None:
            kept[:] = [w.detach() - centred(w.detach()) for w in weights]

        @torch.no_grad()
        def restore(*_: Any, kept: list[Tensor] = kept) -> None:
            for w, mean in zip(weights, kept):
                w.copy_(centred(w) + mean)

        done._undo.append(each.register_step_pre_hook(note).remove)
        done._undo.append(each.register_step_post_hook(restore).remove)
    return done


def centre_activations(model: nn.Module, *, only: Only = None) -> Suppression:
    """Subtract from every activation its mean under N(0, 1), so that what enters the next layer has none at the start.

    A constant that is subtracted leaves the function's class unchanged (a bias downstream could add it back), but the
    exact zeros of ReLU are gone: this suppresses drift and hard sparsity together.

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


def _layers(model: nn.Module, only: Only) -> list[tuple[str, Any]]:
    found = {n: m for n, m in model.named_modules() if isinstance(m, LAYERS)}
    if only is not None:
        return [(n, found[n]) for n in picked(found, only, "linear or convolution layer")]
    if len(found) < 2:
        raise ValueError("the model has no hidden linear or convolution layer to keep from drifting")
    return list(found.items())[:-1]
