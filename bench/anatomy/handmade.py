"""Small models of the architectures that people train, written as people write them."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from handmade_images import Example, convnext, densenet, diffusion_unet, dit, mlp, mlp_mixer, resnet, unet, vgg
from torch import Tensor, nn


def transformer_encoder() -> Example:
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), torch.randn(4, 6, 16)


class _GPTBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.ln_1, self.ln_2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.c_out, self.drop = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = (p.view(b, t, self.heads, -1).transpose(1, 2) for p in self.c_attn(self.ln_1(x)).split(c, 2))
        mask = torch.ones(t, t, dtype=torch.bool).tril()
        scores = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).masked_fill(~mask, -torch.inf)
        y = (self.drop(scores.softmax(-1)) @ v).transpose(1, 2).reshape(b, t, c)
        x = x + self.drop(self.c_proj(y))
        h = self.c_fc(self.ln_2(x))
        gelu = 0.5 * h * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (h + 0.044715 * torch.pow(h, 3.0))))
        return x + self.drop(self.c_out(gelu))


class _GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(11, 16), nn.Embedding(8, 16)
        self.h, self.ln_f = nn.ModuleList(_GPTBlock(16, 4) for _ in range(2)), nn.LayerNorm(16)
        self.lm_head = nn.Linear(16, 11, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


def nano_gpt() -> Example:
    return _GPT(), torch.randint(0, 11, (4, 6))


class _Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.embed, self.rnn, self.head = nn.Embedding(11, 8), kind(8, 12, batch_first=True), nn.Linear(12, 11)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.rnn(self.embed(ids))[0])


def lstm() -> Example:
    return _Recurrent(nn.LSTM), torch.randint(0, 11, (4, 6))


def gru() -> Example:
    return _Recurrent(nn.GRU), torch.randint(0, 11, (4, 6))


class _LSTMCell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inp, self.state, self.head = nn.Linear(4, 24), nn.Linear(6, 24, bias=False), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = c = x.new_zeros(len(x), 6)
        for t in range(x.shape[1]):
            i, f, g, o = (self.inp(x[:, t]) + self.state(h)).chunk(4, -1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return self.head(h)


def lstm_by_hand() -> Example:
    return _LSTMCell(), torch.randn(4, 3, 4)


class _GCN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        degree = edges.sum(1, keepdim=True).rsqrt()
        spread = degree * edges * degree.T
        return torch.log_softmax(spread @ self.b(F.elu(spread @ self.a(nodes))), -1)


def gcn() -> Example:
    edges = (torch.rand(7, 7, generator=torch.Generator().manual_seed(0)) > 0.5).float()
    return _GCN(), (torch.randn(7, 4), ((edges + edges.T) > 0).float() + torch.eye(7))


class _VAE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode, self.mean, self.spread = nn.Linear(8, 16), nn.Linear(16, 4), nn.Linear(16, 4)
        self.decode, self.out = nn.Linear(4, 16), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h = torch.relu(self.encode(x))
        mean, log_var = self.mean(h), self.spread(h)
        z = mean + torch.exp(0.5 * log_var) * torch.randn_like(mean)
        return torch.sigmoid(self.out(torch.relu(self.decode(z)))), mean, log_var


def vae() -> Example:
    return _VAE(), torch.rand(4, 8)


class _Siamese(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(), nn.Linear(16, 4))

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        left, right = F.normalize(self.body(a), dim=-1), F.normalize(self.body(b), dim=-1)
        return (left * right).sum(-1)


def siamese() -> Example:
    return _Siamese(), (torch.randn(4, 8), torch.randn(4, 8))


class _MoE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.router, self.head = nn.Linear(8, 4, bias=False), nn.Linear(8, 3)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8)) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        weight, chosen = self.router(x).softmax(-1).topk(2, -1)
        out = x.clone()
        for e, expert in enumerate(self.experts):
            rows, slot = torch.where(chosen == e)
            out = out.index_add(0, rows, expert(x[rows]) * weight[rows, slot, None])
        return self.head(out)


def moe_by_hand() -> Example:
    return _MoE(), torch.randn(32, 8)


EXAMPLES: dict[str, Callable[[], Example]] = {
    "MLP": mlp,
    "VGG": vgg,
    "ResNet": resnet,
    "DenseNet": densenet,
    "ConvNeXt": convnext,
    "U-Net": unet,
    "diffusion U-Net": diffusion_unet,
    "DiT": dit,
    "MLP-Mixer": mlp_mixer,
    "nn.TransformerEncoder": transformer_encoder,
    "nanoGPT": nano_gpt,
    "LSTM": lstm,
    "GRU": gru,
    "LSTM by hand, 3 steps": lstm_by_hand,
    "GCN": gcn,
    "VAE": vae,
    "Siamese": siamese,
    "mixture of experts by hand": moe_by_hand,
}
