"""Houlsby adapters: bottlenecks that start near the identity inside a frozen transformer; norms and head are trained.

source: https://arxiv.org/abs/1902.00751
field: parameter-efficient fine-tuning
unusual: frozen attention and feed-forward weights; adapters whose output is almost zero at the start
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv


class Adapter(nn.Module):
    def __init__(self, dim, bottleneck=8):
        super().__init__()
        self.down, self.up = nn.Linear(dim, bottleneck), nn.Linear(bottleneck, dim)
        nn.init.normal_(self.up.weight, std=1e-3)
        nn.init.zeros_(self.up.bias)

    def forward(self, h):
        return h + self.up(F.gelu(self.down(h)))


class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.attention = nn.MultiheadAttention(dim, 4, batch_first=True)
        self.feed = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.adapter1, self.adapter2 = nn.Identity(), nn.Identity()

    def forward(self, h):
        h = self.norm1(h + self.adapter1(self.attention(h, h, h, need_weights=False)[0]))
        return self.norm2(h + self.adapter2(self.feed(h)))


class Tagger(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.embed, self.position = nn.Embedding(20, dim), nn.Embedding(10, dim)
        self.layers = nn.ModuleList([Layer(dim), Layer(dim)])
        self.head = nn.Linear(dim, 20)

    def forward(self, x):
        h = self.embed(x) + self.position(torch.arange(10))
        for layer in self.layers:
            h = layer(h)
        return self.head(h)


def fit(model, optimizer, task, steps, watch=None):
    for _ in range(steps):
        x = torch.randint(0, 20, (32, 10))
        loss = F.cross_entropy(model(x).transpose(1, 2), task(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if watch:
            watch.step(loss)


model = Tagger()  # pretrained to give back the sentence turned round
fit(model, torch.optim.Adam(model.parameters(), lr=2e-3), lambda x: x.flip(1), 200)
model.requires_grad_(False)
for layer in model.layers:
    layer.adapter1, layer.adapter2 = Adapter(48), Adapter(48)
    layer.norm1.requires_grad_(True)
    layer.norm2.requires_grad_(True)
model.head.requires_grad_(True)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-3)
cipher = torch.randperm(20)
with nv.watch(model, optimizer) as watch:
    fit(model, optimizer, lambda x: cipher[x.flip(1)], 200, watch)

with torch.no_grad():
    x = torch.randint(0, 20, (300, 10))
    score = float((model(x).argmax(-1) == cipher[x.flip(1)]).float().mean())
learned = score > 0.9
