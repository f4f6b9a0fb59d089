"""Six small models as a reader of the papers brings them, each with a batch and the name of its loss."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

NAMES = ("mlp", "cnn", "gpt", "llama", "vit", "tied")


class ConvNet(nn.Module):
    """Convolutions with BatchNorm and one skip connection."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.conv2, self.bn2 = nn.Conv2d(6, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.act1, self.act2, self.fc = nn.ReLU(), nn.ReLU(), nn.Linear(6, 3)

    def forward(self, x):
        x = self.act1(self.bn1(self.conv1(x)))
        x = self.act2(x + self.bn2(self.conv2(x)))
        return self.fc(x.mean((2, 3)))


class Attention(nn.Module):
    def __init__(self, n: int, heads: int) -> None:
        super().__init__()
        self.c_attn, self.c_proj, self.heads = nn.Linear(n, 3 * n), nn.Linear(n, n), heads

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.c_attn(x).chunk(3, -1))
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).tril().logical_not()
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        return self.c_proj((weights @ v).transpose(1, 2).flatten(-2))


class MLP(nn.Module):
    def __init__(self, n: int) -> None:
        super().__init__()
        self.c_fc, self.gelu, self.c_proj = nn.Linear(n, 4 * n), nn.GELU(), nn.Linear(4 * n, n)

    def forward(self, x):
        return self.c_proj(self.gelu(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self, n: int, heads: int) -> None:
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(n), Attention(n, heads)
        self.ln_2, self.mlp = nn.LayerNorm(n), MLP(n)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """nanoGPT's names; the head is tied to the embedding, as there."""

    def __init__(self, vocabulary: int = 11, n: int = 8, heads: int = 2, layers: int = 2, length: int = 6) -> None:
        super().__init__()
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(vocabulary, n),
                "wpe": nn.Embedding(length, n),
                "h": nn.ModuleList(Block(n, heads) for _ in range(layers)),
                "ln_f": nn.LayerNorm(n),
            }
        )
        self.lm_head = nn.Linear(n, vocabulary, bias=False)
        self.transformer.wte.weight = self.lm_head.weight

    def forward(self, idx):
        t = self.transformer
        x = t.wte(idx) + t.wpe(torch.arange(idx.shape[1], device=idx.device))
        for block in t.h:
            x = block(x)
        return self.lm_head(t.ln_f(x))


class Tied(nn.Module):
    """One hidden matrix used twice, and a decoder that is the encoder transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.hidden, self.act = nn.Linear(5, 7), nn.Linear(7, 7), nn.ReLU()

    def forward(self, x):
        x = self.act(self.inner(x))
        x = self.act(self.hidden(x))
        x = self.act(self.hidden(x))
        return F.linear(x, self.inner.weight.T)


def make(name: str, seed: int = 0):
    """(model, loss_fn, batch) of one of ``NAMES``; the tests that need Hugging Face are skipped without it."""
    torch.manual_seed(seed)
    classes = torch.arange(8) % 3
    if name == "mlp":
        net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
        return net, "cross_entropy", (torch.randn(8, 5), classes)
    if name == "cnn":
        return ConvNet(), "cross_entropy", (torch.randn(8, 1, 6, 6), classes)
    if name == "gpt":
        return GPT(), "cross_entropy", (torch.randint(0, 11, (8, 6)), torch.randint(0, 11, (8, 6)))
    if name == "tied":
        x = torch.randn(8, 5)
        return Tied(), "mse_loss", (x, x)
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2}
    if name == "llama":
        config = transformers.LlamaConfig(
            **sizes, num_key_value_heads=1, vocab_size=11, bos_token_id=0, eos_token_id=0, attn_implementation="eager"
        )
        ids = torch.randint(0, 11, (8, 6))
        return transformers.LlamaForCausalLM(config), None, {"input_ids": ids, "labels": ids}
    config = transformers.ViTConfig(
        **sizes, image_size=8, patch_size=4, num_channels=1, num_labels=3, attn_implementation="eager"
    )
    batch = {"pixel_values": torch.randn(8, 1, 8, 8), "labels": classes}
    return transformers.ViTForImageClassification(config), None, batch
