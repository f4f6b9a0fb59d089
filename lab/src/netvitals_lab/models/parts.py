"""The pieces every network here is made of: an activation, a norm, an initialisation, each chosen by one string."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from netvitals import activations, layers


def activation(spec: str) -> nn.Module:
    """A fresh activation module for one call site.

    Random draws of the module itself (NoisyReLU's p) do not advance the generator, so that with one seed every
    activation meets the same weights.
    """
    with torch.random.fork_rng(devices=[]):
        return activations.get(spec)


def norm(spec: str, channels: int, ndim: int) -> nn.Module:
    """A fresh norm for tensors with ``ndim`` dimensions: 2 (N, C), 3 (N, T, C), 4 (N, C, H, W)."""
    return layers.norm(spec, channels, ndim)


def conv(n_in: int, n_out: int, size: int, stride: int = 1, *, bias: bool, dilation: int = 1) -> nn.Conv2d:
    """A convolution that keeps the side length at stride 1."""
    return nn.Conv2d(n_in, n_out, size, stride, padding=dilation * (size // 2), dilation=dilation, bias=bias)


@torch.no_grad()
def initialise(hidden: list[nn.Linear], readout: nn.Linear, spec: str) -> None:
    r"""Draw the weights of a chain of linear layers; biases become zero (``default`` keeps torch's own draw).

    ==================  ==========================================================================
    ``default``         torch's: U(±1/√fan_in), also for biases
    ``he``              N(0, 2/fan_in) hidden, N(0, 1/fan_in) readout
    ``xavier``          N(0, 2/(fan_in + fan_out)) everywhere
    ``orthogonal``      √2 Q hidden, Q readout, Q with orthonormal rows or columns
    ``bottleneck:R:E``  N(0, 2/fan_in) everywhere, readout too, then the first R layers times E
    ==================  ==========================================================================
    """
    kind, *numbers = spec.split(":")
    if kind == "default" and not numbers:
        return
    chain = [*hidden, readout]
    for layer in chain:
        fan_out, fan_in = layer.weight.shape
        gain = 1.0 if layer is readout else 2.0
        if kind == "he" or kind == "bottleneck":
            layer.weight.normal_(0, math.sqrt((2.0 if kind == "bottleneck" else gain) / fan_in))
        elif kind == "xavier":
            layer.weight.normal_(0, math.sqrt(2 / (fan_in + fan_out)))
        elif kind == "orthogonal":
            nn.init.orthogonal_(layer.weight, math.sqrt(gain))
        else:
            raise ValueError(f"init is default, he, xavier, orthogonal or bottleneck:R:E, got {spec!r}")
        if layer.bias is not None:
            layer.bias.zero_()
    if kind == "bottleneck":
        try:
            count, scale = int(numbers[0]), float(numbers[1])
        except (IndexError, ValueError):
            raise ValueError(f"write the scaled init as bottleneck:R:E, R layers times E, got {spec!r}") from None
        if not 0 <= count <= len(chain):
            raise ValueError(f"bottleneck init scales the first R of {len(chain)} layers, got R={count}")
        for layer in chain[:count]:
            layer.weight.mul_(scale)


def he_convolutions(model: nn.Module) -> None:
    """N(0, 2/fan_out) for every convolution: the usual start of residual and VGG networks."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def flat(x: Tensor) -> Tensor:
    """(N, ...) to (N, features); a single vector stays as it is."""
    return x.flatten(1) if x.ndim > 2 else x
