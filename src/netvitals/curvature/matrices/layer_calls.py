r"""How a layer's parameters enter its output, so that every example can have a probe of its own without a copy of them.

A layer that is called once is linear in its parameters, $z=W a+b$, and $\mathrm{tr}\,\partial^2L/\partial W^2$ is the
trace over $z$ weighted with the Gram matrix of the inputs: for a random $V$ with independent entries the perturbation
$p=Va$ has covariance $AA^\top\otimes I$, so any root $LL^\top=AA^\top$ times independent signs will do for $V$ itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.grad import conv1d_weight, conv2d_weight, conv3d_weight

from netvitals.curvature.engine.layout import Place

SCALES = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.modules.batchnorm._BatchNorm)
KNOWN = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Embedding, *SCALES)
Share = Tensor | None  # of p ⊙ Hp that belongs to a tensor, by example, position or unit; None is all of it
Part = tuple[Tensor, dict[str, Share]]  # a perturbation (m, *output) and the tensors it tells about


@dataclass(frozen=True)
class LayerCall:
    """One call of a layer whose parameters are used nowhere else.

    Attributes:
        module: the layer.
        place: how examples lie in its output.
        weight: name of its trainable weight; None where it is frozen.
        bias: the same of its bias.
    """

    module: nn.Module
    place: Place
    weight: str | None
    bias: str | None


@dataclass(frozen=True)
class Source:
    r"""A linear map S from random signs to perturbations of one output, for each tensor that enters there.

    Attributes:
        size: signs of one probe.
        made: signs (m, size) to perturbations $p=Sr$.
        squared: $\|S^\top g\|^2$ by tensor and row of gradients (m, *output): squared norms of gradients by example.
        passes: what either costs, in forward passes of the layer.
    """

    size: int
    made: Callable[[Tensor], list[Part]]
    squared: Callable[[Tensor], dict[str, Tensor]]
    passes: float = 0.0


def computed(module: nn.Module, x: Any) -> Tensor | None:
    """What the layer is known to make of its input; None for a layer that is not known.

    >>> computed(nn.Tanh(), torch.ones(2)) is None, computed(nn.Linear(2, 3), torch.ones(1, 2)).shape
    (True, torch.Size([1, 3]))
    """
    if not isinstance(x, Tensor) or not isinstance(module, KNOWN) or not isinstance(_parameter(module), Tensor):
        return None
    if isinstance(module, nn.Embedding) and (module.max_norm is not None or module.scale_grad_by_freq or module.sparse):
        return None
    if isinstance(module, nn.modules.conv._ConvNd) and module.padding_mode != "zeros":
        return None
    base: Any = next(kind for kind in KNOWN if isinstance(module, kind))
    base = next(c for c in type(module).__mro__ if c.__module__.startswith("torch.nn") and issubclass(c, base))
    return base.forward(module, x)


def _parameter(module: nn.Module) -> Any:
    """The weight as a parameter of the layer's own; one that is computed from others is not."""
    return module._parameters.get("weight")


def source_of(call: LayerCall, x: Tensor, shape: torch.Size, examples: int) -> Source:
    """How signs become perturbations of the output of a call."""
    module = call.module
    if isinstance(module, nn.modules.conv._ConvNd):
        return _convolved(call, x, shape)
    if isinstance(module, SCALES):
        return _scaled(call, x, shape, examples)
    fold = ByExample(call.place, shape, examples)
    if isinstance(module, nn.Embedding):
        return _looked_up(call, fold.input_rows(x)[:, :, 0], fold)
    inputs = fold.input_rows(x, x.shape[-1])
    if inputs.shape[1] == 1:  # one position: weight and bias see the same second derivative
        square = inputs.square().sum(2, keepdim=True)
        return _one_draw({call.weight: square, call.bias: torch.ones_like(square)}, fold)
    pieces = ((call.weight, root(inputs)), (call.bias, torch.ones_like(inputs[:, :, :1])))
    return _rooted([(n, left) for n, left in pieces if n], fold)


