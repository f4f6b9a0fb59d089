r"""Copies of one model with parameters of their own, run together: losses $L(w_c)$ and gradients $\nabla L(w_c)$.

The parameters that take part lie in the rows of one tensor (copies, size). A stack of linear layers and elementwise
activations goes through batched matrix products; everything else through :func:`torch.func.vmap`, which is general
and slower, with the ordinary backward pass over the stacked parameters.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import vmap

from netvitals.anatomy.copies.linear_layers import add_gradient, linear_stack, takes
from netvitals.anatomy.copies.mapped import MappedModel

LossFn = Callable[[Any, Any], Tensor]
_FEW = 8  # up to so many copies a loop over their losses costs less than vmap does


class Replicas:
    """The loss of a model as a function of the parameters that take part, for many settings of them at once.

    >>> model = nn.Linear(2, 1, bias=False)
    >>> copies = Replicas(model, lambda out, y: (out - y).square().mean())
    >>> w, x, y = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.ones(3, 2), torch.zeros(3, 1)
    >>> gradient = torch.zeros_like(w)
    >>> losses = copies.add_gradient(copies.parts(w), x, y, copies.parts(gradient))
    >>> losses.tolist(), gradient.tolist()
    ([1.0, 4.0], [[2.0, 2.0], [4.0, 4.0]])
    """

    def __init__(
        self, model: nn.Module, loss_fn: LossFn, only: str | Sequence[str] | None = None, batched: bool = True
    ) -> None:
        self.model, self.loss_fn = model, loss_fn
        globs = [only] if isinstance(only, str) else only
        named = dict(model.named_parameters())
        chosen = {k: p for k, p in named.items() if globs is None or any(fnmatch.fnmatch(k, g) for g in globs)}
        if not chosen:
            raise ValueError(f"no parameter matches {globs}; the model has {', '.join(list(named)[:12])}, …")
        half = any(p.dtype in (torch.float16, torch.bfloat16) for p in named.values())
        self.note = "half precision promoted to float32" if half else ""
        cast = (lambda t: t.float() if t.dtype in (torch.float16, torch.bfloat16) else t) if half else (lambda t: t)
        self.fixed = {k: cast(p.detach()) for k, p in named.items() if k not in chosen}
        self.buffers = {k: cast(b.detach()) for k, b in model.named_buffers()}
        self._run = MappedModel(model, {**self.fixed, **self.buffers})
        self.names = list(chosen)
        self.shapes = [p.shape for p in chosen.values()]
        self.counts = [p.numel() for p in chosen.values()]
        self.start = torch.cat([cast(p.detach()).reshape(-1) for p in chosen.values()])
        self.size = self.start.numel()
        self.layers = linear_stack(model) if batched else None

    def parts(self, w: Tensor) -> list[Tensor]:
        """Views of ``w`` (copies, size) as stacked parameters (copies, *shape)."""
        return [t.view(len(w), *shape) for t, shape in zip(w.split(self.counts, 1), self.shapes)]

    def losses(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """The loss of every copy on the same data."""
        return self._losses(self.parts(w), x, y, each=False)

    def add_gradient(self, parts: list[Tensor], x: Tensor, y: Tensor, out: list[Tensor], each: bool = False) -> Tensor:
        """out ← out + ∇L; the losses. With ``each`` every copy has data of its own, along the first dimension of x and
        y.
        """
        copies = len(parts[0])
        if self.layers is not None and takes(self.layers, x[0] if each else x):
            x, y = (t if each else t.expand(copies, *t.shape) for t in (x, y))
            shared = {name: p.expand(copies, *p.shape) for name, p in self.fixed.items()}
            with torch.no_grad():
                return add_gradient(
                    self.layers,
                    dict(zip(self.names, parts)) | shared,
                    x,
                    lambda outputs: self._score(outputs, y),
                    dict(zip(self.names, out)),
                )
        with torch.enable_grad():
            leaves = [p.detach().requires_grad_() for p in parts]
            losses = self._losses(leaves, x, y, each)
            gradients = torch.autograd.grad(losses.sum(), leaves, allow_unused=True, materialize_grads=True)
        for target, gradient in zip(out, gradients):
            target.add_(gradient)
        return losses.detach()

    def _losses(self, parts: list[Tensor], x: Tensor, y: Tensor, each: bool) -> Tensor:
        outputs = self._run(dict(zip(self.names, parts)), {}, x, each=each)
        return vmap(self.loss_fn, in_dims=(0, 0 if each else None))(outputs, y)

    def _score(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of every copy from outputs (copies, N, ...), and its gradient there."""
        if _is_cross_entropy(self.loss_fn) and y.ndim == 2 and y.dtype == torch.int64 and int(y.min()) >= 0:
            return _cross_entropy(outputs, y)
        with torch.enable_grad():
            leaf = outputs.detach().requires_grad_()
            if len(leaf) > _FEW:
                losses = vmap(self.loss_fn)(leaf, y)
            else:
                losses = torch.stack([self.loss_fn(out, target) for out, target in zip(leaf, y)])
            (gradient,) = torch.autograd.grad(losses.sum(), leaf)
        return losses.detach(), gradient


def _cross_entropy(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Mean cross-entropy of every copy, and (softmax − one-hot)/N."""
    labels = y.unsqueeze(2)
    log_p = logits.log_softmax(2)
    losses = log_p.gather(2, labels).mean((1, 2)).neg_()
    minus_one = log_p.new_full((), -1.0).expand(labels.shape)
    return losses, log_p.exp_().scatter_add_(2, labels, minus_one).div_(y.shape[1])


def _is_cross_entropy(loss_fn: LossFn) -> bool:
    if type(loss_fn) is nn.CrossEntropyLoss:
        return (
            loss_fn.weight is None
            and loss_fn.ignore_index == -100
            and loss_fn.reduction == "mean"
            and loss_fn.label_smoothing == 0
        )
    return loss_fn is F.cross_entropy
