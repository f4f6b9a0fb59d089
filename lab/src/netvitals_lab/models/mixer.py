"""MLP-Mixer: dense layers over patches, then over channels."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from netvitals_lab.models.parts import activation, norm


@dataclass(frozen=True)
class MixerSpec:
    """The default is the network of about a million parameters that the gate-density paper trains."""

    channels: int = 3
    side: int = 32
    classes: int = 10
    patch: int = 4
    depth: int = 8
    width: int = 128
    tokens: int = 64  # hidden units of the token-mixing layer
    mixing: int = 512  # hidden units of the channel-mixing layer
    act: str = "gelu"
    norm: str = "layer"
    dropout: float = 0.0

    def build(self) -> nn.Module:
        return Mixer(self)


def patches(side: int, patch: int) -> int:
    """How many patches an image has, or why it cannot be cut."""
    if side % patch:
        raise ValueError(f"an image of side {side} cannot be cut into patches of {patch}; choose a patch that divides")
    return (side // patch) ** 2


class FeedForward(nn.Sequential):
    """Linear, activation, linear."""

    def __init__(self, width: int, hidden: int, act: str, *, dropout: float = 0.0, bias: bool = True):
        super().__init__()
        self.add_module("up", nn.Linear(width, hidden, bias=bias))
        self.add_module("act", activation(act))
        self.add_module("down", nn.Linear(hidden, width, bias=bias))
        if dropout:
            self.add_module("dropout", nn.Dropout(dropout))


class MixerBlock(nn.Module):
    def __init__(self, count: int, spec: MixerSpec):
        super().__init__()
        self.norm_tokens = norm(spec.norm, spec.width, 3)
        self.tokens = FeedForward(count, spec.tokens, spec.act, dropout=spec.dropout)
        self.norm_channels = norm(spec.norm, spec.width, 3)
        self.channels = FeedForward(spec.width, spec.mixing, spec.act, dropout=spec.dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.tokens(self.norm_tokens(x).transpose(-1, -2)).transpose(-1, -2)
        return x + self.channels(self.norm_channels(x))


class Mixer(nn.Module):
    def __init__(self, spec: MixerSpec):
        super().__init__()
        self.spec = spec
        count = patches(spec.side, spec.patch)
        self.embed = nn.Conv2d(spec.channels, spec.width, spec.patch, spec.patch)
        self.blocks = nn.ModuleList(MixerBlock(count, spec) for _ in range(spec.depth))
        self.norm = norm(spec.norm, spec.width, 3)
        self.head = nn.Linear(spec.width, spec.classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))