class ByExample:
    """Tensors like an output, (m, *shape), as (m, examples, positions, channels) and back."""

    def __init__(self, place: Place, shape: torch.Size, examples: int, *, channel: int = -1, width: int = 0) -> None:
        self.dim = place.dim if place.kind == "rows" else 0
        self.shape, self.examples, self.channel = shape, examples, channel
        self.width = width or shape[channel]
        self.positions = shape.numel() // (examples * self.width)

    def input_rows(self, x: Tensor, width: int = 1) -> Tensor:
        """An input with its channels last as (examples, positions, width)."""
        return x.movedim(self.dim, 0).reshape(self.examples, -1, width)

    def split(self, g: Tensor) -> Tensor:
        if self.channel == 1:
            return g.reshape(len(g), self.examples, self.width, -1).mT
        return g.movedim(self.dim + 1, 1).reshape(len(g), self.examples, -1, self.width)

    def join(self, p: Tensor) -> Tensor:
        if self.channel == 1:
            return p.mT.reshape(len(p), *self.shape)
        if self.dim == 0:
            return p.reshape(len(p), *self.shape)
        rest = (*self.shape[: self.dim], *self.shape[self.dim + 1 :])
        return p.reshape(len(p), self.examples, *rest).movedim(1, self.dim + 1)


def root(rows: Tensor) -> Tensor:
    r"""L of shape (B, T, k) with $LL^\top=AA^\top$ for rows A of shape (B, T, width) and k the smaller of both.

    >>> a = torch.randn(2, 3, 9)
    >>> root(a).shape, torch.allclose(root(a) @ root(a).mT, a @ a.mT, atol=1e-4)
    (torch.Size([2, 3, 3]), True)
    """
    if rows.shape[1] >= rows.shape[2]:
        return rows
    wide = rows.double()
    values, vectors = torch.linalg.eigh(wide @ wide.mT)
    return (vectors * values.clamp_min(0).sqrt()[:, None]).to(rows.dtype)


def _one_draw(variances: Mapping[str | None, Tensor], fold: ByExample) -> Source:
    """One draw for tensors that enter every unit by itself, with these variances (B, 1, 1 or channels)."""
    known = {n: v for n, v in variances.items() if n}
    whole = torch.stack(list(known.values())).sum(0)
    spread, b, width = whole.sqrt(), fold.examples, fold.width
    safe = whole.clamp_min(torch.finfo(whole.dtype).tiny)
    shares: dict[str, Share] = dict.fromkeys(known)
    if len(known) > 1:
        shares = {n: fold.join((v / safe).expand(b, 1, width)[None])[0] for n, v in known.items()}
    made = lambda r: [(fold.join(r.reshape(len(r), b, 1, width) * spread), shares)]
    squared = lambda g: {n: (fold.split(g).square() * v).sum((1, 2, 3)) for n, v in known.items()}
    return Source(b * width, made, squared)


def _rooted(pieces: list[tuple[str, Tensor]], fold: ByExample) -> Source:
    """L R for every tensor, with L of shape (B, T, k) and signs R of shape (m, B, k, channels)."""
    sizes = [left.shape[0] * left.shape[2] * fold.width for _, left in pieces]

    def made(r: Tensor) -> list[Part]:
        parts: list[Part] = []
        for (name, left), signs in zip(pieces, r.split(sizes, 1)):
            p = left @ signs.reshape(len(r), left.shape[0], left.shape[2], fold.width)
            parts.append((fold.join(p), {name: None}))
        return parts

    def squared(g: Tensor) -> dict[str, Tensor]:
        rows = fold.split(g)
        return {name: (left.mT @ rows).square().sum((1, 2, 3)) for name, left in pieces}

    return Source(sum(sizes), made, squared, 1.0)


def _looked_up(call: LayerCall, index: Tensor, fold: ByExample) -> Source:
    """A row of an embedding is drawn once an example, at the first position that looks it up."""
    b, t, width = *index.shape, fold.width
    first = (index[:, :, None] == index[:, None, :]).to(torch.int8).argmax(2)
    module: Any = call.module
    live = torch.ones_like(index, dtype=torch.bool) if module.padding_idx is None else index != module.padding_idx
    assert call.weight is not None
    name = call.weight
    at = lambda m: first[None, :, :, None].expand(m, -1, -1, width)

    def made(r: Tensor) -> list[Part]:
        signs = r.reshape(len(r), b, t, width) * live[:, :, None]
        return [(fold.join(signs.gather(2, at(len(r)))), {name: None})]

    def squared(g: Tensor) -> dict[str, Tensor]:
        rows = fold.split(g) * live[:, :, None]
        return {name: torch.zeros_like(rows).scatter_add_(2, at(len(g)), rows).square().sum((1, 2, 3))}

    return Source(b * t * width, made, squared)


