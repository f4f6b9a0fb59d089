"""What a vital sign is shown: the tensors of one site on one measured step, with shared reductions cached.

Several vital signs need the same intermediate (|a|, f'(x), the input by channel). A view computes each of them
once, when first asked for, and is dropped as soon as every vital sign has looked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor, nn

from netvitals.anatomy import Anatomy
from netvitals.capture.channels import ByChannel, Stacks, by_channel_rows, channel_view, widened
from netvitals.capture.reduce_over_ranks import Kind, RankScale, ReduceOverRanks
from netvitals.capture.shards import Piece
from netvitals.capture.site import Site

if TYPE_CHECKING:
    from netvitals.capture.recorder import Recorder

RELU = frozenset({"relu", "relu_", "ReLU"})


@dataclass(frozen=True)
class Layout:
    """What is known of a ``site`` without its tensors: ``elements``, ``channels``, ``samples`` (examples in the batch)
    and ``positions`` (tokens or pixels of an example), enough to finish its numbers when the tensors are gone.

    >>> Layout(Site("1", "activation"), elements=24, channels=2, samples=3, positions=4).place(5)
    (1, 1)
    """

    site: Site
    elements: int
    channels: int
    samples: int  # examples in the batch
    positions: int  # tokens or pixels of one example

    def grown(self, growth: RankScale) -> Layout:
        """The same of all ranks together, which have ``growth`` times the elements and channels of this one."""
        if growth == (1, 1):
            return self
        return replace(
            self,
            elements=round(self.elements * growth.elements),
            channels=self.channels * growth.channels,
            samples=round(self.samples * growth.elements / growth.channels),
        )

    def place(self, row: int) -> tuple[int, int]:
        """The example and the position of a ``row`` of the tensor, which runs over both; where there is but one
        position, the example stands for it.

        >>> Layout(Site("a", "activation"), 24, 2, samples=3, positions=4).place(5)
        (1, 1)
        """
        if self.positions == 1:
            return row, row
        if self.site.batch_dim == 1:  # (positions, examples, channels)
            return row % self.samples, row // self.samples
        return row // self.positions, row % self.positions


@dataclass
class ActivationView:
    """One call of an activation at ``site``: detached input ``x``, detached output ``a`` and the function ``f``.

    Shown to :meth:`Vital.activation`.

    ``x_view`` and ``a_view`` are input and output arranged by channel. Reductions that several vital signs need are
    computed once; small inputs are collected in ``stacks`` and reduced together.
    """

    site: Site
    x: Tensor
    a: Tensor
    f: Callable[[Tensor], Tensor]
    stacks: Stacks | None = None  # where small inputs wait to be reduced together
    _numbers: ByChannel | None = None

    @property
    def is_relu(self) -> bool:
        return self.site.op in RELU

    @cached_property
    def x_view(self) -> Tensor:
        """Input as (samples, channels) or (samples, channels, positions), at least float32, without a copy."""
        return channel_view(self.x, self.site.channel_dim)

    @cached_property
    def a_view(self) -> Tensor:
        return channel_view(self.a, self.site.channel_dim)

    def as_view(self, t: Tensor) -> Tensor:
        """Rearrange a tensor ``t`` of the input's shape, such as a gradient, by channel like ``x_view``."""
        return channel_view(t, self.site.channel_dim)

    @cached_property
    def layout(self) -> Layout:
        known = {} if self.stacks is None else self.stacks.layouts
        key = (self.site.name, self.x.shape)
        found = known.get(key)
        if found is None or found.site is not self.site:
            positions = max(1, self.rows // max(1, self.samples))
            found = known[key] = Layout(self.site, self.elements, self.channels, self.samples, positions)
        return found

    @property
    def samples(self) -> int:
        """Examples in the batch."""
        return self.x.shape[self.site.batch_dim] if self.x.ndim > self.site.batch_dim else 1

    @property
    def elements(self) -> int:
        return self.x.numel()

    @property
    def channels(self) -> int:
        return self.x_view.shape[1]

    @property
    def rows(self) -> int:
        """Elements of a channel."""
        return self.elements // max(1, self.channels)

    @property
    def over(self) -> tuple[int, ...]:
        """The dimensions of ``x_view`` and ``a_view`` that are not channels."""
        return (0,) if self.x_view.ndim == 2 else (0, 2)

    def by_channel(self, recorder: Recorder) -> ByChannel:
        """Return mean, variance and positive fraction of the input by channel, for writing to ``recorder``. Values of
        small inputs are filled in at the end of the measured step. To compute with these values, use :attr:`mean`,
        :attr:`variance` and :attr:`positive_share` instead.
        """
        if self._numbers is None and self.stacks is not None:
            self._numbers = self.stacks.add(recorder, self.x_view)
        if self._numbers is None:
            self._numbers = ByChannel(self.mean, self.variance, self.positive_share)
        return self._numbers

    @cached_property
    def mean(self) -> Tensor:
        """Mean of the input by channel."""
        return self.x_view.mean(self.over)

    @cached_property
    def variance(self) -> Tensor:
        """Population variance of the input by channel (from centred values; ``torch.var`` is far slower)."""
        mean = self.mean if self.x_view.ndim == 2 else self.mean[:, None]
        centred = torch.sub(self.x_view, mean, out=self.scratch)
        return centred.mul_(centred).mean(self.over)

    @cached_property
    def scratch(self) -> Tensor:
        """Room for an intermediate of the size of ``x_view``; overwritten by the next user."""
        return torch.empty_like(self.x_view)

    @cached_property
    def positive(self) -> Tensor:
        """1 where the input is above zero, else 0, in the layout of ``x_view``."""
        return torch.gt(self.x_view, 0, out=torch.empty_like(self.x_view))

    @cached_property
    def positive_share(self) -> Tensor:
        """Share of positive inputs by channel."""
        return torch.gt(self.x_view, 0, out=self.scratch).mean(self.over)

    @cached_property
    def size(self) -> Tensor:
        """|a| in the layout of ``a_view``; the output of a ReLU is its own absolute value."""
        return self.a_view if self.is_relu else self.a_view.abs()

    @cached_property
    def channel_max(self) -> Tensor:
        """max |a| by channel."""
        return self.size.amax(0) if self.size.ndim == 2 else self.size.amax(2).amax(0)  # one by one is quicker

    @cached_property
    def derivative(self) -> Tensor:
        """f'(x) elementwise by a local vector-Jacobian product: needs no loss and never divides by zero.

        In float32 at least: the slope 0.01 of a leaky ReLU is more than 0.01 in bfloat16.
        """
        if self.is_relu:
            return torch.gt(self.x, 0, out=torch.empty_like(self.x))
        with torch.enable_grad():
            x = widened(self.x.detach()).requires_grad_(True)
            y = self.f(x)
            if not y.requires_grad:  # a step: its slope is zero wherever it has one
                return torch.zeros_like(x)
            return torch.autograd.grad(y.sum(), x)[0]


@dataclass
class ProductView:
    """An elementwise product at ``site``, as in a gated MLP, with detached factors ``first`` and ``second``.

    Shown to :meth:`Vital.product`.

    Each factor gates the other: the gradient of the first is multiplied by the second, and vice versa.
    """

    site: Site
    first: Tensor
    second: Tensor

    @cached_property
    def views(self) -> tuple[Tensor, Tensor]:
        """Both factors by channel, as :attr:`ActivationView.x_view`."""
        return channel_view(self.first, self.site.channel_dim), channel_view(self.second, self.site.channel_dim)


@dataclass
class HeadsView:
    """One call of an attention block at ``site``: softmax(``scale`` · q kᵀ + ``mask``) v, by head.

    Shown to :meth:`Vital.heads`.

    ``q``, ``k`` and ``v`` have shape (examples, heads, positions, channels); with grouped heads there are fewer keys
    and values. If the block computes its scores as tensors, ``logits`` and ``weights`` have shape (examples, heads,
    queries, keys). With ``causal``, query number i attends to keys 1 to i only.
    """

    site: Site
    q: Tensor
    k: Tensor
    v: Tensor
    scale: float
    causal: bool  # the first query sees the first key only, and so on
    mask: Tensor | None = None  # added to the logits
    logits: Tensor | None = None
    weights: Tensor | None = None


@dataclass
class RouterView:
    """One call of a router at ``site``: ``scores`` (tokens, experts) and the ``top_k`` ``chosen`` experts per token.

    Shown to :meth:`Vital.router`. If ``probabilities`` is true, the scores of a token sum to one.
    """

    site: Site
    scores: Tensor
    chosen: Tensor
    top_k: int
    probabilities: bool  # the scores are shares of one


@dataclass
class LinearView:
    """One call of a linear or convolution layer at ``site``, with detached input ``x`` and output ``y``.

    Shown to :meth:`Vital.linear`. ``module`` is the layer itself.
    """

    site: Site
    x: Tensor
    y: Tensor
    module: nn.Module


@dataclass
class TensorView:
    """A tensor ``value`` at ``site`` that is not the input or output of an activation or layer, for example the
    residual stream or the output of a norm ``module``.

    Shown to :meth:`Vital.tensor`.
    """

    site: Site
    value: Tensor
    module: nn.Module | None = None

    @cached_property
    def view(self) -> Tensor:
        """The value as (samples, channels) or (samples, channels, positions), at least float32."""
        return channel_view(self.value, self.site.channel_dim)

    @cached_property
    def channels(self) -> Tensor:
        return by_channel_rows(self.value, self.site.channel_dim)


@dataclass
class ParameterView:
    """All parameters of the model on a measured step, as ``params`` by dotted name.

    Shown to :meth:`Vital.parameters`.

    With a watched optimizer, ``before`` has the values before its step and ``grads`` the gradients it used. ``initial``
    has the values at the start of watching, and ``modules`` the modules. ``anatomy`` is the traced structure of the
    model, if a forward pass was traced. If parameters are sharded, ``pieces`` describes the part of each parameter on
    this rank.
    """

    params: Mapping[str, Tensor]
    initial: Mapping[str, Tensor]
    grads: Mapping[str, Tensor] = field(default_factory=dict)
    before: Mapping[str, Tensor] = field(default_factory=dict)
    modules: Mapping[str, nn.Module] = field(default_factory=dict)
    anatomy: Anatomy | None = None  # what the model is made of, where a pass was seen
    pieces: Mapping[str, Piece] = field(default_factory=dict)  # what a rank holds, where none holds everything

    def over(self, kinds: Kind | tuple[Kind, ...], names: Sequence[str]) -> ReduceOverRanks:
        """For the parameters ``names`` (one row each), return how their quantities ``kinds`` are pooled over ranks."""
        kinds = (kinds,) if isinstance(kinds, str) else kinds
        if not self.pieces:
            return ReduceOverRanks(("same",) * len(kinds))
        return ReduceOverRanks(kinds, pieces=True, shares=np.array([1 / self.pieces[n].holders for n in names]))

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of the whole tensor ``name``, also if it is sharded."""
        return self.pieces[name].shape if self.pieces else tuple(self.params[name].shape)

    @cached_property
    def groups(self) -> list[list[str]]:
        """Names of parameters of equal size, so that one reduction serves a whole group."""
        groups: dict[tuple[object, ...], list[str]] = {}
        for name, p in self.params.items():
            if p.numel() == 0 or not p.is_floating_point():
                continue
            key: tuple[object, ...] = (
                p.numel(),
                p.dtype,
                p.device,
                name in self.initial,
                name in self.grads,
                name in self.before,
            )
            # a big tensor is measured where it is: stacking would copy it
            groups.setdefault(key if p.numel() <= _STACKED else (*key, name), []).append(name)
        return list(groups.values())

    def rows(self, which: Literal["params", "initial", "grads", "before"], names: list[str]) -> Tensor:
        """Take the tensors ``names`` from ``which`` and return them as rows of a matrix, in float32 or better."""
        source: Mapping[str, Tensor] = getattr(self, which)
        rows = [source[name].detach().reshape(-1) for name in names]
        return widened(torch.stack(rows) if len(rows) > 1 else rows[0][None])


_STACKED = 1 << 20


def channels_of(view: object) -> int:
    """How many channels (of attention: heads) a rank sees of the site of a ``view``; 0 where that is not known."""
    if isinstance(view, HeadsView):
        return view.q.shape[1]
    shown = {ActivationView: "x", ProductView: "first", LinearView: "y", TensorView: "value"}.get(type(view))
    tensor = None if shown is None else getattr(view, shown)
    if not isinstance(tensor, Tensor) or not tensor.ndim:
        return 0
    dim = view.site.channel_dim  # type: ignore[attr-defined]
    return tensor.shape[dim] if -tensor.ndim <= dim < tensor.ndim else tensor.shape[-1]
