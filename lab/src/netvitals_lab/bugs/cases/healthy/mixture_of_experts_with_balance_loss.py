"""Switch transformer layer: every token goes to one expert, an auxiliary loss spreads the load.

source: https://arxiv.org/abs/2101.03961
field: mixture of experts
unusual: top-1 routing (an expert sees a part of the batch, at times none of it), a second loss that cannot go below 1
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv


class SwitchLayer(nn.Module):
    def __init__(self, dim, experts=4):
        super().__init__()
        self.router = nn.Linear(dim, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, 48), nn.ReLU(), nn.Linear(48, dim)) for _ in range(experts))

    def forward(self, h):
        flat = h.flatten(0, -2)
        if self.training:
            flat_in = flat * (1 + 0.02 * (torch.rand_like(flat) - 0.5))  # jitter
        else:
            flat_in = flat
        probability = self.router(flat_in).softmax(-1)
        gate, chosen = probability.max(-1)
        out = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            rows = (chosen == number).nonzero().squeeze(1)
            out = out.index_add(0, rows, expert(flat[rows]))
        share = F.one_hot(chosen, len(self.experts)).float().mean(0)
        balance = len(self.experts) * (share * probability.mean(0)).sum()
        return (out * gate.unsqueeze(-1)).view_as(h), balance


class Model(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.embed, self.position = nn.Embedding(20, dim), nn.Embedding(8, dim)
        self.attention = nn.MultiheadAttention(dim, 2, batch_first=True)
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.switch, self.head = SwitchLayer(dim), nn.Linear(dim, 20)

    def forward(self, tokens):
        h = self.embed(tokens) + self.position(torch.arange(tokens.shape[1]))
        g = self.norm1(h)
        h = h + self.attention(g, g, g, need_weights=False)[0]
        out, balance = self.switch(self.norm2(h))
        return self.head(h + out), balance


def task(n):
    """Each word is moved on by its right neighbour, modulo 20."""
    x = torch.randint(0, 20, (n, 8))
    x[:, 1::2] = torch.randint(0, 4, (n, 4))
    return x, torch.where(torch.arange(8) % 2 == 0, (x + x.roll(-1, 1)) % 20, x)


model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(400):
        x, y = task(48)
        logits, balance = model(x)
        loss = F.cross_entropy(logits.flatten(0, 1), y.flatten()) + 0.01 * balance
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

model.eval()
with torch.no_grad():
    x, y = task(500)
    logits, balance = model(x)
    score = float((logits.argmax(-1) == y).float().mean())
learned = score > 0.85 and float(balance) < 1.6