def _scaled(call: LayerCall, x: Tensor, shape: torch.Size, examples: int) -> Source:
    """A norm's gain and bias: every unit has its own, all positions of an example share them."""
    module: Any = call.module
    width = module.weight.numel()
    if isinstance(module, nn.LayerNorm):
        unit = F.layer_norm(x, module.normalized_shape, None, None, module.eps)
    elif isinstance(module, nn.RMSNorm):
        unit = F.rms_norm(x, module.normalized_shape, None, module.eps)
    elif isinstance(module, nn.GroupNorm):
        unit = F.group_norm(x, module.num_groups, None, None, module.eps)
    else:
        use = module.training or module.running_mean is None
        unit = F.batch_norm(x, module.running_mean, module.running_var, None, None, use, 0.0, module.eps)
    last = isinstance(module, nn.LayerNorm | nn.RMSNorm)
    fold = ByExample(call.place, shape, examples, channel=-1 if last else 1, width=width)
    rows = fold.split(unit[None])[0]
    if fold.positions == 1:
        return _one_draw({call.weight: rows.square(), call.bias: torch.ones_like(rows)}, fold)
    factors = [(n, f) for n, f in ((call.weight, rows), (call.bias, torch.ones_like(rows))) if n]

    def made(r: Tensor) -> list[Part]:
        each = [one.reshape(len(r), examples, 1, width) for one in r.split(examples * width, 1)]
        return [(fold.join(signs * f), {n: None}) for (n, f), signs in zip(factors, each)]

    def squared(g: Tensor) -> dict[str, Tensor]:
        return {n: (fold.split(g) * f).sum(2).square().sum((1, 2)) for n, f in factors}

    return Source(examples * width * len(factors), made, squared)


def _convolved(call: LayerCall, x: Tensor, shape: torch.Size) -> Source:
    """Convolutions: a root of the patches' Gram matrix where positions are few, else a kernel an example."""
    module: Any = call.module
    b, out, positions = shape[0], shape[1], shape[2:].numel()
    fold = ByExample(call.place, shape, b, channel=1)
    kernel = torch.Size((b, out, *module.weight.shape[1:]))
    plain = module.groups == 1 and isinstance(module, nn.Conv2d) and not isinstance(module.padding, str)
    patches = lambda: F.unfold(x, module.kernel_size, module.dilation, module.padding, module.stride).mT
    if plain and positions < kernel[2:].numel():
        pieces = ((call.weight, root(patches())), (call.bias, torch.ones(b, positions, 1).to(x)))
        return _rooted([(n, left) for n, left in pieces if n], fold)
    n = len(module.kernel_size)
    convolve: Any = (F.conv1d, F.conv2d, F.conv3d)[n - 1]
    gradient: Any = (conv1d_weight, conv2d_weight, conv3d_weight)[n - 1]
    many = x.reshape(1, -1, *x.shape[2:])
    options = (module.stride, module.padding, module.dilation, b * module.groups)
    sizes = [kernel.numel() if call.weight else 0, b * out if call.bias else 0]

    def made(r: Tensor) -> list[Part]:
        first, second = r.split(sizes, 1)
        parts: list[Part] = []
        if call.weight:
            one = lambda row: convolve(many, row.reshape(b * out, *kernel[2:]), None, *options).reshape(shape)
            parts.append((torch.stack([one(row) for row in first]), {call.weight: None}))
        if call.bias:
            parts.append((second.reshape(len(r), b, out, *(1,) * n).expand(len(r), *shape), {call.bias: None}))
        return parts

    def kernels(row: Tensor) -> Tensor:
        if plain:
            return row.flatten(2) @ patches()
        return gradient(many, (b * out, *kernel[2:]), row.reshape(1, b * out, *shape[2:]), *options)

    def squared(g: Tensor) -> dict[str, Tensor]:
        both: dict[str | None, Callable[[], Tensor]] = {
            call.weight: lambda: torch.stack([kernels(row).square().sum() for row in g]),
            call.bias: lambda: g.flatten(3).sum(3).square().sum((1, 2)),
        }
        return {name: value() for name, value in both.items() if name}

    return Source(sum(sizes), made, squared, 1.0)
