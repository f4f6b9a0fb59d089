"""Encoder-only transformer that forecasts twelve values at once, with instance normalisation of each window.

source: https://arxiv.org/abs/2211.14730
field: forecasting (transformer)
unusual: inputs and targets normalised per window and denormalised after; learned positions; several outputs per token; warm-up and cosine decay
"""
import math

import torch
from torch import nn

import netvitals as nv

t = torch.arange(1600).float()
series = torch.sin(2 * torch.pi * t / 24) * (1 + 0.3 * torch.sin(2 * torch.pi * t / 168)) + 0.001 * t + 0.1 * torch.randn(1600)
windows = series.unfold(0, 60, 1)
train, test = windows[:1200], windows[1300:]


class PatchTransformer(nn.Module):
    def __init__(self, d=32, patch=6):
        super().__init__()
        self.patch = patch
        self.embed, self.position = nn.Linear(patch, d), nn.Parameter(torch.randn(8, d) * 0.02)
        layer = nn.TransformerEncoderLayer(d, 4, 64, dropout=0.1, batch_first=True, norm_first=True, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8 * d, 12)

    def forward(self, x):
        mean, std = x.mean(1, keepdim=True), x.std(1, keepdim=True) + 1e-5
        h = self.embed(((x - mean) / std).unfold(1, self.patch, self.patch)) + self.position
        return self.head(self.encoder(h).flatten(1)) * std + mean


model = PatchTransformer()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
total = 300
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min((s + 1) / 30, 0.5 * (1 + math.cos(math.pi * s / total))))
with nv.watch(model, optimizer) as watch:
    for step in range(total):
        w = train[torch.randint(0, len(train), (64,))]
        loss = nn.functional.huber_loss(model(w[:, :48]), w[:, 48:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        watch.step(loss)

model.eval()
with torch.no_grad():
    score = 1 - float((model(test[:, :48]) - test[:, 48:]).pow(2).mean() / test[:, 48:].var())
learned = score > 0.8
