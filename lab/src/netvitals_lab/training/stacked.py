"""One forward pass through K networks of the same shape, whose parameters are stacked along a first dimension.

Perceptrons go through batched matrix products in feature-major layout (seed, feature, example): the products need no
transposed copy, a whole layer of batch norms is one call over seed × feature channels, and the softmax over classes
runs along contiguous examples. Everything else goes through :class:`netvitals.anatomy.copies.mapped.MappedModel`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from netvitals.activations import is_elementwise
from netvitals.anatomy.copies.mapped import Forward, MappedModel, Tensors
from netvitals_lab.models import MLP, Diamond
from netvitals_lab.models.mlp import Block


def stacked_forward(model: nn.Module) -> Forward:
    """The fastest way to run stacked copies of ``model``, in the mode ``model`` is in."""
    return BatchedMLP(model) if fits_batched(model) else MappedModel(model)


def fits_batched(model: nn.Module) -> bool:
    """Whether ``model`` is an MLP whose every part has a batched form.

    >>> from netvitals_lab.models import build
    >>> fits_batched(build("mlp,norm=batch")), fits_batched(build("mlp,act=topk:gelu:0.75"))
    (True, False)
    """
    blocks = [m for m in model.modules() if isinstance(m, Block)]
    return type(model) in (MLP, Diamond) and all(
        type(b.linear) is nn.Linear
        and isinstance(b.dropout, nn.Identity)
        and _has_batched_form(b.norm)
        and is_elementwise(b.act)
        and not list(b.act.parameters())
        and not list(b.act.buffers())
        for b in blocks
    )


def _has_batched_form(norm: nn.Module) -> bool:
    if type(norm) is nn.BatchNorm1d:
        return norm.affine and norm.track_running_stats and norm.momentum is not None
    return type(norm) in (nn.Identity, nn.LayerNorm, nn.RMSNorm)


class BatchedMLP:
    """The perceptrons of :mod:`netvitals_lab.models`, by batched products."""

    def __init__(self, model: nn.Module):
        self.model = model

    def __call__(self, parameters: Tensors, buffers: Tensors, x: Tensor, *, each: bool) -> Tensor:
        self._p, self._b = parameters, buffers
        count = len(next(iter(parameters.values())))
        h = x.flatten(2).mT if each else x.flatten(1).T.expand(count, -1, -1)
        if isinstance(self.model, Diamond):
            a = b = self._block("stem", self.model.stem, h)
            for i, (left, right) in enumerate(zip(self.model.a, self.model.b)):
                a, b = self._block(f"a.{i}", left, a), self._block(f"b.{i}", right, b)
            merge = self.model.merge
            h = (a + b) / math.sqrt(2) if merge is None else self._block("merge", merge, torch.cat([a, b], 1))
        else:
            for i, block in enumerate(self.model.blocks):  # type: ignore[arg-type]
                h = self._block(f"blocks.{i}", block, h)
        return self._linear("head", h).mT

    def _linear(self, name: str, h: Tensor) -> Tensor:
        weight, bias = self._p[f"{name}.weight"], self._p.get(f"{name}.bias")
        return torch.bmm(weight, h) if bias is None else torch.baddbmm(bias.unsqueeze(2), weight, h)

    def _block(self, name: str, block: nn.Module, h: Tensor) -> Tensor:
        assert isinstance(block, Block)
        y = block.act(self._norm(f"{name}.norm", block.norm, self._linear(f"{name}.linear", h)))
        return y if block.scale is None else h + block.scale * y

    def _norm(self, name: str, norm: nn.Module, h: Tensor) -> Tensor:
        if isinstance(norm, nn.Identity):
            return h
        weight, bias = self._p[f"{name}.weight"], self._p.get(f"{name}.bias")
        if isinstance(norm, nn.BatchNorm1d):
            assert bias is not None and norm.momentum is not None
            mean, variance = self._b[f"{name}.running_mean"], self._b[f"{name}.running_var"]
            if norm.training:
                self._b[f"{name}.num_batches_tracked"].add_(1)
            # one "image" of seeds × features channels: statistics over the examples of each
            flat = h.reshape(1, -1, h.shape[-1])
            return F.batch_norm(
                flat,
                mean.view(-1),
                variance.view(-1),
                weight.view(-1),
                bias.view(-1),
                norm.training,
                norm.momentum,
                norm.eps,
            ).view(h.shape)
        assert isinstance(norm, nn.LayerNorm | nn.RMSNorm)
        if isinstance(norm, nn.LayerNorm):
            y = F.layer_norm(h.mT, (h.shape[1],), eps=norm.eps).mT
        else:
            eps = torch.finfo(h.dtype).eps if norm.eps is None else norm.eps
            y = h * torch.rsqrt(h.square().mean(1, keepdim=True) + eps)
        y = y * weight.unsqueeze(2)
        return y if bias is None else y + bias.unsqueeze(2)
