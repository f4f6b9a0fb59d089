r"""Copies of a stack of linear layers and elementwise activations, by batched matrix products.

With h of shape (copies, samples, features), $h_{\ell+1} = f(h_\ell W_\ell^\top + b_\ell)$ and
$\partial L/\partial W_\ell = \delta_\ell^\top h_\ell$. The last product adds to where its result is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from netvitals.activations import is_elementwise

Layers = list[tuple[str, nn.Module]]
Params = dict[str, Tensor]


def linear_stack(model: nn.Module) -> Layers | None:
    """The layers of ``model`` in order with the prefix of their parameters, if all have a batched form; else None.

    >>> [name for name, _ in linear_stack(nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.Tanh()))]
    ['0.', '1.', '2.']
    >>> linear_stack(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))) is None
    True
    """
    named = dict(model.named_parameters())
    found: Layers = []
    for path, layer in _in_order("", model):
        if layer._forward_hooks or layer._forward_pre_hooks:
            return None
        if type(layer) is nn.Linear:
            if f"{path}weight" not in named or (layer.bias is not None and f"{path}bias" not in named):
                return None  # tied to an earlier layer, under whose name it goes
        elif type(layer) is nn.Sequential or (isinstance(layer, nn.Identity | nn.Dropout) and not layer.training):
            continue
        elif not (_is_plain(layer) or (_flattens(layer) and not found)):
            return None
        found.append((path, layer))
    return found or None


def takes(layers: Layers, samples: Tensor) -> bool:
    """Whether ``samples`` (N, ...) are vectors by the time the first linear layer meets them."""
    return samples.ndim == 2 or isinstance(layers[0][1], nn.Flatten)


def add_gradient(
    layers: Layers,
    params: Params,
    x: Tensor,
    score: Callable[[Tensor], tuple[Tensor, Tensor]],
    out: Params,
) -> Tensor:
    """out ← out + ∂L/∂p for the parameters named in ``out``; the losses."""
    trail: list[tuple[str, nn.Module, Tensor, Tensor]] = []
    h = x.flatten(2)
    for name, layer in layers:
        before = h
        if type(layer) is nn.Linear:
            weight, bias = params[f"{name}weight"].mT, params.get(f"{name}bias")
            h = torch.bmm(h, weight) if bias is None else torch.baddbmm(bias.unsqueeze(1), h, weight)
        elif type(layer) is nn.Tanh and h.dtype == torch.float32:
            h = torch.sigmoid(2 * h).mul_(2).sub_(1)  # torch's tanh takes four times as long; they differ by 2e-7
        elif type(layer) is not nn.Flatten:
            h = layer(h)
        trail.append((name, layer, before, h))
    losses, delta = score(h)
    for name, layer, before, after in reversed(trail):
        if type(layer) is nn.Linear:
            below = torch.bmm(delta, params[f"{name}weight"]) if before is not trail[0][2] else delta
            if f"{name}weight" in out:
                out[f"{name}weight"].baddbmm_(delta.mT, before)
            if f"{name}bias" in out:
                out[f"{name}bias"].add_(delta.sum(1))
            delta = below
        elif type(layer) is not nn.Flatten:
            delta = _through(layer, before, after, delta)
    return losses


def _through(layer: nn.Module, before: Tensor, after: Tensor, delta: Tensor) -> Tensor:
    """δ f'(z). A call of autograd costs more than a small layer's derivative, so the commonest are written out."""
    if type(layer) is nn.Tanh:
        return torch.addcmul(delta, delta, after.square(), value=-1)
    if type(layer) is nn.ReLU:
        return delta * (after > 0)
    if type(layer) is nn.Sigmoid:
        return delta * torch.addcmul(after, after, after, value=-1)
    with torch.enable_grad():
        leaf = before.detach().requires_grad_()
        return torch.autograd.grad(layer(leaf), leaf, delta)[0]


def _in_order(path: str, layer: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    yield path, layer
    if type(layer) is nn.Sequential:
        for name, child in layer._modules.items():  # named_children leaves out a layer that comes again
            assert child is not None
            yield from _in_order(f"{path}{name}.", child)


def _flattens(layer: nn.Module) -> bool:
    return type(layer) is nn.Flatten and layer.start_dim == 1 and layer.end_dim == -1


def _is_plain(layer: nn.Module) -> bool:
    """Elementwise, with nothing to learn or to remember, and not in place, where the data could be overwritten."""
    state = list(layer.parameters()) + list(layer.buffers())
    return is_elementwise(layer) and not state and not getattr(layer, "inplace", False)
