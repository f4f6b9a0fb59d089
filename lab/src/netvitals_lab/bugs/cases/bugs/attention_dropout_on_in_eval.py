"""Fused attention gets dropout_p=self.dropout whatever the mode: dropout in every evaluation.

source: https://github.com/huggingface/transformers/pull/33844
catalogue: traincheck
field: sequence to sequence attention
cause: dropout-train-eval
observable: yes
silent: yes
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv


class FlashAttention(nn.Module):
    def __init__(self, dim, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (m.view(b, t, self.heads, -1).transpose(1, 2) for m in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout)  # bug
        # fix: y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0)
        return self.out(y.transpose(1, 2).reshape(b, t, d))


class Translator(nn.Module):
    """Reads a sentence, says the language's word for each position (here: a lookup in the other half)."""

    def __init__(self, words=20, dim=48):
        super().__init__()
        self.embed = nn.Embedding(words, dim)
        self.position = nn.Embedding(16, dim)
        self.layers = nn.ModuleList([FlashAttention(dim, 4, 0.1) for _ in range(2)])
        self.norms = nn.ModuleList([nn.LayerNorm(dim) for _ in range(2)])
        self.head = nn.Linear(dim, words)

    def forward(self, tokens):
        h = self.embed(tokens) + self.position(torch.arange(tokens.shape[1]))
        for norm, layer in zip(self.norms, self.layers):
            h = h + layer(norm(h))
        return self.head(h)


def sentences(n):
    x = torch.randint(0, 20, (n, 12))
    return x, x.flip(1)


model = Translator()
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
held_out, wanted = sentences(200)
with nv.watch(model, optimizer) as watch:
    for epoch in range(5):
        model.train()
        for _ in range(70):
            x, y = sentences(32)
            loss = F.cross_entropy(model(x).transpose(1, 2), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)
        model.eval()
        with torch.no_grad():
            validation = F.cross_entropy(model(held_out).transpose(1, 2), wanted)

model.eval()
with torch.no_grad():
    once, again = model(held_out), model(held_out)
score = -float((once - again).abs().mean())
learned = score > -1e-5 and float((once.argmax(-1) == wanted).float().mean()) > 0.95
