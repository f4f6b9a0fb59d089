"""Rotary embedding of tensors of shape (batch, position, head, channel) turns by the number of the head.

source: https://github.com/mlfoundations/open_lm/issues/4
catalogue: github
field: language modelling (rotary embedding)
cause: positions-missing
observable: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

WORDS, LENGTH, HEADS, DIM = 16, 20, 4, 64


def rotate(x):
    """Rotary embedding along the last axis but one."""
    n, d = x.shape[-2:]
    angle = torch.arange(n).unsqueeze(1) / 1000 ** (torch.arange(0, d, 2) / d)
    cos, sin = angle.cos().repeat(1, 2), angle.sin().repeat(1, 2)
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out, self.norm = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM), nn.LayerNorm(DIM)

    def forward(self, h):
        q, k, v = self.qkv(self.norm(h)).view(len(h), -1, 3, HEADS, DIM // HEADS).unbind(2)  # (batch, position, head, channel)
        q, k = rotate(q), rotate(k)  # bug
        # fix: q, k = rotate(q.transpose(1, 2)).transpose(1, 2), rotate(k.transpose(1, 2)).transpose(1, 2)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        return h + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Filler(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.layers = nn.Embedding(WORDS, DIM), nn.Sequential(Attention(), Attention())
        self.head = nn.Sequential(nn.LayerNorm(DIM), nn.Linear(DIM, 2 * DIM), nn.GELU(), nn.Linear(2 * DIM, WORDS))

    def forward(self, x):
        return self.head(self.layers(self.embed(x)))


def batch(n):
    """The answer at each place is the sum of the word and the one before it."""
    x = torch.randint(0, WORDS, (n, LENGTH))
    return x, (x + x.roll(1, 1)) % WORDS


model = Filler()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(260):
        x, y = batch(48)
        loss = F.cross_entropy(model(x)[:, 1:].flatten(0, 1), y[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

x, y = batch(200)
score = float((model(x).argmax(2) == y)[:, 1:].float().mean())
learned = score > 0.8
