"""A GPT with rotary positions, RMSNorm, a tied head and no biases: nano for real hardware, micro for two cores."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from netvitals_lab.models.mixer import FeedForward
from netvitals_lab.models.parts import norm


@dataclass(frozen=True)
class GPTSpec:
    """Blocks x + attention(norm x)/√(2·depth), then x + down f(up(norm x)), with ``hidden`` = 4·width by default.

    ``fused=True`` uses torch's fused attention: faster for long contexts, but without second derivatives.
    """

    vocab: int = 256
    context: int = 64
    depth: int = 6
    heads: int = 4
    width: int = 128
    hidden: int | None = None
    act: str = "relu"
    norm: str = "rms"
    base: float = 10_000.0  # of the rotary frequencies
    fused: bool = False
    dropout: float = 0.0

    def build(self) -> nn.Module:
        return GPT(self)


class Rotary(nn.Module):
    """Turn the pair (x_i, x_{i+d/2}) at position t by the angle t·base^(−2i/d)."""

    cos: Tensor
    sin: Tensor

    def __init__(self, dim: int, context: int, base: float):
        super().__init__()
        angle = torch.outer(torch.arange(context).float(), base ** (-torch.arange(0, dim, 2).float() / dim))
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        cos, sin = self.cos[: x.shape[-2]].to(x.dtype), self.sin[: x.shape[-2]].to(x.dtype)
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class CausalAttention(nn.Module):
    """Self-attention that sees only the past, with rotary positions on queries and keys."""

    mask: Tensor

    def __init__(self, spec: GPTSpec):
        super().__init__()
        if spec.width % (2 * spec.heads):
            raise ValueError(f"rotary positions need an even width per head, got {spec.width} over {spec.heads} heads")
        self.heads, self.fused = spec.heads, spec.fused
        self.qkv = nn.Linear(spec.width, 3 * spec.width, bias=False)
        self.out = nn.Linear(spec.width, spec.width, bias=False)
        self.rotary = Rotary(spec.width // spec.heads, spec.context, spec.base)
        mask = torch.ones(spec.context, spec.context, dtype=torch.bool).triu(1)
        self.register_buffer("mask", None if spec.fused else mask, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(-2, -3) for t in self.qkv(x).chunk(3, -1))
        q, k = self.rotary(q), self.rotary(k)
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            length = x.shape[-2]
            scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
            y = scores.masked_fill(self.mask[:length, :length], -math.inf).softmax(-1) @ v
        return self.out(y.transpose(-2, -3).flatten(-2))


class GPTBlock(nn.Module):
    def __init__(self, spec: GPTSpec):
        super().__init__()
        self.norm_attention = norm(spec.norm, spec.width, 3)
        self.attention = CausalAttention(spec)
        self.norm_mlp = norm(spec.norm, spec.width, 3)
        self.mlp = FeedForward(spec.width, spec.hidden or 4 * spec.width, spec.act, dropout=spec.dropout, bias=False)
        self.scale = 1 / math.sqrt(2 * spec.depth)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.scale * self.attention(self.norm_attention(x))
        return x + self.mlp(self.norm_mlp(x))


class GPT(nn.Module):
    """Tokens (N, T) to logits (N, T, vocab); the readout is the transposed embedding."""

    def __init__(self, spec: GPTSpec):
        super().__init__()
        self.spec = spec
        self.embed = nn.Embedding(spec.vocab, spec.width)
        self.blocks = nn.ModuleList(GPTBlock(spec) for _ in range(spec.depth))
        self.norm = norm(spec.norm, spec.width, 3)
        self.head = nn.Linear(spec.width, spec.vocab, bias=False)
        self.embed.weight = self.head.weight  # tied: one matrix, drawn as a linear layer

    def forward(self, tokens: Tensor) -> Tensor:
        if tokens.shape[-1] > self.spec.context:
            raise ValueError(f"this GPT was built for a context of {self.spec.context} tokens, got {tokens.shape[-1]}")
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))
