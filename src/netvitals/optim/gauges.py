r"""Gauges: the continuous symmetries of a network's loss, as the optimiser sees them.

A *shift* adds the same vector to all logits; a *rescale* multiplies one block of parameters and divides the next. Each
spec knows which parameters it covers, moves them along the orbit (``act``), and says what cannot be
(dead-directions §4.9).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import Parameter

from netvitals.optim.blocks import GaugeBlock

_TINY = 1e-30  # a block with a smaller norm has no direction to scale along


@dataclass(frozen=True)
class Shift:
    r"""A shift symmetry $\theta \to \theta + \mathbf 1 c^\top$ of a logit bias (C,) or an unembedding (C, d).

    Returned by :func:`ce_shift_bias`.

    Attributes:
        name: its name in reports.
        param: bias of the logits (C,), or unembedding (C, d).
    """

    name: str
    param: Parameter

    @property
    def params(self) -> tuple[Parameter, ...]:
        return (self.param,)

    @property
    def modes(self) -> int:
        return self.param[0].numel()

    def vertical(self, x: Tensor) -> Tensor:
        r"""Project onto the symmetry direction: the mean of ``x`` over classes, broadcast back to its shape."""
        return x.mean(0, keepdim=True).expand_as(x)

    def collapse(self, x: Tensor) -> Tensor:
        r"""Coordinates of ``x`` along the symmetry direction, $q = \mathbf 1^\top x / \sqrt C$."""
        return x.sum(0, keepdim=True) / math.sqrt(x.shape[0])

    def broadcast(self, q: Tensor) -> Tensor:
        """Convert coordinates ``q`` along the symmetry direction to a change of the parameter."""
        return (q / math.sqrt(self.param.shape[0])).expand_as(self.param)

    @torch.no_grad()
    def act(self, c: Tensor) -> None:
        """Move the parameters along the symmetry by ``c``, with one number per mode."""
        self.param.add_(c.reshape(1, *self.param.shape[1:]).to(self.param))

    def charge(self) -> Tensor:
        """The conserved quantity of this symmetry, which drifts if the optimizer is not equivariant: the mean over
        classes.
        """
        return self.param.detach().mean(0).reshape(-1)

    def check(self) -> None:
        """Raise ValueError if there are fewer than two classes."""
        if self.param.ndim == 0 or self.param.shape[0] < 2:
            raise ValueError(
                f"{self.name}: the symmetry that adds a constant to all logits needs two or more classes in "
                f"dimension 0, got shape {tuple(self.param.shape)}"
            )

    def __str__(self) -> str:
        return f"{self.name}: shift of {self.param.shape[0]} classes, {self.modes} mode(s)"


@dataclass(frozen=True)
class Rescale:
    r"""A rescaling symmetry $W_i \to e^{s_i} W_i$ with $\sum_i s_i = 0$ over n blocks: n − 1 modes per channel.

    Blocks are, for example, a unit's weight row and the columns that read it, or a norm's gain and the columns that
    read it. Blocks can also be whole layers with ReLU between them. With an activation of degree q (ReLU² has q = 2),
    two blocks scale as $e^{s}$ and $e^{-qs}$. A *follower* is a bias inside a chain of whole layers; it is multiplied
    by the factors of all layers up to its own.

    Returned by :func:`relu_rescale`, :func:`channel_rescale`.

    Attributes:
        name: its name in reports.
        blocks: what is scaled against what.
        followers: (bias, index of its layer).
        degree: q of the activation between two blocks.
    """

    name: str
    blocks: tuple[GaugeBlock, ...]
    followers: tuple[tuple[Parameter, int], ...] = ()
    degree: float = 1.0

    @property
    def params(self) -> tuple[Parameter, ...]:
        return tuple(p for b in self.blocks for p in b.params) + tuple(p for p, _ in self.followers)

    @property
    def channels(self) -> int:
        return self.blocks[0].channels

    @property
    def modes(self) -> int:
        return (len(self.blocks) - 1) * self.channels

    def basis(self, like: Tensor) -> Tensor:
        """Orthonormal basis with the dtype and device of ``like``; row 0 is radial, the others span the symmetry."""
        n = len(self.blocks)
        if n == 2:
            q, size = self.degree, math.hypot(1.0, self.degree)
            return torch.tensor([[q / size, 1 / size], [1 / size, -q / size]], dtype=torch.float64).to(like)
        k, i = torch.arange(n, dtype=torch.float64)[:, None], torch.arange(n, dtype=torch.float64)[None]
        b = torch.cos(math.pi * k * (2 * i + 1) / (2 * n)) * math.sqrt(2 / n)
        b[0] = 1 / math.sqrt(n)
        return b.to(like)

    @torch.no_grad()
    def act(self, c: Tensor) -> None:
        """Move the parameters along the symmetry by log factors ``c``, of shape (n − 1, channels) or flat."""
        n = len(self.blocks)
        like = self.params[0]
        modes = torch.cat([torch.zeros(1, self.channels).to(like), c.reshape(n - 1, self.channels).to(like)])
        factors = (self.basis(like).T @ modes).exp()
        for block, factor in zip(self.blocks, factors):
            for i, p in enumerate(block.params):
                p.mul_(block.spread(factor, i))
        for p, layer in self.followers:
            p.mul_(factors[: layer + 1].prod(0))

    def norms(self) -> Tensor:
        """Norm of every block, as a tensor of shape (blocks, channels)."""
        held = [[p.detach() for p in b.params] for b in self.blocks]
        return torch.stack([b.inner(ps, ps) for b, ps in zip(self.blocks, held)]).sqrt()

    def charge(self) -> Tensor:
        r"""Quantities that gradient flow conserves, $\|W_{i+1}\|^2 - \|W_i\|^2$ for degree 1 (Noether charges)."""
        return self.norms().square().diff(dim=0).reshape(-1)

    def check(self) -> None:
        """Raise ValueError if the shapes do not fit together."""
        if len(self.blocks) < 2:
            raise ValueError(
                f"{self.name}: a rescaling symmetry needs at least two blocks of parameters, got {len(self.blocks)}"
            )
        for block in self.blocks:
            block.check(self.name)
        if len({b.channels for b in self.blocks}) > 1:
            raise ValueError(
                f"{self.name}: all blocks must have the same number of channels, got "
                f"{[b.channels for b in self.blocks]}; check the channel dimensions"
            )
        if not self.degree > 0 or (self.degree != 1 and len(self.blocks) != 2):
            raise ValueError(
                f"{self.name}: degree= must be positive, and with more than two blocks it must be 1; got {self.degree}"
            )
        norms = self.norms()
        if not torch.isfinite(norms).all() or bool((norms <= _TINY).all(1).any()):
            raise ValueError(
                f"{self.name}: a block of parameters is zero or not finite, so it cannot be rescaled. Leave it out of "
                "the gauges, or initialise it to other values"
            )
        if self.followers and self.channels != 1:
            raise ValueError(
                f"{self.name}: followers= (biases rescaled with a whole layer) needs blocks that are whole layers. "
                "Put the bias of single channels into the block of its weight instead"
            )

    def __str__(self) -> str:
        return f"{self.name}: rescale of {len(self.blocks)} blocks, {self.modes} mode(s)"


Gauge = Shift | Rescale


def shared_weights(gauges: Sequence[Gauge]) -> tuple[str, str] | None:
    """Names of two gauges that move the same weight, or of one that moves a weight twice; None where there are none."""
    owners: dict[Parameter, list[tuple[str, Tensor]]] = {}
    for gauge in gauges:
        for p, mask in _moved(gauge):
            for name, other in owners.setdefault(p, []):
                if bool((mask & other).any()):
                    return name, gauge.name
            owners[p].append((gauge.name, mask))
    return None


def _moved(gauge: Gauge) -> Iterator[tuple[Parameter, Tensor]]:
    """Every parameter of a gauge, and which of its weights move."""
    if isinstance(gauge, Shift):
        yield gauge.param, torch.ones_like(gauge.param, dtype=torch.bool)
        return
    for block in gauge.blocks:
        for i, p in enumerate(block.params):
            ones = torch.ones(block.channels, dtype=torch.bool, device=p.device)
            yield p, block.spread(ones, i, missing=False).expand_as(p)
    for p, _ in gauge.followers:
        yield p, torch.ones_like(p, dtype=torch.bool)


def ce_shift_bias(bias: Parameter, name: str = "logit shift (bias)") -> Shift:
    """Shift symmetry of a logit bias, b → b + c·1: cross-entropy ignores a constant added to every logit.

    Args:
        bias: bias of the logits (C,).
        name: name of the gauge in reports.

    Returns:
        The gauge, one mode.

    >>> ce_shift_bias(Parameter(torch.zeros(10))).modes
    1
    """
    return Shift(name, bias)


def ce_shift_rows(weight: Parameter, name: str = "logit shift (rows)") -> Shift:
    """Shift symmetry of an unembedding matrix (C, d) under cross-entropy: W → W + 1cᵀ.

    Args:
        weight: the unembedding (C, d).
        name: name of the gauge in reports.

    Returns:
        The gauge, d modes.

    >>> ce_shift_rows(Parameter(torch.zeros(10, 4))).modes
    4
    """
    return Shift(name, weight)


def relu_rescale(
    first: Parameter, second: Parameter, bias: Parameter | None = None, name: str = "ReLU rescale"
) -> Rescale:
    """Rescaling symmetry (W1, b1, W2) → (cW1, cb1, W2/c) of two layers around a ReLU-like activation.

    Args:
        first: weight before the activation.
        second: weight after it.
        bias: bias of the first layer, if it has one.
        name: name of the gauge in reports.

    Returns:
        The gauge, one mode.

    >>> net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    >>> relu_rescale(net[0].weight, net[2].weight, net[0].bias).modes
    1
    """
    return chained_rescale([first, second], [bias], name)


def chained_rescale(
    weights: Sequence[Parameter], biases: Sequence[Parameter | None] = (), name: str = "chained ReLU rescale"
) -> Rescale:
    """Rescaling symmetry of a chain of n layers with positively homogeneous activations such as ReLU between them.

    Args:
        weights: weights of the layers, in order.
        biases: ``biases[i]`` belongs to ``weights[i]``, None where there is none; the last is free.
        name: name of the gauge in reports.

    Returns:
        The gauge, n − 1 modes.

    >>> chained_rescale([Parameter(torch.ones(4, 3)), Parameter(torch.ones(4, 4)), Parameter(torch.ones(1, 4))]).modes
    2
    """
    followers = tuple((b, i) for i, b in enumerate(biases[: len(weights) - 1]) if b is not None)
    return Rescale(name, tuple(GaugeBlock((w,), (None,)) for w in weights), followers)


def channel_rescale(
    scaled: Sequence[tuple[Parameter, int]],
    readers: Sequence[tuple[Parameter, int]],
    name: str = "channel rescale",
    *,
    degree: float = 1.0,
) -> Rescale:
    """Rescaling symmetry per channel, between a norm's γ and β (or a neuron's row and bias) and the columns that read
    it.

    Args:
        scaled: (parameter, its channel dimension) of what is scaled, such as ``[(ln.weight, 0), (ln.bias, 0)]``.
        readers: (parameter, its channel dimension) of what reads it, such as ``[(next.weight, 1)]``.
        name: name of the gauge in reports.
        degree: degree of the activation between them: 1 for ReLU, 2 for its square.

    Returns:
        The gauge, one mode a channel.

    >>> first, second = Parameter(torch.ones(4, 3)), Parameter(torch.ones(1, 4))
    >>> channel_rescale([(first, 0)], [(second, 1)]).modes  # one a hidden unit
    4
    """
    blocks = tuple(GaugeBlock(tuple(p for p, _ in b), tuple(d for _, d in b)) for b in (scaled, readers))
    return Rescale(name, blocks, degree=degree)


def ln_scale(
    weight: Parameter, bias: Parameter | None, readers: Sequence[Parameter], name: str = "norm scale"
) -> Rescale:
    """Rescaling symmetry of a norm and the next layer: (γ_i, W_next[:, i]) → (c_i γ_i, W_next[:, i]/c_i).

    Args:
        weight: gain γ of the norm (d,).
        bias: its shift β, which is scaled along, or None.
        readers: weights (out, d) of every layer that reads the norm.
        name: name of the gauge in reports.

    Returns:
        The gauge, d modes.

    >>> ln_scale(Parameter(torch.ones(4)), None, [Parameter(torch.ones(2, 4))]).modes
    4
    """
    scaled = [(weight, 0)] + ([(bias, 0)] if bias is not None else [])
    return channel_rescale(scaled, [(w, 1) for w in readers], name)


@dataclass(frozen=True)
class GaugeDrift:
    """One gauge, now against then."""

    gauge: str
    charge: float  # root mean square over modes
    charge_moved: float  # change of the charge, over the energy ‖W‖² it is a difference of (shift: over the spread)
    orbit_moved: float  # root mean square change of the position on the orbit: log scale, or mean of the logits

    def __str__(self) -> str:
        return f"{self.gauge}: moved {self.orbit_moved:.3g} along its orbit, charge by {self.charge_moved:.2%}"


def orbit_position(gauge: Gauge) -> Tensor:
    """Where on its orbit a gauge's parameters sit: half log ratios of neighbouring norms, or means over classes."""
    if isinstance(gauge, Rescale):
        return 0.5 * gauge.norms().clamp_min(1e-30).log().diff(dim=0).reshape(-1)
    return gauge.charge()


def gauge_energy(gauge: Gauge) -> Tensor:
    """What the charge is compared with: the sum of squared norms, or the spread of the logits' parameters."""
    if isinstance(gauge, Rescale):
        return gauge.norms().square().sum() / max(1, gauge.channels)
    return gauge.param.detach().std(correction=0)
